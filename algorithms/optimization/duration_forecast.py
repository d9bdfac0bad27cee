"""The predicted duration of training by each solver, from what a round carries and computes, for `solver = "auto"`.

A round of the interior point carries P (m + 1)(m + 2) / 2 numbers and some for P problems of m features, and one of the
cutting plane P g (m + 2) for g groups, but there are three times as many, and a master problem for each. So the first
wins where features are few or messages slow to come, and the second where features are many. How many rounds there will
be nobody knows: what is taken is what the runs of this project took to a gap of 1e-3 or 1e-4.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from fedsvm.algorithms.data.conditions import Conditions
from fedsvm.algorithms.optimization.path_rounds import Layout

NEWTON_ROUNDS, NOISY_ROUNDS, CUT_ITERATIONS = 20, 8, 30
"""Of the interior point, of one sum each, without and with noise in the objective; and of the cutting plane, of two."""

FLOPS = 1e10
"""A second, of one processor; what BLAS does in matrices of some hundred."""

MASK_PRODUCTS = 2.4
"""The most products of (m, m) matrices that masking a system takes; with few rows it takes less."""

_MASTER_PASSES = 100
"""Factorisations of the size of its cuts that a master problem takes; and it keeps some ten cuts a group."""

_CUTS_KEPT = 10


@dataclass(frozen=True)
class Work:
    """The work of training: rows of all sites, features, binary problems, groups of cuts, and the number of sites."""

    rows: int
    features: int
    problems: int
    groups: int
    sites: int

    @property
    def share(self) -> float:
        """The slowdown of a site that shares this machine's processors with the others."""
        return max(1.0, self.sites / (os.cpu_count() or 1))

    def by_interior_point(self, conditions: Conditions) -> float:
        """Return the predicted seconds."""
        m = self.features
        numbers, told = self.problems * Layout(m + 1, m).length, self.problems * (m + 1)
        at_site = self.problems * (2 * self.rows / self.sites * m**2 + 2 * MASK_PRODUCTS * m**3)
        computing = (self.share * at_site + self.problems * m**3) / FLOPS
        return NEWTON_ROUNDS * (conditions.sum_s(self.sites, numbers, told) + computing)

    def by_cutting_planes(self, conditions: Conditions) -> float:
        """Return the predicted seconds."""
        m, cuts = self.features, _CUTS_KEPT * self.groups
        carried = conditions.sum_s(self.sites, self.problems * self.groups * (m + 2), self.problems * (m + 1))
        searched = conditions.sum_s(self.sites, self.problems * 34, 2 * self.problems * (m + 1))
        at_site = self.share * self.problems * 2 * self.groups * self.rows / self.sites * m
        masters = self.problems * _MASTER_PASSES * min(cuts, m + self.groups) ** 3 / 3
        return CUT_ITERATIONS * (carried + searched + (at_site + masters) / FLOPS)
