"""Vertical partitions: every site holds other columns of the same records.

A site owns its columns, so it encodes and scales them by itself. What the sites need in common is an order of the
records that all of them hold, and to know which of these are held out.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from fedsvm.algorithms.data.classes import numbers
from fedsvm.algorithms.data.encoding import one_hot
from fedsvm.algorithms.data.partition import agreed_folds, held_out, require_agreed, rows_and_columns
from fedsvm.algorithms.data.scaling import Scale, ScaleName
from fedsvm.federation.arrays import FloatArray, IntArray
from fedsvm.federation.errors import FederationError, OrderRefused, StepRefused
from fedsvm.federation.federation import Federation
from fedsvm.federation.site.partition import Partition
from fedsvm.federation.site.program import CHECKED, SiteProgram, free, step, steps_of
from fedsvm.federation.site.script import Script, any_order, either, repeat, seq, stage
from fedsvm.federation.site.terms import Terms
from fedsvm.protocols.common_seed import common_seed
from fedsvm.protocols.sets.intersection import intersect, set_intersection

Align = Literal["identifier", "position"]

COORDINATOR_SEES = "which encrypted identifiers the sites have in common, two by two and all, and not what they are"
SECONDS_PER_POINT = 2.5e-4
"""To encrypt it, three times what it takes. Sites encrypt n + 1 sets one after the other, on as few as one core."""

SITES_SEE = "which of its records every other site holds too"


class VerticalSite(SiteProgram):
    """The columns of one site; see `partition` for what it is handed."""

    def __init__(self, site: str, partition: Partition, settings: Mapping[str, Any]) -> None:
        super().__init__(site, partition, settings)
        codes, categories = partition.arrays["codes"], partition.values["categories"]
        self.columns = encode_columns(partition.arrays["numeric"], codes, categories)
        self.order: IntArray = np.arange(len(self.columns))

    @classmethod
    def script(cls, terms: Terms) -> Script:
        """Return the default script: records are aligned, then the algorithm's own steps come in any order."""
        own = steps_of(cls) - steps_of(VerticalSite) | {"column_count", "longest", "labels_of"}
        return alignment_script(terms, "prepare_fold", "fold_counts", "labels_of", any_order(own))

    def data_summary(self) -> tuple[int, list[str]]:
        """Return the number of records, and the columns of the source at this site."""
        return rows_and_columns(self.partition)

    def check_row_count(self, rows: int) -> None:
        """Raise OrderRefused for more rows than this site has records, before an array of so many is created."""
        if not 0 <= rows <= len(self.columns):
            raise OrderRefused("rows must be at most the number of records of this site")

    @step(opens="value")
    def record_count(self) -> FloatArray:
        """Return the number of records."""
        return np.array(float(len(self.columns)))

    @step(opens="value")
    def column_count(self) -> FloatArray:
        """Return the number of columns after categories became 0/1 columns."""
        return np.array(float(self.columns.shape[1]))

    @step(opens="value")
    def identifier_count(self) -> FloatArray:
        """Return the number of identifiers. Raises StepRefused where two records have the same."""
        identifiers = self.partition.values["identifiers"]
        if twice := len(identifiers) - len(set(identifiers)):
            raise StepRefused(
                f"{twice} of its {len(identifiers)} records share an identifier; keep one record of each",
                "some of its records share an identifier; keep one record of each",
            )
        return np.array(float(len(identifiers)))

    @step(
        told={
            "counts": free("whole numbers by site", "nothing; wrong numbers end the run"),
        }
    )
    def set_intersection(self, counts: dict[str, int]) -> None:
        """Put the records that all sites hold in one order, of `counts` identifiers at each site."""
        salt = common_seed(self.channel).tobytes()
        self.order = set_intersection(self.channel, self.partition.values["identifiers"], counts, salt)

    @step(
        told={
            "fold": CHECKED,
            "scale": free("one of three scales", "a kernel of columns on another scale"),
        }
    )
    def prepare_fold(self, fold: int | None, scale: ScaleName) -> None:
        """Hold the records of a fold out, none without one, and scale all by those that are left.

        Raises OrderRefused for a fold that was not agreed on, and for none where folds or a test were.
        """
        reading = self.terms.reading
        agreed = agreed_folds(reading) or int(fold is not None or bool(reading.get("test_fraction")))
        require_agreed(fold, agreed)
        folds = self.partition.arrays["folds"][self.order]
        self.training = np.ones(len(folds), dtype=bool) if fold is None else ~held_out(folds, fold)
        aligned = self.columns[self.order]
        self.scale = Scale.of(aligned[self.training], scale)
        self.rows: FloatArray = self.scale(aligned)

    @step(opens="value")
    def fold_counts(self) -> FloatArray:
        """Return (3,): the numbers of training records and of held-out records, and 1 if this site holds the labels."""
        labelled = len(self.partition.arrays["labels"])
        return np.array([self.training.sum(), (~self.training).sum(), labelled], dtype=np.float64)

    @step(
        told={
            "held_out": free("true or false", "nothing; both sets of labels are opened anyway"),
            "classes": free("a whole number", "nothing; only empty cells of the table change"),
        }
    )
    def labels_of(self, held_out: bool, classes: int = 2) -> FloatArray:
        """Return (n,): the labels of the training records or of the held-out ones, zeros at sites without labels.

        Of more than two classes (K, n), each against the others.
        """
        records = ~self.training if held_out else self.training
        labels = self.partition.arrays["labels"][:, self.order][:, records]
        if classes > 2:
            return np.asarray(labels if len(labels) else np.zeros((classes, labels.shape[1])))
        return np.asarray(labels.sum(axis=0))

    @step(bound=math.inf)
    def longest(self) -> FloatArray:
        """Return the largest squared norm of a record's columns at this site, which bounds later sums."""
        return np.array(float((self.rows**2).sum(axis=1).max(initial=0.0)))


