"""Horizontal partitions made comparable: one vocabulary for categories, one scale for columns, one count of rows.

Every site holds different rows of the same columns. What the sites need in common is agreed by sums, never by
looking at pooled rows (`HorizontalTask`), or is given by rows that are nobody's secret (`PublicTask`).
"""

from __future__ import annotations

import io
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any, ClassVar, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from fedsvm.algorithms.data import encoding
from fedsvm.algorithms.data.classes import Scheme, one_against_one
from fedsvm.algorithms.data.columns import Columns, Filling, LabeledRows, Schema
from fedsvm.algorithms.data.conditions import Conditions
from fedsvm.algorithms.data.encoding import Vocabulary
from fedsvm.algorithms.data.partition import agreed_folds, held_out, numbers_of, require_agreed, rows_and_columns
from fedsvm.algorithms.data.scaled_rows import ScaledRows, blocks_of
from fedsvm.algorithms.data.scaling import Scale, ScaleName
from fedsvm.algorithms.data.score_counts import MAX_BINS, count_scores, size_of
from fedsvm.algorithms.data.sparse_rows import Numbers
from fedsvm.algorithms.data.statistics import NoisyStatistics
from fedsvm.algorithms.data.statistics_rounds import (
    StatisticsPlan,
    StatisticsSums,
    statistics_script,
    take_statistics,
)
from fedsvm.algorithms.settings import MAX_COUNT
from fedsvm.federation.arrays import FloatArray, IntArray, Residues
from fedsvm.federation.errors import FederationError, OrderRefused, StepRefused
from fedsvm.federation.federation import Federation
from fedsvm.federation.site.partition import Partition
from fedsvm.federation.site.program import CHECKED, PartTypes, SitePart, SiteProgram, free, step, steps_of
from fedsvm.federation.site.script import Script, any_order, either, maybe, repeat, seq, stage
from fedsvm.federation.site.terms import Terms
from fedsvm.federation.transport.keys import COORDINATOR
from fedsvm.protocols.common_seed import common_seed
from fedsvm.protocols.secret_order import secret_order

_AGREED_DIGITS = 12
MIN_KNOWN = 3
"""Values of which a mean may be told."""

FOLDS_DISCLOSE = (
    "sums over all rows but those of a fold, which with those of the other folds give, by subtraction, the sums over "
    "each fold, and of repeats over the folds of each: of few rows, the rows"
)
MINMAX_DISCLOSES = "each site's smallest and largest value of every column, unlinked from the site and from each other"


_SCALE_STEPS = {
    "standard": ("column_sums", "column_squares"),
    "minmax": ("agree_secret", "column_extremes"),
    "none": (),
}
"""The steps by which each common scale is computed."""


class Scorer(Protocol):
    """A model that computes decision values of rows; see `contract.Model`."""

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]], parts: Sequence[Mapping[str, NDArray[Any]]] = ()) -> Self:
        """Return the model in a file."""

    def decision_function(self, rows: FloatArray) -> FloatArray:
        """Return (n,) decision values of scaled rows (n, p)."""


