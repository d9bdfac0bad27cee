"""Listed rows that are named by the landmarks: a landmark is the exact mean of a few rows of one site."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fedsvm.algorithms.attacks.attack import Prior
from fedsvm.algorithms.attacks.epochs import epochs
from fedsvm.algorithms.attacks.row_counts import CountingAttack, ShownRows
from fedsvm.algorithms.attacks.subset_sums import SAME_SUM, SubsetsOfMean
from fedsvm.federation.arrays import FloatArray
from fedsvm.protocols.analysis.views import RunView


class LandmarkMeans(CountingAttack):
    """Subsets of candidates whose mean is a landmark. A row is claimed if it is in every such subset.

    smallest: rows of a cluster, at least.
    """

    name = "means of landmarks"

    def __init__(self, smallest: int) -> None:
        self._smallest = smallest

    def shown_rows(self, view: RunView, prior: Prior) -> Iterator[ShownRows]:
        """Yield the rows that the landmarks of each fold name."""
        if prior.candidates is None or not len(prior.candidates.rows):
            return
        rows, labels = prior.candidates
        for epoch in epochs(view):
            if epoch.inverse is None:
                continue
            search = SubsetsOfMean(epoch.scale(rows))
            named = sorted(named_rows(search, epoch.inverse.landmarks, self._smallest))
            yield ShownRows(rows[named], labels[named], SAME_SUM * epoch.scale.scale, SAME_SUM)


def named_rows(search: SubsetsOfMean, landmarks: FloatArray, smallest: int) -> set[int]:
    """Return the rows that the means of disjoint clusters name; a mean of no subset is tried again without these."""
    subsets = [search(each, smallest) for each in landmarks]
    if not (named := _in_every_subset(subsets)):
        return named
    again = [each or search(mean, smallest, named) for each, mean in zip(subsets, landmarks, strict=True)]
    return _in_every_subset(again)


def _in_every_subset(subsets: Sequence[Sequence[frozenset[int]]]) -> set[int]:
    """Return the rows that are in a cluster whichever of its possible subsets it is; clusters share no row."""
    left = [list(each) for each in subsets]
    named: set[int] = set()
    while True:
        sure = [frozenset[int]().union(*each[:1]).intersection(*each) for each in left]
        if not (new := frozenset[int]().union(*sure) - named):
            return named
        named |= new
        left = [[one for one in each if not one & (named - own)] for each, own in zip(left, sure, strict=True)]
