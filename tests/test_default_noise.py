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
        pytest.param("`tolerance` 1e-4, without secrets of rows", 50, 300, marks=pytest.mark.long),
    ],
)
def test_a_site_names_no_row_by_default_training_and_many_by_long_training_without_secrets(
    way: str, least: int, most: int
) -> None:
    source, random = map_source((*SETS["quickstart"], *WAYS[way].statistics)), np.random.default_rng(1)
    found = attack(source, WAYS[way], train(source, WAYS[way], random), 0, random)
    assert least <= max(found.named, found.named_by_weights) <= most
    assert found.wrong <= 1
