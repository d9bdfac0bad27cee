"""Figures of README and guides: `python -m tools.figures FOLDER` writes what `fedsvm reproduce --out FOLDER` measured.

scenarios/papers/ours.toml has the figures, and in `said` the words around each of them. The file and the pages are
written anew; what --full has more runs of is taken from a folder of --full alone.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from fedsvm.scenarios.reproduction.entries import FOLDER, Entry, Row, read
from fedsvm.scenarios.reproduction.page import DATA
from tools.arguments import parser

OURS = FOLDER / "ours.toml"

Figures = Mapping[str, float]
"""Values by the names of their columns."""


@dataclass(frozen=True)
class Quotation:
    """Words of a page, with the names of columns where figures stand."""

    page: str
    words: str

    def text(self, figures: Figures) -> str:
        """Return the words with their figures. Raises KeyError for a column without a figure."""
        return self.words.format(**figures)


def quotations(row: Row) -> list[Quotation]:
    """Return the places of a row's figures."""
    split = (said.partition(": ") for said in row.said)
    return [Quotation(page, words) for page, _, words in split]


def stated(entry: Entry, row: Row) -> dict[str, float]:
    """Return the figures of a row, as its file has them."""
    return {column.name: value for column, value in zip(entry.column, row.paper, strict=False) if value != ""}


def rewrite(measured: Path, root: Path, ours: Path = OURS) -> Iterator[str]:
    """Write what was measured into the file of figures and into the pages below `root`; say which of them changed.

    Raises OSError where `fedsvm reproduce` has left no result or a page is not there, and ValueError where a page does
    not have what the file quotes of it, and nothing is written.
    """
    found = json.loads((measured / DATA).read_text(encoding="utf-8"))
    values = {
        (entry["id"], cell["row"], cell["column"]): cell["value"]
        for entry in found["entries"]
        for cell in entry["cells"]
        if cell["value"] is not None
    }
    texts = {ours: ours.read_text(encoding="utf-8")}
    for entry, row in _rows(ours, is_full=found["mode"] == "full"):
        old = stated(entry, row)
        new = old | {name: value for name in old if (value := values.get((entry.id, row.name, name))) is not None}
        for quotation in quotations(row):
            page = root / quotation.page
            texts.setdefault(page, page.read_text(encoding="utf-8"))
            texts[page] = _replaced(page, texts[page], quotation.text(old), quotation.text(new))
        texts[ours] = _with_values(texts[ours], entry, row, new)
    for path, text in texts.items():
        if path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
            yield str(path)


def _rows(ours: Path, *, is_full: bool) -> Iterator[tuple[Entry, Row]]:
    """Yield rows whose figures are quoted on pages, of entries that were measured as these claim."""
    for entry in read(ours).entry:
        if is_full or not entry.is_smaller_in_quick:
            yield from ((entry, row) for row in entry.rows if row.said)


def _replaced(page: Path, text: str, old: str, new: str) -> str:
    if text.count(old) != 1:
        raise ValueError(f"{page} has {old!r} {text.count(old)} times; it must be there once.")
    return text.replace(old, new)


def _with_values(text: str, entry: Entry, row: Row, figures: Figures) -> str:
    """Return the text of the file of figures with the printed values of a row, formatted as they are quoted."""
    row_begin = text.index(f'name = "{row.name}"', text.index(f'id = "{entry.id}"'))
    begin = text.index("paper = [", row_begin)
    values = (
        format(figures[column.name], row.figures[column.name]) if column.name in figures else '""'
        for column in entry.column
    )
    return f"{text[:begin]}paper = [{', '.join(values)}]{text[text.index(']', begin) + 1 :]}"


if __name__ == "__main__":
    arguments = parser("tools.figures", __doc__)
    arguments.add_argument("folder", type=Path, metavar="FOLDER", help="folder that fedsvm reproduce wrote")
    for changed in rewrite(arguments.parse_args().folder, Path()):
        print(changed)
