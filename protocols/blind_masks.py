"""The masks of a blind system (`blind_system`): a member draws one, and two members apply it to a shared matrix.

The owner of a mask O and the other member hold additive shares of a symmetric matrix H. They compute shares of
O H O^T with correlated randomness of the dealer (see `blind_system`), so that neither learns the other's share, and the
other member learns nothing of O.
"""

from __future__ import annotations

import numpy as np

from fedsvm.federation.arrays import FloatArray
from fedsvm.federation.channel.interface import Channel
from fedsvm.protocols.arithmetic.residue_numbers import symmetric, transpose, upper
from fedsvm.protocols.blind_parameters import MASK_BITS, STRETCH, BlindSystem, OwnMask
from fedsvm.protocols.blind_sums import normal, uniform
from fedsvm.protocols.common_seed import SHAPE
from fedsvm.protocols.side_by_side import Receive, Send, Steps


def draw_mask(channel: Channel, system: BlindSystem, max_factor: float) -> OwnMask:
    """Draw a mask Q S, and a factor for each right-hand side.

    The mask is not S Q: the square of S would be the diagonal of its product with its transpose.

    Parameters
    ----------
    channel : Channel
    system : BlindSystem
    max_factor : float
        The maximum factor, from 1; the minimum is its inverse.

    Returns
    -------
    OwnMask
    """
    d, k = system.size, system.problems
    drawn = normal(channel, d * d).reshape(d, d)
    rest = uniform(channel, d + k)
    q, r = np.linalg.qr(drawn)
    around = q * np.copysign(1.0, np.diagonal(r)) * STRETCH ** (2 * rest[:d] - 1)
    return OwnMask(_round(around), _round(max_factor ** (2 * rest[d:] - 1)))


def _round(values: FloatArray) -> FloatArray:
    return np.asarray(np.ldexp(np.rint(np.ldexp(values, MASK_BITS)), -MASK_BITS))


def mask_own(
    channel: Channel, system: BlindSystem, dealer: str, other: str, mask: OwnMask, share: FloatArray
) -> Steps[FloatArray]:
    """Return the owner's share of O H O^T.

    Parameters
    ----------
    channel : Channel
    system : BlindSystem
    dealer, other : str
        The dealer, and the other member.
    mask : OwnMask
        O.
    share : FloatArray of shape (primes, d + K, d + K)
        Its share of H, extended.

    Returns
    -------
    FloatArray of shape (primes, d + K, d + K)
    """
    numbers, square, secret = system.numbers, (system.extended, system.extended), mask.residues(system)
    seeds = yield Receive(dealer, (3, SHAPE[1]))
    around, product = (numbers.uniform(channel.expand, seed, square) for seed in seeds[:2])
    twice = numbers.uniform_symmetric(channel.expand, seeds[2], system.extended)
    hidden = numbers.reduce(secret - around)
    yield Send(other, numbers.pack(hidden))
    theirs = yield from _received_symmetric(system, other)
    # with Z = R + E: O Z O^T + Q O^T + O Q^T = (C + C^T) / 2 with C = (O Z + 2 Q) O^T, by two products of matrices
    turned = np.matmul(secret, numbers.reduce(share + theirs))
    turned += 2 * product
    cross = numbers.product(numbers.reduce(turned), transpose(secret))
    return numbers.reduce(numbers.symmetric_part(cross) + twice)


def mask_other(channel: Channel, system: BlindSystem, dealer: str, owner: str, share: FloatArray) -> Steps[FloatArray]:
    """Return the other member's share of O H O^T.

    Parameters
    ----------
    channel : Channel
    system : BlindSystem
    dealer, owner : str
        The dealer, and the owner of the mask.
    share : FloatArray of shape (primes, d + K, d + K)
        Its share of H, extended.

    Returns
    -------
    FloatArray of shape (primes, d + K, d + K)
    """
    numbers, square = system.numbers, (system.extended, system.extended)
    shape = (1, numbers.words(square))
    seed = yield Receive(dealer, SHAPE)
    around = numbers.uniform_symmetric(channel.expand, seed, system.extended)
    yield Send(owner, numbers.pack(upper(numbers.reduce(share - around))))
    twice = yield from _received_symmetric(system, dealer)
    product = numbers.unpack((yield Receive(dealer, shape)), square)
    hidden = numbers.unpack((yield Receive(owner, shape)), square)
    turned = np.matmul(hidden, around)
    turned += 2 * product
    cross = numbers.product(numbers.reduce(turned), transpose(hidden))
    return numbers.reduce(numbers.symmetric_part(cross) + twice)


def deal_masking(channel: Channel, system: BlindSystem, owner: str, other: str) -> Steps[None]:
    """Deal fresh correlated randomness for one mask to its owner and to the other member."""
    numbers, square = system.numbers, (system.extended, system.extended)
    seeds = channel.random((4, SHAPE[1]))
    yield Send(owner, seeds[:3])
    yield Send(other, seeds[3:])
    around, product = (numbers.uniform(channel.expand, seed, square) for seed in seeds[:2])
    twice, between = (numbers.uniform_symmetric(channel.expand, seed, system.extended) for seed in seeds[2:])
    rest = numbers.reduce(np.matmul(around, between) - product)
    both = numbers.symmetric_part(numbers.product(rest - product, transpose(around)))
    yield Send(other, numbers.pack(upper(numbers.reduce(both - twice))))
    yield Send(other, numbers.pack(rest))


def _received_symmetric(system: BlindSystem, sender: str) -> Steps[FloatArray]:
    """Receive and return a symmetric matrix of residues, which is sent as its upper triangle."""
    shape = (1, system.triangle)
    words = yield Receive(sender, (1, system.numbers.words(shape)))
    return symmetric(system.numbers.unpack(words, shape), system.extended)
