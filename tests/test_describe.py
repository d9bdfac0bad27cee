"""`fedsvm describe`: columns over all sites, exact and with noise, in a simulation and across hosts."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

from fedsvm.algorithms import column_description
from fedsvm.algorithms.column_description import CELLS, ColumnDescription, DescriptionSite, description_blocks
from fedsvm.algorithms.data.partition import site_partition
from fedsvm.algorithms.data.statistics_rounds import StatisticsPlan
from fedsvm.algorithms.privacy.noisy_sums import compose_mu
from fedsvm.federation.errors import OrderRefused
from fedsvm.federation.site.terms import Terms
from fedsvm.scenarios import description as shown
from fedsvm.scenarios.schema import spec
from fedsvm.scenarios.schema.errors import ScenarioError
from fedsvm.scenarios.schema.policy import PolicyFile
from tests.commands import fedsvm
from tests.hosts import NAMES, hosts

ROWS = 60
SITES = {"north": ("M", "F"), "south": ("M", "F"), "west": ("Male", "F")}


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with three files: 999 among the ages of one, another spelling in it, and a constant column in one."""
    folder, source = tmp_path_factory.mktemp("study"), Random(1)
    for site, sexes in SITES.items():
        lines = ["age,sex,dose,ill"]
        for row in range(ROWS):
            age = "999" if site == "west" and row % 6 == 0 else "" if row == 1 else str(source.randrange(30, 90))
            dose = "2" if site == "south" else str(source.randrange(1, 9))
            lines.append(f"{age},{sexes[row % 3 == 0]},{dose},{'yes' if source.random() < 0.4 else 'no'}")
        (folder / f"{site}.csv").write_text("\n".join(lines) + "\n")
    files = "".join(f'{site} = "{site}.csv"\n' for site in SITES)
    head = 'name = "study"\n[data]\nlabel = "ill"\npositive = "yes"\nclasses = ["no", "yes"]\nmissing = "mean"\n'
    (folder / "study.toml").write_text(f"{head}[data.sources]\n{files}")
    return folder


@pytest.fixture(scope="module")
def exact(study: Path) -> dict[str, Any]:
    """Describe the columns without noise."""
    said = fedsvm("describe", "study.toml", "--set", "data.statistics_privacy=0", "--out", "exact", folder=study)
    assert said.returncode == 0, said.stderr
    assert "age" in said.stdout
    found: dict[str, Any] = json.loads((study / "exact" / "description.json").read_text())
    return found


def _values(study: Path, column: int) -> list[str]:
    lines = [line for site in SITES for line in (study / f"{site}.csv").read_text().splitlines()[1:]]
    return [line.split(",")[column] for line in lines]


def test_exact_counts_and_moments_are_those_of_all_rows(study: Path, exact: dict[str, Any]) -> None:
    age = next(each for each in exact["numeric"] if each["name"] == "age")
    known = np.array([float(value) for value in _values(study, 0) if value])
    assert exact["rows"] == 3 * ROWS
    assert age["known"] == len(known)
    assert age["missing"] == pytest.approx(3 / (3 * ROWS))
    assert age["mean"] == pytest.approx(known.mean())
    assert age["deviation"] == pytest.approx(known.std())
    width = (age["high"] - age["low"]) / CELLS
    assert age["quantiles"][2] == pytest.approx(np.median(known), abs=width)
    assert exact["classes"]["yes"] == _values(study, 3).count("yes")


def test_a_code_among_ages_a_lone_spelling_and_a_constant_column_are_noted(exact: dict[str, Any]) -> None:
    said = "\n".join(exact["notes"])
    assert "Column 'age': 5.7 % of its values lie far from the rest, between 512 and 1024" in said
    assert "Column 'sex': only one of 3 sites uses 'Male'" in said
    assert "Column 'sex' seems to have" in said
    assert "Column 'dose' has one value in all rows of 1 of 3 sites" in said


def test_the_folder_has_a_page_and_receipts(study: Path, exact: dict[str, Any]) -> None:
    page = (study / "exact" / "description.html").read_text()
    assert "Columns of study" in page
    assert "far from the rest" in page
    assert len(list((study / "exact" / "receipts").iterdir())) == 3


def test_with_noise_the_releases_spend_mu_and_close_to_the_rows(study: Path) -> None:
    said = fedsvm(
        *("describe", "study.toml", "--set", "data.statistics_privacy=50"),
        *("--set", "data.ranges={age = [0, 120], dose = [0, 10]}", "--json"),
        folder=study,
    )
    assert said.returncode == 0, said.stderr
    found = json.loads(said.stdout)
    assert found["mu"] == 50
    assert found["rows"] != 3 * ROWS  # a chance of one in a million steps of the lattice
    assert found["rows"] == pytest.approx(3 * ROWS, abs=10 * found["noise"]["classes"])
    age = next(each for each in found["numeric"] if each["name"] == "age")
    assert age["constant_sites"] is None
    assert age["outside"] == pytest.approx(10 / 177, abs=0.03)
    assert "lie outside 0 to 120" in "\n".join(found["notes"])


# The mechanism.


def test_a_deviation_that_noise_exceeds_is_hidden() -> None:
    assert column_description.deviation(0.25, 0.3, is_exact=False) == pytest.approx(0.4)
    assert column_description.deviation(0.25, 0.6, is_exact=False) is None
    assert column_description.deviation(0.25, 0.5, is_exact=True) == 0.0


