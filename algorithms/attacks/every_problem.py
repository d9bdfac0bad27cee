"""Attacks on binary problems where there are several: each problem by itself, and what they show of a row together.

Of more than two classes rows have the number of their class for a label. To an attack on one binary problem they have
+1 and -1, and rows that are not part of the problem are not there. What it claims of the rows of a label is claimed of
the label's class if it has only one; each class against the others shows +1 of one class, and -1 of any other.

A row is in the data as often as one problem shows, at least, and as often as all its classes do together. Candidates
are ranked by the mean of their scores in the problems that rank them. Cuts of all problems are of the same rows: what
is found in one is then tried in the others, where the attack can do that.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from fedsvm.algorithms.attacks.attack import Attack, BinaryTask, CandidateScores, Prior, RowClaim
from fedsvm.algorithms.attacks.epochs import epochs
from fedsvm.algorithms.attacks.row_counts import SAME_WITHIN
from fedsvm.algorithms.data.classes import signs_of
from fedsvm.algorithms.data.columns import LabeledRows
from fedsvm.federation.arrays import FloatArray
from fedsvm.protocols.analysis.views import RunView


def on_every_problem(attack: Attack, view: RunView, prior: Prior) -> Iterator[RowClaim | CandidateScores]:
    """Yield the results of an attack on a view of two or more classes, with labels as in `prior`."""
    if prior.classes == 2 or not attack.is_of_problems:
        yield from attack(view, prior)
        return
    posed = problems_of(view, prior.classes)
    claim, rankings = _attack_problems(attack, view, prior, posed)
    if claim is not None and attack.uses_found and len(claim.rows):
        claim, rankings = _attack_problems(attack, view, prior.with_found(claim), posed)
    if prior.candidates is not None and rankings:
        yield from _rank(prior.candidates, rankings)
    if claim is not None:
        yield claim


def problems_of(view: RunView, classes: int) -> list[BinaryTask]:
    """Return the binary problems of K classes, as sites were asked to pose them."""
    every_two = any(each.parameters.get("scheme") == "ovo" for each in view.rounds)
    return [BinaryTask(number, each) for number, each in enumerate(signs_of(classes, "ovo" if every_two else "ovr"))]


def _attack_problems(
    attack: Attack, view: RunView, prior: Prior, posed: Sequence[BinaryTask]
) -> tuple[RowClaim | None, list[tuple[BinaryTask, CandidateScores]]]:
    """Return the claims on all problems as one, if there are any, and the rankings."""
    unit = next((SAME_WITHIN * epoch.scale.scale for epoch in epochs(view)), None)
    claims = list[tuple[BinaryTask, RowClaim]]()
    rankings = list[tuple[BinaryTask, CandidateScores]]()
    for each in posed:
        for outcome in attack(view, prior.of_problem(each)):
            if isinstance(outcome, CandidateScores):
                rankings.append((each, outcome))
            else:
                claims.append((each, outcome))
    return (None if unit is None or not claims else _together(claims, unit)), rankings


@dataclass
class _ClassCounts:
    """Of one row: how often each class of it is there (K,), and how often it is, whatever its class, at least."""

    of_class: FloatArray
    often: int = 0


def _together(claims: Sequence[tuple[BinaryTask, RowClaim]], unit: FloatArray) -> RowClaim:
    """Return rows claimed in any problem, with their class if it is known, otherwise NaN."""
    classes, rows, shown = len(claims[0][0].signs), list[FloatArray](), list[_ClassCounts]()
    for posed, claim in claims:
        counts: dict[int, FloatArray] = {}
        for row, label in zip(claim.rows, claim.labels, strict=True):
            place = _place(row, rows, unit)
            if place == len(rows):
                rows.append(row)
                shown.append(_ClassCounts(np.zeros(classes)))
            elif np.isnan(row).sum() < np.isnan(rows[place]).sum():
                rows[place] = row
            of_class = counts.setdefault(place, np.zeros(classes + 1))
            of_class[posed.class_of(label, otherwise=classes)] += 1
        for place, of_class in counts.items():
            known = shown[place]
            known.of_class = np.maximum(known.of_class, of_class[:-1])
            known.often = max(known.often, int(of_class.sum()), int(known.of_class.sum()))
    places, labels = list[int](), list[float]()
    for place, known in enumerate(shown):
        told = np.repeat(np.arange(classes, dtype=np.float64), known.of_class.astype(np.int64)).tolist()
        labels += told + [np.nan] * (known.often - len(told))
        places += [place] * known.often
    found = np.array(rows).reshape(-1, len(unit))[places]
    return RowClaim(found, np.array(labels), max(claim.residual for _, claim in claims))


def _place(row: FloatArray, rows: Sequence[FloatArray], unit: FloatArray) -> int:
    """Return the position of the equal row, compared in the columns known in both, or the end."""
    if not rows:
        return 0
    away = np.abs(np.array(rows) - row)
    same = (np.isnan(away) | (away <= unit)).all(axis=1) & ~np.isnan(away).all(axis=1)
    return int(same.argmax()) if same.any() else len(rows)


def _rank(candidates: LabeledRows, rankings: Sequence[tuple[BinaryTask, CandidateScores]]) -> Iterator[CandidateScores]:
    """Yield candidates by their mean score, without those that no problem ranks."""
    places: dict[bytes, list[int]] = {}
    for place, row in enumerate(candidates.rows):
        places.setdefault(row.tobytes(), []).append(place)
    scores, times = np.zeros(len(candidates.rows)), np.zeros(len(candidates.rows))
    for posed, ranking in rankings:
        best: dict[int, float] = {}
        for row, label, score in zip(*ranking.candidates, ranking.scores, strict=True):
            for place in places[row.tobytes()]:
                if posed.signs[int(candidates.labels[place])] == label:
                    best[place] = max(best.get(place, -np.inf), float(score))
        for place, score in best.items():
            scores[place] += score
            times[place] += 1
    some = times > 0
    yield CandidateScores(LabeledRows(candidates.rows[some], candidates.labels[some]), scores[some] / times[some])