class ColumnSums(SitePart):
    """The sums by which sites agree on categories, on values in place of missing ones, and on a common scale."""

    def __init__(self, site: HorizontalSite) -> None:
        self._site = site

    @step(
        told={
            "columns": free("numbers of categorical columns", "nothing; the values of each are opened anyway"),
            "slots": free("a whole number", "nothing; a table of another size opens the same values"),
            "salt": free("any text", "nothing; another place in the table for the same values"),
        }
    )
    def category_tables(self, columns: list[int], slots: int, salt: str) -> FloatArray:
        """Return the (k, slots, record) tables of this site's categories of k columns, to be summed; see `encoding`."""
        known = {column: self._site.open_categories(column) for column in columns}
        return np.stack([encoding.table_of(known[column], slots, salt) for column in columns])

    @step
    def missing_values(self) -> FloatArray:
        """Return the (q,) number of training rows without a value in each numeric column."""
        return np.asarray(np.isnan(self._numeric).sum(axis=0), dtype=np.float64)

    @step(bound=math.inf)
    def known_values(self) -> FloatArray:
        """Return the (q,) sum of the known values of the training rows in each numeric column."""
        return np.asarray(np.nansum(self._numeric, axis=0))

    @step(bound=math.inf)
    def column_sums(self) -> FloatArray:
        """Return the (p,) sums of the columns."""
        return self._add_up(lambda rows: rows)

    @step(
        bound=math.inf,
        told={
            "mean": free("any point", "nothing; the sum follows from the columns' sums and the sums around their mean"),
        },
    )
    def column_squares(self, mean: FloatArray) -> FloatArray:
        """Return the (p,) sums of squared distances from the mean."""
        return self._add_up(lambda rows: (rows - mean) ** 2)

    @step(bound=math.inf)
    def column_extremes(self) -> FloatArray:
        """Return the (2, n sites, p) this site's minima and maxima, each in a place that only the sites know."""
        site = self._site
        sites = site.channel.sites
        table = np.zeros((2, len(sites), site.encoded.shape[1]))
        if site.training.any():
            ends = [(rows.min(axis=0), rows.max(axis=0)) for rows in blocks_of(site.encoded, site.training)]
            lows, highs = (np.stack(each) for each in zip(*ends, strict=True))
            for kind, extremes in enumerate((lows.min(axis=0), highs.max(axis=0))):
                for column, extreme in enumerate(extremes):
                    order = secret_order(site.secret, f"extreme {kind} {column}", len(sites))
                    table[kind, order[sites.index(site.site)], column] = extreme
        return table

    @property
    def _numeric(self) -> FloatArray:
        return self._site.numeric[self._site.training]

    def _add_up(self, values: Callable[[FloatArray], FloatArray]) -> FloatArray:
        """Return (p,) the sums of values of the training rows."""
        blocks = blocks_of(self._site.encoded, self._site.training)
        return reduce(np.add, (np.asarray(values(rows).sum(axis=0)) for rows in blocks))


