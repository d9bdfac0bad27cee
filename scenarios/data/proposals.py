"""Corrections that files seem to need: codes for missing values, and spellings of one value in several ways."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedsvm.federation.arrays import FloatArray
from fedsvm.federation.text import quote_names
from fedsvm.scenarios.data.notation import GAP_MARKS, is_number, plain_number
from fedsvm.scenarios.data.sources import as_text, gaps

Parts = Mapping[str, NDArray[Any]]
"""One column, by the site whose rows they are; a single part without sites."""

_HIGH_CODES = (99999.0, 9999.0, 999.0, 99.0)
_LOW_CODES = (-9999.0, -999.0, -99.0, -9.0, -1.0)
_MIN_DISTINCT, _MIN_POSITIVE = 4, 10
"""Minimum of different numbers in a column besides a code for a missing value, and besides zeros that may be one."""

_MAX_SPELLINGS = 30
"""Of more different texts none are compared."""

_YES = frozenset({"yes", "y", "true", "t", "ja", "j", "oui", "si", "1"})
_NO = frozenset({"no", "n", "false", "f", "nein", "non", "0"})
_MISSING_WORDS = frozenset(
    {"unknown", "missing", "none", "not known", "not recorded", "not done", "not available", "unbekannt", "fehlt"}
    | {"keine angabe", "k.a.", "inconnu", "desconocido", "n.a", "nd", "n.d.", "nk", "n/k", "na", "null", "nil"}
)
_ROMAN = re.compile("[IVXLC]+")
_MIN_WORD, _MIN_COMPARED = 3, 5
_MAX_NOTED = 6
_MIN_MEASURED = 10
"""Numbers that a site has of a column whose size is compared, at least."""

_MOST = (0.05, 0.5, 0.95)
_OTHER_SIZE = 5.0
"""The ratio of medians from which a unit may be another one."""


@dataclass(frozen=True)
class Spelling:
    """A value that seems to be another one.

    Parameters
    ----------
    old, new : str
        The value as written, and as it is written elsewhere.
    rows : int
        Rows that have it.
    why : str
        A clause that gives the reason.
    is_plain : bool
        True if nothing else is likely, so that a scenario may replace it without being asked.
    """

    old: str
    new: str
    rows: int
    why: str
    is_plain: bool


def missing_codes(parts: Parts) -> dict[str, int]:
    """Return the values of a column that look like codes for a missing one, with the number of rows of each.

    Among numbers, 99, 999 and the like if they are as far above all others as these are apart, at all sites or at each
    that has them, and -1, -9, -99 and the like if they are repeated and nothing else is below 0.

    Among texts, marks such as "-" and "n/a", and among numbers
    that are text for nothing else, words such as "unknown".
    """
    texts = Counter(value.strip() for values in parts.values() if values.dtype.kind == "U" for value in values.tolist())
    found = {mark: texts[mark] for mark in sorted(GAP_MARKS) if texts[mark]}
    words = {value: count for value, count in texts.items() if value.casefold() in _MISSING_WORDS}
    others = [value for value in texts if value and value not in words and value not in found]
    if others and all(plain_number(value, ".") is not None for value in others):
        found |= words
    known = [values[~gaps(values)] for values in parts.values() if values.dtype.kind == "f"]
    numbers = np.concatenate(known) if known else np.zeros(0)
    numbers = numbers[np.isfinite(numbers)]
    for code in (*_HIGH_CODES, *_LOW_CODES):
        others = numbers[numbers != code]
        count = len(numbers) - len(others)
        if count and _is_far(code, count, others, known):
            found[f"{code:g}"] = count
            numbers = others
    return found


def _is_far(code: float, count: int, others: FloatArray, parts: Sequence[FloatArray]) -> bool:
    """Return whether a code is far from the other numbers of a column, whose parts by site hold it too."""
    if len(np.unique(others)) < _MIN_DISTINCT:
        return False
    if code < 0:
        return count > 1 and bool(others.min() >= 0)
    having = [part[part != code] for part in parts if code in part]
    at_sites = count > 1 and _is_above(code, others, 0.5) and all(_is_above(code, part, 1.0) for part in having)
    return at_sites or _is_above(code, others, 1.0)


def _is_above(code: float, others: FloatArray, share: float) -> bool:
    """Return whether a code is above all others by a share of their range."""
    return bool(len(others) and code - others.max() >= share * (others.max() - others.min()))


def far_zeros(parts: Parts) -> tuple[int, float] | None:
    """Return the number of zeros that may stand for missing values, and the least other number; None without any.

    No number is negative, and 0 is farther from the next one than the middle half of the others is wide.
    """
    known = [values[np.isfinite(values)] for values in parts.values() if values.dtype.kind == "f"]
    numbers = np.concatenate(known) if known else np.zeros(0)
    positive = numbers[numbers > 0]
    zeros = len(numbers) - len(positive)
    if zeros < 2 or numbers.min() < 0 or len(np.unique(positive)) < _MIN_POSITIVE:
        return None
    low, high = np.quantile(positive, (0.25, 0.75))
    return (zeros, float(positive.min())) if positive.min() > high - low else None


def spellings(parts: Parts, *, is_label: bool = False) -> list[Spelling]:
    """Return the values of a column that seem to be others in another spelling, the plain ones first.

    is_label: classes that one site writes in two ways may be two classes, and are not plain, but for yes and no.
    """
    counts = {site: Counter(as_text(values).tolist()) for site, values in parts.items()}
    for each in counts.values():
        del each[""]
    total = sum(counts.values(), Counter[str]())
    if not 1 < len(total) <= _MAX_SPELLINGS or all(map(is_number, total)):
        return []
    if alike := _yes_or_no(total):
        return alike
    known = {each.old: each for each in _same_letters(total)}
    known |= {each.old: each for each in _initials(_propose_replacements(total, known))}
    found = [replace(each, new=known[each.new].new if each.new in known else each.new) for each in known.values()]
    if is_label:
        found = [
            replace(each, is_plain=not any(each.old in own and each.new in own for own in counts.values()))
            for each in found
        ]
    left = {site: _propose_replacements(each, known) for site, each in counts.items()}
    return sorted([*found, *_doubtful(left)], key=lambda each: not each.is_plain)


def _propose_replacements(counts: Counter[str], plain: Mapping[str, Spelling]) -> Counter[str]:
    found: Counter[str] = Counter()
    for value, count in counts.items():
        best = value
        while best in plain:
            best = plain[best].new
        found[best] += count
    return found


def _fold(value: str) -> str:
    return re.sub(r"[\s_-]+", " ", value.strip().casefold())


def _yes_or_no(total: Counter[str]) -> list[Spelling]:
    """Return how to spell a column of nothing but yes and no; the longest words win."""
    folded = {value: _fold(value) for value in total}
    groups = [[value for value in total if folded[value] in words] for words in (_YES, _NO)]
    if sum(map(len, groups)) < len(total) or not all(groups) or len(total) == 2:
        return []
    best = [max(values, key=lambda value: (len(value.strip()), total[value], value)) for values in groups]
    return [
        Spelling(value, word, total[value], f"another way to write {word!r}", True)
        for values, word in zip(groups, best, strict=True)
        for value in values
        if value != word
    ]


def site_spellings(values: NDArray[Any]) -> list[Spelling]:
    """Return names of sites (n,) that differ in capitals or blanks alone, so that one site would become several."""
    return list(_same_letters(Counter(as_text(values[~gaps(values)]).tolist())))


def _same_letters(total: Counter[str]) -> Iterator[Spelling]:
    groups: dict[str, list[str]] = {}
    for value in total:
        groups.setdefault(_fold(value), []).append(value)
    for values in groups.values():
        yield from _to_best(total, values, "differs in capitals or blanks alone")


def _to_best(total: Counter[str], values: Sequence[str], why: str) -> Iterator[Spelling]:
    best = min(values, key=lambda value: (value != value.strip(), value.strip().isdigit(), -total[value], value))
    yield from (Spelling(value, best, total[value], why, True) for value in values if value != best)


def _initials(total: Counter[str]) -> Iterator[Spelling]:
    """Yield values of one letter that begin exactly one of the words, such as M and Male."""
    words = [each for each in total if len(each) >= _MIN_WORD and each.isalpha() and not _ROMAN.fullmatch(each)]
    for letter in [value for value in total if len(value) == 1 and value.isalpha()]:
        begun = [word for word in words if word[0].casefold() == letter.casefold()]
        alike = [value for value in total if value.casefold() == letter.casefold()]
        if len(begun) == 1 and len(alike) == 1:
            yield from _to_best(total, [letter, begun[0]], "first letter")


def _doubtful(counts: Mapping[str, Counter[str]]) -> Iterator[Spelling]:
    """Yield values that differ in one letter, and one that a site has in place of one that all others have."""
    total = sum(counts.values(), Counter[str]())
    seen = set()
    ordered = sorted(total, key=lambda value: -total[value])
    for place, value in enumerate(ordered):
        if close := [other for other in ordered[:place] if _one_letter_apart(value, other)]:
            seen.add(value)
            yield Spelling(value, close[0], total[value], "differs in one letter", False)
    for site, own in counts.items():
        others = [each for other, each in counts.items() if other != site]
        alone = [value for value in own if not any(value in each for each in others) and value not in seen]
        lacked = [value for value in total if value not in own and all(value in each for each in others)]
        if len(alone) == 1 and len(lacked) == 1 and not any(map(is_number, (*alone, *lacked))):
            yield Spelling(
                alone[0], lacked[0], total[alone[0]], f"only {site} has it, which lacks {lacked[0]!r}", False
            )


def _one_letter_apart(one: str, other: str) -> bool:
    """Return whether one letter was added, removed, changed or swapped with the next.

    Digits tell values apart, and so does an "a" that negates the rest, as in "atypical".
    """
    short, long = sorted((_fold(one), _fold(other)), key=len)
    if len(short) < _MIN_COMPARED or len(long) - len(short) > 1 or re.sub(r"\D", "", one) != re.sub(r"\D", "", other):
        return False
    start = next((place for place, (a, b) in enumerate(zip(short, long, strict=False)) if a != b), len(short))
    rest, longer = short[start:], long[start:]
    if len(short) < len(long):
        return rest == longer[1:] and long != f"a{short}"
    return rest[1:] == longer[1:] or (rest[:2] == longer[:2][::-1] and rest[2:] == longer[2:])


def notes(column: str, parts: Parts, *, is_label: bool = False) -> Iterator[str]:
    """Yield sentences about a column with codes for missing values, or with a value in several spellings."""
    yield from notes_of(column, missing_codes(parts), spellings(parts, is_label=is_label))


def notes_of(column: str, codes: Mapping[str, int], alike: Sequence[Spelling]) -> Iterator[str]:
    """Yield sentences about codes and spellings that were found in a column."""
    if codes:
        said = ", ".join(f"{code} ({count} rows)" for code, count in codes.items())
        yield f"Column {column!r} has {said}, which looks like a code for a missing value; see data.missing_values."
    if alike:
        said = ", ".join(f"{each.old!r} for {each.new!r}" for each in alike[:_MAX_NOTED])
        more = f" and {len(alike) - _MAX_NOTED} more" if len(alike) > _MAX_NOTED else ""
        yield f"Column {column!r} seems to have {said}{more}; see data.recode.{column}."


UNIT_ADVICE = "convert it by data.by_site.SITE.convert, or list the column in data.ignore"
"""The advice about a column in two units."""


def single_site_values(parts: Parts) -> list[str]:
    """Return the categories that one of several sites has and no other, of a column with few of them."""
    if len(parts) < 2 or any(values.dtype.kind != "U" for values in parts.values()):
        return []
    sites = Counter(value for values in parts.values() for value in set(values[~gaps(values)].tolist()))
    return sorted(value for value, count in sites.items() if count == 1) if len(sites) <= _MAX_SPELLINGS else []


def other_unit(parts: Parts) -> str:
    """Return a clause about a site whose numbers are of another size than those of all other sites; "" without one."""
    known = {site: values[~np.isnan(values)] for site, values in parts.items() if values.dtype.kind != "U"}
    known = {site: values for site, values in known.items() if len(values) >= _MIN_MEASURED}
    for site, values in known.items() if len(known) > 1 else ():
        low, middle, high = np.quantile(values, _MOST)
        others = np.array([np.quantile(other, _MOST) for name, other in known.items() if name != site])
        apart = high < others[:, 0].min() or low > others[:, 2].max()
        ratio = others[:, 1] / middle if middle else np.zeros(1)
        if apart and (ratio.min() >= _OTHER_SIZE or 0 < ratio.max() <= 1 / _OTHER_SIZE):
            return (
                f"most values lie between {low:.4g} and {high:.4g} at {site!r}, and between {others[:, 0].min():.4g} "
                f"and {others[:, 2].max():.4g} elsewhere; its unit may be another one"
            )
    return ""


def constant(parts: Parts) -> str:
    """Return a clause about sites at which a column has the same value in every row, or ""."""
    if clause := revealing(parts):
        return clause
    values = {site: set(as_text(each).tolist()) - {""} for site, each in parts.items()}
    found = [site for site, own in values.items() if len(own) == 1 and len(parts[site]) > 1]
    if len(parts) < 2 or not found or len(set().union(*values.values())) == 1:
        return ""
    return f"has one value in all rows of {quote_names(found)}"


def uniform(parts: Parts) -> str:
    """Return a clause about a column that has the same value in every row of every site, or ""."""
    values = np.concatenate([as_text(each) for each in parts.values()])
    same = len(values) > 1 and values[0] != "" and bool((values == values[0]).all())
    return "has one value in all rows" if same else ""


def revealing(parts: Parts) -> str:
    """Return a clause about sites at which a column has one value that no other site has, or ""."""
    values = {site: set(as_text(each).tolist()) - {""} for site, each in parts.items()}
    having = Counter(value for own in values.values() for value in own)
    found = [
        site for site, own in values.items() if len(own) == 1 and len(parts[site]) > 1 and having[next(iter(own))] == 1
    ]
    if not found or len(having) == 1:
        return ""
    return f"has one value at {quote_names(found)} that no other site has, and so reveals the site of a row"
