"""Text of other parties, such as names in files and messages of sites, made safe to print.

A terminal executes control characters, a line end splits a record, and half a surrogate pair cannot be encoded.
"""

from __future__ import annotations

from collections.abc import Sequence


def visible(text: str, keep: str = "") -> str:
    """Return the text with unprintable characters escaped as in Python, except the letters in `keep`."""
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() or each in keep else each.encode("unicode_escape").decode("ascii") for each in text
    )


def list_names(names: Sequence[str], most: int = 8) -> str:
    """Return the first of the names, and how many more there are: a, b and 7 more."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return f"{', '.join(names[:most])}{more}"


def quote_names(names: Sequence[str]) -> str:
    """Return the first of the names in quotation marks, and how many more there are."""
    return list_names(list(map(repr, names)))