class Evaluation(SitePart):
    """Counts of the rows that a site holds out, as a model scores them."""

    def __init__(self, site: HorizontalSite) -> None:
        self._site = site

    @step(
        told={
            "model": free(
                "a file of the agreed kind of model; with protocol.verify, of the weights that sites opened",
                "counts of the held-out rows by a model of its choice, which can name them",
            ),
            "bins, threshold, kept, classes": CHECKED,
        }
    )
    def score_counts(self, model: FloatArray, bins: int, threshold: float, kept: bool, classes: int = 2) -> FloatArray:
        """Return (4 + 2 bins,): counts of the held-out rows by decision value; more for more classes.

        See `score_counts`. Raises OrderRefused for another number of bins or classes than the site's own, for a
        threshold, since none is found by rows that sites hold out, and where `kept` differs from the agreed release.

        model: the bytes of its file, (n,) uint8. kept: whether this site has the part of it that scores.
        """
        self._check_kept(kept)
        site = self._site
        labels = site.partition.arrays["labels"][:, site.tested]
        held = max(2, len(labels))
        if bins != MAX_BINS:
            raise OrderRefused(f"bins must be {MAX_BINS}, got {bins!r}")
        if threshold != 0:
            raise OrderRefused(f"threshold must be 0, got {threshold!r}")
        if classes != held:
            raise OrderRefused(f"classes must be {held}, as in the labels of this site, got {classes!r}")
        if not labels.size:
            return np.zeros(size_of(classes, bins))
        return count_scores(self._decisions(model, kept=kept), labels, threshold, bins)

    @step(
        bound=math.inf,
        told={
            "model": free(
                "a file of the agreed kind of model; with protocol.verify, of the weights that sites opened",
                "ten sums over the held-out rows by a model of its choice, beside the site's own",
            ),
            "kept": CHECKED,
        },
    )
    def own_model_counts(self, model: FloatArray, kept: bool) -> FloatArray:
        """Return (10,) the sums over the rows that are held out, by this site's own model and by the federated one.

        See `OwnCounts`. The own model is of this site's training rows alone. Raises OrderRefused where `kept` differs
        from the agreed release.

        model: the bytes of the federated model's file, (n,) uint8. kept: whether this site has the part of it that
        scores.
        """
        self._check_kept(kept)
        site = self._site
        every = site.partition.arrays["labels"]
        labels = every[0] if len(every) == 1 else every.argmax(axis=0).astype(np.float64)
        train, test = (
            LabeledRows(site.scaled, labels[site.training]),
            LabeledRows(site.rows_tested, labels[site.tested]),
        )
        names = tuple(map(str, site.terms.reading.get("classes") or range(max(2, len(every)))))
        federated = self._decisions(model, kept=kept) if len(test.rows) else np.zeros(0)
        settings = site.settings_type(**site.terms.settings)
        return site.compare_own(settings, train, test, names, site.weights, federated)

    def _check_kept(self, kept: bool) -> None:
        """Raise OrderRefused if `kept` differs from the agreed release."""
        releases = self._site.terms.releases
        if kept is not (not releases):
            raise OrderRefused(f"kept must be {json.dumps(not releases)}, as the agreed release says")

    def _decisions(self, model: FloatArray, *, kept: bool) -> FloatArray:
        """Return decision values of the rows that are held out."""
        with np.load(io.BytesIO(model.tobytes())) as file:
            arrays = dict(file)
        parts = []
        if kept:
            with np.load(self._site.settings["model_path"]) as file:
                parts.append(dict(file))
        scorer = self._site.model_type.from_arrays(arrays, parts)
        self._site.require_released(scorer)
        return scorer.decision_function(self._site.rows_tested)


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
        True if noisy statistics are summed for each class, of which its algorithm makes its model.
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
        """Return the values of a categorical column of which this site has `min_cell` rows or more."""
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
            "values": free(
                "any numbers", "another value in place of missing ones, which can set apart the rows that miss it"
            ),
            "indicated": free("numbers of columns", "the number of rows that miss a value, which it is told anyway"),
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
        """Put the rows that are trained on, set apart and tested on a scale, of which each is computed when read."""
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


