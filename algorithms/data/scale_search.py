"""The search for the scale of numeric columns without ranges, from noisy counts over overlapping windows.

Sizes of numbers lie on half octaves. A value counts in the six windows of three octaves that cover its size, one set of
windows for each sign; zeros count apart. So a value's contribution has a length of 1, and contributions of near sizes
overlap. All values of a column within three octaves together stand out of the noise as one.

The values of a column are modeled as zeros, and as negative and positive numbers whose sizes are spread evenly over
some half octaves. By Bayes' rule, the counts and their known noise tell how likely each such model is. Most columns are
of one sign and of a size near one to a hundred, and columns of 0 and 1 are frequent: the prior says so.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from fedsvm.algorithms.privacy.noisy_sums import NoisyBlock
from fedsvm.federation.arrays import FloatArray, IntArray
from fedsvm.federation.errors import FederationError

FIRST_OCTAVE, LAST_OCTAVE = -14, 26
"""Powers of two between which sizes lie; smaller and larger ones are in the outermost half octaves."""

_FINE = 2
"""Parts of an octave."""

_REACH = 3 * _FINE
"""Parts of an octave in a window."""

_WEIGHT = 1 / math.sqrt(_REACH)
"""The weight that a value adds to each window that it is in."""

SIZES = (LAST_OCTAVE - FIRST_OCTAVE) * _FINE
_WINDOWS = SIZES + _REACH - 1

ENTRIES = 2 + 2 * _WINDOWS
"""Counts of a column: gaps, zeros, then windows of positive and of negative numbers."""

_ROWS_SHARE = 0.15
"""Squared weight of a row's own count, in those of all columns together."""

_WIDTHS = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 28)
"""Parts of octaves over which the sizes of a model are spread."""

_PARTS = np.array(
    [(zero / 8, plus / 8, 1 - zero / 8 - plus / 8) for zero in range(9) for plus in range(9 - zero)]
    + [(0.95, 0.05, 0.0), (0.95, 0.0, 0.05)]
)
"""Shares of zeros, of positive and of negative numbers in a model."""

_BOTH_SIGNS = 0.05
"""Prior probability of a column with both signs."""

_USUAL, _USUAL_WITH_ZEROS = (3.0, 6.0), (2.0, 4.0)
"""Mean and standard deviation of the prior of the largest size, in octaves."""

_ZERO_OR_ONE = 5.0
"""Logarithm of the factor by which the prior favors columns of 0 and 1."""

_MISFIT = 0.04
"""Largest distance of models from the shape of the values, as a share of rows."""

_UPPER, _LOWER = 0.8, 0.1
"""Posterior quantiles of the largest and of the smallest size, which are the ends of the window."""

_DOUBT = 0.1
"""Posterior probability left out on each side where the spread of the largest size is judged."""

_SURE_OCTAVES = 3.0
"""The largest spread of the largest size, in octaves, at which a scale counts as found."""

_SIGN = 0.2
"""The least posterior probability of a sign that counts."""

_ZEROS = 0.02
"""The least posterior probability of zeros that count."""

_SEEN = 2.0
"""Deviations of noise above which zeros are seen."""

_ROWS_SEEN = 4.0
"""Deviations of noise above which the number of rows is no noise."""

_FULL = 5.5
"""Deviations of noise above which a single count is no noise."""

_LEAST_SHARE = 0.002
"""The least share of rows for whose sake a window is extended."""


def scale_block(columns: int, mu: float) -> NoisyBlock:
    """Return the block of the search: a count of rows, and the counts of columns."""
    length = math.hypot(_row_weight(columns), math.sqrt(columns))
    return NoisyBlock("scale", 1 + columns * ENTRIES, length, mu)


def scale_weights(columns: int) -> FloatArray:
    """Return what a row adds to each count that it counts in."""
    column = np.concatenate([[1.0, 1.0], np.full(2 * _WINDOWS, _WEIGHT)])
    return np.concatenate([[_row_weight(columns)], np.tile(column, columns)])


def scale_counts(columns: FloatArray) -> IntArray:
    """Return the counts of rows (n, c): their number, and for each column the values in each window."""
    return np.concatenate([[len(columns)], *(_column_counts(values) for values in columns.T)]).astype(np.int64)


def _row_weight(columns: int) -> float:
    return math.sqrt(max(1.0, _ROWS_SHARE * columns))


def _column_counts(values: FloatArray) -> IntArray:
    known = values[~np.isnan(values)]
    part = size_parts(known)
    signs = (np.bincount(part[known > 0], minlength=SIZES), np.bincount(part[known < 0], minlength=SIZES))
    windows = [np.convolve(counts, np.ones(_REACH, dtype=np.int64)) for counts in signs]
    return np.concatenate([[len(values) - len(known), np.count_nonzero(known == 0)], *windows])


