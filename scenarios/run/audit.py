"""The audit of a run: the rows of others that parties learn by pooling their views, compared with the truth.

The record of a run answers two questions. For a single sum: do the coalition's messages determine the input of another
site? (`findings`, by the algebra of the protocols.) For the whole run: which rows follow from the coalition's whole
view? (`audit_view`, by the attacks that the algorithm lists.) The attacks do not see the truth. Their claims are
compared with it here, which only a simulation can do.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from threadpoolctl import threadpool_limits

from fedsvm.algorithms.data.columns import LabeledRows
from fedsvm.federation.arrays import FloatArray
from fedsvm.protocols.analysis.views import Coalition, RecordedRun, RunView

if TYPE_CHECKING:
    from fedsvm.algorithms.attacks.attack import AlignedRecords, Attack, CandidateScores, KnownRecords, RowClaim

HOLDER = "model file"
"""The party that has only the file of a model."""

_SAME_ROW = 2.0**-12
"""Rows count as equal if they differ by less than this in each column, in its standard deviations."""

_SAME_COLUMNS = 1e-6
"""Maximum difference of equal records of a vertical partition, in units of the scaled columns."""

MAX_SITES = 10
"""Maximum number of sites that are audited alone and with the coordinator: the first ones of more."""


@dataclass(frozen=True)
class Finding:
    """The inputs of one victim to one step that the coalition learned, over all rounds.

    values: the number of input values of the victim; recovered: how many were reconstructed; max_error: their largest
    error, None if there are none.
    """

    site: str
    protocol: str
    step: str
    rounds: int = 0
    values: int = 0
    recovered: int = 0
    max_error: float | None = None


@dataclass(frozen=True)
class KnownColumns:
    """Reconstructed columns of a vertical partition.

    Attributes
    ----------
    sites : tuple of str
        The sites whose values determine the columns.
    columns_of : tuple of str
        The owners of the columns.
    known_records : int
        The number of records of which the coalition knew these columns before.
    held_back : int
        The number of records of which it did not.
    """

    sites: tuple[str, ...]
    columns_of: tuple[str, ...]
    known_records: int
    held_back: int


@dataclass(frozen=True)
class AttackResult:
    """The result of one attack on one view.

    Parameters
    ----------
    attack : str
        The name of the attack.
    claimed : int
        The number of rows that it claims to be in the training data of the others.
    recovered : int
        The number of true claims.
    false_claims : int
        The number of false claims.
    residual : float, optional
        The largest residual of the attack's own check.
    max_error : float, optional
        The largest error of a value of a recovered row, in standard deviations of its column.
    ranked, members, auc : optional
        For an attack that ranks candidates: their number, the number of those in the training data of the others, and
        the probability that such a candidate ranks above another; None if there are only candidates of one kind.
    known_before : KnownColumns, optional
        For vertical partitions: the reconstructed columns.
    note : str
        Partial progress of the attack, or the reason why it was not run; "" for most attacks.
    """

    attack: str
    claimed: int = 0
    recovered: int = 0
    false_claims: int = 0
    residual: float | None = None
    max_error: float | None = None
    ranked: int | None = None
    members: int | None = None
    auc: float | None = None
    known_before: KnownColumns | None = None
    note: str = ""


@dataclass(frozen=True)
class PartyAudit:
    """The results of all attacks on the pooled views of some parties.

    Parameters
    ----------
    coalition : tuple of str
        The sites among the parties.
    coordinator : bool
        Whether the coordinator is one of the parties.
    sums : int
        The number of rounds in which they know a sum with inputs of others.
    numbers : int
        The number of values in these sums.
    parameters : int
        The number of arrays that they received as parameters.
    rows : int
        The number of training rows of the other sites.
    recovered : int
        The number of these rows that at least one attack recovered.
    false_claims : int
        The number of false claims of all attacks.
    attacks : tuple of AttackResult
        The results of the attacks that found the values that they need.
    tried : int
        The number of attacks on the view.
    has_list : bool
        For a party that has only the model file: whether it knows all rows of the source, including test rows, as
        candidates.
    """

    coalition: tuple[str, ...]
    coordinator: bool
    sums: int
    numbers: int
    parameters: int
    rows: int
    recovered: int
    false_claims: int
    attacks: tuple[AttackResult, ...]
    tried: int = 0
    has_list: bool = False

    @property
    def parties(self) -> tuple[str, ...]:
        """The names of the parties; for a model file, the party that has only the file."""
        among = Coalition(self.coalition, self.coordinator).parties
        return among or (HOLDER, *(["list"] if self.has_list else []))


@dataclass(frozen=True)
class CollusionReport:
    """The findings of declared colluders: each victim's inputs to single sums, and sentences.

    Their results for the whole run are the first entry of `RunResult.audit`.
    """

    coalition: tuple[str, ...]
    coordinator: bool
    victims: tuple[Finding, ...]
    remarks: tuple[str, ...]


@dataclass(frozen=True)
class GroundTruth:
    """The truth that only a simulation knows.

    Parameters
    ----------
    rows : mapping of site to LabeledRows
        For sites that hold rows: their training rows, encoded and not scaled.
    columns : mapping of site to FloatArray
        For sites that hold columns: their scaled columns of the last training records.
    candidates : LabeledRows, optional
        Records that the attackers may guess, encoded.
    source : LabeledRows, optional
        All rows of the source, including test rows, encoded.
    classes : int
        The number of classes; with more than two, labels are class numbers.
    """

    rows: Mapping[str, LabeledRows]
    columns: Mapping[str, FloatArray]
    candidates: LabeledRows | None = None
    classes: int = 2
    source: LabeledRows | None = None


def standard_coalitions(sites: Sequence[str]) -> list[Coalition]:
    """Return the standard coalitions: the coordinator alone, each site alone, and the coordinator with each site."""
    some = sites[:MAX_SITES]
    alone = [Coalition((site,), coordinator=False) for site in some]
    return [Coalition((), coordinator=True), *alone, *(Coalition((site,), coordinator=True) for site in some)]


# Single sums.


@dataclass
class _Tally:
    """The findings on a victim's inputs to one step so far."""

    rounds: int = 0
    values: int = 0
    recovered: int = 0
    max_error: float | None = None


