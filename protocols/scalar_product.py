"""The scalar product of two sites' vectors, which neither site shows the other.

Clifton et al. (section 3.4) hide a vector behind linear combinations of random vectors, which a site that knows some
entries can undo. Here the coordinator deals randomness instead (Du and Zhan): vectors R_a and R_b, and numbers with
r_a + r_b = R_a . R_b.

    first -> second: x + R_a          second -> first: y + R_b
    second -> first: u = (x + R_a) . y + r_b - t, with t drawn by the second
    first: x . y - t = u - R_a . (y + R_b) + r_a

The two sites have additive shares of the product, x . y - t and t, and send them to the coordinator. All numbers are
integers modulo 2^128: entries have f fraction bits, and the product 2 f.

Cost: 9 messages, 4 hops, 16 (4 d + 5) bytes.

Security. Against semi-honest parties. Each site receives only uniform numbers from the other, and the coordinator
learns only the product. The coordinator together with either site learns the other's vector. The product itself reveals
information: a site that chooses its vector can learn an entry of the other's.

References
----------
W. Du and Z. Zhan, "A practical approach to solve secure multi-party computation problems", New Security Paradigms
Workshop, 2002.
C. Clifton, M. Kantarcioglu, J. Vaidya, X. Lin and M. Y. Zhu, "Tools for privacy preserving distributed data mining",
SIGKDD Explorations 4 (2), 2002, section 3.4.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from fedsvm.federation.arrays import FloatArray, Residues
from fedsvm.federation.channel.interface import Channel
from fedsvm.federation.errors import BoundExceeded
from fedsvm.federation.transport.keys import COORDINATOR

_LIMBS = 2
_MODULUS = 1 << 128
_MAX_FRACTION_BITS = 52
"""Maximum number of fraction bits of an entry, more than float64 has."""

Integers = NDArray[np.object_]
"""Python integers below 2^128."""


def fraction_bits(length: int, bound: float) -> int:
    """Return the number of fraction bits of an entry.

    Parameters
    ----------
    length : int
        The length of the vectors.
    bound : float
        Maximum absolute value of an entry.

    Returns
    -------
    int
        f, with length * bound^2 * 2^(2 f) < 2^126.

    Raises
    ------
    ValueError
        No fraction bit is left.
    """
    if not math.isfinite(bound * bound):
        raise ValueError(f"the product of entries of size {bound:g} does not fit 128 bits")
    room = 126 - math.frexp(max(length, 1) * bound * bound)[1]
    if room < 2:
        raise ValueError(f"the product of {length} entries of size {bound:g} does not fit 128 bits")
    return min(_MAX_FRACTION_BITS, room // 2)


def scalar_product(channel: Channel, vector: FloatArray, bound: float) -> None:
    """Run a site's part; the sites are the channel's first two.

    Parameters
    ----------
    channel : Channel
    vector : float64 array of shape (d,)
        The site's vector.
    bound : float
        Maximum absolute value of an entry of either vector; public.

    Raises
    ------
    BoundExceeded
        An entry is not finite or exceeds the bound; nothing was sent.
    """
    own = _encode(vector, bound)
    mask = _integers(channel.receive(COORDINATOR, (_LIMBS, len(own))))
    share = _integers(channel.receive(COORDINATOR, (_LIMBS, 1)))[0]
    first, second = channel.sites[:2]
    other = second if channel.me == first else first
    channel.send(other, _residues(own + mask))
    theirs = _integers(channel.receive(other, (_LIMBS, len(own))))
    if channel.me == second:
        product_share = _integers(channel.random((_LIMBS, 1)))[0]  # t
        channel.send(first, _residues(np.array([theirs @ own + share - product_share], dtype=object)))
    else:
        answer = _integers(channel.receive(second, (_LIMBS, 1)))[0]  # u
        product_share = answer - mask @ theirs + share
    channel.send(COORDINATOR, _residues(np.array([product_share], dtype=object)))


def deal_and_reveal(channel: Channel, length: int, bound: float) -> float:
    """Run the coordinator's part: deal the randomness, and add the shares of the product.

    Parameters
    ----------
    channel : Channel
    length : int
        The length of the vectors.
    bound : float
        Maximum absolute value of an entry of either vector.

    Returns
    -------
    float
        The product.
    """
    masks = [_integers(channel.random((_LIMBS, length))) for _ in range(2)]
    one = _integers(channel.random((_LIMBS, 1)))[0]
    shares = [one, masks[0] @ masks[1] - one]
    for site, mask, share in zip(channel.sites[:2], masks, shares, strict=True):
        channel.send(site, _residues(mask))
        channel.send(site, _residues(np.array([share], dtype=object)))
    total = sum(_integers(channel.receive(site, (_LIMBS, 1)))[0] for site in channel.sites[:2]) % _MODULUS
    signed = total - _MODULUS if total >= _MODULUS // 2 else total
    return math.ldexp(float(signed), -2 * fraction_bits(length, bound))


def _encode(vector: FloatArray, bound: float) -> Integers:
    if not np.isfinite(vector).all() or np.abs(vector).max(initial=0.0) > bound:
        raise BoundExceeded(f"an entry is not finite or beyond the declared bound {bound:g}")
    scaled = np.rint(np.ldexp(vector, fraction_bits(len(vector), bound)))
    return np.array([int(value) for value in scaled], dtype=object)


def _integers(residues: Residues) -> Integers:
    low, high = residues.astype(object)
    return np.asarray(low + high * (1 << 64))


def _residues(integers: Integers) -> Residues:
    rest = integers % _MODULUS
    return np.stack([(rest % (1 << 64)).astype(np.uint64), (rest // (1 << 64)).astype(np.uint64)])
