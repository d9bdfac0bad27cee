"""What every secure sum must keep, checked in threads and without sockets: exact, as dear as it says, as secret.

`check_sum` is for sums of this project and of others; the tests run it over all of ours.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from federation.arrays import FloatArray, Residues
from federation.channel.memory import InMemoryNetwork, MemoryChannel
from federation.channel.socket import Channel, uniform_residues
from federation.errors import BoundExceeded, RoundAborted
from federation.transport.keys import COORDINATOR
from protocols.analysis.coalitions import Rehearsed
from protocols.arithmetic.fixed_point import add
from protocols.sums.contract import Cost, SecureSum

MAX_SITES = 8
_SHAPES = [(1, 0), (1, 1), (2, 3), (1, 70_000)]
"""Of residues: none, one, of two limbs, and more than a message of a ring carries."""

_ATTACKED = range(4, 7)
_BOUND = 100.0


class ConformanceError(AssertionError):
    """A sum does not keep what it must; the message says what."""


class Played(NamedTuple):
    """What a rehearsed round came to: the residues that the coordinator learns, and what went over the network."""

    total: Residues
    rehearsal: InMemoryNetwork

    @property
    def cost(self) -> Cost:
        """What the round cost."""
        return Cost(len(self.rehearsal.sent), self.rehearsal.hops, self.rehearsal.payload_bytes)


def check_sum(protocol: SecureSum) -> Iterator[str]:
    """Check one property after the other, and say in words which was kept. Raises ConformanceError.

    Exact sums at the cost of the formula, over all numbers of sites up to 8; the same for a sum that one site opens;
    no party left waiting when another dies or fails; values that do not fit refused; and as many colluders as stated
    learn a site's input, and no fewer, by the algebra of the messages and by the numbers in them. Whether masks are
    uniform is the channel's part, so that a sum must draw all of them by `channel.random`.
    """
    counts = range(max(1, protocol.min_sites), max(MAX_SITES, protocol.min_sites) + 1)
    for count, shape in itertools.product(counts, _SHAPES):
        check_exact(protocol, count, shape)
    yield f"sums over {counts[0]} to {counts[-1]} sites are exact and cost what the formula says"
    for count in counts:
        check_for_one_site(protocol, count)
    yield "a sum that one site opens is that site's alone, at the cost of the formula"
    check_bound(protocol)
    yield "values that do not fit the bound are refused before anything is sent"
    for number, message in itertools.product(range(counts[-1]), range(1, 9)):
        check_death(protocol, counts[-1], number, message)
    for failing in (*names(counts[-1]), COORDINATOR):
        check_failure(protocol, counts[-1], failing)
    yield "a party that dies or fails leaves nobody waiting, and no wrong sum"
    attacked = [count for count in _ATTACKED if count >= protocol.min_sites] or [protocol.min_sites]
    for count in attacked:
        check_coalitions(protocol, count)
    yield f"it takes as many colluders as stated to learn an input, over {attacked[0]} to {attacked[-1]} sites"


def names(count: int) -> tuple[str, ...]:
    """site-1, site-2, …"""
    return tuple(f"site-{number}" for number in range(1, count + 1))


def play(protocol: SecureSum, inputs: list[Residues], rehearsal: InMemoryNetwork | None = None) -> Played:
    """Rehearse a round of inputs (limbs, d). Raises RoundAborted where a party died, and the others gave up."""
    chosen = rehearsal or InMemoryNetwork(names(len(inputs)))
    parts: dict[str, Callable[[MemoryChannel], Residues | None]] = {
        name: functools.partial(_contribute, protocol, vector)
        for name, vector in zip(chosen.sites, inputs, strict=True)
    }
    limbs, length = inputs[0].shape
    parts[COORDINATOR] = lambda channel: protocol.reveal_residues(channel, (limbs, length))
    total = chosen.play(parts)[COORDINATOR]
    if total is None:
        raise ConformanceError(f"{protocol.name}: the coordinator's part returns nothing; it must return the sum.")
    return Played(total, chosen)


def _contribute(protocol: SecureSum, vector: Residues, channel: Channel) -> None:
    protocol.contribute_residues(channel, vector)


def check_exact(protocol: SecureSum, count: int, shape: tuple[int, int]) -> None:
    """The sum is that of the integers modulo 2^64 a limb, and costs what the formula says."""
    inputs = [uniform_residues(shape) for _ in range(count)]
    played, promised = play(protocol, inputs), protocol.cost_of(count, shape)
    where = f"over {count} sites, of residues {shape}"
    if not np.array_equal(played.total, functools.reduce(add, inputs)):
        raise ConformanceError(f"{protocol.name}: the sum {where} is not that of the inputs.")
    if played.cost != promised:
        raise ConformanceError(f"{protocol.name}: a sum {where} costs {played.cost}, and cost_of says {promised}.")


def check_for_one_site(protocol: SecureSum, count: int) -> None:
    """What the coordinator forwards to the site that opens the sum is uniform, and costs one message more."""
    opener, shape = names(count)[-1], (2, 3)
    values = [np.arange(6.0).reshape(shape) * (number + 1) / 32 for number in range(count)]

    def contribute(value: FloatArray, channel: MemoryChannel) -> FloatArray | None:
        residues = protocol.encoded(value, _BOUND, count)
        if channel.me != opener:
            protocol.contribute(channel, residues)
            return None
        blinded, blind = protocol.blinded(residues)
        protocol.contribute(channel, blinded)
        return protocol.unblinded(channel, blind, shape, _BOUND)

    rehearsal = InMemoryNetwork(names(count))
    parts: dict[str, Callable[[MemoryChannel], FloatArray | None]] = {
        name: functools.partial(contribute, value) for name, value in zip(rehearsal.sites, values, strict=True)
    }
    parts[COORDINATOR] = lambda channel: protocol.forward(channel, opener, shape, _BOUND)
    opened = rehearsal.play(parts)[opener]
    if not np.array_equal(opened, sum(values)):  # type: ignore[arg-type]
        raise ConformanceError(f"{protocol.name}: a sum of {count} sites for the eyes of {opener} is not theirs.")
    forwarded = next(m.array for m in reversed(rehearsal.sent) if (m.sender, m.receiver) == (COORDINATOR, opener))
    if np.array_equal(forwarded, protocol.encoded(np.sum(values, axis=0), _BOUND, count)):
        raise ConformanceError(f"{protocol.name}: the coordinator can read the sum that it forwards to {opener}.")
    played = Played(forwarded, rehearsal).cost
    if played != (promised := protocol.cost_at_site(count, shape, _BOUND)):
        raise ConformanceError(f"{protocol.name}: a sum for one site costs {played}, and the formula says {promised}.")


def check_bound(protocol: SecureSum) -> None:
    """A value that is not finite, or beyond the bound, is refused."""
    for value in (math.nan, math.inf, 1.1):
        try:
            protocol.encoded(np.array([value]), 1.0, 5)
        except BoundExceeded:
            continue
        raise ConformanceError(f"{protocol.name}: {value} is taken for a value within 1.")


def check_death(protocol: SecureSum, count: int, number: int, message: int) -> None:
    """A site that dies before one of its messages: the sum is that of all or of the others, or there is none."""
    inputs = [uniform_residues((1, 3)) for _ in range(count)]
    others = functools.reduce(add, inputs[:number] + inputs[number + 1 :], np.zeros((1, 3), dtype=np.uint64))
    site = names(count)[number]
    try:
        played = play(protocol, inputs, InMemoryNetwork(names(count), deaths={site: message}))
    except RoundAborted:
        return
    if not any(np.array_equal(played.total, right) for right in (others, add(others, inputs[number]))):
        raise ConformanceError(f"{protocol.name}: the sum is neither with nor without {site}, which died in it.")


def check_failure(protocol: SecureSum, count: int, failing: str) -> None:
    """A party that fails ends the round for all: none is left waiting."""
    vector = uniform_residues((1, 3))

    def part(name: str, channel: MemoryChannel) -> None:
        if name == failing:
            raise _Failed
        if name == COORDINATOR:
            protocol.reveal_residues(channel, (1, 3))
        else:
            protocol.contribute_residues(channel, vector)

    try:
        InMemoryNetwork(names(count)).play(
            {name: functools.partial(part, name) for name in (*names(count), COORDINATOR)}
        )
    except (_Failed, RoundAborted):
        return
    raise ConformanceError(f"{protocol.name}: nobody notices that {failing} failed.")


class _Failed(Exception):
    """What a party is made to fail by."""


def check_coalitions(protocol: SecureSum, count: int) -> None:
    """It takes `smallest_coalition` sites, with the coordinator, to learn another's input; all others always do."""
    stated, found = min(protocol.smallest_coalition(count), count - 1), smallest_breaking(protocol, count)
    if protocol.discloses != (told := "sum" if found else "value"):
        raise ConformanceError(
            f"{protocol.name}: discloses is {protocol.discloses!r}; it must be {told!r}, for the coordinator alone "
            f"{'learns no' if found else 'learns the'} input."
        )
    if found != stated:
        raise ConformanceError(
            f"{protocol.name}: {found} of {count} sites and the coordinator learn the input of another, and "
            f"smallest_coalition says {stated}."
        )


def smallest_breaking(protocol: SecureSum, count: int) -> int:
    """The fewest sites that, with the coordinator, learn another's input."""
    rehearsed = Rehearsed.of(protocol, count)
    return next(
        size
        for size in range(count)
        if any(rehearsed.leaks(each, coordinator=True) for each in itertools.combinations(rehearsed.sites, size))
    )