def findings(run: RecordedRun, coalition: Coalition, shown: Sequence[str]) -> list[Finding]:
    """Return the findings on every honest site's input to every sum, and to every value sent in the clear.

    shown: steps whose values are sent in the clear under the settings. Raises AssertionError if the algebra and the
    numbers disagree.
    """
    tallies: dict[tuple[str, str, str], _Tally] = defaultdict(_Tally)
    for recorded in run:
        record, complete = recorded.record, recorded.shown
        reconstructed = run.reconstruct(recorded, coalition)
        for victim in recorded.honest(coalition):
            tally = tallies[victim, recorded.terms["protocol"], record.step]
            _compare(tally, recorded.total_of([victim]), reconstructed.get(victim))
        if complete is not None and complete.verb == "gather" and coalition.coordinator and record.step in shown:
            for site, value in complete.opened.items():
                if site not in coalition.sites:
                    _compare(tallies[site, "gather", record.step], value, value)
    return [
        Finding(*key, tally.rounds, tally.values, tally.recovered, tally.max_error) for key, tally in tallies.items()
    ]


def _compare(tally: _Tally, truth: FloatArray, reconstructed: FloatArray | None) -> None:
    tally.rounds += 1
    tally.values += truth.size
    if reconstructed is None:
        return
    error = float(np.abs(reconstructed - truth).max(initial=0.0))
    if error > 0:
        raise AssertionError(f"the algebra gives an input with error {error}")
    tally.recovered += truth.size
    tally.max_error = max(tally.max_error or 0.0, error)


