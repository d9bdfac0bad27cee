"""The [protocol] table: how sums are kept secret."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import TYPE_CHECKING

from pydantic import Field, create_model, field_validator

from fedsvm.algorithms.settings import parameters
from fedsvm.federation.errors import FederationError
from fedsvm.federation.site.terms import Routing
from fedsvm.protocols.committee import MIN_SITES
from fedsvm.protocols.sums.registry import CAREFUL_SUMS, DEFAULT_SUM, OWN_SUMS, SUMS
from fedsvm.protocols.sums.secure_sum import SecureSum
from fedsvm.scenarios.schema.algorithm import fields
from fedsvm.scenarios.schema.base import Part, SiteRef, resolve


def _require_loads(name: str) -> None:
    """Raise ValueError for a sum of another package that cannot be loaded."""
    try:
        SUMS[name]()
    except FederationError as error:
        raise ValueError(str(error).rstrip(".")) from error


class _NamedSum(Part):
    sum: str = Field(
        default=DEFAULT_SUM,
        description=f"The secure sum: {', '.join(OWN_SUMS)}, or one of an installed package.",
    )

    @field_validator("sum")
    @classmethod
    def _check_sum(cls, name: str) -> str:
        if name not in SUMS:
            raise ValueError(f"must be one of {', '.join(SUMS)}, got {name!r}")
        if name not in OWN_SUMS:
            _require_loads(name)
        return name


if TYPE_CHECKING:
    _SumTable = _NamedSum
else:
    _SETTINGS = fields(setting for make in OWN_SUMS.values() for setting in parameters(make))
    _SumTable = create_model("_SumTable", __base__=_NamedSum, **_SETTINGS)


class ProtocolSpec(_SumTable):
    """The secure sum: `sum`, and the options of each sum, which others ignore."""

    routing: Routing = "direct"
    """The path of messages between sites: direct, or through the coordinator, which forwards them sealed."""
    committee: list[SiteRef] | None = None
    """The three members of a committee: two that hold shares and masks, then the dealer. Without one of them the run
    ends. Default: sites draw other members in each round."""

    @field_validator("committee")
    @classmethod
    def _check_committee(cls, sites: list[SiteRef] | None) -> list[SiteRef] | None:
        if sites is not None and len(sites) != MIN_SITES:
            raise ValueError(f"must be {MIN_SITES} sites, two that hold shares and then the dealer, got {len(sites)}")
        return sites

    def members(self, names: list[str]) -> tuple[str, ...]:
        """Return the named committee by name; empty if sites draw it."""
        return tuple(name for site in self.committee or () if (name := resolve(site, names)))

    def problems(self, names: list[str], masking: str | None) -> Iterator[str]:
        """Yield why a named committee is impossible. masking: the algorithm's, None of one that has no masking."""
        if self.committee is None:
            return
        for site in self.committee:
            if resolve(site, names) is None:
                yield f"protocol.committee: there is no site {site!r}; there are {', '.join(names)}."
        members = self.members(names)
        if twice := sorted({name for name in members if members.count(name) > 1}):
            yield f"protocol.committee: {twice[0]} is listed twice; name three different sites."
        if masking is None:
            yield "protocol.committee: the algorithm has no masking, so nothing uses a committee; remove it."
        elif masking != "committee":
            yield (
                f'protocol.committee: needs algorithm.masking = "committee", got "{masking}"; set it, or remove '
                "protocol.committee."
            )

    @property
    def secure_sum(self) -> SecureSum:
        """The protocol that is named, with its settings."""
        make = SUMS[self.sum]
        return make(**{name: getattr(self, name) for name in inspect.signature(make).parameters})

    @property
    def wants_verified(self) -> bool:
        """True if the sites are to open a released model too, whether the named sum can or not."""
        return bool(self.model_dump()["verify"])

    def min_sites(self, sites: int) -> int:
        """Return how many of `sites` sites must remain for the sums to go on."""
        return max(self.secure_sum.min_sites, self.secure_sum.min_remaining(sites))


def sums_with(option: str) -> list[str]:
    """Return the sums of this project that have an option."""
    return [name for name, make in OWN_SUMS.items() if option in inspect.signature(make).parameters]


def hiding_sum(sites: int) -> str:
    """Return a sum that so many sites can run: a careful site's if possible, otherwise one that hides its inputs."""
    possible = [name for name in (*CAREFUL_SUMS, *OWN_SUMS) if OWN_SUMS[name]().min_sites <= sites]
    return next((name for name in possible if OWN_SUMS[name]().discloses == "sum"), possible[0])
