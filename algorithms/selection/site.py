"""The site half of all methods that choose columns: the parts that choose, and those of PAN-SVM."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedsvm.algorithms.calibration import calibration
from fedsvm.algorithms.data.horizontal import each_model, preparation
from fedsvm.algorithms.features.mapped_rows import landmark_script, mapping
from fedsvm.algorithms.optimization.linear_svm import training
from fedsvm.algorithms.pan_svm import PanSite
from fedsvm.algorithms.selection.kernel_scores import DualScores
from fedsvm.algorithms.selection.subset_path import SubsetPath
from fedsvm.algorithms.selection.subsets import ClassSums, ColumnSubsets
from fedsvm.algorithms.selection.support_sums import SupportSets
from fedsvm.federation.site.partition import Partition
from fedsvm.federation.site.script import Script, any_order, seq, stage
from fedsvm.federation.site.terms import Terms

MOMENTS = ("class_sizes", "class_moments")
"""The steps of `class_moments`."""

CUTS = frozenset({"subset_cuts", "subset_line"})
"""The steps of cutting planes on columns."""


def has_curve(terms: Terms) -> bool:
    """Return whether the size that the terms agree on is read off a curve of accuracy."""
    return terms.settings.get("size") in ("best", "one-se")


def svms(terms: Terms) -> frozenset[str]:
    """Return the steps that train SVMs on columns and, where a curve is measured, count on rows that they leave out."""
    weighted = {"subset_duals"} if terms.settings.get("wrapper") == "pan-svm" else set[str]()
    is_blind = terms.settings["masking"] == "committee"
    rounds = {"blind_subset_newton"} if is_blind else {"agree_secret", "subset_newton"}
    by_path = frozenset(rounds | {"subset_weights"} | weighted)
    trained = by_path if terms.settings["select_solver"] == "interior-point" else CUTS
    return trained | ({"held_out_rows"} if has_curve(terms) else frozenset())


class SelectionSite(PanSite):
    """The site half."""

    part_types = (*PanSite.part_types, ClassSums, ColumnSubsets, SubsetPath, SupportSets, DualScores)

    def __init__(self, site: str, partition: Partition, settings: Mapping[str, Any]) -> None:
        super().__init__(site, partition, settings)
        self.class_sums = ClassSums(self)
        self.subsets = ColumnSubsets(self, self.mapped)
        self.subset_path = SubsetPath(self, self.subsets)
        self.support_sets = SupportSets(self, self.subsets)
        self.dual_scores = DualScores(self, self.mapped, self.path)

    @classmethod
    def script(cls, terms: Terms) -> Script:
        """Return the script of `SelectionAlgorithm.fit`: columns are chosen and kept, and then a model is trained.

        How many rounds the choice takes depends on the number of columns, which the terms do not say.
        """
        chosen = seq(cls.choosing(terms), "keep_columns")
        mapped = stage(mapping(terms))
        return each_model(terms, stage(preparation(terms)), chosen, mapped, training(terms), calibration(terms))

    @classmethod
    def choosing(cls, terms: Terms) -> Script:
        """Return the script of what comes before columns are kept: here SVMs on columns, in any order.

        Kernel SVMs come after the landmarks that all of them share.
        """
        if terms.settings.get("wrapper") != "pan-svm":
            return any_order(cls.choosing_steps(terms))
        shared = stage(landmark_script(terms), "receive_map")
        return seq(stage(*MOMENTS), shared, any_order(cls.choosing_steps(terms)))

    @classmethod
    def choosing_steps(cls, terms: Terms) -> frozenset[str]:
        """Return the steps that train and judge SVMs on columns."""
        return svms(terms) | set(MOMENTS)