# The whole run.


def audit_view(view: RunView, attacks: Sequence[Attack], truth: GroundTruth, known: KnownRecords | None) -> PartyAudit:
    """Attack a view, and compare the claims with the truth.

    Parameters
    ----------
    view : RunView
        The view of a coalition.
    attacks : sequence of Attack
        The attacks, in order: each receives the rows that those before it recovered.
    truth : GroundTruth
    known : KnownRecords, optional
        For vertical partitions: the records whose columns the coalition knows.
    """
    from fedsvm.algorithms.attacks.attack import CandidateScores, Prior
    from fedsvm.algorithms.attacks.every_problem import on_every_problem

    coalition = view.coalition
    prior = Prior(
        own=_together(truth.rows, coalition.sites),
        candidates=truth.candidates,
        known_records=known,
        classes=truth.classes,
        sites=len(truth.rows) or None,
    )
    judge = _ClaimJudge(
        _together(truth.rows, [site for site in truth.rows if site not in coalition.sites]),
        {site: columns for site, columns in truth.columns.items() if site not in coalition.sites},
    )
    results: list[AttackResult] = []
    with _one_blas_thread():
        for attack in attacks:
            for outcome in on_every_problem(attack, view, prior):
                if isinstance(outcome, CandidateScores):
                    results.append(judge.ranking(attack.name, outcome))
                    continue
                results.append(judge.claim(attack.name, outcome))
                if outcome.aligned is None and len(outcome.rows):
                    prior = prior.with_found(outcome)
    sums = [value for each in view.rounds for value in each.sums.values()]
    return PartyAudit(
        coalition=coalition.sites,
        coordinator=coalition.coordinator,
        sums=sum(1 for each in view.rounds if each.sums),
        numbers=sum(value.size for value in sums),
        parameters=sum(isinstance(value, np.ndarray) for each in view.rounds for value in each.parameters.values()),
        rows=judge.count,
        recovered=len(judge.found),
        false_claims=sum(result.false_claims for result in results),
        attacks=tuple(results),
        tried=len(attacks),
    )


def _one_blas_thread() -> AbstractContextManager[Any]:
    """Limit linear algebra to one thread: on busy cores, several threads mostly wait for each other."""
    import scipy.linalg  # noqa: F401 - it has its own library, and only loaded libraries are limited

    limited: AbstractContextManager[Any] = threadpool_limits(1, "blas")
    return limited


def file_audits(arrays: Mapping[str, Any], attacks: Sequence[Attack], truth: GroundTruth) -> list[PartyAudit]:
    """Attack a model file alone: without a list of candidates, and with the rows of the source as candidates."""
    from fedsvm.algorithms.attacks.model_file import file_view

    if not attacks or not truth.rows:
        return []
    view = file_view(arrays)
    without = audit_view(view, attacks, replace(truth, candidates=None), None)
    if truth.source is None:
        return [without]
    listed = audit_view(view, attacks, replace(truth, candidates=truth.source), None)
    return [without, replace(listed, has_list=True)]


def _together(rows: Mapping[str, LabeledRows], sites: Sequence[str]) -> LabeledRows | None:
    """Return the rows of some sites; None for none."""
    if not (held := [rows[site] for site in sites if site in rows]):
        return None
    return LabeledRows(np.vstack([each.rows for each in held]), np.concatenate([each.labels for each in held]))


