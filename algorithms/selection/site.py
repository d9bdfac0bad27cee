"""The site half of all methods that choose columns: the parts that choose, and those of PAN-SVM."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedsvm.algorithms.pan_svm import PanSite
from fedsvm.algorithms.selection.kernel_scores import DualScores
from fedsvm.algorithms.selection.subset_path import SubsetPath
from fedsvm.algorithms.selection.subsets import ClassSums, ColumnSubsets
from fedsvm.algorithms.selection.support_sums import SupportSets
from fedsvm.federation.site.partition import Partition
from fedsvm.federation.site.program import SitePart
from fedsvm.federation.site.terms import Terms

SVM_STEPS = frozenset({"subset_newton", "subset_weights", "subset_cuts", "subset_line", "held_out_rows"})
"""Those of SVMs on columns, by either solver."""


def has_curve(terms: Terms) -> bool:
    """Return whether the size that the terms agree on is read off a curve of accuracy."""
    return terms.settings.get("size") in ("best", "one-se")


class SelectionSite(PanSite):
    """The site half."""

    def __init__(self, site: str, partition: Partition, settings: Mapping[str, Any]) -> None:
        super().__init__(site, partition, settings)
        self.class_sums = ClassSums(self)
        self.subsets = ColumnSubsets(self)
        self.subset_path = SubsetPath(self, self.subsets)
        self.support_sets = SupportSets(self)
        self.dual_scores = DualScores(self, self.mapped, self.path)

    @classmethod
    def agreed_parts(cls, terms: Terms) -> tuple[type[SitePart], ...]:
        """Return the parts that choose columns, of which each offers what the terms imply, and those of PAN-SVM."""
        return (*super().agreed_parts(terms), ClassSums, ColumnSubsets, SubsetPath, SupportSets, DualScores)

    @classmethod
    def offered_steps(cls, terms: Terms) -> frozenset[str]:
        """Return the steps of the agreed solver and statistic, with counts of held-out rows where a curve is measured.

        A method that counts them for another reason adds `held_out_rows`.
        """
        by_path = terms.settings.get("select_solver") == "interior-point"
        unused = {"subset_cuts", "subset_line"} if by_path else {"subset_newton", "subset_weights"}
        unused |= set() if has_curve(terms) else {"held_out_rows"}
        return super().offered_steps(terms) - unused
