"""The contract of all secure sums: the same integers in and out, whatever protocol adds them.

A protocol is two straight-line functions over a channel, one for a site and one for the coordinator, and the cost
they promise. Here they are joined with the fixed-point encoding to what the federation uses.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from fedsvm.federation.arrays import FloatArray, Residues
from fedsvm.federation.channel.interface import Channel
from fedsvm.federation.errors import StepRefused
from fedsvm.federation.transport.keys import COORDINATOR
from fedsvm.protocols.arithmetic.fixed_point import FixedPoint, add, subtract

RESIDUE_BYTES = 8

_DIGEST_BYTES = 32

MAX_PARTS = 10_000
"""Segments of a vector, or rings: as many as a federation has sites."""


@dataclass(frozen=True)
class Cost:
    """The total cost of one execution of a protocol.

    Attributes
    ----------
    messages : int
    hops : int
        Messages on the critical path, each of which waits for the one before.
    payload_bytes : int
        Of all arrays.
    """

    messages: int
    hops: int
    payload_bytes: int


@dataclass(frozen=True)
class SecureSum:
    """A secure sum protocol.

    Attributes
    ----------
    name : str
        What scenarios and orders call it.
    contribute_residues : callable
        The site's part, given its channel and its Residues of shape (limbs, d).
    reveal_residues : callable
        The coordinator's part, given its channel and that shape; returns the sum of the residues.
    cost_of : callable
        The `Cost` by the formula, given the number of sites and the shape.
    smallest_coalition : callable
        How many sites, with the coordinator, it takes to learn the input of another from a sum that no site dropped
        from, given the number of sites. One less than all always do, from the sum itself.
    min_sites : int, default 1
        With fewer it would hide nothing, or cannot run.
    discloses : {"sum", "value"}, default "sum"
        "value" where the coordinator sees each site's own. A sum that shows inputs to a site is none of this contract.
    needs_pairwise_keys : bool, default False
        Whether sites share secrets two by two.
    options : mapping of str to float, default {}
        What every party must know besides the name.
    min_remaining : callable, default 1 of any number
        How many of the sites that a run begins with must remain, by their number; with fewer it reveals no sum.
    withstands : callable, default all
        How many sites may work with a coordinator that lies about which sites are in the sum, by their number.
    sends_to : callable, default nobody
        The parties that a site sends to, given its name and all sites. It connects to them before it has anything to
        send, and to others when it first does.
    open_at_sites : callable, optional
        The site's part of opening the same sum at all sites, without the coordinator, given its channel and its
        Residues; returns the sum of the residues. Of a sum whose public values the sites verify.
    cost_at_sites : callable, optional
        The `Cost` of that, as in `cost_of`.
    """

    name: str
    contribute_residues: Callable[[Channel, Residues], None]
    reveal_residues: Callable[[Channel, tuple[int, int]], Residues]
    cost_of: Callable[[int, tuple[int, int]], Cost]
    smallest_coalition: Callable[[int], int]
    min_sites: int = 1
    discloses: Literal["sum", "value"] = "sum"
    needs_pairwise_keys: bool = False
    options: Mapping[str, float] = field(default_factory=dict)
    min_remaining: Callable[[int], int] = lambda sites: 1
    withstands: Callable[[int], int] = lambda sites: sites
    sends_to: Callable[[str, tuple[str, ...]], tuple[str, ...]] = lambda me, sites: ()
    open_at_sites: Callable[[Channel, Residues], Residues] | None = None
    cost_at_sites: Callable[[int, tuple[int, int]], Cost] | None = None

    @property
    def described(self) -> str:
        """The name, with the options in brackets where there are any."""
        options = ", ".join(f"{name} = {value}" for name, value in self.options.items())
        return f"{self.name} ({options})" if options else self.name

    @property
    def verifies(self) -> bool:
        """True if sites open public sums too, and compare them with the coordinator's."""
        return self.open_at_sites is not None

    def isolating(self, sites: int) -> int:
        """Return the minimum number of sites that, with the coordinator, may learn another site's input.

        All others do, by the sum; `smallest_coalition` does; and where a sum goes on without some sites, as many as it
        takes to reveal it do, of one that was given up.

        Parameters
        ----------
        sites : int
            How many take part.

        Returns
        -------
        int
        """
        fewest, threshold = min(self.smallest_coalition(sites), sites - 1), self.min_remaining(sites)
        return min(fewest, threshold) if threshold > 1 else fewest

    def encode(self, value: FloatArray, bound: float, sites: int) -> Residues:
        """Encode a site's value as residues.

        Parameters
        ----------
        value : float64 array of any shape
        bound : float
            No entry of the sum exceeds it in size; math.inf where nothing is known.
        sites : int
            How many take part.

        Returns
        -------
        Residues of shape (limbs, value.size)

        Raises
        ------
        BoundExceeded
            For a value that is not finite or beyond the bound.
        """
        return FixedPoint.for_bound(bound, sites).encode(value)

    def decode(self, residues: Residues, shape: Sequence[int], bound: float, sites: int) -> FloatArray:
        """Decode the sum from residues.

        Parameters
        ----------
        residues : Residues of shape (limbs, d)
        shape : sequence of int
            Of the values.
        bound, sites : float, int
            As in `encoded`.

        Returns
        -------
        float64 array of `shape`
        """
        return FixedPoint.for_bound(bound, sites).decode(residues).reshape(shape)

    def contribute(self, channel: Channel, residues: Residues, receiver: str = COORDINATOR) -> Residues | None:
        """Run the site's part.

        A site that receives the sum adds a blind to what it puts in, uniform over the whole modulus, so that the sum
        which the coordinator forwards to it says nothing to anybody else. It speaks first, by an array of no columns:
        the coordinator can send to a site only over a connection that the site made, and that stands.

        Parameters
        ----------
        channel : Channel
        residues : Residues of shape (limbs, d)
            What the site puts in.
        receiver : str, default the coordinator
            Who learns the sum: the coordinator, or one of the sites.

        Returns
        -------
        Residues of shape (limbs, d), or None
            The sum, at the site that receives it.
        """
        if receiver != channel.me:
            self.contribute_residues(channel, residues)
            return None
        channel.send(COORDINATOR, residues[:, :0])
        blind = channel.random(residues.shape)
        self.contribute_residues(channel, add(residues, blind))
        return subtract(channel.receive(COORDINATOR, residues.shape), blind)

    def forward(self, channel: Channel, shape: tuple[int, int], receiver: str = COORDINATOR) -> Residues | None:
        """Run the coordinator's part in residues: keep the sum, or send it, still blinded, to the site that receives
        it.

        Parameters
        ----------
        channel : Channel
        shape : (limbs, d)
            Of the residues.
        receiver : str, default the coordinator
            As in `contribute`.

        Returns
        -------
        Residues of `shape`, or None
            The sum, if the coordinator receives it.
        """
        if receiver == channel.me:
            return self.reveal_residues(channel, shape)
        channel.collect({receiver: (shape[0], 0)})
        channel.send(receiver, self.reveal_residues(channel, shape))
        return None

    def verify(self, channel: Channel, residues: Residues) -> Residues | None:
        """Run the site's part of verifying a sum that the coordinator opened: open it again, and compare digests.

        Each site says that it has the sum before the coordinator sends the digest.

        Parameters
        ----------
        channel : Channel
        residues : Residues of shape (limbs, d)
            What the site put in.

        Returns
        -------
        Residues of shape (limbs, d), or None
            The sum; None where the protocol verifies nothing.

        Raises
        ------
        StepRefused
            The coordinator says that it opened another sum.
        """
        if self.open_at_sites is None:
            return None
        total, first = self.open_at_sites(channel, residues), channel.sites[0]
        channel.send(COORDINATOR, total[:, :0])
        if not np.array_equal(channel.receive(COORDINATOR, _digest(total).shape), _digest(total)):
            raise StepRefused(
                f"{COORDINATOR} opened another sum than {channel.me}: {COORDINATOR} changed it, or {first}, which gave "
                "it the sum; compare the model at all sites before anybody uses it"
            )
        return total

    def confirm(self, channel: Channel, total: Residues) -> None:
        """Run the coordinator's part of verifying: wait until all sites have the sum, and tell each the digest.

        Parameters
        ----------
        channel : Channel
        total : Residues of shape (limbs, d)
            The sum.
        """
        for site in channel.sites:
            channel.receive(site, (len(total), 0))
        for site in channel.sites:
            channel.send(site, _digest(total))

    def reveal(
        self,
        channel: Channel,
        shape: Sequence[int],
        bound: float,
        receiver: str = COORDINATOR,
        *,
        public: bool = False,
    ) -> FloatArray | None:
        """Run the coordinator's part.

        Parameters
        ----------
        channel : Channel
        shape : sequence of int
            Of the values.
        bound : float
            As in `encoded`.
        receiver : str, default the coordinator
            As in `contribute`.
        public : bool, default False
            Whether everybody may have the sum, so that the sites verify it if the protocol can.

        Returns
        -------
        float64 array of `shape`, or None
            The sum over the sites, if the coordinator receives it.
        """
        sites = len(channel.sites)
        total = self.forward(channel, (FixedPoint.for_bound(bound, sites).limbs, math.prod(shape)), receiver)
        if public and total is not None and self.verifies:
            self.confirm(channel, total)
        return None if total is None else self.decode(total, shape, bound, sites)

    def cost_at_site(self, sites: int, shape: Sequence[int], bound: float) -> Cost:
        """Return the cost of a sum that a site opens: one more message with the sum, and an empty one before."""
        cost, limbs = self.cost(sites, shape, bound), FixedPoint.for_bound(bound, sites).limbs
        payload = cost.payload_bytes + limbs * math.prod(shape) * RESIDUE_BYTES
        return Cost(cost.messages + 2, cost.hops + 1, payload)

    def cost_verified(self, sites: int, shape: Sequence[int], bound: float) -> Cost:
        """Return the cost of a public sum: with `open_at_sites` also that, and of each site a word and a digest."""
        cost = self.cost(sites, shape, bound)
        if self.cost_at_sites is None:
            return cost
        again = self.cost_at_sites(sites, (FixedPoint.for_bound(bound, sites).limbs, math.prod(shape)))
        messages = cost.messages + again.messages + 2 * sites
        payload = cost.payload_bytes + again.payload_bytes + sites * _DIGEST_BYTES
        return Cost(messages, again.hops + 2, payload)

    def cost(self, sites: int, shape: Sequence[int], bound: float) -> Cost:
        """Return the cost of a sum, by the protocol's formula.

        Parameters
        ----------
        sites : int
        shape : sequence of int
            Of the values.
        bound : float
            As in `encoded`.

        Returns
        -------
        Cost
        """
        return self.cost_of(sites, (FixedPoint.for_bound(bound, sites).limbs, math.prod(shape)))


def _digest(total: Residues) -> Residues:
    """Return (1, 4) the digest of a sum."""
    found = hashlib.blake2b(np.ascontiguousarray(total).data, digest_size=_DIGEST_BYTES).digest()
    return np.frombuffer(found, dtype=np.uint64)[None, :]
