"""The conditions of a committee, behind whose masks a coordinator solves systems (`fedsvm.protocols.blind_system`)."""

from __future__ import annotations

from fedsvm.federation.errors import FederationError
from fedsvm.federation.federation import Federation
from fedsvm.protocols.blind_system import MAX_SITES, MIN_SITES

_PRODUCT_S = 5e-8
"""Seconds that the products of matrices may take in a round, times the cube of their size."""


def check_committee(federation: Federation) -> None:
    """Raise FederationError for a run that can have no committee."""
    if not MIN_SITES <= (count := len(federation.sites)) <= MAX_SITES:
        raise FederationError(
            f'algorithm.masking = "committee" needs {MIN_SITES} to {MAX_SITES} sites, got {count}; set '
            "another algorithm.masking."
        )
    if federation.shows_inputs:
        raise FederationError(
            'algorithm.masking = "committee" hides nothing with a sum that shows the coordinator the sites\' inputs; '
            "set protocol.sum to a secure one."
        )


def computing_s(size: int) -> float:
    """Return the seconds that sites may compute for in a round of a system of this extended size."""
    return _PRODUCT_S * size**3
