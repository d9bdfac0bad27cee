"""The audit of a run: what parties that pool what they saw learn of the others' rows, judged by the truth.

Two questions, asked of one record of the run. Of a single sum: do the coalition's messages determine what another site
put in? (`findings`, by the algebra of the protocols.) Of the whole run: which rows follow from everything that the
coalition saw? (`audited`, by the attacks that the algorithm lists.) The attacks do not see the truth; here it is
compared with what they claim, which only a simulation can do.
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
"""The party that has the file of a model and nothing else."""

_SAME_ROW = 2.0**-12
"""Rows that differ by less of each column's deviation are one."""

_SAME_COLUMNS = 1e-6
"""In units of the scaled columns, of a vertical partition's records."""

MAX_SITES = 10
"""Of more, the first are audited by themselves and with the coordinator."""


@dataclass(frozen=True)
class Finding:
    """The inputs of one victim to one step that the coalition learned, over all rounds.

    values: numbers that the victim put in; recovered: those that were reconstructed; max_error: of these, None if there
    are none.
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
    """Rebuilt columns of a vertical partition: whose they are, the sites whose values gave them, and how many records.

    known_records: of how many the coalition knew these columns before; held_back: of how many it did not.
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
    claimed : int
        Rows that it says are in the training data of the others.
    recovered : int
        Of these, rows that are.
    false_claims : int
        And those that are not.
    residual : float, optional
        The largest that the attack's own check left.
    max_error : float, optional
        The largest difference of a column of a row that was recovered from the truth, in the column's deviations.
    ranked, members, auc : optional
        Of one that ranks candidates: how many, how many of these are in the training data of the others, and the chance
        that it ranks one that is above one that is not; None where either are missing.
    known_before : KnownColumns, optional
        Of vertical partitions.
    note : str
        How far the attack came, or why it was not run; "" of most attacks.
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
    """The results of some parties that pool what they saw of the whole run.

    Parameters
    ----------
    coalition : tuple of str
        The sites among them.
    coordinator : bool
    sums : int
        Rounds in which they know a sum with inputs of the others.
    numbers : int
        Numbers in these sums.
    parameters : int
        Arrays that they were sent.
    rows : int
        Training rows of the other sites.
    recovered : int
        Of these, rows that one attack or another recovered.
    false_claims : int
        Of all attacks.
    attacks : tuple of AttackResult
        Of those that found what they need.
    tried : int
        Attacks on the view.
    has_list : bool
        Of whoever holds the model file alone: whether all rows of the source, test rows too, are known as candidates.
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
        """By name; where nobody took part it is whoever holds the model file."""
        among = Coalition(self.coalition, self.coordinator).parties
        return among or (HOLDER, *(["list"] if self.has_list else []))


@dataclass(frozen=True)
class CollusionReport:
    """The findings of declared colluders: each victim's inputs to single sums, and sentences.

    What they make of the whole run is the first of `RunResult.audit`.
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
        Of sites that hold rows: those that they trained on, encoded and not scaled.
    columns : mapping of site to FloatArray
        Of sites that hold columns: these, scaled, of the records that were trained on last.
    candidates : LabeledRows, optional
        Records that the attackers can imagine, encoded.
    source : LabeledRows, optional
        All rows of the source, test rows too, encoded.
    classes : int
        How many there are; of more than two, labels are their numbers.
    """

    rows: Mapping[str, LabeledRows]
    columns: Mapping[str, FloatArray]
    candidates: LabeledRows | None = None
    classes: int = 2
    source: LabeledRows | None = None


def everybody(sites: Sequence[str]) -> list[Coalition]:
    """Return the standard coalitions: the coordinator alone, each site alone, and the coordinator with each site."""
    some = sites[:MAX_SITES]
    alone = [Coalition((site,), coordinator=False) for site in some]
    return [Coalition((), coordinator=True), *alone, *(Coalition((site,), coordinator=True) for site in some)]


# Of a single sum.


@dataclass
class _Tally:
    """The findings on a victim's inputs to one step so far."""

    rounds: int = 0
    values: int = 0
    recovered: int = 0
    max_error: float | None = None


def findings(run: RecordedRun, coalition: Coalition, shown: Sequence[str]) -> list[Finding]:
    """Return every honest site's input to every sum that a coalition reconstructs, or received in the clear.

    shown: steps whose values the settings had sent in the clear. Raises AssertionError where algebra and numbers
    disagree.
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


# Of the whole run.


def audit_view(view: RunView, attacks: Sequence[Attack], truth: GroundTruth, known: KnownRecords | None) -> PartyAudit:
    """Return the results of attacks on a view, and how much of them is true.

    Parameters
    ----------
    view : RunView
        What a coalition has.
    attacks : sequence of Attack
        In order: each is told what those before it recovered.
    truth : GroundTruth
    known : KnownRecords, optional
        Of vertical partitions.
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
    """Limit linear algebra to one thread: on busy cores more of them mostly wait for each other."""
    import scipy.linalg  # noqa: F401 - it has a library of its own, and only what is loaded is limited

    limited: AbstractContextManager[Any] = threadpool_limits(1, "blas")
    return limited


def file_audits(arrays: Mapping[str, Any], attacks: Sequence[Attack], truth: GroundTruth) -> list[PartyAudit]:
    """Return what whoever holds a model's file makes of it, without a list of candidates and with the source's rows."""
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
    """Compares what is claimed with the training rows, or the columns, of the honest sites."""

    def __init__(self, rows: LabeledRows | None, columns: Mapping[str, FloatArray]) -> None:
        self._rows, self._columns = rows, columns
        self.found: set[int] = set()
        if rows is not None:
            deviation = rows.rows.std(axis=0)
            self._unit = np.where(deviation > 0, deviation, 1.0)

    @property
    def count(self) -> int:
        """Return the number of rows or records that can be found."""
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
        from scipy.spatial import cKDTree  # a run that is not audited has no use for it

        if self._rows is None or not len(rows):
            return [[] for _ in rows]
        whole, near = ~np.isnan(rows).any(axis=1), np.empty(len(rows), dtype=object)
        if whole.any():
            tree = cKDTree(self._rows.rows / self._unit)
            near[whole] = tree.query_ball_point(rows[whole] / self._unit, _SAME_ROW, p=np.inf)
        for place in np.flatnonzero(~whole):  # of what is claimed of it
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
        """Compare records that have a position with the record there."""
        columns = np.hstack([self._columns[site] for site in aligned.columns_of])
        errors = np.abs(claim.rows - columns[aligned.indices]).max(axis=1, initial=0.0)
        true = np.flatnonzero(errors < _SAME_COLUMNS)
        self.found |= set(aligned.indices[true].tolist())
        before = KnownColumns(aligned.sites, aligned.columns_of, aligned.known_records, aligned.held_back)
        return _result(name, claim, errors[true].tolist(), before)

    def ranking(self, name: str, ranking: CandidateScores) -> AttackResult:
        """Judge a ranking: which candidates are training rows, and whether these rank above the others."""
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
