"""What a site can be asked to do: the programs and secure sums that its own installation registers.

The coordinator names a program and a step; it can send neither code nor an import path. Only methods marked with
`@step` can be named.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import numpy as np

from federation.arrays import FloatArray, Residues
from federation.channel.socket import Channel
from federation.site.partition import Partition

Method = TypeVar("Method", bound=Callable[..., Any])
_MARK = "_federated_step"


def step(method: Method) -> Method:
    """Mark a method of a site half as one that the coordinator may name."""
    setattr(method, _MARK, True)
    return method


class SiteProgram:
    """The half of an algorithm that runs where the data is.

    `partition` is what the site holds, `settings` the scenario's plain values, `site` the name of this site.
    `channel` is the round's, for steps that run a protocol among the sites. `opened` is the last sum that was for this
    site's eyes.
    """

    channel: Channel
    opened: FloatArray

    def __init__(self, site: str, partition: Partition, settings: Mapping[str, Any]) -> None:
        self.site = site
        self.partition = partition
        self.settings = settings

    def random(self, purpose: str) -> np.random.Generator:
        """The experiment's generator, seeded from the scenario, the site's name and the purpose, afresh at each call.

        For splits and clusterings, never for masks. A step that is run again comes to the same.
        """
        return np.random.default_rng([int(self.settings["seed"]), *self.site.encode(), 0, *purpose.encode()])

    def find_step(self, name: str) -> Callable[..., Any]:
        """The method that the coordinator named. Raises LookupError unless it is marked as a step."""
        method = getattr(self, name, None) if name.isidentifier() else None
        if method is None or not getattr(method, _MARK, False):
            raise LookupError(f"{type(self).__name__} has no step {name!r}")
        return method  # type: ignore[no-any-return]


class SumProtocol(Protocol):
    """A secure sum, as sites and coordinator use it."""

    @property
    def name(self) -> str:
        """What a scenario calls it."""

    @property
    def min_sites(self) -> int:
        """With fewer it would hide nothing, or cannot run."""

    @property
    def needs_pairwise_keys(self) -> bool:
        """Whether sites share secrets two by two, and so need a key pair for it."""

    @property
    def options(self) -> Mapping[str, float]:
        """What every party must know of it besides its name."""

    @property
    def discloses(self) -> str:
        """What the coordinator sees, in a word: "sum", or "value" where it sees each site's own."""

    def encoded(self, value: FloatArray, bound: float, sites: int) -> Residues:
        """What the site's part is given. Raises BoundExceeded for values that are not finite or beyond the bound."""

    def contribute(self, channel: Channel, residues: Residues) -> None:
        """The site's part."""

    def reveal(self, channel: Channel, shape: Sequence[int], bound: float) -> FloatArray:
        """The coordinator's part: the sum of what the sites contribute."""

    def forward(self, channel: Channel, site: str, shape: Sequence[int], bound: float) -> None:
        """The coordinator's part where `site` opens the sum, which is blinded."""

    def blinded(self, residues: Residues) -> tuple[Residues, Residues]:
        """Residues that are uniform over the whole modulus, and what makes them so."""

    def unblinded(self, channel: Channel, blind: Residues, shape: Sequence[int], bound: float) -> FloatArray:
        """The part of the site that opens the sum, after its contribution: the sum of `shape`."""


@dataclass(frozen=True)
class Installation:
    """The programs and secure sums that one installation offers, by name; a sum is made with its options.

    `warm_up` does once what sites will do, before they are forked: what it loads, they share.
    """

    programs: Mapping[str, type[SiteProgram]]
    sums: Mapping[str, Callable[..., SumProtocol]]
    warm_up: Callable[[], None] = lambda: None
