"""The form of a text file: separator, decimal mark and encoding, declared or detected.

A file is decoded as UTF-8 where that goes, by its byte order mark where it has one, and else as cp1252, what older
spreadsheets of western Europe write; of the latter two, control letters give away what is no text. The separator is the
mark that its line of names has most of. Where that is no comma, and values in the first lines are like 1,5 or like
1.234.567 and none like 1.5, the decimal mark is a comma. With a decimal comma, points before groups of three digits
stand between thousands. Where nothing tells, and the only points of a column are before three digits, they are taken
for decimal ones, and that is a doubt to be told. The minus sign U+2212 and digits of other scripts are read as theirs
in ASCII.
"""

from __future__ import annotations

import codecs
import csv
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

SEPARATORS: dict[str, str] = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}
WESTERN = "cp1252"
_UTF_8 = "utf-8"
_MARKS = {codecs.BOM_UTF8: "utf-8-sig", codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}
THOUSANDS = r"[+-]?[1-9]\d{0,2}(\.\d{3})+"
"""A whole number with points between its thousands, where a comma is the decimal mark."""

_MINUS = "\N{MINUS SIGN}"
_SEPARATOR_LINE = re.compile(r"\ufeff?\"?sep=([,;\t|])\"?")
_WITH_COMMA, _WITH_POINT = re.compile(rf"\s*([+-]?\d+|{THOUSANDS}),\d+\s*"), re.compile(r"\s*[+-]?\d+\.\d+\s*")
_WITH_POINTS, _MAYBE_THOUSANDS = re.compile(r"\s*[+-]?[1-9]\d{0,2}(\.\d{3}){2,}\s*"), re.compile(rf"\s*{THOUSANDS}\s*")


@dataclass(frozen=True)
class TextForm:
    """The declared parts of a file's form; None for those to detect.

    thousands: whether a column was read with points between thousands. preamble: lines before the names, such as
    "sep=;" of spreadsheets. doubt: what may be meant otherwise, in a
    sentence; "" where nothing may.
    """

    separator: str | None = None
    decimal: str | None = None
    encoding: str | None = None
    thousands: bool = False
    doubt: str = ""
    preamble: int = 0

    def encode(self, beginning: bytes, *, is_utf_8: Callable[[], bool]) -> TextForm:
        """Return the form with an encoding, from the first bytes of the file, and whether all of it decodes as
        UTF-8."""
        if self.encoding is not None:
            return self
        marked = next((name for mark, name in _MARKS.items() if beginning.startswith(mark)), None)
        return replace(self, encoding=marked or (_UTF_8 if is_utf_8() else WESTERN))

    def complete(self, lines: Iterable[str]) -> TextForm:
        """Return the form with a separator and a decimal mark, from the first lines of the file."""
        header, *numbers = lines
        if (declared := _SEPARATOR_LINE.fullmatch(header)) and numbers:
            return replace(self, separator=self.separator or declared[1], preamble=1).complete(numbers)
        rest = map(in_ascii, numbers)
        separator = self.separator or max(SEPARATORS, key=re.sub(r'"[^"]*"', "", header).count)
        if self.decimal is not None or separator == ",":
            return replace(self, separator=separator, decimal=self.decimal or ".")
        names, *rows = csv.reader([header, *rest], delimiter=separator)
        if _has_decimal_commas(rows):
            return replace(self, separator=separator, decimal=",")
        return replace(self, separator=separator, decimal=".", doubt=next(_doubts(names, rows), ""))

    @property
    def is_plain(self) -> bool:
        """True if the form is the usual one."""
        return (self.separator, self.decimal) == (",", ".") and self.encoding in (_UTF_8, "utf-8-sig")

    def __str__(self) -> str:
        mark = "comma" if self.decimal == "," else "point"
        between = f"{SEPARATORS[self.separator or ',']} between columns"
        if self.thousands:
            return f"{self.encoding} text with {between}, points between thousands and a decimal {mark}"
        return f"{self.encoding} text with {between} and a decimal {mark}"


def in_ascii(text: str) -> str:
    """Return the text with hyphens in place of minus signs (U+2212), and 0 to 9 in place of other decimal digits."""
    if text.isascii():
        return text
    return "".join(
        "-" if mark == _MINUS else str(unicodedata.decimal(mark)) if mark.isdecimal() else mark for mark in text
    )


def notes(forms: Mapping[str, TextForm]) -> Iterator[str]:
    """Yield how files were read, by name, if their form is unusual, and possible misreadings."""
    for name, form in forms.items():
        if not form.is_plain:
            yield f"{name} was read as {form}."
        if form.doubt:
            yield f"{name}: {form.doubt}"


def _has_decimal_commas(rows: Iterable[list[str]]) -> bool:
    values = [value for row in rows for value in row]
    if any(_WITH_POINT.fullmatch(value) and not _MAYBE_THOUSANDS.fullmatch(value) for value in values):
        return False
    return any(_WITH_COMMA.fullmatch(value) or _WITH_POINTS.fullmatch(value) for value in values)


def _doubts(names: list[str], rows: list[list[str]]) -> Iterator[str]:
    """Yield a sentence for each column that may be whole numbers with points between thousands."""
    for place, name in enumerate(names):
        values = [(number, row[place].strip()) for number, row in enumerate(rows, start=1) if place < len(row)]
        with_point = [(number, value) for number, value in values if _WITH_POINT.fullmatch(value)]
        if with_point and all(_MAYBE_THOUSANDS.fullmatch(value) for _, value in with_point):
            number, value = with_point[0]
            yield (
                f"{value!r} in row {number}, column {name!r}, is read as {float(value):g}; if it is "
                f'{value.replace(".", "")}, set data.decimal = "," ("." ends this note).'
            )
