"""The [protocol] table: how sums are kept secret."""

from __future__ import annotations

import inspect
from typing import Annotated

from pydantic import Field, field_validator

from fedsvm.federation.errors import FederationError
from fedsvm.federation.site.terms import Routing
from fedsvm.protocols.sums.changing_neighbours import DEFAULT_RINGS
from fedsvm.protocols.sums.contract import SecureSum
from fedsvm.protocols.sums.k_secure import DEFAULT_SEGMENTS
from fedsvm.protocols.sums.masked import DEFAULT_THRESHOLD
from fedsvm.protocols.sums.registry import OWN_SUMS, SUMS
from fedsvm.scenarios.schema.base import Part
from fedsvm.scenarios.schema.federation import MAX_SITES


def _require_loads(name: str) -> None:
    """Raise ValueError for a sum of another package that cannot be loaded."""
    try:
        SUMS[name]()
    except FederationError as error:
        raise ValueError(str(error).rstrip(".")) from error


class ProtocolSpec(Part):
    """How sums are kept secret.

    `segments` is of k-secure, `rings` of changing-neighbours, `threshold` (the share of sites that must remain) of
    masked.
    """

    sum: str = "ring"
    """The secure sum: plain, ring, k-secure, changing-neighbours, masked, or one of an installed package."""
    segments: Annotated[int, Field(ge=2, le=MAX_SITES)] = DEFAULT_SEGMENTS
    """Of k-secure: into how many segments a site cuts its vector."""
    rings: Annotated[int, Field(ge=1, le=MAX_SITES)] = DEFAULT_RINGS
    """Of changing-neighbours: r rings that share no edge, for 2 r + 1 sites or more."""
    threshold: Annotated[float, Field(gt=0.5, le=1)] = DEFAULT_THRESHOLD
    """Of masked: the share of sites that must remain."""

    routing: Routing = "direct"
    """How sites reach each other: directly, or by the coordinator, which passes sealed messages on unread."""

    @field_validator("sum")
    @classmethod
    def _check_sum(cls, name: str) -> str:
        if name not in SUMS:
            raise ValueError(f"must be one of {', '.join(SUMS)}, got {name!r}")
        if name not in OWN_SUMS:
            _require_loads(name)
        return name

    @property
    def secure_sum(self) -> SecureSum:
        """The protocol that is named, with those of the keys that are its options."""
        make = SUMS[self.sum]
        return make(**{name: getattr(self, name) for name in inspect.signature(make).parameters})

    def min_sites(self, sites: int) -> int:
        """How many of `sites` sites must remain for the sums to go on."""
        return max(self.secure_sum.min_sites, self.secure_sum.min_remaining(sites))
