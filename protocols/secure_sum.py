"""What every secure sum has in common: the same integers in and out, whatever protocol adds them.

A protocol is two straight-line functions over a channel, one for a site and one for the coordinator, and the cost
they promise. Here they are joined with the fixed-point encoding to what the federation uses.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from federation.arrays import FloatArray, Residues
from federation.channel import Channel
from protocols.fixed_point import FixedPoint

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
    fewest_sites: with fewer it would hide nothing, or cannot run. discloses: "sum", or "value" where the coordinator
    sees each site's own. agrees: sites share secrets two by two. options: what every party must know besides the name.
    """

    name: str
    contribute_residues: Callable[[Channel, Residues], None]
    reveal_residues: Callable[[Channel, tuple[int, int]], Residues]
    cost_of: Callable[[int, tuple[int, int]], Cost]
    smallest_coalition: Callable[[int], int]
    fewest_sites: int = 1
    discloses: str = "sum"
    agrees: bool = False
    options: Mapping[str, float] = field(default_factory=dict)

    def contribute(self, channel: Channel, value: FloatArray, bound: float) -> None:
        """The site's part. Raises BoundExceeded, before anything is sent, for a value that does not fit."""
        encoding = FixedPoint.for_bound(bound, len(channel.sites))
        self.contribute_residues(channel, encoding.encode(value))

    def reveal(self, channel: Channel, shape: Sequence[int], bound: float) -> FloatArray:
        """The coordinator's part: the sum over the sites, float64 of `shape`."""
        encoding = FixedPoint.for_bound(bound, len(channel.sites))
        residues = self.reveal_residues(channel, (encoding.limbs, math.prod(shape)))
        return encoding.decode(residues).reshape(shape)

    def cost(self, sites: int, shape: Sequence[int], bound: float) -> Cost:
        """What a sum of values of `shape` and `bound` over `sites` sites costs, by the protocol's formula."""
        return self.cost_of(sites, (FixedPoint.for_bound(bound, sites).limbs, math.prod(shape)))
