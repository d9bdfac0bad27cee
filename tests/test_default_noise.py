"""The rows that a site names by default training, by its path and its exact weights, and by longer paths."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.default_noise import WAYS, attack, train
from benchmarks.landmarks import SETS, map_source


@pytest.mark.parametrize(
    ("way", "least", "most"),
    [
        ("default", 0, 0),
        pytest.param("without secrets of rows", 1, 60, marks=pytest.mark.long),
        pytest.param("`tolerance` 1e-4", 1, 60, marks=pytest.mark.long),
        pytest.param("`tolerance` 1e-4, without secrets of rows", 100, 300, marks=pytest.mark.long),
    ],
)
def test_secrets_of_rows_and_a_large_gap_hide_all_rows_from_a_site_and_one_of_them_does_not(
    way: str, least: int, most: int
) -> None:
    source, random = map_source((*SETS["quickstart"], *WAYS[way].statistics)), np.random.default_rng(1)
    found = attack(source, WAYS[way], train(source, WAYS[way], random), 0, random)
    assert least <= found.named + found.named_by_weights <= most
    assert found.wrong <= 4
