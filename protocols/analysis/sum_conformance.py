"""The requirements for every secure sum, checked in memory: correct result, stated cost, stated secrecy.

`check_sum` is for the sums of this project, which the tests check, and for those of other packages.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from fedsvm.federation.arrays import Residues
from fedsvm.federation.channel.interface import Channel, uniform_residues
from fedsvm.federation.channel.memory import InMemoryNetwork, MemoryChannel
from fedsvm.federation.errors import BoundExceeded, RoundAborted, Transient
from fedsvm.federation.transport.keys import COORDINATOR
from fedsvm.protocols.analysis.coalitions import AnalysedSum, smallest_breaking_coalition
from fedsvm.protocols.analysis.execution import Execution, execute, site_names
from fedsvm.protocols.arithmetic.fixed_point import add
from fedsvm.protocols.sums.secure_sum import SecureSum

MAX_SITES = 8
_SHAPES = [(1, 0), (1, 1), (2, 3), (1, 70_000)]
"""Shapes of residues: empty, one residue, two limbs, and more than one message of a ring."""

_ATTACKED = range(4, 7)
_BOUND = 100.0


class ConformanceError(AssertionError):
    """A sum does not meet a requirement, which the message names."""


def check_sum(protocol: SecureSum) -> Iterator[str]:
    """Check one property after the other: correctness, cost, faults, secrecy.

    - Sums are exact and have the cost of the formula, for all numbers of sites up to 8. So has a sum that a site opens.
    - Values that do not fit are refused.
    - No party waits forever when another dies or fails.
    - The stated number of colluders learns a site's input, and fewer do not, by the algebra of the messages and by the
      numbers in them.

    The channel guarantees that random vectors are uniform, so a sum must draw all masks by `channel.random`.

    Parameters
    ----------
    protocol : SecureSum

    Yields
    ------
    str
        A sentence for each requirement that is met.

    Raises
    ------
    ConformanceError
    """
    if protocol.discloses == "sum" and protocol.min_sites < 2:
        raise ConformanceError(
            f"{protocol.name}: min_sites must be 2 or more, got {protocol.min_sites}: over one site a sum is its input."
        )
    counts = range(max(1, protocol.min_sites), max(MAX_SITES, protocol.min_sites) + 1)
    for count, shape in itertools.product(counts, _SHAPES):
        check_exact(protocol, count, shape)
    yield f"sums over {counts[0]} to {counts[-1]} sites are exact and have the cost of the formula"
    for count in counts:
        _check_for_one_site(protocol, count)
    yield "a sum that one site opens is known to that site only, at the cost of the formula"
    _check_bound(protocol)
    yield "values that do not fit the bound are refused before anything is sent"
    for number, message in itertools.product(range(counts[-1]), range(1, 9)):
        _check_death(protocol, counts[-1], number, message)
    for failing in (*site_names(counts[-1]), COORDINATOR):
        _check_failure(protocol, counts[-1], failing)
    yield "no party waits forever after another dies or fails, and no sum is wrong"
    attacked = [count for count in _ATTACKED if count >= protocol.min_sites] or [protocol.min_sites]
    for count in attacked:
        _check_coalitions(protocol, count)
    yield f"it takes as many colluders as stated to learn an input, over {attacked[0]} to {attacked[-1]} sites"


def check_exact(protocol: SecureSum, count: int, shape: tuple[int, int]) -> None:
    """Check that the sum is exact modulo 2^64 a limb, and has the cost of the formula.

    Parameters
    ----------
    protocol : SecureSum
    count : int
        Number of sites.
    shape : (limbs, d)
        The shape of the residues.

    Raises
    ------
    ConformanceError
    """
    inputs = _random_inputs(count, shape)
    execution, stated = execute(protocol, inputs), protocol.cost_of(count, shape)
    where = f"over {count} sites, of residues {shape}"
    if execution.total is None:
        raise ConformanceError(f"{protocol.name}: the coordinator's part returns nothing; it must return the sum.")
    if not np.array_equal(execution.total, functools.reduce(add, inputs.values())):
        raise ConformanceError(f"{protocol.name}: the sum {where} is not that of the inputs.")
    if execution.cost != stated:
        raise ConformanceError(f"{protocol.name}: a sum {where} costs {execution.cost}, and cost_of says {stated}.")


def _check_for_one_site(protocol: SecureSum, count: int) -> None:
    """Check that the coordinator forwards a uniform vector to the site that opens the sum, with one further message."""
    opener, shape = site_names(count)[-1], (2, 3)
    values = [np.arange(6.0).reshape(shape) * (number + 1) / 32 for number in range(count)]
    network = InMemoryNetwork(site_names(count))
    residues = [protocol.encode(value, _BOUND, count) for value in values]
    inputs = dict(zip(network.sites, residues, strict=True))

    def contribute(channel: MemoryChannel) -> Residues | None:
        return protocol.contribute(channel, inputs[channel.me], opener)

    parties: dict[str, Callable[[MemoryChannel], Residues | None]] = dict.fromkeys(inputs, contribute)
    parties[COORDINATOR] = lambda channel: protocol.forward(channel, (residues[0].shape[0], 6), opener)
    results = network.run(parties)
    opened = results[opener]
    total = None if opened is None else protocol.decode(opened, shape, _BOUND, count)
    if results[COORDINATOR] is not None or total is None or not np.array_equal(total, np.sum(values, axis=0)):
        raise ConformanceError(f"{protocol.name}: a sum of {count} sites that {opener} opens is wrong.")
    forwarded = next(m.array for m in reversed(network.sent) if (m.sender, m.receiver) == (COORDINATOR, opener))
    if np.array_equal(forwarded, protocol.encode(np.sum(values, axis=0), _BOUND, count)):
        raise ConformanceError(f"{protocol.name}: the coordinator can read the sum that it forwards to {opener}.")
    cost = Execution({}, forwarded, network).cost
    if cost != (stated := protocol.cost_at_site(count, shape, _BOUND)):
        raise ConformanceError(f"{protocol.name}: a sum for one site costs {cost}, and the formula says {stated}.")


def _check_bound(protocol: SecureSum) -> None:
    """Check that a value that is not finite, or beyond the bound, is refused."""
    for value in (math.nan, math.inf, 1.1):
        try:
            protocol.encode(np.array([value]), 1.0, 5)
        except BoundExceeded:
            continue
        raise ConformanceError(f"{protocol.name}: the value {value} is accepted although the bound is 1.")


def _check_death(protocol: SecureSum, count: int, number: int, message: int) -> None:
    """Check that the sum is over all sites, over the survivors, or absent, if a site dies.

    number: the position of the dying site, from 0. message: the number of its message, from 1, before which it dies.
    """
    inputs = _random_inputs(count, (1, 3))
    dying = site_names(count)[number]
    survivors = [vector for site, vector in inputs.items() if site != dying]
    of_survivors = functools.reduce(add, survivors, np.zeros((1, 3), dtype=np.uint64))
    try:
        execution = execute(protocol, inputs, InMemoryNetwork(tuple(inputs), deaths={dying: message}))
    except (RoundAborted, Transient):
        return
    if not any(np.array_equal(execution.total, right) for right in (of_survivors, add(of_survivors, inputs[dying]))):  # type: ignore[arg-type]
        raise ConformanceError(f"{protocol.name}: the sum is neither with nor without {dying}, which died in it.")


def _check_failure(protocol: SecureSum, count: int, failing: str) -> None:
    """Check that the failure of a site or of the coordinator ends the round for all parties."""

    def contribute(channel: Channel, vector: Residues) -> None:
        if channel.me == failing:
            raise _PartyFailure
        protocol.contribute_residues(channel, vector)

    def reveal(channel: Channel, shape: tuple[int, int]) -> Residues:
        if channel.me == failing:
            raise _PartyFailure
        return protocol.reveal_residues(channel, shape)

    with_failure = replace(protocol, contribute_residues=contribute, reveal_residues=reveal)
    try:
        execute(with_failure, _random_inputs(count, (1, 3)))
    except (_PartyFailure, RoundAborted, Transient):
        return
    raise ConformanceError(f"{protocol.name}: the round does not end after {failing} failed.")


class _PartyFailure(Exception):
    """The simulated failure of a party."""


def _check_coalitions(protocol: SecureSum, count: int) -> None:
    """Check that it takes `smallest_coalition` sites, with the coordinator, to learn another's input.

    All others always do, from the sum itself. Checks `discloses` too, and that no site learns an input by itself.
    """
    stated = min(protocol.smallest_coalition(count), count - 1)
    computed = smallest_breaking_coalition(protocol, count)
    if protocol.discloses != (told := "sum" if computed else "value"):
        raise ConformanceError(
            f"{protocol.name}: discloses must be {told!r}, got {protocol.discloses!r}: the coordinator alone "
            f"{'learns no' if computed else 'learns the'} input."
        )
    analysed = AnalysedSum.of(protocol, count)
    for site in analysed.sites if count > 2 else ():
        if victims := analysed.leaks((site,), coordinator=False):
            raise ConformanceError(
                f"{protocol.name}: {site} alone learns the input of {', '.join(sorted(victims))}, and nothing in a "
                "result would say so; a sum may show inputs to the coordinator at most."
            )
    if computed != stated:
        raise ConformanceError(
            f"{protocol.name}: {computed} of {count} sites and the coordinator learn the input of another, and "
            f"smallest_coalition says {stated}."
        )


def _random_inputs(count: int, shape: tuple[int, int]) -> dict[str, Residues]:
    return {site: uniform_residues(shape) for site in site_names(count)}
