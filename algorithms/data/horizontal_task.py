"""The training data of an algorithm over sites that hold rows: the coordinator's half of `horizontal`.

`HorizontalTask.prepare` makes the rows of all sites comparable: one vocabulary of categories, one scale of columns, one
count of rows. All of it is agreed by sums, without a look at pooled rows.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from fedsvm.algorithms.data.column_sums import agree_filling, agree_scale, agree_vocabulary, apply_filling, apply_scale
from fedsvm.algorithms.data.columns import Columns, Filling, Schema
from fedsvm.algorithms.data.conditions import Conditions
from fedsvm.algorithms.data.encoding import Vocabulary
from fedsvm.algorithms.data.scaling import Scale, ScaleName
from fedsvm.algorithms.data.statistics import NoisyStatistics
from fedsvm.algorithms.data.statistics_rounds import StatisticsPlan, take_statistics
from fedsvm.federation.arrays import IntArray
from fedsvm.federation.federation import Federation
from fedsvm.federation.transport.keys import COORDINATOR

FOLDS_DISCLOSE = (
    "sums over all rows but those of a fold, which with those of the other folds give, by subtraction, the sums over "
    "each fold, and of repeats over the folds of each: of few rows, the rows"
)


@dataclass
class _Agreement:
    """The vocabulary, noisy statistics, and who agreed on them; a run agrees once, as long as no other site joins."""

    vocabulary: Vocabulary | None = None
    statistics: NoisyStatistics | None = None
    kept: dict[str, Any] = field(default_factory=dict)
    sites: frozenset[str] = frozenset()


@dataclass(frozen=True)
class PreparedRows:
    """The public facts on the rows that sites hold ready: columns after encoding, and training rows at each site.

    Parameters
    ----------
    columns : int
    site_rows : dict of str to int
    scale : Scale
        The common scale of all columns.
    statistics : NoisyStatistics, optional
        Noisy ones of all rows; None of exact statistics.
    indicated : tuple of int
        The numeric columns with a 0/1 column of gaps.
    selected : (k,) IntArray, optional
        The columns of them that a model chose; None of all.
    kept : dict
        Choices by noisy statistics, which hold for all models of a run.
    """

    columns: int
    site_rows: dict[str, int]
    scale: Scale
    statistics: NoisyStatistics | None = None
    indicated: tuple[int, ...] = ()
    selected: IntArray | None = None
    kept: dict[str, Any] = field(default_factory=dict)

    @property
    def rows(self) -> int:
        """Training rows of all sites."""
        return sum(self.site_rows.values())


@dataclass
class HorizontalTask:
    """One model to train over sites that hold rows: how columns are prepared is said here, when by the algorithm.

    Parameters
    ----------
    schema : Schema
        The columns of the source.
    scaling : {"standard", "minmax", "none"}
        The common scale, from secure sums over the rows that are trained on.
    seed : int
        Of the experiment's generators; never of masks or noise.
    fold : int, optional
        The fold that is held out; None holds out none.
    filled : bool, default False
        Whether numbers may be missing, and are filled by the means over all sites' training rows.
    indicated : bool, default False
        Whether 0/1 columns say where they were, of columns that lack any.
    classes : tuple of str, default ("-1", "1")
        Names of the negative and the positive class, or of all classes, where there are more than two.
    weighted : bool, default False
        Whether rows have weights.
    calibrated : bool, default False
        Whether rows are set apart to calibrate a model that is not trained on them.
    conditions : Conditions, optional
        Of the network, by which seconds are predicted; without it those of this machine.
    tested_apart : bool, default False
        Whether what `fold` holds out is for a test, and no other model is trained on it.
    plan : StatisticsPlan, optional
        How noisy statistics are taken; without it they are exact.

    Attributes
    ----------
    columns : Columns
        What rows became, once `prepare` was called.
    site_rows : dict of str to int
        How many rows each site trains on, once `prepare` was called.
    """

    schema: Schema
    scaling: ScaleName
    seed: int
    fold: int | None = None
    filled: bool = False
    indicated: bool = False
    classes: tuple[str, ...] = ("-1", "1")
    weighted: bool = False
    calibrated: bool = False
    conditions: Conditions | None = None
    tested_apart: bool = False
    plan: StatisticsPlan = field(default_factory=lambda: StatisticsPlan(0.0, {}))
    columns: Columns = field(init=False)
    site_rows: dict[str, int] = field(init=False)
    agreed: _Agreement = field(default_factory=_Agreement, repr=False)

    @property
    def problems(self) -> int:
        """The number of binary problems of one class against the rest: one for two classes."""
        return 1 if len(self.classes) == 2 else len(self.classes)

    @property
    def statistics(self) -> NoisyStatistics | None:
        """Noisy statistics of all rows, once `prepare` was called; None of exact ones."""
        return self.agreed.statistics

    def prepare(self, federation: Federation) -> PreparedRows:
        """Encode and scale the rows at the sites, by what they agree on in sums. The rounds are of phase "setup".

        Rounds that follow build on it: run it within `federation.until_stable`.
        """
        with federation.phase("setup"):
            vocabulary, statistics = self._agree_once(federation)
            if self.fold is not None:
                federation.run("hold_out", remember=True, fold=self.fold)
                if not (self.tested_apart or (self.plan.mu and self.plan.by_class)):  # then no fold is summed again
                    federation.disclose(COORDINATOR, "hold_out", FOLDS_DISCLOSE, ())
            site_rows = count_rows(federation)
            if statistics is None:
                filling, scale = self._exactly(federation, vocabulary, sum(site_rows.values()))
            else:
                filling, scale = self._noisily(federation, statistics)
        self.columns = Columns(self.schema.numeric, vocabulary, scale, filling)
        self.site_rows = site_rows
        indicated = filling.indicated if filling else ()
        return PreparedRows(len(scale.offset), site_rows, scale, statistics, indicated, kept=self.agreed.kept)

    def _exactly(self, federation: Federation, vocabulary: Vocabulary, rows: int) -> tuple[Filling | None, Scale]:
        """Return means for gaps and the scale, from exact sums over so many training rows."""
        numeric, filling = self.schema.numeric, None
        if self.filled and numeric:
            filling = agree_filling(federation, numeric, rows, indicated=self.indicated)
        width = len(numeric) + len(vocabulary.columns) + len(filling.indicated if filling else ())
        return filling, agree_scale(federation, self.scaling, width, rows)

    def _noisily(self, federation: Federation, statistics: NoisyStatistics) -> tuple[Filling | None, Scale]:
        """Return means for gaps and the scale, from noisy statistics, and have the rows put on it."""
        filling = None
        if self.filled and self.schema.numeric:
            filling = apply_filling(federation, statistics.mean, statistics.missing, indicated=self.indicated)
        indicated = filling.indicated if filling else ()
        return filling, apply_scale(federation, statistics.scale(self.scaling, indicated))

    def _agree_once(self, federation: Federation) -> tuple[Vocabulary, NoisyStatistics | None]:
        known = self.agreed
        if known.vocabulary is None or not known.sites >= set(federation.sites):
            found = agree_vocabulary(federation, self.schema.categorical, self.schema.declared, self.seed)
            if self.plan.mu:
                known.statistics = take_statistics(federation, self.plan, self.schema.numeric, found, len(self.classes))
            known.vocabulary, known.sites = found, frozenset(federation.sites)
        return known.vocabulary, known.statistics


def count_rows(federation: Federation) -> dict[str, int]:
    """Return the number of training rows at each site, which the sites do not hide."""
    return {site: int(count) for site, count in federation.gather("row_count", shape=()).items()}
