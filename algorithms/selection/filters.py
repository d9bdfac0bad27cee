"""Scores of columns from sums over the rows of each class: what a filter needs to know, whoever holds the rows.

With n_c, mu_c and SS_c the rows, the mean and the sum of squared distances from it of class c in a column, N = sum n_c:

    Welch       t = (mu_+ - mu_-) / sqrt(v_+ + v_-),  v_c = SS_c / (n_c (n_c - 1)), two-sided p from Student's t with
                (v_+ + v_-)^2 / (v_+^2 / (n_+ - 1) + v_-^2 / (n_- - 1)) degrees of freedom
    F           (N - K) sum n_c (mu_c - mu)^2 / ((K - 1) sum SS_c), of any number K of classes
    Fisher      (mu_+ - mu_-)^2 / (sigma_+^2 + sigma_-^2), sigma_c^2 = SS_c / n_c

all from one sum, of n_c, sum x and sum x^2. Mutual information is that of the class and of the column cut into bins of
equal probability under a normal distribution, from a sum of counts; mRMR (minimal redundancy, maximal relevance) puts
next the column whose F is largest in comparison with its mean correlation with those before, a sum for each.

Fisher's ratio is squared here: as the PAN-SVM dissertation prints it (equation 6.1, `printed_fisher`), a first over a
second power, it changes with the units of a column. Its scatter ratio (equation 6.3, `scatter_ratio`) orders columns as
F does where classes have equally many rows.

References
----------
B. L. Welch, Biometrika 34, 1947. Y. Benjamini and Y. Hochberg, J. R. Stat. Soc. B 57, 1995. C. Ding and H. Peng,
"Minimum redundancy feature selection from microarray gene expression data", J. Bioinform. Comput. Biol. 3, 2005.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedsvm.federation.arrays import FloatArray, IntArray

_NO_SPREAD = 1e-12
"""A sum of squared distances below this share of the sum of squares is what rounding leaves of a constant column."""

SAME = 1e-9
"""Scores that differ by less than this share of the largest are equal."""

Counted = Callable[[FloatArray], FloatArray]
"""Edges of bins (p, bins - 1) to counts (K, p, bins) of the rows of each class in each."""

Products = Callable[[int], FloatArray]
"""A column to (p,) sums over all rows of its values times every column's."""


@dataclass(frozen=True)
class ClassMoments:
    """Of K classes their rows (K,), the sums of p columns (K, p), and those of their squares (K, p)."""

    counts: FloatArray
    sums: FloatArray
    squares: FloatArray

    @classmethod
    def of(cls, rows: FloatArray, members: FloatArray) -> ClassMoments:
        """Return the moments of rows (n, p), by members (K, n) of 0 and 1."""
        return cls(members.sum(axis=1), members @ rows, members @ rows**2)

    @classmethod
    def unpack(cls, packed: FloatArray) -> ClassMoments:
        """Return moments from a sum of `packed` arrays."""
        columns = (packed.shape[1] - 1) // 2
        return cls(np.rint(packed[:, 0]), packed[:, 1 : 1 + columns], packed[:, 1 + columns :])

    def pack(self) -> FloatArray:
        """Return (K, 2p + 1) numbers that can be added."""
        return np.hstack([self.counts[:, None], self.sums, self.squares])

    def only(self, columns: IntArray) -> ClassMoments:
        """Return the moments of these columns."""
        return ClassMoments(self.counts, self.sums[:, columns], self.squares[:, columns])

    @property
    def means(self) -> FloatArray:
        """(K, p)."""
        return np.asarray(self.sums / self.counts[:, None])

    @property
    def scatter(self) -> FloatArray:
        """(K, p) SS_c, 0 of what is constant within a class."""
        found = self.squares - self.sums**2 / self.counts[:, None]
        return np.where(found > _NO_SPREAD * self.squares, found, 0.0)

    @property
    def total(self) -> ClassMoments:
        """Of all rows, as of one class."""
        return ClassMoments(*(each.sum(axis=0, keepdims=True) for each in (self.counts, self.sums, self.squares)))

    @property
    def constant(self) -> NDArray[np.bool_]:
        """(p,) which columns are so over all rows."""
        return np.asarray(self.total.scatter[0] == 0.0)


