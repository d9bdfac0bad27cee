"""The threats in a scenario: faults, network conditions, and colluding parties."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, create_model, field_validator, model_validator

from fedsvm.algorithms.settings import MAX_COUNT
from fedsvm.federation.faults.fault_kind import find_kinds, link_fault, site_fault
from fedsvm.federation.site.faults import OwnFault
from fedsvm.federation.transport.keys import COORDINATOR
from fedsvm.scenarios.schema.base import Count, Delay, Part, Rate, Seconds, SiteRef, resolve

MAX_FAULTS = 1000
_MAX_NUMBERED = 8
"""Faults that a sentence lists by number; it counts the others."""

_OF_ALL = {"kind", "phase", "round"}


def _require_groups(value: Any) -> Any:
    listed = isinstance(value, list) and value and all(isinstance(group, list) and group for group in value)
    if not listed and value not in ("split-one", "bisect"):
        raise ValueError(f'must be "split-one", "bisect" or lists of sites, [[1, 2], [3]], got {value!r}')
    return value


Groups = Annotated[str | list[list[SiteRef]], BeforeValidator(_require_groups)]


class FaultTable(Part):
    """One fault, placed at a round of a phase: the keys that kinds share."""

    kind: str
    """The kind of fault, as described above."""
    phase: str
    """The phase in which it occurs. An unknown phase is refused with a list of all phases."""
    round: Count
    """The round of that phase, counted from 1."""
    site: SiteRef | None = None
    """The affected site, by number or name."""
    message: Annotated[int, Field(ge=0, le=MAX_COUNT)] = 0
    """For kill and stall: the number of the site's message before which it occurs; 0 is on receipt of the order."""
    for_s: Seconds | None = None
    """Duration in seconds. Default: permanent."""
    direction: Literal["both", "in", "out"] = "both"
    """For disconnect, delay and corrupt: the affected links of the site."""
    groups: Groups | None = None
    """For partition: "split-one", "bisect", or lists of sites."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        kind = find_kinds()[self.kind]
        foreign = self.model_fields_set - kind.keys - {key.name for key in kind.own_keys} - _OF_ALL
        if changed := sorted(name for name in foreign if getattr(self, name) != type(self).model_fields[name].default):
            raise ValueError(f"{changed[0]} does not apply to a {self.kind} fault; remove it")
        for key in kind.own_keys:
            if key.missing and getattr(self, key.name) is None:
                raise ValueError(f"a {self.kind} fault needs {key.missing}")
        if "groups" in kind.keys and self.groups is None:
            raise ValueError(f'a {self.kind} fault needs groups: "split-one" with a site, "bisect", or lists of sites')
        needs_site = self.groups in (None, "split-one")
        if needs_site and self.site is None:
            raise ValueError(f"a {self.kind} fault needs a site, by number or name")
        if not needs_site and self.site is not None:
            raise ValueError('site applies only to groups = "split-one"; remove it')
        return self

    @property
    def own_terms(self) -> dict[str, Any]:
        """The values of the keys that only this kind has."""
        return {key.name: getattr(self, key.name) for key in find_kinds()[self.kind].own_keys}

    @property
    def on_links(self) -> bool:
        """True if the relays carry it out."""
        return link_fault(self.kind) is not None

    @property
    def needs_encryption(self) -> bool:
        """True if nothing but encryption can notice it."""
        kind = link_fault(self.kind)
        return kind is not None and kind.needs_encryption

    @property
    def ends_process(self) -> bool:
        """True if it ends the site's process."""
        kind = site_fault(self.kind)
        return kind is not None and kind.ends_process

    @property
    def restarts(self) -> bool:
        """True if the site is started again."""
        kind = site_fault(self.kind)
        return kind is not None and kind.restarts(self.own_terms)

    @property
    def is_final(self) -> bool:
        """True if the site is gone for good."""
        return self.ends_process and not self.restarts

    def own(self, number: int) -> OwnFault:
        """Return a fault in the form for the site that inflicts it on itself."""
        return OwnFault(number, self.kind, self.phase, self.round, self.message, self.for_s)

    @property
    def _group(self) -> list[SiteRef]:
        """The sites that a partition's groups list."""
        return [site for group in self.groups for site in group] if isinstance(self.groups, list) else []

    def sites(self, names: list[str]) -> list[str]:
        """Return the named sites."""
        return [name for site in [self.site, *self._group] if site is not None and (name := resolve(site, names))]

    def parties(self, names: list[str]) -> list[set[str]]:
        """Return the groups of a partition, the coordinator in the largest, the first of equals."""
        if self.groups == "split-one":
            groups = [set(names) - set(self.sites(names)), set(self.sites(names))]
        elif self.groups == "bisect":
            half = (len(names) + 1) // 2
            groups = [set(names[:half]), set(names[half:])]
        else:
            groups = [{name for site in group if (name := resolve(site, names))} for group in self.groups or []]
            groups.append(set(names) - set().union(*groups))
        max(groups, key=len).add(COORDINATOR)
        return groups

    def links(self, names: list[str]) -> list[tuple[str, str]]:
        """Return the affected directed links, (sender, receiver)."""
        everyone = [COORDINATOR, *names]
        if self.groups is not None:
            side = {party: number for number, group in enumerate(self.parties(names)) for party in group}
            return [(a, b) for a in everyone for b in everyone if side[a] != side[b]]
        (site,) = self.sites(names)
        others = [party for party in everyone if party != site]
        inward, outward = [(other, site) for other in others], [(site, other) for other in others]
        return (inward if self.direction != "out" else []) + (outward if self.direction != "in" else [])

    def problems(self, names: list[str], phases: Sequence[str] | None) -> Iterator[str]:
        """Yield references that do not exist. phases: those that have rounds, None if unknown."""
        for site in [self.site, *self._group]:
            if site is not None and resolve(site, names) is None:
                yield f"there is no site {site!r}; there are {', '.join(names)}"
        known = [resolve(site, names) for site in self._group]
        if len(set(known)) < len(known):
            yield "a site is in two of the groups; each may be in one"
        if phases is not None and self.phase not in phases:
            yield f"there is no phase {self.phase!r} with rounds; there are {', '.join(phases)}"


