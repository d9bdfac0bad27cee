"""The axes of a chart: their quantities, and their scales on the picture."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

Number = Callable[[float], str]


@dataclass(frozen=True)
class ChartAxis:
    """The quantity along an axis, and the format of its numbers."""

    label: str
    is_log: bool = False
    from_zero: bool = False
    number: Number = field(default=lambda value: f"{value:.6g}")


@dataclass(frozen=True)
class PictureScale:
    """From a range of numbers to a range of units of the picture."""

    low: float
    high: float
    start: float
    end: float
    is_log: bool

    @classmethod
    def over(cls, values: Sequence[float], axis: ChartAxis) -> PictureScale:
        """Return a range that contains all values, and ends at ticks if that costs little room."""
        known = [value for value in values if not axis.is_log or value > 0] or [1.0]
        low, high = min(known), max(known)
        if axis.is_log:
            low, high = low / 1.3, high * 1.3
            if math.log10(high / low) < 1:
                low, high = 10 ** math.floor(math.log10(low)), 10 ** math.ceil(math.log10(high))
            return cls(low, high, 0, 1, True)
        low = min(0.0, low) if axis.from_zero else low
        if high <= low:
            low, high = low - abs(low or 1) * 0.05, high + abs(high or 1) * 0.05
        margin = 0.05 * (high - low)
        return cls(low if axis.from_zero and low == 0 else low - margin, high + margin, 0, 1, False)

    def between(self, start: float, end: float) -> PictureScale:
        """Return the scale to other units."""
        return PictureScale(self.low, self.high, start, end, self.is_log)

    def __call__(self, value: float) -> float:
        low, high = (math.log(self.low), math.log(self.high)) if self.is_log else (self.low, self.high)
        at = math.log(max(value, 1e-300)) if self.is_log else value
        return self.start + (self.end - self.start) * (at - low) / (high - low)

    def ticks(self) -> list[float]:
        """Return round numbers within the range, five or so."""
        if self.is_log:
            first, last = math.ceil(math.log10(self.low) - 1e-9), math.floor(math.log10(self.high) + 1e-9)
            every = max(1, math.ceil((last - first + 1) / 7))
            return [10.0**power for power in range(first, last + 1, every)]
        rough = (self.high - self.low) / 5
        unit = 10 ** math.floor(math.log10(rough))
        step = next(unit * factor for factor in (1, 2, 2.5, 5, 10) if unit * factor >= rough * 0.999)
        first = math.ceil(self.low / step - 1e-9)
        return [number * step for number in range(first, math.floor(self.high / step + 1e-9) + 1)]


_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def format_tick(axis: ChartAxis, value: float) -> str:
    """Return the label of a tick."""
    if axis.is_log and not 0.01 <= value <= 10_000:
        return f"10{str(round(math.log10(value))).translate(_SUPERSCRIPTS)}"
    return axis.number(value)


def whole(value: float) -> str:
    """Return a count as text, empty for a fraction."""
    return f"{value:.0f}" if abs(value - round(value)) < 1e-6 else ""
