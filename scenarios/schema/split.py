"""The notation of splits: words, sizes of sites, or lists of columns."""

from __future__ import annotations

import re

RANDOM = "random"
LABEL_SKEW = "label-skew"
EVEN = "even"
BY_FEATURE = "by-feature:"
BY_VALUE = "by-value:"
DIRICHLET = "dirichlet:"
QUANTITY = "quantity:"
SIZES = "sizes:"
COLUMNS = "columns:"
MIN_ALPHA, MAX_ALPHA = 1e-3, 1e6
"""Of Dirichlet's distribution: below, all shares but one are 0 to float64, and above, all are equal."""

_SIZES_FORM = re.compile(r"sizes:\s*\[\s*([1-9]\d{0,9}(?:\s*,\s*[1-9]\d{0,9})*)\s*\]")
_ONE = r"(?:\"[^\"]+\"|'[^']+'|[^\[\],\"'\s][^\[\],\"']*)"
_COLUMN = re.compile(_ONE)
_LIST = re.compile(rf"\[(\s*{_ONE}\s*(?:,\s*{_ONE}\s*)*)\]")
_COLUMNS_FORM = re.compile(rf"columns:\s*\[\s*{_LIST.pattern}\s*(?:,\s*{_LIST.pattern}\s*)*\]")


def require_split(split: str, partition: str) -> str:
    """Return a split that the partition supports. Raises ValueError, saying what is allowed."""
    if partition == "vertical":
        known = bool(columns_of(split)) if split.startswith(COLUMNS) else split == EVEN
        allowed = "even or columns:[[age, sex], [weight]]"
    else:
        known = _is_horizontal(split)
        allowed = (
            "random, label-skew, by-feature:NAME, by-value:NAME, dirichlet:ALPHA, quantity:ALPHA or sizes:[10, 20, …]"
        )
    if not known:
        raise ValueError(f"must be {allowed}, got {split!r}")
    return split


def _is_horizontal(split: str) -> bool:
    if split.startswith(SIZES):
        return bool(sizes_of(split))
    if split.startswith((DIRICHLET, QUANTITY)):
        return bool(alpha_of(split))
    named = split.startswith((BY_FEATURE, BY_VALUE)) and split not in (BY_FEATURE, BY_VALUE)
    return named or split in (RANDOM, LABEL_SKEW)


def alpha_of(split: str) -> float:
    """Return the concentration in "dirichlet:ALPHA" or "quantity:ALPHA". Raises ValueError for anything else."""
    kind, _, text = split.partition(":")
    try:
        alpha = float(text)
    except ValueError:
        alpha = 0.0
    if not MIN_ALPHA <= alpha <= MAX_ALPHA:
        raise ValueError(
            f"must be written {kind}:0.5, with a number from {MIN_ALPHA:g} to {MAX_ALPHA:g}, got {split!r}"
        )
    return alpha


def sizes_of(split: str) -> list[int]:
    """Return the sizes in "sizes:[a, b, …]". Raises ValueError for anything else."""
    match = _SIZES_FORM.fullmatch(split)
    if match is None:
        raise ValueError(f"must be written sizes:[10, 20, 30], each of them 1 or more, got {split!r}")
    return [int(size) for size in match[1].split(",")]


def columns_of(split: str) -> list[tuple[str, ...]]:
    """Return the lists in "columns:[[a, "b c"], [d]]"; a name with a comma or a bracket is in quotes.

    Raises ValueError for anything else.
    """
    if _COLUMNS_FORM.fullmatch(split) is None:
        raise ValueError(f"must be written columns:[[age, sex], [weight]], got {split!r}")
    lists = [group[1] for group in _LIST.finditer(split.removeprefix(COLUMNS).strip()[1:-1])]
    return [tuple(_unquote(name[0].strip()) for name in _COLUMN.finditer(listed)) for listed in lists]


def _unquote(name: str) -> str:
    return name[1:-1] if name[0] in "\"'" else name