def _fault_table() -> type[FaultTable]:
    """Return the table of a fault: the shared keys, and those of all installed kinds."""
    kinds = find_kinds()
    told = " ".join(f"{kind.name}: {kind.sentence}" for kind in kinds.values())
    own = {
        key.name: (Annotated[key.annotation, Field(description=key.sentence)], key.default)
        for kind in kinds.values()
        for key in kind.own_keys
    }
    table: type[FaultTable] = create_model(  # type: ignore[call-overload]
        "FaultSpec",
        __base__=FaultTable,
        __doc__=f"One fault, placed at a round of a phase.\n\n{told} {_WHEN}",
        kind=(Literal[tuple(kinds)], ...),
        **own,
    )
    return table


_WHEN = (
    "Faults of a site occur when the order of the round arrives or, with `message` = m, before the m-th message of "
    "the site. Faults on links begin before the coordinator sends the orders of the round."
)
if TYPE_CHECKING:
    FaultSpec = FaultTable
else:
    FaultSpec = _fault_table()


def contradictions(faults: Mapping[int, FaultSpec], names: list[str], phases: Sequence[str]) -> Iterator[str]:
    """Yield a sentence for each fault that excludes others. faults: by their numbers in the file."""
    order = {phase: place for place, phase in enumerate(phases)}
    when = {number: (order.get(each.phase, 0), each.round, each.message) for number, each in faults.items()}
    by_site: dict[str, list[int]] = defaultdict(list)
    for number, fault in faults.items():
        for site in fault.sites(names) if not isinstance(fault.groups, list) else []:
            by_site[site].append(number)
    for numbers in by_site.values():
        own = [number for number in numbers if not faults[number].on_links]
        if lasting := [number for number in own if faults[number].is_final]:
            first = min(lasting, key=when.__getitem__)
            if later := [number for number in numbers if when[number] > when[first]]:
                yield f"{_keys(later)}: fault {first} kills its site for good before; set rejoin = true there"
        for first, others in _find_repeated(own, when):
            yield f"{_keys(others)}: fault {first} strikes the same site at the same message; keep one"
    partitions = [number for number, fault in faults.items() if fault.groups is not None]
    for first, others in _find_repeated(partitions, when):
        yield f"{_keys(others)}: fault {first} is a partition in the same round; list all groups in one"


