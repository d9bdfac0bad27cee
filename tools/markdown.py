"""Markdown that generated pages share."""

from __future__ import annotations

from collections.abc import Sequence


def flat(text: str) -> str:
    """Return the text on one line, as a cell of a table must be."""
    return " ".join(text.split())


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table as Markdown, without the columns that are empty in every row."""
    shown = [place for place in range(len(head)) if any(row[place] for row in rows)]
    lines = [head, tuple("---" for _ in head), *rows]
    return "\n".join("| " + " | ".join(line[place].replace("|", "\\|") for place in shown) + " |" for line in lines)
