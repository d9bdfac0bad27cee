"""What every secure sum has in common: the same integers in and out, whatever protocol adds them.

A protocol is two straight-line functions over a channel, one for a site and one for the coordinator, and the cost
they promise. Here they are joined with the fixed-point encoding to what the federation uses.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from federation.arrays import FloatArray, Residues
from federation.channel.socket import Channel, uniform_residues
from federation.transport.keys import COORDINATOR
from protocols.arithmetic.fixed_point import FixedPoint, add, subtract

RESIDUE_BYTES = 8


@dataclass(frozen=True)
class Cost:
    """What one sum costs in all: messages, hops on the critical path, payload bytes."""

    messages: int
    hops: int
    payload_bytes: int


@dataclass(frozen=True)
class SecureSum:
    """A secure sum protocol.

    contribute_residues: the site's part, given residues of shape (limbs, d). reveal_residues: the coordinator's part,
    given that shape; the sum of the residues. cost_of: the formula, of the number of sites and the shape.
    smallest_coalition: how many of so many sites, with the coordinator, it takes to learn the input of another from a
    sum that no site dropped from; one less than all always do, from the sum itself.
    min_sites: with fewer it would hide nothing, or cannot run. discloses: "sum", or "value" where the coordinator
    sees each site's own. needs_pairwise_keys: sites share secrets two by two. options: what every party must know
    besides the name.
    """

    name: str
    contribute_residues: Callable[[Channel, Residues], None]
    reveal_residues: Callable[[Channel, tuple[int, int]], Residues]
    cost_of: Callable[[int, tuple[int, int]], Cost]
    smallest_coalition: Callable[[int], int]
    min_sites: int = 1
    discloses: str = "sum"
    needs_pairwise_keys: bool = False
    options: Mapping[str, float] = field(default_factory=dict)

    def encoded(self, value: FloatArray, bound: float, sites: int) -> Residues:
        """A value as residues, for a sum over so many sites. Raises BoundExceeded for one that does not fit."""
        return FixedPoint.for_bound(bound, sites).encode(value)

    def contribute(self, channel: Channel, residues: Residues) -> None:
        """The site's part."""
        self.contribute_residues(channel, residues)

    def reveal(self, channel: Channel, shape: Sequence[int], bound: float) -> FloatArray:
        """The coordinator's part: the sum over the sites, float64 of `shape`."""
        encoding = FixedPoint.for_bound(bound, len(channel.sites))
        residues = self.reveal_residues(channel, (encoding.limbs, math.prod(shape)))
        return encoding.decode(residues).reshape(shape)

    # A sum for the eyes of one site: its input is blinded, so that what the coordinator forwards says nothing.

    def blinded(self, residues: Residues) -> tuple[Residues, Residues]:
        """The residues plus a blind that is uniform over the whole modulus, and the blind."""
        blind = uniform_residues(residues.shape)
        return add(residues, blind), blind

    def forward(self, channel: Channel, site: str, shape: Sequence[int], bound: float) -> None:
        """The coordinator's part: send the blinded sum to the site that opens it."""
        limbs = FixedPoint.for_bound(bound, len(channel.sites)).limbs
        channel.send(site, self.reveal_residues(channel, (limbs, math.prod(shape))))

    def unblinded(self, channel: Channel, blind: Residues, shape: Sequence[int], bound: float) -> FloatArray:
        """The part of the site that opens the sum, after its contribution: float64 of `shape`."""
        total = subtract(channel.receive(COORDINATOR, blind.shape), blind)
        return FixedPoint.for_bound(bound, len(channel.sites)).decode(total).reshape(shape)

    def cost_at_site(self, sites: int, shape: Sequence[int], bound: float) -> Cost:
        """What a sum costs that a site opens: one more message, with the sum."""
        cost, limbs = self.cost(sites, shape, bound), FixedPoint.for_bound(bound, sites).limbs
        payload = cost.payload_bytes + limbs * math.prod(shape) * RESIDUE_BYTES
        return Cost(cost.messages + 1, cost.hops + 1, payload)

    def cost(self, sites: int, shape: Sequence[int], bound: float) -> Cost:
        """What a sum of values of `shape` and `bound` over `sites` sites costs, by the protocol's formula."""
        return self.cost_of(sites, (FixedPoint.for_bound(bound, sites).limbs, math.prod(shape)))
