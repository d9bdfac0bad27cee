"""Figures as text."""

from __future__ import annotations

import time
from dataclasses import dataclass, field


def percent(share: float, decimals: int = 2) -> str:
    """Return a share in percent: 97.50 %."""
    return f"{100 * share:.{decimals}f} %"


def area(auc: float | None) -> str:
    """Return an area under a curve, or a similar measure from 0 to 1: 0.9750. None is an empty text."""
    return "" if auc is None else f"{auc:.4f}"


def format_count(count: int, noun: str) -> str:
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


def points(gain: float) -> str:
    """Return a difference of shares in percentage points, with its sign: +3.7, -1.9, 0.0."""
    return _without_zero_sign(f"{100 * gain:+.1f}")


def area_gain(gain: float) -> str:
    """Return a difference of areas with its sign: +0.022, 0.000."""
    return _without_zero_sign(f"{gain:+.3f}")


def _without_zero_sign(text: str) -> str:
    return text if float(text) else text[1:]


def duration(seconds: float) -> str:
    """Return seconds in words: 8 s, 12 min, 1 h 05 min."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60:02d} min"


@dataclass
class TimeLeft:
    """An estimate of the time that a number of similar tasks still take.

    Parameters
    ----------
    total : int
        The number of tasks.
    """

    total: int
    done: int = 0
    _began: float = field(default_factory=time.monotonic)

    def after_one(self) -> str:
        """Count a task as done, and return a clause on the time left, or "" after the last."""
        self.done += 1
        left = self.total - self.done
        each = (time.monotonic() - self._began) / self.done
        return f"; about {duration(left * each)} left" if left > 0 else ""
