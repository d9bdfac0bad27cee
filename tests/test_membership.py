"""The optimal membership test, against the mechanism of noisy statistics and against too little noise."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import numpy as np
import pytest

from fedsvm.algorithms.attacks.membership import area, least_mu, margin, promised_area, scores
from fedsvm.algorithms.privacy.noisy_sums import NoisyBlock

BLOCKS = (NoisyBlock("a", 3, 2.0, 0.6), NoisyBlock("b", 2, 1.0, 0.8))
ROW = (np.array([2.0, 0.0, 0.0]), np.array([0.6, 0.8]))


def test_the_promise_is_the_area_between_two_shifted_normals() -> None:
    assert promised_area(0.0) == 0.5
    assert promised_area(1.0) == pytest.approx(0.7602, abs=1e-4)
    assert promised_area(0.5) == pytest.approx(0.6382, abs=1e-4)


def test_the_noise_of_one_site_keeps_the_promise_and_no_less_noise_does() -> None:
    """With a generator of the test's own: what it draws is always the same."""
    members, others = scores(BLOCKS, ROW, 1, 400, Random(1))
    assert abs(area(members, others) - promised_area(1.0)) < margin(400, 1e-3)
    thin = [replace(block, mu=4 * block.mu) for block in BLOCKS]
    broken = area(*scores(thin, ROW, 1, 400, Random(2)))
    assert broken - margin(400, 1e-6) > promised_area(1.0)


def test_noise_of_more_sites_hides_more() -> None:
    alone = area(*scores(BLOCKS, ROW, 1, 400, Random(3)))
    assert area(*scores(BLOCKS, ROW, 5, 400, Random(4))) < alone - 0.05


SMALL = (NoisyBlock("a", 1, 1.0, 1.0),)
FULL = (np.array([1.0]),)


@pytest.mark.parametrize("sites", [2, 5, pytest.param(20, marks=pytest.mark.long)])
def test_a_thousand_releases_prove_no_larger_mu_than_promised(sites: int) -> None:
    """With generators of the test's own, so that the figures are always the same."""
    members, others = scores(SMALL, FULL, sites, 1000, Random(sites))
    assert least_mu(members, others, 1e-3) <= 1.0 / np.sqrt(sites)
    assert area(members, others) - margin(1000, 1e-3) < promised_area(1.0 / np.sqrt(sites))


def test_one_site_alone_or_after_another_dropped_keeps_the_promise() -> None:
    """When one site's rows alone change, the attacker may know the noise of all others: what is left is its own."""
    alone = scores(SMALL, FULL, 1, 1000, Random(11))
    assert 0.7 < least_mu(*alone, 1e-3) <= 1.0
    again = scores(SMALL, FULL, 4, 1000, Random(12))  # one of five dropped, and four release once more
    first = scores(SMALL, FULL, 5, 1000, Random(13))
    both = [one + other for one, other in zip(first, again, strict=True)]
    assert least_mu(both[0], both[1], 1e-3) <= np.hypot(1 / np.sqrt(5), 1 / np.sqrt(4))


def test_too_little_noise_is_proven() -> None:
    thin = [replace(block, mu=4 * block.mu) for block in SMALL]
    assert least_mu(*scores(thin, FULL, 1, 400, Random(5)), 1e-6) > 1.5
