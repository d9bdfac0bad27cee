"""Landmarks drawn from noisy statistics: their distribution, what they follow from, and how well they reach rows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fedsvm.algorithms.features.drawn_landmarks import (
    ENOUGH,
    RowDescription,
    drawn_landmarks,
    explained_shares,
    increments,
    landmark_counts,
    shrink,
    smallest_enough,
)
from fedsvm.algorithms.features.kernels import Kernel
from fedsvm.federation.arrays import FloatArray

RANDOM = np.random.default_rng(5)
ROOT = RANDOM.normal(size=(3, 3))
COVARIANCE = ROOT @ ROOT.T + 0.3 * np.eye(3)
WIDE = np.full(3, 1e6)
DESCRIBED = RowDescription(
    rows=500.0,
    low=-WIDE,
    high=WIDE,
    mean=np.array([10.0, -3.0, 0.5]),
    covariance=COVARIANCE,
    noise=np.zeros((3, 3)),
    frequencies=[np.array([0.2, 0.5, 0.3]), np.array([0.0, 1.0])],
    gaps=np.array([0.25]),
)


def spread(rows: FloatArray) -> float:
    """The distance of a covariance from a multiple of the identity."""
    return float(np.abs(rows - np.trace(rows) / len(rows) * np.eye(len(rows))).max())


def test_drawn_landmarks_have_the_moments_and_look_like_rows() -> None:
    points = drawn_landmarks(DESCRIBED, 100_000, seed=1)
    assert points.shape == (100_000, 3 + 5 + 1)
    np.testing.assert_allclose(points[:, :3].mean(axis=0), DESCRIBED.mean, atol=0.05)
    np.testing.assert_allclose(np.cov(points[:, :3].T), COVARIANCE, atol=0.15)
    marks = points[:, 3:]
    assert set(np.unique(marks)) == {0.0, 1.0}
    np.testing.assert_array_equal(marks[:, :3].sum(axis=1), 1.0)
    np.testing.assert_array_equal(marks[:, 3:5].sum(axis=1), 1.0)
    np.testing.assert_allclose(marks.mean(axis=0), [0.2, 0.5, 0.3, 0.0, 1.0, 0.25], atol=0.01)


def test_the_first_landmarks_are_the_same_whatever_their_number_and_others_by_another_seed() -> None:
    many = drawn_landmarks(DESCRIBED, 40, seed=1)
    np.testing.assert_allclose(drawn_landmarks(DESCRIBED, 10, seed=1), many[:10], rtol=0, atol=1e-12)
    assert not np.allclose(drawn_landmarks(DESCRIBED, 40, seed=2), many)


def test_numbers_stay_in_their_windows() -> None:
    tight = replace(DESCRIBED, low=DESCRIBED.mean - 0.5, high=DESCRIBED.mean + 0.5)
    points = drawn_landmarks(tight, 1000, seed=1)[:, :3]
    assert (points >= tight.low).all()
    assert (points <= tight.high).all()


@pytest.mark.parametrize(
    "described",
    [
        replace(DESCRIBED, frequencies=[], gaps=np.zeros(0)),
        replace(
            DESCRIBED,
            low=np.zeros(0),
            high=np.zeros(0),
            mean=np.zeros(0),
            covariance=np.zeros((0, 0)),
            noise=np.zeros((0, 0)),
        ),
        replace(DESCRIBED, covariance=np.zeros((3, 3))),
        replace(DESCRIBED, covariance=-COVARIANCE, noise=np.full((3, 3), 1e-3)),
        replace(DESCRIBED, covariance=np.diag([1e-30, 1e12, 1.0])),
    ],
    ids=["numbers", "categories", "constant", "negative", "unlike scales"],
)
def test_any_description_gives_finite_landmarks_that_differ(described: RowDescription) -> None:
    points = drawn_landmarks(described, 30, seed=3)
    assert points.shape == (30, described.shape[1])
    assert np.isfinite(points).all()
    assert len(np.unique(points, axis=0)) > 1


def test_a_covariance_without_noise_stays_and_one_of_noise_alone_becomes_the_identity() -> None:
    np.testing.assert_allclose(shrink(COVARIANCE, np.zeros((3, 3))), COVARIANCE, atol=1e-12)
    alone = np.eye(20) + 0.4 * RANDOM.normal(size=(20, 20))
    alone = (alone + alone.T) / 2
    assert spread(shrink(alone, np.full((20, 20), 0.4))) < 0.1 * spread(alone)
    assert shrink(np.zeros((0, 0)), np.zeros((0, 0))).shape == (0, 0)


def test_shrinking_by_the_size_of_the_noise_comes_nearer_to_the_covariance() -> None:
    truth, errors = np.diag(np.linspace(0.2, 2.0, 12)), []
    for draw in range(20):
        noise = 0.3 * np.random.default_rng(draw).normal(size=(12, 12))
        noisy = truth + np.triu(noise) + np.triu(noise, 1).T
        found = shrink(noisy, np.full((12, 12), 0.3))
        assert np.linalg.eigvalsh(found).min() > 0
        errors.append((np.linalg.norm(found - truth), np.linalg.norm(noisy - truth)))
    assert np.mean(errors, axis=0)[0] < 0.8 * np.mean(errors, axis=0)[1]


# How well landmarks reach rows.


def by_definition(kernel: Kernel, rows: FloatArray, landmarks: FloatArray) -> FloatArray:
    """k(x, Z) K(Z, Z)^+ k(Z, x) / k(x, x)."""
    across = kernel(rows, landmarks)
    squares = np.einsum("ij,jk,ik->i", across, np.linalg.pinv(kernel(landmarks, landmarks), rcond=1e-10), across)
    return np.asarray(squares / np.diag(kernel(rows, rows)))


@pytest.mark.parametrize("kernel", [Kernel("rbf", 0.2), Kernel("linear"), Kernel("poly", 0.5, 2, 1.0)])
def test_the_explained_share_is_what_it_is_defined_as_and_grows(kernel: Kernel) -> None:
    rows, landmarks = RANDOM.normal(size=(50, 4)), RANDOM.normal(size=(24, 4))
    counts = (2, 6, 24)
    shares = explained_shares(kernel, rows, landmarks, counts, 1e-10)
    for place, count in enumerate(counts):
        np.testing.assert_allclose(shares[:, place], by_definition(kernel, rows, landmarks[:count]), atol=1e-6)
    added = increments(shares)
    assert added.min() >= 0
    assert np.linalg.norm(added, axis=1).max() <= 1 + 1e-12
    np.testing.assert_allclose(added.sum(axis=1), shares[:, -1])
    reached = explained_shares(kernel, landmarks, landmarks, (24,), 1e-10)
    np.testing.assert_allclose(reached, 1.0, atol=1e-6)


def test_rows_out_of_reach_have_no_share_and_a_row_of_length_zero_has_all() -> None:
    far = explained_shares(Kernel("rbf", 1.0), np.full((1, 4), 100.0), np.zeros((3, 4)), (3,), 1e-10)
    assert far.item() < 1e-12
    assert explained_shares(Kernel("linear"), np.zeros((1, 4)), np.eye(4), (4,), 1e-10).item() == 1.0


@pytest.mark.parametrize(
    ("wanted", "rows", "most", "counts"),
    [
        (0.25, 400.3, 300, (100, 200, 300)),
        (0.25, 1e6, 300, (300,)),
        (20, 1e6, 300, (20, 40, 80, 160, 300)),
        (500, 100.0, 300, (500,)),
        (0.25, 1.0, 300, (1, 2, 4, 8, 16, 32, 64, 128, 256, 300)),
    ],
)
def test_numbers_of_landmarks_double_up_to_the_largest(
    wanted: float, rows: float, most: int, counts: tuple[int, ...]
) -> None:
    assert landmark_counts(wanted, rows, most) == counts


def test_the_smallest_number_that_reaches_the_rows_is_taken() -> None:
    assert smallest_enough((50, 100, 200), np.array([0.3, ENOUGH, 0.9])) == 100
    assert smallest_enough((50, 100), np.array([0.1, 0.2])) is None
