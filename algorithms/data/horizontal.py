"""Sites that hold different rows of the same columns: their state, their steps and the order in which these may come.

What the sites need in common is agreed by sums, never by looking at pooled rows (`HorizontalTask`), or is given by rows
that are nobody's secret (`PublicTask`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import numpy as np

from fedsvm.algorithms.data import encoding
from fedsvm.algorithms.data.classes import Scheme, one_against_one
from fedsvm.algorithms.data.column_sums import SCALE_STEPS, ColumnSums
from fedsvm.algorithms.data.columns import Filling
from fedsvm.algorithms.data.evaluation import Evaluation, Scorer
from fedsvm.algorithms.data.partition import agreed_folds, held_out, numbers_of, require_agreed, rows_and_columns
from fedsvm.algorithms.data.scaled_rows import ScaledRows
from fedsvm.algorithms.data.scaling import Scale
from fedsvm.algorithms.data.sparse_rows import Numbers
from fedsvm.algorithms.data.statistics_rounds import (
    StatisticsPlan,
    StatisticsSums,
    statistics_script,
)
from fedsvm.federation.arrays import FloatArray, IntArray, Residues
from fedsvm.federation.errors import OrderRefused, StepRefused
from fedsvm.federation.site.partition import Partition
from fedsvm.federation.site.program import CHECKED, PartTypes, SiteProgram, free, step, steps_of
from fedsvm.federation.site.script import Script, any_order, either, maybe, repeat, seq, stage
from fedsvm.federation.site.terms import Terms
from fedsvm.protocols.common_seed import common_seed


class HorizontalSite(SiteProgram):
    """The rows of one site, their columns and their scale; `partition` describes the input.

    Attributes
    ----------
    model_type : type
        The model that its algorithm trains, which this site can be asked to score rows by.
    compare_own : callable
        Trains a model on this site's own rows and counts how it and the federated one do; see `own_models.own_counts`.
    settings_type : type
        The settings of its algorithm.
    sums_by_class : bool
        True if noisy statistics are summed for each class, because the algorithm makes its model of them.
    numeric, encoded : Numbers
        All rows in their numeric columns, and in all columns that the sites have in common.
    training_rows : ScaledRows
        Those of them that are trained on, in all columns.
    columns : (p,) IntArray
        The columns of `rows`; `is_narrow` if they were chosen.
    """

    part_types: ClassVar[PartTypes] = (ColumnSums, StatisticsSums, Evaluation)
    model_type: ClassVar[type[Scorer]]
    compare_own: ClassVar[Callable[..., FloatArray]]
    settings_type: ClassVar[Any]
    sums_by_class: ClassVar[bool] = False

    def __init__(self, site: str, partition: Partition, settings: Mapping[str, Any]) -> None:
        super().__init__(site, partition, settings)
        self.numeric: Numbers = numbers_of(partition)
        self.apart = np.asarray(partition.arrays.get("apart", np.zeros(len(self.numeric))), dtype=bool)
        self.training, self.calibrating = ~self.apart, self.apart
        self.tested = np.zeros(len(self.numeric), dtype=bool)
        self.encoded = self.numeric
        self.is_scaled = False
        self.indicated: list[int] = []
        self._place_on(Scale.none(self.encoded.shape[1]))
        self._secret: Residues | None = None
        self.values: list[list[str]] = []
        self.totals, self.statistics, self.evaluation = ColumnSums(self), StatisticsSums(self), Evaluation(self)

    @classmethod
    def script(cls, terms: Terms) -> Script:
        """Return the default script: rows are prepared, then the algorithm's own steps come in any order.

        Algorithms of this package override it; see `each_model` and `preparation`.
        """
        own = steps_of(cls) - steps_of(HorizontalSite) | {"agree_secret", "row_count"}
        return each_model(terms, stage(stage(preparation(terms)), any_order(own)))

    def require_released(self, model: Any) -> None:
        """Raise OrderRefused for a model to test that is not the trained one, as far as this site can tell; here it
        cannot."""

    def data_summary(self) -> tuple[int, list[str]]:
        """Return the number of rows, and the columns of the source."""
        return rows_and_columns(self.partition)

    @property
    def labels(self) -> FloatArray:
        """(K, n) labels of the training rows, each class against the others; of two classes (1, n)."""
        return np.asarray(self.partition.arrays["labels"][:, self.training])

    def labels_by(self, scheme: Scheme) -> FloatArray:
        """Return (P, n): the labels of the training rows in each problem, 0 of a row that is not part of it.

        Raises OrderRefused for problems that the agreed `multiclass` does not imply: two classes are one problem.
        """
        agreed = self.terms.settings.get("multiclass", "ovr") if len(self.labels) > 1 else "ovr"
        if self.terms.settings and scheme != agreed:
            raise OrderRefused(f"scheme must be {agreed!r}, as agreed, got {scheme!r}")
        return one_against_one(self.labels) if scheme == "ovo" else self.labels

    @property
    def weights(self) -> FloatArray | None:
        """(n,) weights of the training rows, where rows have some."""
        weights = self.partition.arrays.get("weights")
        return None if weights is None else weights[self.training]

    @property
    def secret(self) -> Residues:
        """The seed that sites share. Raises StepRefused if they have not agreed on one."""
        if self._secret is None:
            raise StepRefused("the sites have no common seed yet")
        return self._secret

    @step
    def agree_secret(self) -> None:
        """Share a seed with the other sites that the coordinator does not know."""
        self._secret = common_seed(self.channel)

    def open_categories(self, column: int) -> list[str]:
        """Return the values of a categorical column that `min_cell` rows or more of this site have."""
        values, codes = self.partition.values["categories"][column], self.partition.arrays["codes"][:, column]
        counts = np.bincount(codes, minlength=len(values))
        return [value for value, count in zip(values, counts, strict=True) if value and count >= self.min_cell]

    @step(
        remembered=True,
        told={
            "values": free(
                "lists with every value that the site holds", "columns of values that it adds, which are zero"
            ),
        },
    )
    def encode(self, values: list[list[str]]) -> None:
        """Turn categorical columns into one 0/1 column per value, behind the numeric ones."""
        codes, categories = self.partition.arrays["codes"], self.partition.values["categories"]
        for column, declared in enumerate(values):
            encoding.require_declared(self.open_categories(column), declared)
        blocks = [encoding.one_hot(codes[:, j], categories[j], values[j]) for j in range(codes.shape[1])]
        self.encoded = np.hstack([self.numeric[:], *blocks]) if blocks else self.numeric
        self.values, self.indicated = values, []

    @step(
        remembered=True,
        told={
            "fold": CHECKED,
        },
    )
    def hold_out(self, fold: int | None) -> None:
        """Train on all rows but those of `fold` and those set apart; None holds out none.

        Raises OrderRefused for a fold that was not agreed on, and for none where folds were.
        """
        require_agreed(fold, agreed_folds(self.terms.reading))
        folds = self.partition.arrays["folds"]
        others = np.ones(len(folds), dtype=bool) if fold is None else ~held_out(folds, fold)
        self.training, self.calibrating = others & ~self.apart, others & self.apart
        self.tested = ~others

    @step(
        remembered=True,
        told={
            "values": free("any numbers", "another value for missing ones, which can isolate the rows that lack it"),
            "indicated": free("numbers of columns", "the number of rows that lack a value, which it receives anyway"),
        },
    )
    def fill(self, values: FloatArray, indicated: list[int]) -> None:
        """Put `values` (q,) where numeric columns have none, and add a 0/1 column of where that was for some."""
        width = self.encoded.shape[1] - len(self.indicated)
        filling = Filling(values, tuple(indicated))
        self.encoded = filling(self.numeric[:], self.encoded[:][:, :width])
        self.indicated = indicated

    @step(opens="value")
    def row_count(self) -> FloatArray:
        """Number of training rows."""
        return np.array(float(self.training.sum()))

    @step(
        remembered=True,
        told={
            "offset, scale": free("any numbers", "columns on a scale on which later sums can isolate rows"),
            "window": free(
                "windows with a width, with noisy statistics; the agreed range of a column that has one",
                "columns clipped to it, in which later sums can isolate rows",
            ),
        },
    )
    def rescale(self, offset: FloatArray, scale: FloatArray, window: FloatArray | None = None) -> None:
        """Put the training rows on the common scale, clipped to a window first if there is one.

        Raises OrderRefused for a window with exact statistics, or of other ranges than the agreed ones.
        """
        if window is not None:
            self.statistics.check_window(window)
        self._place_on(Scale(offset, scale, window))
        self.is_scaled = True

    def _place_on(self, scale: Scale) -> None:
        """Put the rows for training, calibration and tests on a scale. Each row is scaled when it is read."""
        self.scale, self.columns, self.is_narrow = scale, np.arange(len(scale.offset)), False
        masks = self.training, self.calibrating, self.tested
        self.training_rows, self._apart, self._tested = (ScaledRows.of(self.encoded, scale, mask) for mask in masks)
        self.forget_rows()

    def forget_rows(self) -> None:
        """Give up `scaled` and `rows`, which are computed again when they are read."""
        self._scaled: FloatArray | None = None
        self._rows: FloatArray | None = None

    @property
    def scaled(self) -> FloatArray:
        """(n, p): the training rows on the common scale, in all columns; kept from the first time on."""
        if self._scaled is None:
            self._scaled = self.training_rows[:]
        return self._scaled

    @property
    def rows(self) -> FloatArray:
        """(n, p): the training rows on the common scale, in `columns`; kept from the first time on."""
        if self._rows is None:
            self._rows = self.scaled[:, self.columns] if self.is_narrow else self.scaled
        return self._rows

    @property
    def rows_apart(self) -> FloatArray:
        """(n, p): the rows set apart on the common scale, in `columns`."""
        return self._apart[:][:, self.columns] if self.is_narrow else self._apart[:]

    @property
    def rows_tested(self) -> FloatArray:
        """(n, p): the rows held out on the common scale."""
        return self._tested[:]

    @property
    def all_rows(self) -> FloatArray:
        """(n, p): all rows of this site on the common scale, also those held out and set apart."""
        return self.scale(self.encoded[:])

    def narrow(self, columns: IntArray) -> None:
        """Reduce `rows` and `rows_apart` to these columns of the scaled rows."""
        self.columns, self.is_narrow, self._rows = columns, True, None


def preparation(terms: Terms) -> Script:
    """Return the script of `HorizontalTask.prepare`; values of categories are agreed on once in a run."""
    reading = terms.reading
    if StatisticsPlan.of(terms).mu:
        return seq(
            maybe(repeat("category_tables"), "encode", statistics_script(terms)),
            *(["hold_out"] if agreed_folds(reading) else []),
            "row_count",
            *(["fill"] if reading.get("missing") == "mean" else []),
            "rescale",
        )
    scales = [reading["scale"]] if "scale" in reading else list(SCALE_STEPS)
    return seq(
        maybe(repeat("category_tables"), "encode"),
        *(["hold_out"] if agreed_folds(reading) else []),
        "row_count",
        *([maybe("missing_values", "known_values", "fill")] if reading.get("missing") == "mean" else []),
        either(*(seq(*SCALE_STEPS[scale]) for scale in scales)),
        "rescale",
    )


def each_model(terms: Terms, *parts: Script | str) -> Script:
    """Return the script of a run that trains a model for each agreed fold; sites test it if the terms say so.

    parts: how each is trained, in their order.
    """
    folds = agreed_folds(terms.reading)
    is_tested = folds and terms.reading.get("tested_by") == "sites"
    is_compared = is_tested and terms.reading.get("compare_sites")
    tests = [*(["score_counts"] if is_tested else []), *(["own_model_counts"] if is_compared else [])]
    return repeat(seq(*parts, *tests), 1, max(1, folds))
