"""Fixed point: exact sums, a stated precision, and a refusal of what does not fit."""

from __future__ import annotations

import functools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsvm.federation.channel.interface import uniform_residues
from fedsvm.federation.errors import BoundExceeded
from fedsvm.protocols.arithmetic.fixed_point import (
    MAX_BOUND,
    MIN_FRACTION_BITS,
    FixedPoint,
    accumulate,
    add,
    subtract,
    total_of,
)

BOUNDS = st.floats(1e-6, 2.0**60)
SITES = st.integers(1, 1000)


def as_integers(limbs: np.ndarray) -> list[int]:
    """Signed integers of residues (limbs, d)."""
    bits = 64 * len(limbs)
    unsigned = [sum(int(limbs[i, j]) << (64 * i) for i in range(len(limbs))) for j in range(limbs.shape[1])]
    return [value - (1 << bits) if value >> (bits - 1) else value for value in unsigned]


@given(BOUNDS, SITES, st.lists(st.floats(-1, 1), min_size=1, max_size=20))
def test_values_come_back_to_the_stated_precision(bound: float, sites: int, shares: list[float]) -> None:
    encoding = FixedPoint.for_bound(bound, sites)
    values = np.array(shares) * bound
    assert encoding.fraction_bits >= MIN_FRACTION_BITS
    decoded = encoding.decode(encoding.encode(values))
    half_step = 2.0 ** -(encoding.fraction_bits + 1)
    assert np.abs(decoded - values).max() <= half_step + 1e-15 * np.abs(values).max()


@given(BOUNDS, st.integers(1, 50), st.integers(0, 2**32))
def test_sums_of_residues_are_the_sums_of_the_encoded_integers(bound: float, sites: int, seed: int) -> None:
    encoding = FixedPoint.for_bound(bound, sites)
    values = np.random.default_rng(seed).uniform(-bound, bound, size=(sites, 3))
    values[0] = bound
    encoded = [encoding.encode(row) for row in values]
    total = encoded[0]
    for residues in encoded[1:]:
        total = add(total, residues)
    expected = [sum(column) for column in zip(*(as_integers(residues) for residues in encoded), strict=True)]
    assert as_integers(total) == expected
    exact = [float(Fraction(value, 2**encoding.fraction_bits)) for value in expected]
    np.testing.assert_allclose(encoding.decode(total), exact, rtol=1e-15, atol=2.0**-encoding.fraction_bits)


@given(st.sampled_from([1, 2]), st.integers(1, 30))
def test_subtraction_takes_back_addition(limbs: int, length: int) -> None:
    a, b = uniform_residues((limbs, length)), uniform_residues((limbs, length))
    np.testing.assert_array_equal(subtract(add(a, b), b), a)


@given(st.sampled_from([1, 2]), st.integers(1, 5), st.integers(1, 30))
def test_adding_in_place_is_adding(limbs: int, count: int, length: int) -> None:
    vectors = uniform_residues((count, limbs, length))
    expected = functools.reduce(add, vectors)
    np.testing.assert_array_equal(total_of(vectors), expected)
    total = np.zeros((limbs, length), dtype=np.uint64)
    for vector in vectors:
        accumulate(total, vector)
    np.testing.assert_array_equal(total, expected)
    for vector in vectors:
        accumulate(total, vector, -1)
    assert not total.any()


@pytest.mark.parametrize("bound", [1.0, 2.0**40], ids=["one limb", "two limbs"])
@given(st.sampled_from([2**14, 2**14 + 1, 40_000]), st.integers(0, 2**32))
@settings(max_examples=10)
def test_long_vectors_are_encoded_as_short_ones_are(bound: float, length: int, seed: int) -> None:
    encoding = FixedPoint.for_bound(bound, 20)
    values = np.random.default_rng(seed).uniform(-bound, bound, length)
    residues, step = encoding.encode(values), 1000
    by_parts = [encoding.encode(values[start : start + step]) for start in range(0, length, step)]
    np.testing.assert_array_equal(residues, np.concatenate(by_parts, axis=1))
    decoded = [encoding.decode(part) for part in by_parts]
    np.testing.assert_array_equal(encoding.decode(residues), np.concatenate(decoded))


def test_a_refusal_speaks_of_the_whole_of_a_long_vector() -> None:
    values = np.zeros(40_000)
    values[[20_000, 39_999]] = math.nan
    with pytest.raises(BoundExceeded, match="2 of 40000 values are not finite"):
        FixedPoint.for_bound(10.0, 3).encode(values)


def test_carry_and_borrow_cross_the_limbs() -> None:
    ones, one = np.array([[2**64 - 1], [0]], dtype=np.uint64), np.array([[1], [0]], dtype=np.uint64)
    np.testing.assert_array_equal(add(ones, one), np.array([[0], [1]], dtype=np.uint64))
    np.testing.assert_array_equal(subtract(np.array([[0], [1]], dtype=np.uint64), one), ones)


def test_an_unknown_bound_takes_two_limbs_and_keeps_tiny_values() -> None:
    encoding = FixedPoint.for_bound(math.inf, 1000)
    assert encoding.limbs == 2
    values = np.array([1e15, -1e15, 1e-12, -1e-12, 0.0, -1.0])
    np.testing.assert_allclose(encoding.decode(encoding.encode(values)), values, rtol=1e-14, atol=2.0**-50)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_value_that_is_not_finite_is_refused(value: float) -> None:
    with pytest.raises(BoundExceeded, match="1 of 2 values are not finite"):
        FixedPoint.for_bound(10.0, 3).encode(np.array([1.0, value]))


def test_a_value_beyond_its_bound_is_refused() -> None:
    with pytest.raises(BoundExceeded, match="beyond the declared bound 10"):
        FixedPoint.for_bound(10.0, 3).encode(np.array([10.0, -10.001]))


@pytest.mark.parametrize("bound", [0.0, -1.0, 2 * MAX_BOUND])
def test_a_bound_must_make_sense(bound: float) -> None:
    with pytest.raises(ValueError, match="bound"):
        FixedPoint.for_bound(bound, 3)