def size_parts(numbers: FloatArray) -> IntArray:
    """Return the half octave of the size of each number, from 0 on; of 0 it has no meaning."""
    size = np.where(numbers == 0, 1.0, np.abs(numbers))
    part = np.ceil(np.log2(size) * _FINE) - FIRST_OCTAVE * _FINE - 1
    return np.asarray(np.clip(part, 0, SIZES - 1).astype(np.int64))


# What counts say.


@dataclass(frozen=True)
class ScaleEvidence:
    """Noisy counts of some columns.

    Attributes
    ----------
    rows : float
        Noisy number of rows, 1 or more.
    known : (c,) FloatArray
        Numbers of known values, 1 or more: of rows, where noise hides the gaps.
    zeros : (c,) FloatArray
        Noisy numbers of zeros.
    near : (c, 2, SIZES) FloatArray
        Noisy weights of positive and negative numbers near each size.
    windows : (c, 2, _WINDOWS) FloatArray
        Noisy weights of the windows of positive and negative numbers.
    sigma : float
        Standard deviation of the noise in each number but `rows` and `known`.
    has_rows : bool
        True if the number of rows exceeds its noise. A number that is noise alone would explain noise in windows.
    """

    rows: float
    known: FloatArray
    zeros: FloatArray
    near: FloatArray
    windows: FloatArray
    sigma: float
    has_rows: bool

    @classmethod
    def of(cls, counts: FloatArray, sigma: float, columns: int) -> ScaleEvidence:
        """Return the evidence of noisy, weighted counts (1 + c ENTRIES,), by `scale_weights`."""
        table = counts[1:].reshape(columns, ENTRIES)
        windows = table[:, 2:].reshape(columns, 2, _WINDOWS)
        summed = np.cumsum(np.pad(windows, ((0, 0), (0, 0), (1, 0))), axis=2)
        near = (summed[..., _REACH:] - summed[..., :-_REACH]) * _WEIGHT
        rows = max(1.0, float(counts[0]) / _row_weight(columns))
        known = np.where(table[:, 0] > _FULL * sigma, np.maximum(rows - table[:, 0], 1.0), rows)
        has_rows = float(counts[0]) > _ROWS_SEEN * sigma
        return cls(rows, known, table[:, 1], near, windows, sigma, has_rows)

    def log_likelihood(self, column: int) -> FloatArray:
        """Return (parts, widths, SIZES): of each model of a column, up to a constant."""
        energy, fits = _energies(), _box_means(self.near[column])
        plus, minus = _PARTS[:, 1, None, None], _PARTS[:, 2, None, None]
        matched = _PARTS[:, 0, None, None] * self.zeros[column] + plus * fits[0] + minus * fits[1]
        squared = _PARTS[:, 0, None] ** 2 + (plus[..., 0] ** 2 + minus[..., 0] ** 2) * energy
        known = self.known[column]
        variance = self.sigma**2 + (_MISFIT * known) ** 2
        return np.asarray((known * matched - known**2 / 2 * squared[..., None]) / variance)


@dataclass(frozen=True)
class FoundWindow:
    """The window of a column, and whether counts tell it.

    Attributes
    ----------
    low, high : float
    sure : bool
    """

    low: float
    high: float
    sure: bool


def find_window(column: int, evidence: ScaleEvidence, more: ScaleEvidence | None = None, again: int = 0) -> FoundWindow:
    """Return the window of a column by the counts of one round, or of two.

    Parameters
    ----------
    column : int
        Its place in the first evidence.
    evidence : ScaleEvidence
    more : ScaleEvidence, optional
        Of a second round.
    again : int
        The column's place in it.
    """
    if not (evidence.has_rows or (more is not None and more.has_rows)):
        return FoundWindow(0.0, 1.0, sure=False)
    logarithms = _log_prior() + evidence.log_likelihood(column)
    if more is not None:
        logarithms = logarithms + more.log_likelihood(again)
    posterior = np.exp(logarithms - logarithms.max())
    posterior /= posterior.sum()
    sized = posterior[_PARTS[:, 0] < 1]
    tops = _cumulate(sized.sum(axis=(0, 1)))
    bottoms = np.zeros(SIZES)
    for place, width in enumerate(_WIDTHS):
        bottoms[: SIZES - width + 1] += sized[:, place].sum(axis=0)[width - 1 :]
    spread = (np.searchsorted(tops, 1 - _DOUBT) - np.searchsorted(tops, _DOUBT)) / _FINE
    if spread > _SURE_OCTAVES:
        is_zero = float((posterior.sum(axis=(1, 2)) * _PARTS[:, 0]).sum()) > 1 - 2 * _SIGN
        return FoundWindow(0.0, 1.0, is_zero)
    top, bottom = int(np.searchsorted(tops, _UPPER)), int(np.searchsorted(_cumulate(bottoms), _LOWER))
    signs = [float(posterior[_PARTS[:, 1 + sign] > 0].sum()) > _SIGN for sign in (0, 1)]
    best = more if more is not None and more.sigma < evidence.sigma else evidence
    at = again if best is more else column
    signs = [known or bool(len(_full(best, best.windows[at, sign], best.sigma))) for sign, known in enumerate(signs)]
    zeros = 1.0 if best.zeros[at] > _FULL * best.sigma else float(posterior[_PARTS[:, 0] > 0].sum())
    bottom, top = _extend(best, at, bottom, top)
    are_seen = bool(best.zeros[at] > _SEEN * best.sigma)
    return FoundWindow(*_ends(bottom, top, signs, zeros, are_seen=are_seen), True)