def _ratio(above: FloatArray, below: FloatArray) -> FloatArray:
    """Return above / below; infinite for a difference without spread, and 0 without either."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(above == 0, 0.0, above / below)


@dataclass(frozen=True)
class ColumnTests:
    """A statistic of each column, and how probable a larger one is by chance, each (p,)."""

    statistic: FloatArray
    p_value: FloatArray


def welch(moments: ClassMoments) -> ColumnTests:
    """Return the absolute value of Welch's t for two classes."""
    from scipy import stats  # sites share this file, and need none of it

    negative, positive = moments.counts
    difference = np.abs(moments.means[1] - moments.means[0])
    parts = moments.scatter / (moments.counts * (moments.counts - 1))[:, None]
    t = _ratio(difference, np.sqrt(parts.sum(axis=0)))
    freedom = _ratio(parts.sum(axis=0) ** 2, parts[0] ** 2 / (negative - 1) + parts[1] ** 2 / (positive - 1))
    with np.errstate(invalid="ignore"):
        p = np.where(np.isfinite(t), 2 * stats.t.sf(t, np.maximum(freedom, 1.0)), 0.0)
    return ColumnTests(t, p)


def f_statistic(moments: ClassMoments) -> ColumnTests:
    """Return F of the analysis of variance, for any number of classes."""
    from scipy import stats

    classes, rows = len(moments.counts), float(moments.counts.sum())
    overall = moments.total.means[0]
    between = (moments.counts[:, None] * (moments.means - overall) ** 2).sum(axis=0) / (classes - 1)
    within = moments.scatter.sum(axis=0) / (rows - classes)
    f = _ratio(np.where(moments.constant, 0.0, between), within)
    return ColumnTests(f, np.where(np.isfinite(f), stats.f.sf(f, classes - 1, rows - classes), 0.0))


def squared_fisher(moments: ClassMoments) -> FloatArray:
    """Return (p,) squared Fisher ratios for two classes."""
    difference = (moments.means[1] - moments.means[0]) ** 2
    return _ratio(difference, (moments.scatter / moments.counts[:, None]).sum(axis=0))


def printed_fisher(moments: ClassMoments) -> FloatArray:
    """Return (p,) |mu_+ - mu_-| / (sigma_+^2 + sigma_-^2), equation 6.1 of the PAN-SVM dissertation."""
    difference = np.abs(moments.means[1] - moments.means[0])
    return _ratio(difference, (moments.scatter / moments.counts[:, None]).sum(axis=0))


def scatter_ratio(moments: ClassMoments) -> FloatArray:
    """Return (p,) sum over classes of (mu_c - mu)^2 / sum of SS_c, equation 6.3 of the PAN-SVM dissertation."""
    between = ((moments.means - moments.total.means) ** 2).sum(axis=0)
    return _ratio(np.where(moments.constant, 0.0, between), moments.scatter.sum(axis=0))


def adjust_p_values(p_values: FloatArray) -> FloatArray:
    """Return (p,) the false discovery rate at which each column would be a discovery (Benjamini and Hochberg)."""
    order = np.argsort(p_values, kind="stable")
    raised = p_values[order] * len(p_values) / np.arange(1, len(p_values) + 1)
    found = np.empty_like(p_values)
    found[order] = np.minimum(1.0, np.minimum.accumulate(raised[::-1])[::-1])
    return found


def bin_edges(moments: ClassMoments, bins: int) -> FloatArray:
    """Return (p, bins - 1) edges of bins that are equally probable if a column is normal, with its mean and
    deviation."""
    from scipy import stats

    whole = moments.total
    deviation = np.sqrt(whole.scatter[0] / whole.counts[0])
    return np.asarray(whole.means[0][:, None] + deviation[:, None] * stats.norm.ppf(np.arange(1, bins) / bins))