def _site(mu: float, min_cell: int = 0, **reading: Any) -> DescriptionSite:
    terms = Terms(
        column_description.NAME, {}, "ring", {}, 3, reading={"statistics_privacy": mu, "missing": "mean", **reading}
    )
    numeric = np.array([[1.0], [2.0], [3.0], [4.0], [50.0], [np.nan]])
    partition = site_partition(
        numeric,
        np.array([1.0, 1.0, 1.0, 1.0, -1.0, -1.0]),
        names=["x"],
        categorical=np.array([["a"], ["a"], ["a"], ["a"], ["b"], [""]]),
        categorical_names=["c"],
    )
    site = DescriptionSite("site-1", partition, {"seed": 0})
    site.terms, site.min_cell = terms, min_cell
    site.encode([["a", "b"]] if min_cell < 2 else [["a"]])
    return site


def test_an_exact_site_puts_no_small_count_into_a_sum() -> None:
    site = _site(0.0, min_cell=3)
    counts = site.statistics.bin_counts()
    assert counts[0] == 6
    assert set(counts[1:]) <= {0.0, 3.0, 4.0}
    found = site.statistics.description(np.array([[0.0], [8.0]]))
    blocks = description_blocks(["x"], [1], 2, StatisticsPlan.of(site.terms))
    parts = np.split(found, np.cumsum([block.size for block in blocks]))
    totals = {block.name: part.tolist() for block, part in zip(blocks, parts, strict=False)}
    assert totals["classes"] == [0.0, 4.0]
    assert totals["categories"] == [4.0]
    assert totals["gaps"] == [0.0]
    assert sorted(totals["cells"])[-2:] == [0.0, 4.0]


def test_small_cells_are_pooled_with_the_next_and_no_value_within_the_window_is_lost() -> None:
    cells = np.array([2.0, *np.random.default_rng(0).integers(0, 4, CELLS), 7.0])
    pooled = column_description._pool_small(cells, 5)
    assert pooled[1:-1].sum() == cells[1:-1].sum()
    assert not ((pooled > 0) & (pooled < 5)).any()
    assert (pooled[0], pooled[-1]) == (0.0, 7.0)
    assert np.abs(np.cumsum(pooled[1:-1]) - np.cumsum(cells[1:-1])).max() <= 5
    assert not column_description._pool_small(np.full(CELLS + 2, 0.1), 5).any()


def test_a_quantile_is_hidden_by_noise_as_large_as_half_the_share_beyond_it() -> None:
    ends, flat = np.array([0.0, 20.0]), np.array([0.0, *np.full(CELLS, 50.0), 0.0])
    assert column_description._quantiles(flat, ends, 0.0) == pytest.approx((1, 5, 10, 15, 19))
    found = column_description._quantiles(flat, ends, 25.0)
    assert found is not None
    assert (found[0], found[4]) == (None, None)
    assert found[1:4] == pytest.approx((5, 10, 15))
    assert column_description._quantiles(flat, ends, 50.0) == (None,) * 5
    assert column_description._quantiles(0 * flat, ends, 1.0) is None


def test_a_share_of_missing_values_that_noise_could_be_is_told_as_a_bound() -> None:
    noise = {"classes": 3.0, "known": 4.0, "gaps": 2.0}
    found = ColumnDescription(("a", "b", "c"), 0.5, 5, 100.0, {"no": 60.0, "yes": 40.0}, (), (), noise)
    assert shown._missing(found, 0.05, "known") == "below 12 %"
    assert shown._missing(found, 0.05, "gaps") == "5.0 %"
    assert shown._missing(replace(found, noise=dict.fromkeys(noise, 0.0)), 0.0, "known") == "0.0 %"


def test_the_two_releases_together_spend_mu() -> None:
    for ranges in ({}, {"x": [0.0, 1.0]}):
        plan = StatisticsPlan(0.5, ranges, filled=True)
        budget, second = plan.budget(["x"]), compose_mu(description_blocks(["x"], [2], 2, plan))
        assert math.hypot(budget.scale, budget.again, second) == pytest.approx(0.5)


def test_windows_other_than_agreed_ranges_are_refused() -> None:
    with pytest.raises(OrderRefused, match="agreed ranges"):
        _site(1.0, ranges={"x": [0.0, 1.0]}).statistics.description(np.array([[0.0], [2.0]]))


def test_a_description_orders_no_step_of_training() -> None:
    script = DescriptionSite.script(_site(0.0).terms)
    assert script.steps == {"category_tables", "encode", "bin_counts", "description"}


def test_vertical_and_private_scenarios_are_refused_with_what_to_do() -> None:
    vertical = next(name for name in spec.catalogue() if spec.partition_of(name, []) == "vertical")
    with pytest.raises(ScenarioError, match="must be horizontal"):
        shown.describable(spec.read(vertical)[0])
    private = next(scenario for name in spec.catalogue() if (scenario := spec.read(name)[0]).is_private)
    with pytest.raises(ScenarioError, match="takes no statistics of private rows"):
        shown.describable(private)


def test_a_policy_allows_a_description_by_name() -> None:
    terms = _site(0.5).terms
    allowed = PolicyFile.model_validate({"algorithms": {"pan-svm": {}, "describe": {}}}).rules
    assert not allowed.refusals(terms)
    refused = PolicyFile.model_validate({"algorithms": {"pan-svm": {}}}).rules
    assert "the algorithm must be pan-svm, got describe" in refused.refusals(terms)


# Across hosts.


def test_hosts_describe_their_columns(tmp_path: Path) -> None:
    with hosts(tmp_path) as there:
        coordinator = there.coordinator("--describe", "--set", "data.statistics_privacy=0")
        sites = [there.site(name, coordinator) for name in NAMES]
        assert coordinator.ends() == 0, coordinator.said
        assert [site.ends() for site in sites] == [0, 0, 0]
    found = json.loads((tmp_path / "deployed" / "description.json").read_text())
    assert found["rows"] == 120
    assert {each["name"] for each in found["numeric"]} == {"size", "depth", "age"}
