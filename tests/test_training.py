"""One driver trains on rows and columns, here and at hosts: what a coordinator knows of data that it never sees."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from fedsvm.algorithms import SITE_MODULE
from fedsvm.algorithms.data.public_rows import PublicTask
from fedsvm.federation.hosts.invitations import JoinedSite
from fedsvm.federation.site.partition import Partition
from fedsvm.federation.startup import local_federation
from fedsvm.federation.transport.keys import Party
from fedsvm.scenarios.hosts import host_scenario
from fedsvm.scenarios.hosts.site_data import hold
from fedsvm.scenarios.hosts.sources import RowsAtHosts
from fedsvm.scenarios.run.offered_terms import terms_of
from fedsvm.scenarios.run.outcome import RunState
from fedsvm.scenarios.run.training import train
from tests.hosts import NAMES, hosts, write_files
from tests.test_hosts import check_columns, write_columns
from tests.test_policy import write_private


def rows_at_hosts(folder: Path, *changes: str) -> tuple[RowsAtHosts, dict[str, Partition]]:
    """Return what a coordinator knows once its sites have joined, and what each of these holds."""
    scenario = host_scenario.read(folder / "hospitals.toml", changes, NAMES)
    source, terms = RowsAtHosts(scenario), terms_of(scenario)
    held = {name: hold(name, str(folder / f"{name}.csv"), terms) for name in NAMES}
    source.describe([JoinedSite(Party(name, "", None), each.columns) for name, each in held.items()])
    order = [*source.schema.numeric, *source.schema.categorical]
    return source, {name: each.partition(order) for name, each in held.items()}


def test_public_rows_of_a_coordinator_are_on_the_common_scale(tmp_path: Path) -> None:
    write_files(tmp_path)
    write_private(tmp_path)
    source, _ = rows_at_hosts(tmp_path)
    task = source.task(None)
    assert isinstance(task, PublicTask)
    public = task.public
    assert len(public.rows) == 40
    np.testing.assert_allclose(public.rows[:, :3].mean(axis=0), 0, atol=1e-12)
    np.testing.assert_allclose(public.rows[:, :3].std(axis=0), 1, atol=1e-12)


def test_file_and_result_of_a_run_across_hosts_name_the_chosen_columns(tmp_path: Path) -> None:
    write_files(tmp_path)
    chosen = "algorithm={name='filter', statistic='f', size=2, landmarks=10, tolerance=1e-2}"
    source, partitions = rows_at_hosts(tmp_path, chosen)
    scenario, state = source.scenario, RunState()
    with local_federation(
        SITE_MODULE,
        scenario.algorithm.name,
        partitions,
        scenario.protocol.secure_sum,
        settings={"seed": scenario.seed},
        terms=terms_of(scenario),
    ) as federation:
        train(source, federation, state)
    (fold,) = state.folds
    assert fold.selection is not None
    assert sorted(fold.selection.ranking.selected) == sorted(fold.arrays["columns"].tolist())
    assert len(fold.arrays["columns"]) == len(fold.arrays["offset"]) == 2
    assert fold.test is not None
    assert source.sizes.tested == 30
    assert [source.site_size(name).rows for name in NAMES] == [30, 30, 30]


@pytest.mark.long
@pytest.mark.timeout(300)
def test_records_are_aligned_again_when_a_site_with_columns_starts_again(tmp_path: Path) -> None:
    with hosts(tmp_path) as there:
        joined = write_columns(tmp_path)
        coordinator = there.coordinator("--rejoin", "60s")
        kill = ("--fault", "kill:phase=setup,round=4")
        sites = [there.site(name, coordinator, *(kill if name == "north" else ())) for name in NAMES]
        assert sites[NAMES.index("north")].ends() == -9
        coordinator.says("north ended, or cannot be reached; the run waits for it")
        sites[NAMES.index("north")] = there.site("north", coordinator)
        assert [each.ends() for each in (coordinator, *sites)] == [0] * 4, [each.said for each in (coordinator, *sites)]
    check_columns(tmp_path, joined)
    result = json.loads((tmp_path / "deployed" / "result.json").read_text())
    assert len(result["memberships"]) > 1
