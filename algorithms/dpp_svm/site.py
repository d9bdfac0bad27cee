"""The site half of DPP-SVM, and the order of its steps."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedsvm.algorithms.data.vertical import VerticalSite, alignment_script, column_names
from fedsvm.algorithms.features.kernel_exchange import EXCHANGED
from fedsvm.algorithms.features.kernels import Kernel, check_kernel, squared_distances
from fedsvm.algorithms.features.partial_kernel import partial_kernel
from fedsvm.federation.arrays import FloatArray, IntArray
from fedsvm.federation.site.private_file import replace_private
from fedsvm.federation.site.program import free, step
from fedsvm.federation.site.script import Script, maybe, repeat, seq
from fedsvm.federation.site.terms import Terms

FOLD = ("prepare_fold", "fold_counts", "labels_of")
"""The steps of `VerticalTask.prepare`."""


def kernel_training(terms: Terms) -> Script:
    """Return the script of `train`, exactly or with landmarks."""
    begun = seq(maybe("column_count"), "longest")
    if terms.settings["landmarks"] is None:
        return seq(begun, repeat(EXCHANGED, 1), "set_reference", "set_dual_coef")
    return seq(begun, "set_reference", repeat("reference_kernel", 1), "set_dual_coef")


def kernel_test(terms: Terms) -> Script:
    """Return the script of `decision_values`, which scores held-out records."""
    if terms.settings["kernel"] == "linear":
        return maybe("labels_of", "partial_scores")
    return maybe("labels_of", repeat(seq("reference_kernel", maybe("scores_of_opened"))))


class DppSite(VerticalSite):
    """The site half."""

    @classmethod
    def script(cls, terms: Terms) -> Script:
        """Return the script of `DppSvm.fit` and its test."""
        return alignment_script(terms, *FOLD, kernel_training(terms), kernel_test(terms))

    @step(
        told={
            "first, last": free("two whole numbers", "nothing; each block of the matrix is opened anyway"),
            "distances": free("true or false", "only the other kind of the same block"),
        }
    )
    def kernel_rows(self, first: int, last: int, distances: bool) -> FloatArray:
        """Return this site's part of rows `first` to `last` of the training records' kernel matrix, packed."""
        return partial_kernel(self.rows[self.training], first, last, distances=distances)

    @step(
        told={
            "records": free(
                "numbers of records", "the kernel between held-out records and training records of its choice"
            ),
        }
    )
    def set_reference(self, records: IntArray) -> None:
        """Store these training records as the reference that kernel values are computed against."""
        self.reference = self.rows[self.training][records]

    @step(
        told={
            "dual_coef": free("any coefficients", "scores of held-out records by coefficients of its choice"),
            "kernel": free(
                "the agreed one; any gamma if a word was agreed", "scores by another width of the same products"
            ),
        }
    )
    def set_dual_coef(self, dual_coef: FloatArray, kernel: dict[str, Any]) -> None:
        """Store the coefficients (s,) or (K, s), and compute this site's weights from them: W_p = sum alpha y x_p.

        If the setting `model_path` names a file, write the site's part of the model to it.
        """
        given = Kernel(**kernel)
        check_kernel(self, given)
        self.dual_coef, self.kernel = dual_coef, given
        self.weights = dual_coef @ self.reference
        if path := self.settings.get("model_path"):
            replace_private(path, lambda file: np.savez(file, **self._part()))

    def _part(self) -> dict[str, Any]:
        """Return the part of the model that this site keeps in its own file.

        Inner products of the parts, or squared distances, add up over the sites.

        Returns
        -------
        reference : (s, p)
            Support records, scaled, in the columns of this site.
        dual_coef : (s,) or (K, s)
            Coefficients of the support records.
        kernel, gamma, degree, coef0
            The kernel; see `Kernel.to_arrays`.
        weights : (p,) or (K, p)
            dual_coef times reference.
        offset, scale : (p,)
            Scale of this site's columns.
        columns : (p,) text
            Names of this site's columns.
        order : (n,)
            Order of this site's rows in which the records are aligned.
        training : (n,) bool
            Which of the aligned records were trained on.
        """
        values = self.partition.values
        columns = column_names(values["numeric"], values["categorical"], values["categories"])
        return {
            "reference": self.reference,
            "dual_coef": self.dual_coef,
            **self.kernel.to_arrays(),
            "weights": self.weights,
            "offset": self.scale.offset,
            "scale": self.scale.scale,
            "columns": np.array(columns, dtype=np.str_),
            "order": self.order,
            "training": self.training,
        }

    @step
    def partial_scores(self) -> FloatArray:
        """Return (n,) or (n, K): this site's part of the scores of the n held-out records, by a linear kernel."""
        return np.asarray(self.rows[~self.training] @ self.weights.T)

    @step(
        receiver="either",
        told={
            "first, last": free("two whole numbers", "nothing; each block of the matrix is opened anyway"),
            "held_out": free("true or false", "the kernel of training records, which it has anyway"),
            "distances": free("true or false", "only the other kind of the same block"),
        },
    )
    def reference_kernel(self, first: int, last: int, held_out: bool, distances: bool) -> FloatArray:
        """Return (last - first, s): this site's part of the kernel between these records and the reference records."""
        rows = self.rows[~self.training if held_out else self.training][first:last]
        return squared_distances(rows, self.reference) if distances else np.asarray(rows @ self.reference.T)

    @step(
        bound=np.inf,
        told={
            "opener": free("a site of the run", "nothing; only the opener has the sum"),
            "rows": free("a whole number", "nothing; only empty cells of the table change"),
        },
    )
    def scores_of_opened(self, opener: str, rows: int) -> FloatArray:
        """Return (rows,) or (rows, K): scores of the records whose kernel sums this site opened; zeros at others."""
        self.check_row_count(rows)
        if self.site != opener:
            return np.zeros((rows, *self.dual_coef.shape[:-1]))
        return np.asarray(self.kernel.of_sums(self.opened) @ self.dual_coef.T)
