"""The contract of attacks on a run: they take a view and return claims about rows, checked without the truth.

An attack reads what a coalition has (`RunView`) and what it knew before (`Prior`), and nothing else: no site's rows but
its own members'. What it gives is one of two things:

- a `RowClaim`: rows that it says are in the training data, each of which passed a check of its own, such as that sums
  computed again from the rows are those that were seen. A claim that is not true is a false claim, and the attack's;
- a `CandidateScores`: of rows that the coalition can imagine, which are likelier to be in the training data.

Rows are in the columns as sites encode them (numeric ones, then a 0/1 column for each value of a categorical one), not
scaled, since the scale is another in each fold. How much of it is true only a simulation can say; see
`fedsvm.scenarios.run.audit`. An algorithm lists the attacks that make sense against it (`Algorithm.attacks`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from fedsvm.algorithms.data.columns import LabeledRows
from fedsvm.federation.arrays import FloatArray, IntArray
from fedsvm.protocols.analysis.views import RunView


@dataclass(frozen=True)
class KnownRecords:
    """Records of a vertical partition whose columns at honest sites a coalition knows too.

    columns: of each site (n, p), of all records; `of` gives what is known of them. count: how many records are known;
    None is as many as there are columns, and one. seed: of the choice of records.
    """

    columns: Mapping[str, FloatArray]
    count: int | None
    seed: int

    @property
    def records(self) -> int:
        """The number of records."""
        return len(next(iter(self.columns.values())))

    def of(self, sites: Sequence[str]) -> tuple[IntArray, FloatArray]:
        """Return indices (k,) of the known records, and their rows (k, p) in the columns of some sites."""
        rows = np.hstack([self.columns[site] for site in sites])
        count = min(len(rows), self.count if self.count is not None else rows.shape[1] + 1)
        known = np.random.default_rng([self.seed, 3]).permutation(len(rows))[:count]
        return known, rows[known]


@dataclass(frozen=True)
class BinaryTask:
    """One of several binary problems: its number, and the label that rows of each class have in it.

    signs: (K,) of +1, -1, and 0 of a class that is not part of it.
    """

    number: int
    signs: FloatArray

    def of(self, rows: LabeledRows) -> LabeledRows:
        """Return rows with class numbers, or NaN, with their labels in this problem."""
        unknown = np.isnan(rows.labels)
        labels = np.where(unknown, np.nan, self.signs[np.where(unknown, 0, rows.labels).astype(np.int64)])
        return LabeledRows(rows.rows[labels != 0], labels[labels != 0])

    def class_of(self, label: float, otherwise: int) -> int:
        """Return the only class whose rows have this label; `otherwise` if there are several, or it is unknown."""
        classes = np.flatnonzero(self.signs == label)
        return int(classes[0]) if len(classes) == 1 else otherwise

    def factors(self, of_classes: Sequence[float]) -> tuple[float, float]:
        """Return the factors of the labels -1 and +1, from those of the classes; their mean if a label has several."""
        each = np.asarray(of_classes)
        return float(each[self.signs < 0].mean()), float(each[self.signs > 0].mean())


TWO_CLASSES = BinaryTask(0, np.array([-1.0, 1.0]))
"""The problem of the second class against the first, which is the only one of two."""


@dataclass(frozen=True)
class Prior:
    """The knowledge of a coalition before it looks at the run.

    Labels of rows are +1 and -1; of more than two classes the numbers of classes, unless a problem of theirs is posed.

    Parameters
    ----------
    own : LabeledRows, optional
        The rows of its own sites.
    candidates : LabeledRows, optional
        All records that there can be, or that it has reason to think of. Without it, an attack may take all
        combinations of categories.
    found : LabeledRows, optional
        Rows that attacks before this one recovered; a label that is not known is nan.
    known_records : KnownRecords, optional
        Of vertical partitions.
    classes : int
        How many there are.
    posed : BinaryTask
        The binary problem that is attacked.
    sites : int, optional
        How many sites the run has. None if that is unknown.
    """

    own: LabeledRows | None = None
    candidates: LabeledRows | None = None
    found: LabeledRows | None = None
    known_records: KnownRecords | None = None
    classes: int = 2
    posed: BinaryTask = TWO_CLASSES
    sites: int | None = None

    def of_problem(self, posed: BinaryTask) -> Prior:
        """Return the knowledge for an attack on one of several problems."""
        own, candidates, found = (
            None if rows is None else posed.of(rows) for rows in (self.own, self.candidates, self.found)
        )
        return replace(self, own=own, candidates=candidates, found=found, posed=posed)

    def with_found(self, claim: RowClaim) -> Prior:
        """Return the knowledge extended by a claim."""
        if self.found is None:
            return replace(self, found=LabeledRows(claim.rows, claim.labels))
        rows = np.vstack([self.found.rows, claim.rows])
        return replace(self, found=LabeledRows(rows, np.concatenate([self.found.labels, claim.labels])))


@dataclass(frozen=True)
class AlignedRecords:
    """The positions of a claim's rows among aligned records, and what was known of others.

    indices: (k,) the records. columns_of: whose columns the rows are. sites: whose values they come from, added up.
    known_records: how many were known, and held_back: how many others there are.
    """

    indices: IntArray
    columns_of: tuple[str, ...]
    sites: tuple[str, ...]
    known_records: int
    held_back: int


@dataclass(frozen=True)
class RowClaim:
    """Rows of the training data, as an attack has them.

    Parameters
    ----------
    rows : (k, p)
        One row for each that is in the data: twice where it is there twice; nan in columns that nothing is said of.
    labels : (k,)
        Of +1 and -1, or numbers of classes; nan where the attack says nothing of them.
    residual : float
        The largest that the attack's own check left; 0 of no rows.
    aligned : AlignedRecords, optional
        Of vertical partitions, where a record has a place.
    note : str
        How far the attack came, or why it was not run, in words without a period.
    """

    rows: FloatArray
    labels: FloatArray
    residual: float
    aligned: AlignedRecords | None = None
    note: str = ""


@dataclass(frozen=True)
class CandidateScores:
    """Candidates (n, p) with labels (n,), and scores (n,): the higher, the likelier they are in the training data."""

    candidates: LabeledRows
    scores: FloatArray


class Attack(ABC):
    """One way to make rows of a view.

    Attributes
    ----------
    name : str
        What a result calls it.
    is_of_problems : bool
        Whether it is on one binary problem, `Prior.posed`, and is to be tried on each of several.
    uses_found : bool
        Whether rows that are known, `Prior.found`, lead it to others.
    needs_equal_rows : bool
        Whether its equations hold only if all rows have the same weight.
    """

    name: ClassVar[str]
    is_of_problems: ClassVar[bool] = False
    uses_found: ClassVar[bool] = False
    needs_equal_rows: ClassVar[bool] = False

    @abstractmethod
    def __call__(self, view: RunView, prior: Prior) -> Iterator[RowClaim | CandidateScores]:
        """Yield what the view reveals; nothing if the view does not contain the target of the attack."""
