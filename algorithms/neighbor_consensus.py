"""Consensus of neighbors on a ring, without a coordinator's average (MoM-DSVM; Forero, Cano and Giannakis 2010).

Site j of J has a model v_j = (w, b) of its own, a multiplier a_j that stays there, and two neighbors B_j on the ring.
With f~ = (f, 1), eta the penalty, N = |B_j| and U = 1 + 2 eta N (of a free intercept 2 eta N), from v = a = 0:

    f_j <- 2 a_j - eta sum over i in B_j of (v_j + v_i)
    v_j <- argmin over v of  1/2 v.U v + f_j.v + J C sum max(0, 1 - y f~.v)      at the site, by its dual
    v_j and v_i are exchanged with each neighbor i
    a_j <- a_j + eta/2 sum over i in B_j of (v_j - v_i)

The fixed point is the SVM of all rows. A secure sum adds the squared distances of neighbors and the squared lengths of
models, which the coordinator stops by. In the end a secure sum opens the mean of the models.

Disclosures. Each model of each iteration goes to two neighbors in the clear. A neighbor that also knows the
models of the site's other neighbor, as with three sites or if both collude, computes a_j, and with it
U v_j + f_j = J C sum lambda y f~ over that one site's rows, with lambda in [0, 1] of each row. The coordinator learns
the distances, and at the end the mean.

References
----------
P. A. Forero, A. Cano and G. B. Giannakis, "Consensus-based distributed support vector machines", JMLR 11, 2010,
proposition 2.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from fedsvm.algorithms.data.horizontal import HorizontalSite
from fedsvm.algorithms.features.mapped_rows import FeatureRows
from fedsvm.algorithms.optimization.proximal_model import local_model
from fedsvm.federation.arrays import FloatArray
from fedsvm.federation.channel.interface import Channel
from fedsvm.federation.errors import StepRefused
from fedsvm.federation.site.program import AGREED, SitePart, free, step

MODELS_IN_CLEAR = (
    "the model of each iteration of two other sites, in the clear; with the models of a site's other neighbor, too, a "
    "sum of that site's rows with weights from 0 to 1"
)
RESIDUALS = "the squared distances of neighbors' models, and the squared lengths of models and of their last change"


def neighbors_of(channel: Channel) -> list[str]:
    """Return the sites before and after this one on the ring; one of two sites."""
    place, sites = channel.sites.index(channel.me), channel.sites
    around = [sites[place - 1], sites[(place + 1) % len(sites)]]
    return list(dict.fromkeys(around))


@dataclass(frozen=True)
class _State:
    """A site's model (d,), its multiplier (d,), the sum of its neighbors' models (d,), and its dual variables (n,)."""

    model: FloatArray
    multiplier: FloatArray
    around: FloatArray
    duals: FloatArray

    @classmethod
    def zero(cls, length: int, rows: int) -> _State:
        """Return the state before the first iteration."""
        return cls(np.zeros(length), np.zeros(length), np.zeros(length), np.zeros(rows))


class NeighborConsensus(SitePart):
    """A site's model, its multiplier, and the models of its neighbors."""

    def __init__(self, site: HorizontalSite, rows: FeatureRows) -> None:
        self._site, self._rows = site, rows
        self._iteration = 0
        self._now: _State | None = None
        self._before: _State | None = None
        self._change = 0.0
        self._distance = 0.0

    @property
    def duals(self) -> FloatArray:
        """(n,) of the last problem. Raises StepRefused before the first iteration."""
        return self._state().duals

    @step(
        told={
            "iteration": free("a whole number", "the same exchange again"),
            "C, rho, bias": AGREED,
            "fresh": free("true or false", "a restart of the solver"),
        }
    )
    def exchange_models(self, iteration: int, C: float, rho: float, bias: str, fresh: bool) -> None:
        """Find this site's model, and exchange it with the neighbors. rho: eta."""
        if fresh:
            rows, features = self._rows.features.shape
            self._before = _State.zero(features + 1, rows)
        elif iteration != self._iteration:
            self._before = self._now
        if self._before is None:
            raise StepRefused("the site lost its model when it was restarted; run again")
        self._iteration = iteration
        self._now = self._iterate(self._before, C, rho, bias)

    def _iterate(self, before: _State, C: float, rho: float, bias: str) -> _State:
        """Return the next state."""
        v, multiplier, around = before.model, before.multiplier, before.around
        channel = self._site.channel
        neighbors = neighbors_of(channel)
        count, sites = len(neighbors), len(channel.sites)
        pull = 2 * multiplier - rho * (count * v + around)
        curvature = np.full(len(v), 1 + 2 * rho * count)
        if bias == "free":
            curvature[-1] = 2 * rho * count
        lever = math.sqrt(curvature[0] / curvature[-1])
        units = np.append(np.ones(len(v) - 1), lever)  # in these units of v the curvature is the same everywhere
        centre = -pull / curvature / units
        price = curvature[0] / (sites * C)
        found, duals = local_model(self._rows.features, self._site.labels[0], centre, price, before.duals, lever)
        model = found * units
        for neighbor in neighbors:
            channel.send(neighbor, model)
        received = [channel.receive(neighbor, model.shape, np.float64) for neighbor in neighbors]
        if not np.isfinite(received).all():
            raise StepRefused("a neighbor sent a model that is not finite")
        around = np.sum(received, axis=0)
        self._change = float(((model - v) ** 2).sum())
        self._distance = float(((model - np.array(received)) ** 2).sum())
        return _State(model, multiplier + rho / 2 * (count * model - around), around, duals)

    @step(bound=math.inf)
    def neighbor_residuals(self) -> FloatArray:
        """Return the (3,) squared distance from the neighbors, the squared length, and the squared last change."""
        v = self._state().model
        return np.array([self._distance, float(v @ v), self._change])

    @step(bound=math.inf)
    def neighbor_model(self) -> FloatArray:
        """Return the (m + 1,) model of this site."""
        return self._state().model

    def _state(self) -> _State:
        if self._now is None:
            raise StepRefused("the site has no model yet; run again")
        return self._now