def _find_repeated(numbers: Sequence[int], when: Mapping[int, tuple[int, ...]]) -> Iterator[tuple[int, list[int]]]:
    """Yield the first of the faults at the same time, and the others, if there are several."""
    at: dict[tuple[int, ...], list[int]] = defaultdict(list)
    for number in numbers:
        at[when[number]].append(number)
    yield from ((first, others) for first, *others in at.values() if others)


def _keys(numbers: Sequence[int]) -> str:
    """Return the keys of some faults, such as "faults.2, 3 and 40 more"."""
    more = f" and {len(numbers) - _MAX_NUMBERED} more" if len(numbers) > _MAX_NUMBERED else ""
    return f"faults.{', '.join(map(str, numbers[:_MAX_NUMBERED]))}{more}"


Latency = Annotated[float, Field(ge=0, le=600, allow_inf_nan=False)]
"""One-way milliseconds. A handshake is four of them, with jitter up to eight, and must be over within five seconds."""


class LinkSpec(Part):
    """Conditions of one direction between two parties."""

    sender: SiteRef = Field(alias="from")
    """A site, or the coordinator."""
    receiver: SiteRef = Field(alias="to")
    """A site, or the coordinator."""
    latency_ms: Latency | None = None
    """One-way latency in milliseconds. Default: the network's."""
    jitter_ms: Delay | None = None
    """Jitter in milliseconds. Default: the network's."""
    bandwidth_mbit: Rate | None = None
    """Bandwidth in megabits per second. Default: the network's."""


class NetworkSpec(Part):
    """Conditions of every direction of every link: one-way latency, jitter around it, bandwidth."""

    latency_ms: Latency = 0.0
    """One-way latency in milliseconds, at most 600, because a handshake must end within five seconds."""
    jitter_ms: Delay = 0.0
    """Variation of the latency in milliseconds, in both directions."""
    bandwidth_mbit: Rate | None = None
    """Bandwidth in megabits per second. Default: unlimited."""
    links: list[LinkSpec] = Field(default=[])
    """Directed links between two parties with conditions of their own."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.jitter_ms > self.latency_ms:
            raise ValueError("jitter_ms is more than latency_ms, and nothing arrives before it is sent; lower it")
        return self

    def problems(self, names: list[str]) -> Iterator[str]:
        """Yield links of parties that do not exist."""
        for number, link in enumerate(self.links, start=1):
            for party in (link.sender, link.receiver):
                if party != COORDINATOR and resolve(party, names) is None:
                    there = ", ".join([COORDINATOR, *names])
                    yield f"network.links.{number}: there is no party {party!r}; there are {there}."


class CollusionSpec(Part):
    """The parties that combine what they see: some sites, with or without the coordinator."""

    sites: list[SiteRef] = Field(default=[])
    """The colluding sites, by number or name. They pool everything they send, receive and draw."""
    coordinator: bool = False
    """True if the coordinator colludes with them."""
    known_records: Count | None = None
    """For vertical partitions: the number of records whose victim columns they know. Default: one more than the victim
    has columns."""
    candidates: str | None = None
    """For horizontal partitions: the records that they can list: "source" for all rows of the source, or a file.
    Default: all possible records, if these are known."""

    @field_validator("sites")
    @classmethod
    def _check_sites(cls, sites: list[SiteRef]) -> list[SiteRef]:
        if len(set(sites)) < len(sites):
            raise ValueError("a site is listed twice")
        return sites

    @model_validator(mode="after")
    def _check(self) -> Self:
        if not self.sites and not self.coordinator:
            raise ValueError("nobody colludes; list sites, set coordinator = true, or remove the table")
        return self

    def members(self, names: list[str]) -> list[str]:
        """Return the colluding sites by name."""
        return [name for site in self.sites if (name := resolve(site, names))]

    def problems(self, names: list[str]) -> Iterator[str]:
        """Yield sites that do not exist, and a coalition without any victim."""
        for site in self.sites:
            if resolve(site, names) is None:
                yield f"collusion.sites: there is no site {site!r}; there are {', '.join(names)}."
        members = self.members(names)
        if twice := sorted({name for name in members if members.count(name) > 1}):
            yield f"collusion.sites: {twice[0]} is listed twice, by number and by name."
        if len(set(members)) == len(names):
            yield "collusion.sites: all sites are in the coalition and nobody is left to learn about; leave one out."
