"""Secret sharing over the integers modulo 2^32 - 5, the largest prime below 2^32; a secret has eight of them.

Any `threshold` shares determine the secret; fewer reveal nothing about it. Each word of the secret is shared by its own
polynomial, and numpy computes all of them at once. The arithmetic is exact, because a sum of up to 2^16 products of a
word with 16 bits of another fits 64 bits.

References
----------
A. Shamir, "How to share a secret", Communications of the ACM 22 (11), 1979.
"""

from __future__ import annotations

import functools

import numpy as np
from numpy.typing import NDArray

PRIME = 2**32 - 5
"""The order of the field."""

SECRET_WORDS = 8
"""Elements of the field in a secret, and in a share."""

Elements = NDArray[np.uint32]
"""(..., words): elements of the field."""

_HALF_BITS = 16


def split(coefficients: Elements, holders: int) -> Elements:
    """Return shares of a secret for holders 1 … `holders`.

    Parameters
    ----------
    coefficients : Elements of shape (threshold, words)
        The secret, then threshold - 1 rows of random numbers, uniform below PRIME.
    holders : int
        The number of shares, `threshold` or more.

    Returns
    -------
    Elements of shape (holders, words)
        The share of holder x is f(x) = secret + c_1 x + … + c_(threshold - 1) x^(threshold - 1), word by word.
    """
    return _multiply(_powers(len(coefficients), holders), coefficients)


def combine(holders: tuple[int, ...], shares: Elements) -> Elements:
    """Return secrets from shares, by Lagrange interpolation at 0.

    Parameters
    ----------
    holders : tuple of int
        The holders of the shares, `threshold` or more; with fewer the result is wrong.
    shares : Elements of shape (..., holders, words)
        The shares of one or more secrets, in the order of the holders.

    Returns
    -------
    Elements of shape (..., words)
    """
    secrets: Elements = _multiply(_weights_at_zero(holders), shares)[..., 0, :]
    return secrets


def _multiply(halves: NDArray[np.uint64], elements: Elements) -> Elements:
    """Return the product of a matrix, by its upper and lower halves, and elements, modulo PRIME."""
    upper, lower = np.split(halves @ elements.astype(np.uint64), 2, axis=-2)
    return ((((upper % PRIME) << _HALF_BITS) + lower) % PRIME).astype(np.uint32)


def _halve(rows: list[list[int]]) -> NDArray[np.uint64]:
    """Return the upper 16 bits of a matrix above the lower 16 bits."""
    matrix = np.array(rows, dtype=np.uint64)
    return np.concatenate([matrix >> _HALF_BITS, matrix & (1 << _HALF_BITS) - 1])


@functools.lru_cache(maxsize=8)
def _powers(threshold: int, holders: int) -> NDArray[np.uint64]:
    """Return x^k of each holder x."""
    return _halve([[pow(x, k, PRIME) for k in range(threshold)] for x in range(1, holders + 1)])


@functools.lru_cache(maxsize=1024)
def _weights_at_zero(holders: tuple[int, ...]) -> NDArray[np.uint64]:
    """Return the product over j != i of x_j / (x_j - x_i), for each holder x_i."""
    weights = []
    for own in holders:
        numerator = denominator = 1
        for other in holders:
            if other != own:
                numerator = numerator * other % PRIME
                denominator = denominator * (other - own) % PRIME
        weights.append(numerator * pow(denominator, -1, PRIME) % PRIME)
    return _halve([weights])
