"""The ranges that a first scenario proposes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fedsvm.scenarios.data import dataset
from fedsvm.scenarios.data.rough_ranges import rough_range
from fedsvm.scenarios.draft import draft
from fedsvm.scenarios.hosts.site_data import hold
from fedsvm.scenarios.run.offered_terms import terms_of
from fedsvm.scenarios.schema import spec
from tests import messy_files


@pytest.mark.parametrize(
    ("values", "ends"),
    [
        ([*range(29, 78)], (20, 80)),
        ([0, 1, 1], (0, 1)),
        ([1, 2, 2], (1, 2)),
        ([3, 6, 7], (3, 7)),
        ([0.0, 1.5, 6.2], (0, 7)),
        ([126, *range(200, 350), 564], (100, 600)),
        ([0.0001, 0.00055, 0.00093], (0, 0.001)),
        ([0.3, 0.5, 0.7], (0.3, 0.7)),
        ([-40.5, 12.0, 1800.0], (-200, 1800)),
        ([1.02e9, 7.9e9], (1e9, 8e9)),
        ([5.0], (0, 5)),
        ([-2.5], (-2.5, 1)),
        ([0.0], (0, 1)),
    ],
)
def test_ends_are_rounded_outward(values: list[float], ends: tuple[float, float]) -> None:
    assert rough_range(np.array(values, dtype=np.float64)) == ends


def test_all_values_lie_between_the_ends() -> None:
    random = np.random.default_rng(3)
    for _ in range(300):
        values = random.normal(size=20) * 10 ** random.uniform(-6, 9) + 10 ** random.uniform(-3, 6)
        low, high = rough_range(values)
        assert low <= values.min() < values.max() <= high
        assert high - low <= 1.8 * np.ptp(values)


def test_codes_of_missing_values_widen_no_range_and_sites_are_told(tmp_path: Path) -> None:
    messy_files.write(tmp_path)
    files = {site: str(tmp_path / file) for site, file in messy_files.FILES.items()}
    (tmp_path / "study.toml").write_text(draft(tmp_path / "study.toml", files, messy_files.LABEL).text)
    chosen, base = spec.read(tmp_path / "study.toml", changes={"data.test_fraction": 0.0, "compare.sites": False})
    assert chosen.data.ranges["age"] == [20, 90] and set(chosen.data.ranges) == {"age", "crp", "sbp"}
    assert dataset.prepare(chosen, base).numeric_columns == ("age", "crp", "sbp")
    terms = terms_of(chosen)
    assert (terms.reading["statistics_privacy"], terms.reading["ranges"]["age"]) == (0.5, [20.0, 90.0])
    held = hold("west", str(tmp_path / "west.csv"), terms)
    assert held.rows == 120


def test_a_range_of_a_column_that_is_ignored_later_is_no_mistake(tmp_path: Path) -> None:
    rows = "".join(f"{row % 40},{row / 3:.2f},{row % 2}\n" for row in range(300))
    (tmp_path / "p.csv").write_text(f"age,dose,died\n{rows}")
    written = draft(tmp_path / "my.toml", str(tmp_path / "p.csv"), "died", positive="1")
    (tmp_path / "my.toml").write_text(written.text)
    assert dataset.prepare(*spec.read(tmp_path / "my.toml", changes={"data.ignore": ["dose"]})).numeric_columns == (
        "age",
    )