def alignment_script(terms: Terms, *parts: Script | str) -> Script:
    """Return the script of a run that aligns records, and then trains and tests a model for each agreed fold.

    parts: the scripts of one model's stages, in order.
    """
    ways = {"position": seq("record_count"), "identifier": seq("identifier_count", "set_intersection")}
    by = terms.reading.get("align")
    models = max(1, agreed_folds(terms.reading))
    return stage(either(*(ways[each] for each in ([by] if by else ways))), repeat(seq(*parts), 1, models))


def encode_columns(numeric: FloatArray, codes: IntArray, categories: Sequence[Sequence[str]]) -> FloatArray:
    """Return (n, p + 0/1 columns): categorical columns (n, q) become one column per category, after the numeric
    ones."""
    blocks = [one_hot(column, names, names) for column, names in zip(codes.T, categories, strict=True)]
    return np.hstack([numeric, *blocks])


def column_names(numeric: Sequence[str], categorical: Sequence[str], categories: Sequence[Sequence[str]]) -> list[str]:
    """Return the names of the columns that `encode_columns` makes."""
    pairs = zip(categorical, categories, strict=True)
    return [*numeric, *(f"{column}={name}" for column, names in pairs for name in names)]


@dataclass
class VerticalTask:
    """One model to train over sites that hold columns of the same records, which are in one order at all of them.

    Parameters
    ----------
    scaling : {"standard", "minmax", "none"}
        The scale of columns, which every site finds by itself from the records that are trained on.
    seed : int
        Of the experiment's generators; never of masks.
    fold : int, optional
        The fold that is held out; None holds out none.
    classes : int, default 2
        How many there are.

    Attributes
    ----------
    records : Records
        What is known of the records, once `prepare` was called.
    """

    scaling: ScaleName
    seed: int
    fold: int | None = None
    classes: int = 2
    records: Records = field(init=False)

    def prepare(self, federation: Federation) -> Records:
        """Hold out the fold and scale the columns at the sites. The rounds are of phase "setup"."""
        with federation.phase("setup"):
            self.records = hold_out(federation, self.fold, self.scaling, self.classes)
        return self.records


@dataclass(frozen=True)
class Records:
    """Records that all sites hold: labels (n,) of those to train on, see `LabeledRows`, and how many are held out."""

    labels: FloatArray
    held_out: int
    label_sites: tuple[str, ...]


