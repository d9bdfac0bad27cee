"""Rows at the margin from a sum of rows weighted by dual variables, by whoever has a list (on consensus ADMM).

A certificate opens sum theta_i lambda_i y_i f_i over all rows, and of each class sum lambda_i, exactly. Rows beyond the
margin have lambda_i = 0, so that the sums are of candidates at the margin or within, and where these are fewer than
features, least squares finds every lambda_i. Which candidates are near enough the attacker does not know, since every
site's own model has a margin of its own; it takes ever more, as long as the equations determine them. That it is right
it knows from equations that nothing asked to hold: they are more than the candidates, and all of lambda is in [0, 1].
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Self

import numpy as np

from fedsvm.algorithms.attacks.attack import Prior
from fedsvm.algorithms.attacks.epochs import epochs
from fedsvm.algorithms.attacks.finite_domain import combinations, distinct, least_squares
from fedsvm.algorithms.attacks.row_counts import CountingAttack, ShownRows
from fedsvm.algorithms.data.columns import LabeledRows
from fedsvm.federation.arrays import FloatArray, IntArray
from fedsvm.protocols.analysis.views import RunView

_MAX_NEAR = 1_500
"""Of more candidates the least squares would take minutes."""

_SLACKS = (0.01, 0.03, 0.1, 0.2, 0.3, 0.5, 0.8)
"""By how much a candidate may be beyond the margin of the consensus, and at the margin of its site's model."""

_SPARE = 1.02
"""Equations for each candidate, at least: with no more of them anything could be made up."""

_CHECKED_WITHIN = 1e-6
"""Of a number in the sums, relative to their largest."""

_THERE = 1e-4
"""A row with a smaller part is not claimed."""


class DualPoints(CountingAttack):
    """Candidates whose dual variables follow from the sums, and are not 0."""

    name = "dual points"

    def shown_rows(self, view: RunView, prior: Prior) -> Iterator[ShownRows]:
        """Yield the candidates that each certificate gives."""
        for epoch in epochs(view):
            candidates = prior.candidates or combinations(epoch)
            if candidates is None or epoch.features is None:
                continue
            for each, before in zip(epoch.of("dual_vector"), epoch.of("dual_sums")[-1:], strict=False):
                for sites in each.sums.keys() & before.sums.keys():
                    vector, alphas = each.sums[sites][0] * each.parameters["scale"], before.sums[sites][0, 1:]
                    seen = np.concatenate([vector, alphas * before.parameters["scales"][1]])
                    point = np.append(before.parameters["w"][0], before.parameters["b"][0])
                    terms = _DistinctCandidates.of(candidates, epoch.features(epoch.scale(candidates.rows)), point)
                    solved = solve(terms, each.parameters["theta"][0], seen)
                    duals, residual = solved or (np.zeros(len(terms.places)), 0.0)
                    places = terms.places[duals > _THERE]
                    yield ShownRows.of(epoch, candidates.rows[places], candidates.labels[places], residual)


@dataclass(frozen=True)
class _DistinctCandidates:
    """Different candidates: features (n, m), labels and margins (n,), and their places in the list (n,)."""

    features: FloatArray
    labels: FloatArray
    margins: FloatArray
    places: IntArray

    @classmethod
    def of(cls, candidates: LabeledRows, features: FloatArray, point: FloatArray) -> Self:
        """Return the terms of a list at w and b (m + 1,)."""
        places = distinct(np.column_stack([features, candidates.labels]))
        features, labels = features[places], candidates.labels[places]
        return cls(features, labels, labels * (features @ point[:-1] + point[-1]), places)


def solve(terms: _DistinctCandidates, theta: FloatArray, seen: FloatArray) -> tuple[FloatArray, float] | None:
    """Return lambda (n,) of candidates that make up the observed sums (m + 2,), and the largest relative residual.

    theta (2,), of the classes +1 and -1. None where no set of candidates near the margin does, or too many to be sure.
    """
    unit = max(1.0, float(np.abs(seen).max(initial=0.0)))
    for slack in _SLACKS:
        near = np.flatnonzero(terms.margins < 1 + slack)
        if not 0 < _SPARE * len(near) <= min(len(seen), _MAX_NEAR):
            continue
        labels, features = terms.labels[near], terms.features[near]
        weights = np.where(labels > 0, theta[0], theta[1]) * labels
        design = np.vstack([(weights[:, None] * features).T, labels > 0, labels < 0])
        found, determined = least_squares(design, seen)
        left = float(np.abs(design @ found - seen).max()) / unit
        inside = found.min() > -_THERE and found.max() < 1 + _THERE
        if determined.all() and left < _CHECKED_WITHIN and inside:
            duals = np.zeros(len(terms.features))
            duals[near] = found
            return duals, left
    return None
