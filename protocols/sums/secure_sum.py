"""The interface of all secure sums: the same integers in and out, whichever protocol adds them.

A protocol consists of two straight-line functions over a channel, one for a site and one for the coordinator, and a
formula for its cost. `SecureSum` combines them with the fixed-point encoding.
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
"""Maximum number of segments of a vector, of rings or of helpers: the maximum number of sites of a federation."""


@dataclass(frozen=True)
class Cost:
    """The total cost of one execution of a protocol.

    Attributes
    ----------
    messages : int
        The number of messages.
    hops : int
        The number of messages on the critical path, each of which waits for the one before.
    payload_bytes : int
        The total size of all arrays.
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
        Its name in scenarios and orders.
    contribute_residues : callable
        The site's part, given its channel and its Residues of shape (limbs, d).
    reveal_residues : callable
        The coordinator's part, given its channel and that shape; returns the sum of the residues.
    cost_of : callable
        Returns the `Cost` by the formula, given the number of sites and the shape.
    smallest_coalition : callable
        Returns the minimum number of sites that, together with the coordinator, learn the input of another site from a
        sum in which no site dropped, given the number of sites. All other sites always learn it from the sum itself.
    min_sites : int, default 1
        The minimum number of sites. With fewer the protocol would hide nothing, or could not run.
    discloses : {"sum", "value"}, default "sum"
        "value" if the coordinator sees each site's input. A sum that shows inputs to a site does not fit this
        interface.
    needs_pairwise_keys : bool, default False
        Whether every two sites share secrets.
    options : mapping of str to float, default {}
        The options that every party must know in addition to the name.
    min_remaining : callable, default 1
        Returns the minimum number of sites that must remain, given the number that a run begins with. With fewer the
        protocol reveals no sum.
    withstands : callable, default all sites
        Returns the maximum number of sites that may collude with a coordinator that lies about which sites are in the
        sum, given the number of sites.
    sends_to : callable, default no party
        Returns the parties that a site sends to, given its name and all sites. The site connects to these before it has
        anything to send. It connects to any other party when it first sends to it.
    open_at_sites : callable, optional
        The site's part of opening the same sum at all sites, without the coordinator, given its channel and its
        Residues; returns the sum of the residues. Only for a protocol with which sites verify public sums.
    cost_at_sites : callable, optional
        Returns the `Cost` of `open_at_sites`, given the same as `cost_of`.
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
        """The name, followed by the options in parentheses, if there are any."""
        options = ", ".join(f"{name} = {value}" for name, value in self.options.items())
        return f"{self.name} ({options})" if options else self.name

    @property
    def verifies(self) -> bool:
        """True if sites open public sums too, and compare them with the coordinator's."""
        return self.open_at_sites is not None

    def isolating(self, sites: int) -> int:
        """Return the minimum number of sites that, with the coordinator, may learn another site's input.

        There are three ways. `smallest_coalition` sites learn it from the protocol. All other sites learn it from the
        sum. If the protocol continues without dropped sites, `min_remaining` sites learn the input of a site that the
        coordinator declares dropped.

        Parameters
        ----------
        sites : int
            The number of sites that take part.

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
            An upper bound of the absolute value of each entry of the sum; math.inf if none is known.
        sites : int
            The number of sites that take part.

        Returns
        -------
        Residues of shape (limbs, value.size)

        Raises
        ------
        BoundExceeded
            A value is not finite, or beyond the bound.
        """
        return FixedPoint.for_bound(bound, sites).encode(value)

    def decode(self, residues: Residues, shape: Sequence[int], bound: float, sites: int) -> FloatArray:
        """Decode the sum from residues.

        Parameters
        ----------
        residues : Residues of shape (limbs, d)
        shape : sequence of int
            The shape of the values.
        bound, sites : float, int
            As in `encode`.

        Returns
        -------
        float64 array of `shape`
        """
        return FixedPoint.for_bound(bound, sites).decode(residues).reshape(shape)

    def contribute(self, channel: Channel, residues: Residues, receiver: str = COORDINATOR) -> Residues | None:
        """Run the site's part.

        A site that receives the sum adds a blind to its input, uniform over the whole modulus. So the sum that the
        coordinator forwards to it reveals nothing to anybody else. The site first sends an array without columns,
        because the coordinator can send only over an open connection that the site made.

        Parameters
        ----------
        channel : Channel
        residues : Residues of shape (limbs, d)
            The site's input.
        receiver : str, default the coordinator
            The party that learns the sum: the coordinator, or one of the sites.

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
        """Run the coordinator's part in residues: return the sum, or forward it, still blinded, to its receiver.

        Parameters
        ----------
        channel : Channel
        shape : (limbs, d)
            The shape of the residues.
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

        The coordinator sends the digest only after each site has confirmed that it has the sum.

        Parameters
        ----------
        channel : Channel
        residues : Residues of shape (limbs, d)
            The site's input.

        Returns
        -------
        Residues of shape (limbs, d), or None
            The sum; None if the protocol verifies nothing.

        Raises
        ------
        StepRefused
            The digest of the coordinator's sum differs.
        """
        if self.open_at_sites is None:
            return None
        total, first = self.open_at_sites(channel, residues), channel.sites[0]
        channel.send(COORDINATOR, total[:, :0])
        if not np.array_equal(channel.receive(COORDINATOR, _digest(total).shape), _digest(total)):
            raise StepRefused(
                f"{COORDINATOR} opened another sum than {channel.me}: {COORDINATOR} changed it, or {first}, which sent "
                "it the sum; compare the models of all sites before anybody uses one"
            )
        return total

    def confirm(self, channel: Channel, total: Residues) -> None:
        """Run the coordinator's part of verifying: wait until all sites have the sum, and send each the digest.

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
            The shape of the values.
        bound : float
            As in `encode`.
        receiver : str, default the coordinator
            As in `contribute`.
        public : bool, default False
            Whether the sum is public. Sites verify public sums if the protocol supports it.

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
        """Return the cost of a sum that a site receives: an empty message before, and one with the sum after."""
        cost, limbs = self.cost(sites, shape, bound), FixedPoint.for_bound(bound, sites).limbs
        payload = cost.payload_bytes + limbs * math.prod(shape) * RESIDUE_BYTES
        return Cost(cost.messages + 2, cost.hops + 1, payload)

    def cost_verified(self, sites: int, shape: Sequence[int], bound: float) -> Cost:
        """Return the cost of a public sum, including its verification if the protocol supports it."""
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
            The shape of the values.
        bound : float
            As in `encode`.

        Returns
        -------
        Cost
        """
        return self.cost_of(sites, (FixedPoint.for_bound(bound, sites).limbs, math.prod(shape)))


def require_whole_number(option: str, value: object, minimum: int) -> None:
    """Raise ValueError unless the value of an option is a whole number from a minimum."""
    if not isinstance(value, int) or value < minimum:
        raise ValueError(f"{option} must be a whole number from {minimum}, got {value!r}")


def _digest(total: Residues) -> Residues:
    """Return the digest of a sum as Residues of shape (1, 4)."""
    found = hashlib.blake2b(np.ascontiguousarray(total).data, digest_size=_DIGEST_BYTES).digest()
    return np.frombuffer(found, dtype=np.uint64)[None, :]