# What may be ordered.


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
    scales = [reading["scale"]] if "scale" in reading else list(_SCALE_STEPS)
    return seq(
        maybe(repeat("category_tables"), "encode"),
        *(["hold_out"] if agreed_folds(reading) else []),
        "row_count",
        *([maybe("missing_values", "known_values", "fill")] if reading.get("missing") == "mean" else []),
        either(*(seq(*_SCALE_STEPS[scale]) for scale in scales)),
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


# What the sites agree on.


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
        Whether rows are set apart, of which no model is, to calibrate one by.
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
        filling = self._filling(federation, rows) if self.filled and self.schema.numeric else None
        width = len(self.schema.numeric) + len(vocabulary.columns) + len(filling.indicated if filling else ())
        return filling, agree_scale(federation, self.scaling, width, rows)

    def _noisily(self, federation: Federation, statistics: NoisyStatistics) -> tuple[Filling | None, Scale]:
        """Return means for gaps and the scale, from noisy statistics, and have the rows put on it."""
        filling: Filling | None = None
        indicated: tuple[int, ...] = ()
        if self.filled and self.schema.numeric:
            indicated = tuple(np.flatnonzero(statistics.missing > 0).tolist()) if self.indicated else ()
            filling = Filling(_round_to_bits(statistics.mean), indicated)
            federation.run("fill", remember=True, values=filling.values, indicated=list(indicated))
        return filling, apply_scale(federation, statistics.scale(self.scaling, indicated))

    def _filling(self, federation: Federation, rows: int) -> Filling:
        """Compute means of known values by sums, and fill the rows with them; 0 for a column without any.

        Raises FederationError, before any value is summed, where the mean would be that of one row or two.
        """
        shape = (len(self.schema.numeric),)
        missing = np.rint(federation.sum("missing_values", shape=shape, bound=float(MAX_COUNT)))
        few = (missing < rows) & (rows - missing < MIN_KNOWN)
        if few.any():
            named = ", ".join(repr(name) for name, is_few in zip(self.schema.numeric, few, strict=True) if is_few)
            raise FederationError(
                f"Fewer than {MIN_KNOWN} training rows have a value of {named}, and all sites would receive its mean: "
                "add the column to data.ignore."
            )
        sums = federation.sum("known_values", shape=shape, bound=math.inf)
        values = _round_to_bits(np.divide(sums, rows - missing, out=np.zeros_like(sums), where=missing < rows))
        indicated = tuple(np.flatnonzero(missing > 0).tolist()) if self.indicated else ()
        federation.run("fill", remember=True, values=values, indicated=list(indicated))
        return Filling(values, indicated)

    def _agree_once(self, federation: Federation) -> tuple[Vocabulary, NoisyStatistics | None]:
        known = self.agreed
        if known.vocabulary is None or not known.sites >= set(federation.sites):
            found = agree_vocabulary(federation, self.schema.categorical, self.schema.declared, self.seed)
            if self.plan.mu:
                known.statistics = take_statistics(federation, self.plan, self.schema.numeric, found, len(self.classes))
            known.vocabulary, known.sites = found, frozenset(federation.sites)
        return known.vocabulary, known.statistics


def agree_vocabulary(
    federation: Federation, columns: Sequence[str], declared: Mapping[str, Sequence[str]], seed: int
) -> Vocabulary:
    """Agree on the values of every categorical column: declared ones as they are, the others by secure sums."""
    undeclared = {number: column for number, column in enumerate(columns) if column not in declared}
    agreed = encoding.agree(federation, undeclared, seed)
    values = {column: agreed[column] if column in agreed else sorted(declared[column]) for column in columns}
    federation.run("encode", remember=True, values=list(values.values()))
    return Vocabulary(values)


def count_rows(federation: Federation) -> dict[str, int]:
    """Return the number of training rows at each site, which the sites do not hide."""
    return {site: int(count) for site, count in federation.gather("row_count", shape=()).items()}


def agree_scale(federation: Federation, method: ScaleName, columns: int, rows: int) -> Scale:
    """Compute offset and scale of each column from sums over the sites, and scale the rows.

    standard: mean and standard deviation. minmax: to [-1, 1]; the coordinator sees each site's extremes, which are
    single patients' values, though not whose. A constant column keeps scale 1. The figures are rounded to 12
    digits, so that they do not depend on how the rows are spread over the sites.
    """
    if method == "standard":
        mean = federation.sum("column_sums", shape=(columns,), bound=math.inf) / rows
        squares = federation.sum("column_squares", shape=(columns,), bound=math.inf, mean=mean)
        found = Scale.standard(mean, np.sqrt(squares / rows))
    elif method == "minmax":
        federation.run("agree_secret")
        shape = (2, len(federation.sites), columns)
        lows, highs = federation.sum("column_extremes", shape=shape, bound=math.inf)
        federation.disclose("coordinator", "column_extremes", MINMAX_DISCLOSES, shape)
        found = Scale.minmax(lows.min(axis=0), highs.max(axis=0))
    else:
        found = Scale.none(columns)
    return apply_scale(federation, found)


def apply_scale(federation: Federation, found: Scale) -> Scale:
    """Round a scale, order the sites to apply it to their rows, and return it."""
    agreed = replace(found, offset=_round_to_bits(found.offset), scale=_round_to_bits(found.scale))
    window: dict[str, Any] = {} if found.window is None else {"window": found.window}
    federation.run("rescale", remember=True, offset=agreed.offset, scale=agreed.scale, **window)
    return agreed


def _round_to_bits(values: FloatArray) -> FloatArray:
    return np.array([float(f"{value:.{_AGREED_DIGITS}g}") for value in values])