def bin_counts(rows: FloatArray, members: FloatArray, edges: FloatArray) -> FloatArray:
    """Return (K, p, bins) rows of each class in each bin of each column."""
    columns, bins = edges.shape[0], edges.shape[1] + 1
    counts = np.zeros((len(members), columns, bins))
    for j in range(columns):
        place = np.searchsorted(edges[j], rows[:, j], side="right")
        for kind, member in enumerate(members):
            counts[kind, j] = np.bincount(place, weights=member, minlength=bins)
    return counts


def mutual_information(counts: FloatArray) -> FloatArray:
    """Return (p,) in nats, of the class and the bin, from counts (K, p, bins)."""
    joint = counts / counts.sum(axis=(0, 2), keepdims=True)
    apart = joint.sum(axis=0, keepdims=True) * joint.sum(axis=2, keepdims=True)
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = np.where(joint > 0, joint * np.log(joint / apart), 0.0)
    return np.asarray(terms.sum(axis=(0, 2)))


def mrmr(moments: ClassMoments, wanted: int, products: Products) -> list[int]:
    """Return the best columns, in order, by F over the mean |correlation| with those before.

    products: asked for each column but the last.
    """
    whole = moments.total
    rows, mean = float(whole.counts[0]), whole.means[0]
    deviation = np.sqrt(whole.scatter[0] / rows)
    relevance = np.where(moments.constant, -1.0, np.minimum(f_statistic(moments).statistic, np.finfo(float).max))
    order = [int(np.argmax(relevance))]
    redundancy = np.zeros(len(mean))
    while len(order) < wanted:
        last = order[-1]
        covariance = products(last) / rows - mean[last] * mean
        redundancy += np.abs(_ratio(covariance, deviation[last] * deviation))
        merit = np.where(moments.constant, -1.0, relevance / np.maximum(redundancy / len(order), 1e-12))
        merit[order] = -np.inf
        order.append(int(np.argmax(merit)))
    return order


def in_grains(scores: FloatArray) -> FloatArray:
    """Return (p,) scores as whole numbers of 1e-9 of the largest finite one, so that rounding does not affect the
    order."""
    finite = np.isfinite(scores)
    grain = SAME * float(np.abs(scores[finite]).max(initial=0.0)) or 1.0
    return np.where(finite, np.rint(np.where(finite, scores, 0.0) / grain), scores)


def best_first(scores: FloatArray, constant: NDArray[np.bool_]) -> IntArray:
    """Return (p,) columns by falling score; equal ones, to 1e-9 of the largest, in their order, and constant ones
    last."""
    return np.lexsort((np.arange(len(scores)), -np.where(constant, -np.inf, in_grains(scores))))


def ranks_of(scores: FloatArray, order: IntArray) -> IntArray:
    """Return (p,) ranks from 1 of columns in an order: equal for equal scores, to 1e-9 of the largest."""
    ranks, grains = np.arange(1, len(order) + 1), in_grains(scores)
    for place in range(1, len(order)):
        if grains[order[place]] == grains[order[place - 1]]:
            ranks[place] = ranks[place - 1]
    return ranks


def membership_auc(inside: FloatArray, outside: FloatArray, reference: FloatArray) -> float | None:
    """Return how well the means of rows (n, p) separate them from others, given a reference: an area under a curve.

    By Homer's statistic, the sum over columns of |x - reference mean| - |x - mean of the rows|, higher of rows inside.
    None where there are too few rows to say.

    References
    ----------
    N. Homer and others, "Resolving individuals contributing trace amounts of DNA to highly complex mixtures using
    high-density SNP genotyping microarrays", PLoS Genetics 4, 2008.
    """
    if min(len(inside), len(outside), len(reference)) < 2:
        return None
    spread = np.concatenate([inside, outside, reference]).std(axis=0)
    known = spread > 0

    def statistic(rows: FloatArray) -> FloatArray:
        away = np.abs(rows - reference.mean(axis=0)) - np.abs(rows - inside.mean(axis=0))
        return np.asarray((away[:, known] / spread[known]).sum(axis=1))

    there, elsewhere = statistic(inside), statistic(outside)
    above = np.sign(there[:, None] - elsewhere[None, :])
    return float((above.mean() + 1) / 2)