class _ClaimJudge:
    """Compares claims with the training rows, or the columns, of the honest sites."""

    def __init__(self, rows: LabeledRows | None, columns: Mapping[str, FloatArray]) -> None:
        self._rows, self._columns = rows, columns
        self.found: set[int] = set()
        if rows is not None:
            deviation = rows.rows.std(axis=0)
            self._unit = np.where(deviation > 0, deviation, 1.0)

    @property
    def count(self) -> int:
        """Return the number of rows or records that an attack can recover."""
        if self._rows is not None:
            return len(self._rows.rows)
        return len(next(iter(self._columns.values()))) if self._columns else 0

    def claim(self, name: str, claim: RowClaim) -> AttackResult:
        """Judge a claim. A row that is claimed twice must exist twice."""
        if claim.aligned is not None:
            return self._align(name, claim, claim.aligned)
        true = self._match(claim)
        self.found |= true.keys()
        return _result(name, claim, list(true.values()))

    def _near(self, rows: FloatArray, labels: FloatArray) -> list[list[int]]:
        """Return for each row the equal training rows."""
        from scipy.spatial import cKDTree  # only needed by audits

        if self._rows is None or not len(rows):
            return [[] for _ in rows]
        whole, near = ~np.isnan(rows).any(axis=1), np.empty(len(rows), dtype=object)
        if whole.any():
            tree = cKDTree(self._rows.rows / self._unit)
            near[whole] = tree.query_ball_point(rows[whole] / self._unit, _SAME_ROW, p=np.inf)
        for place in np.flatnonzero(~whole):  # compares only the claimed columns
            known = np.flatnonzero(~np.isnan(rows[place]))
            away = np.abs(self._rows.rows[:, known] - rows[place, known]) / self._unit[known]
            near[place] = np.flatnonzero((away <= _SAME_ROW).all(axis=1)).tolist()
        return [
            [place for place in sorted(places) if np.isnan(label) or label == self._rows.labels[place]]
            for label, places in zip(labels, near, strict=True)
        ]

    def _match(self, claim: RowClaim) -> dict[int, float]:
        """Return the training rows that match claimed ones, each used once, with their distances."""
        taken: dict[int, float] = {}
        for row, places in zip(claim.rows, self._near(claim.rows, claim.labels), strict=True):
            free = [place for place in places if place not in taken]
            if free and self._rows is not None:
                away = np.abs(row - self._rows.rows[free[0]]) / self._unit
                taken[free[0]] = float(away[~np.isnan(away)].max(initial=0.0))
        return taken

    def _align(self, name: str, claim: RowClaim, aligned: AlignedRecords) -> AttackResult:
        """Compare each claimed record with the record at its claimed position."""
        columns = np.hstack([self._columns[site] for site in aligned.columns_of])
        errors = np.abs(claim.rows - columns[aligned.indices]).max(axis=1, initial=0.0)
        true = np.flatnonzero(errors < _SAME_COLUMNS)
        self.found |= set(aligned.indices[true].tolist())
        before = KnownColumns(aligned.sites, aligned.columns_of, aligned.known_records, aligned.held_back)
        return _result(name, claim, errors[true].tolist(), before)

    def ranking(self, name: str, ranking: CandidateScores) -> AttackResult:
        """Judge a ranking: the candidates that are training rows, and whether they rank above the others."""
        member = np.array([bool(places) for places in self._near(*ranking.candidates)], dtype=np.bool_)
        return AttackResult(
            name,
            ranked=len(member),
            members=int(member.sum()),
            auc=_area(ranking.scores[member], ranking.scores[~member]),
        )


def _result(name: str, claim: RowClaim, errors: Sequence[float], before: KnownColumns | None = None) -> AttackResult:
    """Return the result of a claim. errors: those of the true rows."""
    return AttackResult(
        attack=name,
        claimed=len(claim.rows),
        recovered=len(errors),
        false_claims=len(claim.rows) - len(errors),
        residual=claim.residual if len(claim.rows) else None,
        max_error=max(errors, default=None),
        known_before=before,
        note=claim.note,
    )


def _area(members: FloatArray, others: FloatArray) -> float | None:
    """Return the probability that a member's score is above another's, ties counting half."""
    if not len(members) or not len(others):
        return None
    above = np.sign(members[:, None] - others[None, :])
    return float((above.mean() + 1.0) / 2.0)
