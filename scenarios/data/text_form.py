"""How a file of text is written: what separates its columns, its decimal mark, and its encoding; told, or found out.

A file is decoded as UTF-8 where that goes, by its byte order mark where it has one, and else as cp1252, what older
spreadsheets of western Europe write; of the latter two, control letters give away what is no text. The separator is the
mark that its line of names has most of. Where that is no comma, and values in the first lines are like 1,5 and none
like 1.5, the decimal mark is a comma.
"""

from __future__ import annotations

import codecs
import csv
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

SEPARATORS: dict[str, str] = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}
WESTERN = "cp1252"
_UTF_8 = "utf-8"
_MARKS = {codecs.BOM_UTF8: "utf-8-sig", codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}
_WITH_COMMA, _WITH_POINT = re.compile(r"\s*[+-]?\d+,\d+\s*"), re.compile(r"\s*[+-]?\d+\.\d+\s*")


@dataclass(frozen=True)
class TextForm:
    """What is told of a file's form; None of what is to be found out."""

    separator: str | None = None
    decimal: str | None = None
    encoding: str | None = None

    def encoded(self, beginning: bytes, *, is_utf_8: Callable[[], bool]) -> TextForm:
        """With an encoding, by the first bytes of the file, and whether all of it can be decoded as UTF-8."""
        if self.encoding is not None:
            return self
        marked = next((name for mark, name in _MARKS.items() if beginning.startswith(mark)), None)
        return replace(self, encoding=marked or (_UTF_8 if is_utf_8() else WESTERN))

    def completed(self, lines: Iterable[str]) -> TextForm:
        """With a separator and a decimal mark, by the first lines of the file."""
        header, *rows = lines
        separator = self.separator or max(SEPARATORS, key=_outside_quotes(header).count)
        decimal = self.decimal or ("," if separator != "," and _has_decimal_commas(rows, separator) else ".")
        return replace(self, separator=separator, decimal=decimal)

    @property
    def is_plain(self) -> bool:
        """Whether it is what everybody expects."""
        return (self.separator, self.decimal) == (",", ".") and self.encoding in (_UTF_8, "utf-8-sig")

    def __str__(self) -> str:
        mark = "comma" if self.decimal == "," else "point"
        return f"{self.encoding} text with {SEPARATORS[self.separator or ',']} between columns and a decimal {mark}"


def _outside_quotes(line: str) -> str:
    return re.sub(r'"[^"]*"', "", line)


def _has_decimal_commas(rows: Iterable[str], separator: str) -> bool:
    values = [value for row in csv.reader(rows, delimiter=separator) for value in row]
    return any(map(_WITH_COMMA.fullmatch, values)) and not any(map(_WITH_POINT.fullmatch, values))