def align(federation: Federation, by: Align) -> int:
    """Put the records that all sites hold in one order, and return their number.

    Raises FederationError where there are none, or positions cannot tell; SiteFailed for identifiers that are there
    twice.
    """
    if by == "position":
        return _same_count(federation)
    counts = {site: int(n) for site, n in federation.gather("identifier_count", shape=()).items()}
    matched: int = federation.run(
        "set_intersection",
        take_part=lambda channel: intersect(channel, counts),
        work_s=SECONDS_PER_POINT * len(counts) * (len(counts) + 1) * max(counts.values()),
        counts=counts,
    )
    federation.disclose("coordinator", "set_intersection", COORDINATOR_SEES, ())
    federation.disclose("sites", "set_intersection", SITES_SEE, ())
    if matched == 0:
        raise FederationError(
            "The sites have no record in common; see that data.identifier names the same kind of identifier at all of "
            "them, written the same way."
        )
    return matched


def _same_count(federation: Federation) -> int:
    counts = {site: int(n) for site, n in federation.gather("record_count", shape=()).items()}
    if len(set(counts.values())) > 1:
        listed = ", ".join(f"{site} {count}" for site, count in counts.items())
        raise FederationError(
            f"The sites hold different numbers of records ({listed}), so their positions do not tell which are the "
            'same; set data.align = "identifier".'
        )
    return next(iter(counts.values()))


def hold_out(federation: Federation, fold: int | None, scale: ScaleName, classes: int = 2) -> Records:
    """Hold out the records of a fold at the sites, and scale the others. Return their labels.

    Raises FederationError where the sites do not fit together: other records held out, no labels, or labels that
    disagree.
    """
    federation.run("prepare_fold", fold=fold, scale=scale)
    counts = {site: found.astype(int) for site, found in federation.gather("fold_counts", shape=(3,)).items()}
    if len({(training, held_out) for training, held_out, _ in counts.values()}) > 1:
        raise FederationError(f"The sites hold out different records in fold {fold}; give them the same folds.")
    training, held_out, _ = next(iter(counts.values()))
    label_sites = tuple(site for site, (_, _, labelled) in counts.items() if labelled)
    if not label_sites:
        raise FederationError(
            f"None of {', '.join(counts)} holds the labels; data.label_site must name a site that takes part."
        )
    labels = labels_of(federation, int(training), label_sites, held_out=False, classes=classes)
    if len(np.unique(labels)) < 2:
        raise FederationError(f"The {training} training records have one class; two are needed.")
    return Records(labels, int(held_out), label_sites)


def labels_of(
    federation: Federation, count: int, label_sites: Sequence[str], *, held_out: bool, classes: int = 2
) -> FloatArray:
    """Return (n,) labels of +1 and -1, or class numbers.

    Raises FederationError where sites that hold them disagree.
    """
    holders = len(label_sites)
    shape = (count,) if classes == 2 else (classes, count)
    told: dict[str, Any] = {} if classes == 2 else {"classes": classes}
    sums = np.rint(federation.sum("labels_of", shape=shape, bound=float(holders), held_out=held_out, **told))
    federation.disclose("coordinator", "labels_of", "the labels themselves, since one site's are all there is", shape)
    disagree = np.abs(sums) != holders
    if disagreeing := int(np.count_nonzero(disagree if classes == 2 else disagree.any(axis=0))):
        raise FederationError(
            f"The labels of {disagreeing} of {count} records disagree between {', '.join(label_sites)}; correct them, "
            "or set data.label_site to the one that is right."
        )
    return np.asarray(sums / holders) if classes == 2 else numbers(sums).astype(np.float64)


def count_columns(federation: Federation) -> int:
    """Return the number of columns of all sites together, which they do not hide."""
    return sum(int(count) for count in federation.gather("column_count", shape=()).values())


def max_squared_norm(federation: Federation) -> float:
    """Return a bound on the squared length of any record: the sum of the sites' longest parts."""
    return float(federation.sum("longest", shape=(), bound=np.inf)) * (1 + 1e-9) + 1e-9
