"""A committee, behind whose masks a coordinator solves systems: settings, conditions and rounds.

The protocol is `fedsvm.protocols.blind_system`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np

from fedsvm.algorithms.data.horizontal import HorizontalSite
from fedsvm.algorithms.settings import doc
from fedsvm.federation.arrays import FloatArray, IntArray
from fedsvm.federation.channel.interface import Channel
from fedsvm.federation.errors import FederationError
from fedsvm.federation.federation import Federation
from fedsvm.federation.membership import MEMBER_NEEDED
from fedsvm.federation.site.resources import reuse_large_blocks
from fedsvm.protocols.blind_parameters import BlindSystem
from fedsvm.protocols.blind_system import (
    MAX_SITES,
    BlindSolution,
    contribute_to_systems,
    solve_blind_systems,
)
from fedsvm.protocols.committee import MIN_SITES
from fedsvm.protocols.sums.registry import SUMS

LEAN = 32.0
"""The system has at an intercept about the prices of all rows near the margin, over this, or more."""

_PRODUCT_S = 5e-8
"""Seconds that the products of matrices may take in a round, times the cube of their size."""

Masking = Literal["none", "committee", "auto"]


@dataclass(kw_only=True)
class BlindSystemSettings:
    """The setting of algorithms that solve linear systems of sums over all rows."""

    masking: Annotated[
        Masking,
        doc(
            "none opens the system of all rows to the coordinator. committee hides it behind the masks of two sites; "
            "it needs three sites or more. auto: committee if the run is predicted to take at most twice as long as "
            "with none, otherwise none."
        ),
    ] = "none"


def check_committee(federation: Federation) -> None:
    """Raise FederationError for a run that can have no committee."""
    if not MIN_SITES <= (count := len(federation.sites)) <= MAX_SITES:
        raise FederationError(
            f'algorithm.masking = "committee" needs {MIN_SITES} to {MAX_SITES} sites, got {count}; set '
            "another algorithm.masking."
        )
    if missing := [site for site in federation.membership.policy.committee if site not in federation.sites]:
        raise FederationError(f"{', '.join(missing)} does not take part. {MEMBER_NEEDED}")
    if federation.shows_inputs:
        raise FederationError(
            'algorithm.masking = "committee" hides nothing with a sum that shows the coordinator the sites\' inputs; '
            "set protocol.sum to a secure one."
        )


def dither_size(noise: float, gaps: FloatArray, dimensions: int | IntArray, penalty: float = 1.0) -> FloatArray:
    """Return the deviation of noise on each of the right-hand sides whose steps then lose noise^2 of each gap.

    penalty: on each of the dimensions, or more, is in the diagonal of the systems.
    """
    return np.asarray(noise * np.sqrt(2 * penalty * gaps / dimensions))


def contribute(
    site: HorizontalSite, systems: Sequence[BlindSystem], entries: Sequence[FloatArray]
) -> list[FloatArray] | None:
    """Run a site's part in a round of systems, by the run's sum: see `blind_system.contribute_to_systems`."""
    reuse_large_blocks()
    total = SUMS[site.terms.sum_name](**site.terms.sum_options)
    return contribute_to_systems(site.channel, total, systems, entries, site.terms.committee)


def solve_with_committee(
    federation: Federation,
    step: str,
    systems: Sequence[BlindSystem],
    read: Callable[[list[BlindSolution]], FloatArray],
    **told: Any,
) -> FloatArray:
    """Run a round of systems, and return what is read from their solutions.

    Parameters
    ----------
    federation : Federation
    step : str
        In which the sites call `contribute`.
    systems : sequence of BlindSystem
    read : callable
        Returns an array of the solutions as the coordinator sees them.
    **told
        Arguments of the step.

    Returns
    -------
    FloatArray
    """
    total = SUMS[federation.sum_protocol.name](**federation.sum_protocol.options)
    members = federation.membership.policy.committee

    def solve(channel: Channel) -> FloatArray:
        return read(solve_blind_systems(channel, total, systems, members))

    work_s = sum(_PRODUCT_S * system.extended**3 for system in systems)
    found: FloatArray = federation.run(step, take_part=solve, work_s=work_s, **told)
    return found
