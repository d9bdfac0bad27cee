"""Large integers as residues: exact in products, sums and both ways."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsvm.federation.arrays import FloatArray, Residues
from fedsvm.federation.channel.memory import InMemoryNetwork, MemoryChannel
from fedsvm.protocols.arithmetic.residue_numbers import (
    MAX_SUMMANDS,
    ResidueNumbers,
    symmetric,
    transpose,
    upper,
)

BITS = 122
NUMBERS = ResidueNumbers.holding(BITS, 300)


def residues(integers: list[list[int]], numbers: ResidueNumbers = NUMBERS) -> FloatArray:
    return np.array([[[value % prime for value in row] for row in integers] for prime in numbers.primes], dtype=float)


@pytest.mark.parametrize(("bits", "size", "width"), [(10, 2, 22), (122, 512, 22), (122, 513, 21), (150, 3000, 20)])
def test_primes_hold_the_numbers_and_keep_products_exact(bits: int, size: int, width: int) -> None:
    numbers = ResidueNumbers.holding(bits, size)
    assert numbers.modulus > 1 << (bits + 1)
    assert numbers.primes[0].bit_length() == width
    assert size * (numbers.primes[0] - 1) ** 2 <= 1 << 53
    assert len(set(numbers.primes)) == len(numbers.primes)
    assert all(pow(2, prime - 1, prime) == 1 for prime in numbers.primes)


@pytest.mark.parametrize("size", [512, 513])
def test_the_largest_residues_have_an_exact_product(size: int) -> None:
    numbers = ResidueNumbers.holding(30, size)
    largest = np.array(numbers.primes, dtype=float)[:, None, None] - 1
    row, column = np.broadcast_to(largest, (len(largest), 1, size)), np.broadcast_to(largest, (len(largest), size, 1))
    np.testing.assert_array_equal(numbers.product(row, column)[:, 0, 0], [size % prime for prime in numbers.primes])


@settings(max_examples=100)
@given(st.lists(st.integers(-(2**BITS), 2**BITS), min_size=1, max_size=8))
def test_signed_numbers_come_back(integers: list[int]) -> None:
    found = NUMBERS.decode(residues([integers]))
    np.testing.assert_allclose(found, [[float(value) for value in integers]], rtol=1e-15)


@settings(max_examples=100)
@given(st.lists(st.floats(-1, 1), min_size=1, max_size=8), st.sampled_from([0, 12, 60, 100]))
def test_numbers_of_float64_are_rounded_to_the_last_bit(values: list[float], bits: int) -> None:
    found = NUMBERS.decode(NUMBERS.encode(np.array([values]), bits))[0]
    exact = [
        round(mantissa * 2**bits / divisor) for mantissa, divisor in (value.as_integer_ratio() for value in values)
    ]
    np.testing.assert_allclose(found, [float(value) for value in exact], rtol=1e-15, atol=1.0 if bits else 0.5)


@settings(max_examples=30)
@given(st.data())
def test_products_and_sums_are_those_of_integers(data: st.DataObject) -> None:
    entries = st.lists(st.lists(st.integers(-(2**50), 2**50), min_size=3, max_size=3), min_size=3, max_size=3)
    left, right, more = (data.draw(entries) for _ in range(3))
    exact = np.array(left, dtype=object) @ np.array(right, dtype=object) + np.array(more, dtype=object)
    found = NUMBERS.reduce(NUMBERS.product(residues(left), residues(right)) + residues(more))
    assert (2 * np.abs(found) <= np.array(NUMBERS.primes)[:, None, None] + 1).all()
    np.testing.assert_array_equal(NUMBERS.pack(found), NUMBERS.pack(residues(exact.tolist())))
    np.testing.assert_array_equal(found, NUMBERS.of_integers(np.zeros((3, 3), dtype=np.int64)) + found)


def test_twice_the_symmetric_part_is_the_sum_with_the_transpose() -> None:
    random = np.random.default_rng(0)
    square = np.array([random.integers(0, prime, (5, 5)) for prime in NUMBERS.primes], dtype=np.float64)
    square[:, 0, 0] = np.array(NUMBERS.primes) - 1.0
    found = NUMBERS.symmetric_part(square)
    assert found.max() < 2.0**45
    np.testing.assert_array_equal(found, transpose(found))
    np.testing.assert_array_equal(NUMBERS.reduce(2 * found), NUMBERS.reduce(square + transpose(square)))


def test_packed_residues_are_at_least_0_and_below_their_prime() -> None:
    primes = np.array(NUMBERS.primes, dtype=float)[:, None, None]
    half = (primes - 1) / 2
    given = np.concatenate([-half, -half + 1, np.zeros_like(half), half, primes - 1], axis=2)
    lanes = NUMBERS.pack(given).view("<u4")[0, : given.size].reshape(given.shape)
    np.testing.assert_array_equal(lanes, given % primes)


@pytest.mark.parametrize("shape", [(1, 1), (3, 5), (4, 4)])
def test_packed_residues_of_many_parties_add_up(shape: tuple[int, int]) -> None:
    largest = np.broadcast_to(np.array(NUMBERS.primes, dtype=float)[:, None, None] - 1, (len(NUMBERS.primes), *shape))
    words = NUMBERS.pack(largest)
    assert words.shape == (1, NUMBERS.words(shape))
    total = words * np.uint64(MAX_SUMMANDS)
    np.testing.assert_array_equal(NUMBERS.unpack(total, shape), np.full(largest.shape, -float(MAX_SUMMANDS)))


def test_a_seed_gives_both_who_have_it_the_same_uniform_residues() -> None:
    network = InMemoryNetwork(("site-1", "site-2"))
    seed = np.arange(4, dtype=np.uint64)
    found = network.run(
        {site: lambda channel: NUMBERS.uniform(channel.expand, seed, (20, 20)) for site in network.sites}
    )
    np.testing.assert_array_equal(found["site-1"], found["site-2"])
    for prime, drawn in zip(NUMBERS.primes, found["site-1"], strict=True):
        assert 0 <= drawn.min() < drawn.max() < prime


def test_bits_that_are_no_residue_are_drawn_again_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    real, beyond = MemoryChannel.expand, NUMBERS.primes[0]

    def expand(channel: MemoryChannel, secrets: list[bytes], shape: tuple[int, ...], part: int = 0) -> Residues:
        words = real(channel, secrets, shape, part).copy()
        if part in (0, 1 << 16):
            words[0, 0, 0] = words[0, 0, 0] >> np.uint64(32) << np.uint64(32) | np.uint64(beyond)
        return words

    def drawn() -> FloatArray:
        network, seed = InMemoryNetwork(("site-1",)), np.arange(4, dtype=np.uint64)
        (found,) = network.run({"site-1": lambda each: NUMBERS.uniform(each.expand, seed, (3, 5))}).values()
        return np.asarray(found)

    before = drawn()
    monkeypatch.setattr(MemoryChannel, "expand", expand)
    after = drawn()
    assert after[0, 0, 0] < beyond
    assert (after != before).sum() <= 1
    np.testing.assert_array_equal(after.ravel()[1:], before.ravel()[1:])


def test_residues_of_a_seed_are_uniform() -> None:
    """Each bit, by a bound of 7 deviations: a false alarm in 10^9."""
    network, seed = InMemoryNetwork(("site-1",)), np.arange(4, dtype=np.uint64)
    (found,) = network.run({"site-1": lambda each: NUMBERS.uniform(each.expand, seed, (100, 100))}).values()
    for bit in range(22):
        share = (found.astype(np.int64) >> bit & 1).mean(axis=(1, 2))
        assert np.abs(share - 0.5).max() < 7 * 0.5 / 100


def test_triangles_and_transposes() -> None:
    full = np.arange(12.0).reshape(3, 2, 2)
    np.testing.assert_array_equal(transpose(full)[1], full[1].T)
    both = full + transpose(full)
    np.testing.assert_array_equal(symmetric(upper(both), 2), both)
