"""The sums that are opened with a blind system (`blind_system`): numbers, and inner products of vectors.

The first member a holds a share R of each, and the second member b a share T. A number is opened as the sum of its
shares. For vectors R, T (g, m) the dealer gives a the seeds of U (g, m) and W (g, g), and b the seed of V (g, m) and U
V^T - W. Then D = R - U goes to b, E = T - V to a, and

    a:  R R^T + (W + U E^T) + its transpose
    b:  T T^T + (U V^T - W + D T^T) + its transpose

add up to (R + T) (R + T)^T. Both add uniform noise of full size to their share of every number. So
neither of them can subtract all noise, nor can a coordinator that colludes with one of them.
"""

from __future__ import annotations

import numpy as np

from fedsvm.federation.arrays import FloatArray
from fedsvm.federation.channel.interface import Channel
from fedsvm.protocols.arithmetic.residue_numbers import transpose, upper
from fedsvm.protocols.blind_parameters import BlindSystem
from fedsvm.protocols.common_seed import SHAPE
from fedsvm.protocols.side_by_side import Receive, Send, Steps


def open_sums_as_first(
    channel: Channel, system: BlindSystem, dealer: str, other: str, entries: FloatArray
) -> Steps[FloatArray]:
    """Return the first member's share (primes, 1, opened) of the sums, given its share (primes, 1, entries)."""
    numbers, sums = system.numbers, system.sums
    share = system.numbers_of(entries)
    if sums.vectors:
        own, square = system.vectors_of(entries), (sums.vectors, sums.vectors)
        seeds = yield Receive(dealer, (2, SHAPE[1]))
        around = numbers.uniform(channel.expand, seeds[:1], own.shape[1:])
        between = numbers.uniform(channel.expand, seeds[1:], square)
        yield Send(other, numbers.pack(numbers.reduce(own - around)))
        theirs = yield from _received_vectors(system, other)
        cross = numbers.reduce(between + numbers.product(around, transpose(theirs)))
        share = np.concatenate([share, _products(system, own, cross)], axis=2)
    return _with_noise(channel, system, share)


def open_sums_as_second(
    channel: Channel, system: BlindSystem, dealer: str, other: str, entries: FloatArray
) -> Steps[FloatArray]:
    """Return the second member's share (primes, 1, opened) of the sums, given its share (primes, 1, entries)."""
    numbers, sums = system.numbers, system.sums
    share = system.numbers_of(entries)
    if sums.vectors:
        own, square = system.vectors_of(entries), (sums.vectors, sums.vectors)
        seed = yield Receive(dealer, SHAPE)
        between = numbers.unpack((yield Receive(dealer, (1, numbers.words(square)))), square)
        yield Send(other, numbers.pack(numbers.reduce(own - numbers.uniform(channel.expand, seed, own.shape[1:]))))
        theirs = yield from _received_vectors(system, other)
        cross = numbers.reduce(between + numbers.product(theirs, transpose(own)))
        share = np.concatenate([share, _products(system, own, cross)], axis=2)
    return _with_noise(channel, system, share)


def deal_products(channel: Channel, system: BlindSystem, first: str, second: str) -> Steps[None]:
    """Deal the correlated randomness for the inner products to both members."""
    numbers, sums = system.numbers, system.sums
    shape, square = (sums.vectors, sums.length), (sums.vectors, sums.vectors)
    seeds = channel.random((3, SHAPE[1]))
    yield Send(first, seeds[:2])
    yield Send(second, seeds[2:])
    around, of_second = (numbers.uniform(channel.expand, seed[None, :], shape) for seed in (seeds[0], seeds[2]))
    between = numbers.uniform(channel.expand, seeds[1:2], square)
    product = numbers.product(around, transpose(of_second))
    yield Send(second, numbers.pack(numbers.reduce(product - between)))


def _received_vectors(system: BlindSystem, sender: str) -> Steps[FloatArray]:
    shape = (system.sums.vectors, system.sums.length)
    return system.numbers.unpack((yield Receive(sender, (1, system.numbers.words(shape)))), shape)


def _products(system: BlindSystem, own: FloatArray, cross: FloatArray) -> FloatArray:
    """Return a share (primes, 1, products) from the member's shares of the vectors and of the mixed products."""
    numbers = system.numbers
    return upper(numbers.reduce(numbers.product(own, transpose(own)) + cross + transpose(cross)))


def _with_noise(channel: Channel, system: BlindSystem, share: FloatArray) -> FloatArray:
    if not system.sums.opened:
        return share
    return system.numbers.reduce(share + system.encode_noise(2 * uniform(channel, system.sums.opened) - 1))


def uniform(channel: Channel, count: int) -> FloatArray:
    """Draw uniform numbers (count,) in [0, 1) from the operating system's generator."""
    return np.asarray(np.ldexp((channel.random((1, count))[0] >> np.uint64(11)).astype(np.float64), -53))


def normal(channel: Channel, count: int) -> FloatArray:
    """Draw standard normal numbers (count,) by the Box-Muller method."""
    first, second = uniform(channel, 2 * -(-count // 2)).reshape(2, -1)
    radius, angle = np.sqrt(-2 * np.log1p(-first)), 2 * np.pi * second
    return np.concatenate([radius * np.cos(angle), radius * np.sin(angle)])[:count]
