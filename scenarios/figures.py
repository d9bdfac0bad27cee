"""Figures as text."""

from __future__ import annotations


def percent(share: float, decimals: int = 2) -> str:
    """Return a share in percent: 97.50 %."""
    return f"{100 * share:.{decimals}f} %"


def area(auc: float | None) -> str:
    """Return an area under a curve, or a similar measure from 0 to 1: 0.9750. None is an empty text."""
    return "" if auc is None else f"{auc:.4f}"


def counted(count: int, noun: str) -> str:
    """Return a count with its noun: 1 round, 2 rounds."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def human_bytes(count: float) -> str:
    """Return bytes with three significant digits and a unit: 12.3 kB, 4.56 MB."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000 or unit == "GB":
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.3g} {unit}"
        count /= 1000
    raise AssertionError


def percent_range(low: float, high: float) -> str:
    """Return a range of shares in percent: 93.4 to 99.0 %."""
    return f"{100 * low:.1f} to {100 * high:.1f} %"


def plain_range(low: float, high: float) -> str:
    """Return a range of numbers: 0.934 to 0.990."""
    return f"{low:.3f} to {high:.3f}"
