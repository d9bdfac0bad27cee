"""The rows that a site names by the path of a default training, and by a path that ends early."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.default_noise import WAYS, attack, train
from benchmarks.landmarks import SETS, map_source


@pytest.mark.parametrize(
    ("way", "least", "most"), [pytest.param("default", 10, 110, marks=pytest.mark.long), ("`max_iterations` 4", 0, 3)]
)
def test_a_site_names_rows_by_a_whole_path_and_next_to_none_by_its_beginning(way: str, least: int, most: int) -> None:
    source, random = map_source((*SETS["quickstart"], *WAYS[way].statistics)), np.random.default_rng(1)
    found = attack(source, WAYS[way], train(source, WAYS[way], random), 0, random)
    assert least <= found.named <= most
    assert found.wrong <= 3
    assert found.area > 0.55
