"""The choice of a masking before a run: a committee, if it is predicted to take at most twice as long as without one.

Everything is known from the scenario: no party's data and no processor has a part in the choice, so that whoever makes
it again comes to the same. Seconds are of sites that share a machine with two processors, and of links as they are
declared. The constants are processor time that runs of this project took.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from fedsvm.algorithms.data.conditions import Conditions
from fedsvm.algorithms.optimization.blind_path import BlindOrder
from fedsvm.algorithms.optimization.duration_forecast import MASK_PRODUCTS, NEWTON_ROUNDS
from fedsvm.algorithms.optimization.path_rounds import Layout
from fedsvm.protocols.blind_parameters import BlindSystem
from fedsvm.protocols.blind_system import MAX_SITES, blind_systems_cost
from fedsvm.protocols.committee import MIN_SITES
from fedsvm.protocols.sums.secure_sum import Cost

MOST = 2.0
"""The seconds of a run with a committee over those without, up to which `auto` takes it."""

_PREDICTED = "on an idle machine a run would take about"

_RUN_S = 1.5
"""A run without its rounds of training."""

_FEWER_ROUNDS = 0.85
"""Rounds of an interior point behind a committee over those of one without, as runs of this project took."""

_PROCESSORS = 2
_HOP_S = 3e-4
_BYTE_S = 3.7e-9
"""Processor time of all parties for a byte of payload, and for what becomes of it."""

_ENTRY_S = 6e-8
"""Processor time of a site to draw its masks of a problem, for an entry of the matrix."""

_PROBLEM_S = 5e-4
"""Processor time of a site for a problem in a round, masked or not."""

_PRODUCT_FLOPS = 4.03e10
_MASK_FLOPS = 5e10
_PRODUCTS = 12
"""Of matrices modulo each prime, by all members."""

_RESIDUE_S = 1.4e-7
"""Processor time of all members to draw, encode and reduce what a residue of a system's matrix takes."""


@dataclass(frozen=True)
class MaskedRounds:
    """The rounds of a run in which masked systems are solved.

    Attributes
    ----------
    sites : int
    systems : sequence of BlindSystem
        Of one round.
    numbers : int
        In the sum of a round without a committee.
    masks : float
        That each site draws in a round without a committee.
    rounds : int
        Of all models, without a committee.
    conditions : Conditions
        Of the network.
    share : float, default 1.0
        The rounds with a committee over those without.
    rows : int or None, default None
        Of all sites; None if no party knows their number before the run.
    """

    sites: int
    systems: tuple[BlindSystem, ...]
    numbers: int
    masks: float
    rounds: int
    conditions: Conditions = field(default_factory=Conditions)
    share: float = 1.0
    rows: int | None = None

    @classmethod
    def of_path(
        cls,
        sites: int,
        features: int,
        problems: int,
        models: int,
        conditions: Conditions,
        *,
        intercept: bool = True,
        rows: int | None = None,
        iterations: int = NEWTON_ROUNDS,
    ) -> MaskedRounds:
        """Return the rounds of interior points with so many features and iterations each; rows: see the class."""
        layout = Layout(features + int(intercept), features)
        ones = np.ones(problems)
        counted = np.arange(problems)
        scales, noises = np.ones((problems, 5)), np.ones((problems, 3))
        order = BlindOrder(1, counted, ones, ones, ones, scales, 1, noises, np.ones((problems, 2)))
        systems, numbers = tuple(order.systems([layout] * problems)), problems * layout.length
        return cls(sites, systems, numbers, problems, iterations * models, conditions, _FEWER_ROUNDS, rows)

    @property
    def open_s(self) -> float:
        """The predicted seconds of the run without a committee."""
        cost = self.conditions.secure_sum.cost(self.sites, (self.numbers,), 1.0)
        size = self.systems[0].size
        flops = 2 * MASK_PRODUCTS * size**3
        if self.rows is not None:  # few rows are masked in place of their matrix
            flops = min(flops, 4 * size**2 * self.rows / self.sites)
        masks = self.sites * self.masks
        return self._run_s(self.rounds, cost, masks * (size**2 * _ENTRY_S + flops / _MASK_FLOPS))

    @property
    def committee_s(self) -> float:
        """The predicted seconds of the run with a committee."""
        cost = blind_systems_cost(self.conditions.secure_sum, self.sites, self.systems)
        residues = np.array([len(each.numbers.primes) * each.extended**2 for each in self.systems])
        sizes = np.array([each.extended for each in self.systems])
        flops = float((2 * _PRODUCTS * residues * sizes).sum())
        computed_s = flops / _PRODUCT_FLOPS + float(residues.sum()) * _RESIDUE_S
        return self._run_s(self.share * self.rounds, cost, computed_s)

    def _run_s(self, rounds: float, cost: Cost, computed_s: float) -> float:
        carried = cost.payload_bytes / self.sites / self.conditions.bytes_per_s
        waited = cost.hops * (self.conditions.latency_s + _HOP_S)
        at_sites = self.sites * len(self.systems) * _PROBLEM_S
        busy = (computed_s + at_sites + cost.payload_bytes * _BYTE_S) / _PROCESSORS
        return _RUN_S + rounds * (carried + waited + busy)


def obstacle(sites: int, min_sites: int | None, conditions: Conditions) -> str | None:
    """Return why a run can have no committee; None if it can. min_sites: with which it may begin or go on."""
    if not MIN_SITES <= sites <= MAX_SITES:
        return f"a committee needs {MIN_SITES} to {MAX_SITES} sites"
    if min_sites is not None and min_sites < MIN_SITES:
        return f"a committee needs {MIN_SITES} sites and the run may go on with {min_sites}"
    if conditions.secure_sum.discloses == "value":
        return "a committee hides nothing with a sum that shows the coordinator the sites' inputs"
    return None


def choice(without: str, rounds: MaskedRounds | None, unless: str | None) -> tuple[bool, str]:
    """Return whether a committee is taken, and a sentence on it.

    Parameters
    ----------
    without : str
        The masking without a committee.
    rounds : MaskedRounds or None
        None if the number of features is not known before the run.
    unless : str or None
        Why the run can have no committee.

    Returns
    -------
    bool, str
    """
    if unless is None and rounds is None:
        unless = "the number of features is not known before the run"
    if unless is not None or rounds is None:
        return False, f"{without}; {unless}"
    by_committee, otherwise = rounds.committee_s, rounds.open_s
    if by_committee <= MOST * otherwise:
        return True, f"committee; {_PREDICTED} {by_committee:.2g} s, without one {otherwise:.2g} s"
    return False, f"{without}; {_PREDICTED} {otherwise:.2g} s, with a committee {by_committee:.2g} s"
