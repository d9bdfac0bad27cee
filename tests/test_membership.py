"""The optimal membership test, against the mechanism of noisy statistics and against too little noise."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import numpy as np
import pytest

from fedsvm.algorithms.attacks.membership import area, margin, promised_area, scores
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
