"""Numbers that are read as text for a cell or for how they are written, and what stands for a missing one."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from math import isnan, nan

from fedsvm.scenarios.data.text_form import THOUSANDS, in_ascii

GAP_MARKS = frozenset({"-", "--", "\N{EN DASH}", "\N{MINUS SIGN}", ".", "n/a", "N/A", "n.a.", "k.A.", "k. A.", "#N/A"})
"""Marks that people write for a missing number, but that may have another meaning in text columns."""

POINT = frozenset({"."})
"""The decimal mark of files that say nothing of it."""

_PLAIN = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_DECIMAL, _GROUPED = r"[+-]?\d+([.,]\d+)?", r"[+-]?\d{1,3}([., _'\u2019\u00a0\u202f]\d{3})+([.,]\d+)?"
_THOUSANDS = re.compile(rf"{THOUSANDS}(,\d+)?", re.ASCII)
_COMMA_THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2}(,\d{3})+(\.\d+)?", re.ASCII)
_STORED = "number stored as text"
_NOTATIONS = {
    "mark of a missing value": re.compile("|".join(map(re.escape, sorted(GAP_MARKS)))),
    "bound": re.compile(rf"[<>≤≥]=?\s*({_DECIMAL}|{_GROUPED})", re.ASCII),
    "currency sign": re.compile(rf"[-+]?[$£€¥]\s*({_DECIMAL}|{_GROUPED})|({_DECIMAL}|{_GROUPED})\s*[$£€¥]"),
    "brackets for a negative number": re.compile(rf"\(({_DECIMAL}|{_GROUPED})\)", re.ASCII),
    "percent sign": re.compile(rf"({_DECIMAL}|{_GROUPED})\s*%", re.ASCII),
    "decimal comma or thousands mark": re.compile(r"[+-]?\d{1,3},\d{3}", re.ASCII),
    "decimal comma": re.compile(r"[+-]?\d+,\d+", re.ASCII),
    "decimal point": re.compile(r"[+-]?\d+\.\d+", re.ASCII),
    "thousands mark": re.compile(_GROUPED, re.ASCII),
}
_BESIDE_NUMBERS = ("mark of a missing value", "bound")
"""Kinds of cells that occur both in columns of numbers and in others."""

_MOSTLY = 0.9
_MAX_CELLS = 2
_TYPING_MISTAKE = ""


def is_number(value: str) -> bool:
    """Return whether a text can be read as a number."""
    try:
        float(value)
    except ValueError:
        return False
    return True


def plain_number(value: str, decimal: str) -> float | None:
    """Return the number that a text is, by this decimal mark, or None for other text and other notations.

    Where that is a comma, points between groups of three digits are none; where it is a point, commas between them.
    """
    written = in_ascii(value.strip())
    if decimal != ".":
        written = written.replace(".", "" if _THOUSANDS.fullmatch(written) else "?").replace(decimal, ".")
    elif _COMMA_THOUSANDS.fullmatch(written):
        written = written.replace(",", "")
    return float(written) if _PLAIN.fullmatch(written) else None


def numbers_with_gaps(values: Sequence[str], decimal: str) -> list[float] | None:
    """Return a column of plain numbers and marks of missing values as numbers and NaN; None for other columns."""
    numbers = {
        value: nan if value == "" or value in GAP_MARKS else plain_number(value, decimal) for value in set(values)
    }
    known = [number for number in numbers.values() if number is not None]
    if len(known) < len(numbers) or all(map(isnan, known)):
        return None
    return [known_or_gap for value in values if (known_or_gap := numbers[value]) is not None]


def odd_among_numbers(values: Collection[str], decimals: Collection[str] = POINT) -> dict[str, list[str]]:
    """Return the cells that make a column of numbers text, by kind, if there are few or they share a notation.

    values: the distinct ones. decimals: marks that files have. Typing mistakes have the empty key; no column of numbers
    has none of all.
    """
    odd: dict[str, list[str]] = {}
    plain = []
    for value in values:
        if any(plain_number(value, decimal) is not None for decimal in decimals):
            plain.append(value)
        else:
            odd.setdefault(_notation(value), []).append(value)
    known = len(values) - sum(len(odd.get(name, [])) for name in _BESIDE_NUMBERS)
    if known == 0 or len(odd.get(_TYPING_MISTAKE, [])) >= (1 - _MOSTLY) * known:
        return {}
    if not odd and (fractions := [value for value in plain if not value.strip().lstrip("+-").isdigit()]):
        return {_STORED: fractions}
    return odd


def _notation(value: str) -> str:
    return next((name for name, form in _NOTATIONS.items() if form.fullmatch(in_ascii(value.strip()))), _TYPING_MISTAKE)


def cells(odd: dict[str, list[str]], place: dict[str, str]) -> str:
    """Return some of these cells as text, the rarest kind first; place: the location of each value."""
    return "; ".join(_cells_of(name, odd[name], place) for name in sorted(odd, key=lambda name: len(odd[name])))


def _cells_of(name: str, values: list[str], place: dict[str, str]) -> str:
    shown = ", ".join(f"{value!r} in {place[value]}" for value in values[:_MAX_CELLS])
    more = f" and {len(values) - _MAX_CELLS} more" if len(values) > _MAX_CELLS else ""
    return f"{shown}{more}{f' ({name})' if name else ''}"


def ways_out(odd: dict[str, list[str]], decimals: Collection[str] = POINT) -> Iterator[str]:
    """Yield clauses on how to fix such cells."""
    if odd.keys() & {_TYPING_MISTAKE, "mark of a missing value"}:
        yield "fix these, or leave the cell empty if the value is missing, or list it in data.missing_values"
    if _STORED in odd:
        yield "store the column as numbers"
    if odd.keys() - {_TYPING_MISTAKE, "mark of a missing value", _STORED}:
        example = " or ".join(f"1234{mark}5" for mark in sorted(decimals))
        yield f"write its numbers as {example}, without signs and marks"