def _full(evidence: ScaleEvidence, windows: FloatArray, sigma: float) -> IntArray:
    """Return the numbers of windows that hold more than noise and strays."""
    return np.flatnonzero(windows > max(_FULL * sigma, _LEAST_SHARE * evidence.rows * _WEIGHT))


def _extend(evidence: ScaleEvidence, column: int, bottom: int, top: int) -> tuple[int, int]:
    """Return the ends of a column's sizes, moved outward to all that clearly is no noise."""
    full = _full(evidence, evidence.windows[column].sum(axis=0), evidence.sigma * math.sqrt(2))
    if not len(full):
        return bottom, top
    return min(bottom, int(full[0])), max(top, int(full[-1]) - _REACH + 1)


def _ends(bottom: int, top: int, signs: Sequence[bool], zeros: float, *, are_seen: bool) -> tuple[float, float]:
    """Return the lowest and highest value, where there are zeros with this probability.

    Numbers within an octave get room for neighbors, such as 2 next to 1, unless zeros are seen, which are then their
    neighbors. The prior favors 0 and 1, and a column of 1 and 2 would be constant between these.
    """
    low, high = (2.0 ** (FIRST_OCTAVE + part / _FINE) for part in (bottom, top + 1))
    if high <= 2 * low and not are_seen:
        low, high = low / math.sqrt(2), high * math.sqrt(2)
    low = 0.0 if zeros > _ZEROS or bottom == 0 else low
    if all(signs):
        return -high, high
    return (-high, -low) if signs[1] else (low, high)


def found_ends(windows: Sequence[FoundWindow], rows: float, names: Sequence[str]) -> FloatArray:
    """Return (2, c): the ends of windows. Raises FederationError where noise hides some of these columns' scale."""
    if hidden := [repr(name) for name, window in zip(names, windows, strict=True) if not window.sure]:
        raise FederationError(
            f"The noisy counts of about {rows:.0f} rows do not show the scale of {', '.join(hidden)}: data.ranges must "
            "have the lowest and the highest value of each, such as age = [0, 120]; or set data.statistics_privacy = 0 "
            "for exact statistics, which can name rows."
        )
    return np.array([(window.low, window.high) for window in windows], dtype=np.float64).reshape(-1, 2).T


# Models.


def _cumulate(weights: FloatArray) -> FloatArray:
    return np.asarray(np.cumsum(weights / max(float(weights.sum()), np.finfo(float).tiny)))


def _box_means(near: FloatArray) -> FloatArray:
    """Return (2, widths, SIZES): means of so many sizes that end at each, 0 where they would begin before the first."""
    summed = np.cumsum(np.pad(near, ((0, 0), (1, 0))), axis=1)
    means = np.zeros((2, len(_WIDTHS), SIZES))
    for place, width in enumerate(_WIDTHS):
        means[:, place, width - 1 :] = (summed[:, width:] - summed[:, :-width]) / width
    return means


@cache
def _energies() -> FloatArray:
    """Return (widths,): squared length of the mean contribution of sizes that are spread over so many parts."""
    return np.array(
        [
            np.maximum(0, 1 - np.abs(np.subtract.outer(np.arange(width), np.arange(width))) / _REACH).mean()
            for width in _WIDTHS
        ]
    )


@cache
def _log_prior() -> FloatArray:
    """Return (parts, widths, SIZES): the logarithm of the prior, minus infinity where sizes would begin too early."""
    both = (_PARTS[:, 1] > 0) & (_PARTS[:, 2] > 0)
    parts = np.log(np.where(both, _BOTH_SIGNS / both.sum(), (1 - _BOTH_SIGNS) / (~both).sum()))
    octaves = FIRST_OCTAVE + np.arange(1, SIZES + 1) / _FINE
    usual, with_zeros = (-0.5 * ((octaves - mean) / spread) ** 2 for mean, spread in (_USUAL, _USUAL_WITH_ZEROS))
    sizes = np.where(_PARTS[:, :1] > 0, with_zeros, usual)
    prior = parts[:, None, None] + np.zeros((len(_PARTS), len(_WIDTHS), 1)) + sizes[:, None, :]
    one = int(size_parts(np.ones(1))[0])
    prior[_PARTS[:, 0] > 0, 0, one] += _ZERO_OR_ONE
    for place, width in enumerate(_WIDTHS):
        prior[:, place, : width - 1] = -np.inf
    return np.asarray(prior)
