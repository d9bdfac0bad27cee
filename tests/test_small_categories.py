"""Values of text columns that few rows of a site have: they become no column of a model, also without a policy."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from fedsvm.federation.site.rules import ANYTHING
from fedsvm.scenarios.data import dataset
from fedsvm.scenarios.run import runner
from fedsvm.scenarios.run.folder import make_folder
from fedsvm.scenarios.schema import spec
from tests.hosts import write_files

FEW = ("data.statistics_privacy=0", "data.test_fraction=0.3", "algorithm.landmarks=6", "protocol.sum=plain")


def test_a_text_value_of_one_row_is_no_column_of_the_model(tmp_path: Path) -> None:
    write_files(tmp_path)
    file = tmp_path / "north.csv"
    file.write_text(file.read_text().replace(",a,", ",suite-3,", 1))
    scenario, base = spec.read(tmp_path / "simulated.toml", overrides=FEW)
    data = dataset.prepare(scenario, base)
    assert any("'suite-3'" in warning and "data.categories.ward" in warning for warning in data.warnings)
    (tmp_path / "run").mkdir()
    finished = runner.run(scenario, data, tmp_path / "run")
    assert finished.result.error is None, finished.traceback
    with np.load(tmp_path / "run" / "model.npz") as model:
        columns = model["columns"].tolist()
    assert any("ward" in column for column in columns)
    assert not any("suite-3" in column for column in columns)
    files = [path for path in (tmp_path / "run").iterdir() if path.is_file()]
    assert {"model.npz", "result.json", "log.jsonl", "ledger.parquet"} <= {path.name for path in files}
    assert {path.stat().st_mode & 0o777 for path in files} == {0o600}


def test_only_its_owner_may_read_the_folder_of_a_run(tmp_path: Path) -> None:
    scenario, _ = spec.read("quickstart")
    assert make_folder(scenario, tmp_path / "new" / "run").stat().st_mode & 0o777 == 0o700


def test_declared_values_and_a_policy_open_small_categories(tmp_path: Path) -> None:
    write_files(tmp_path)
    file = tmp_path / "north.csv"
    file.write_text(file.read_text().replace(",a,", ",suite-3,", 1))
    declared = 'data.categories={ward=["a","b","suite-3","east","north","south"]}'
    opened = {"policy": [{"site": "north", "min_cell": 1}]}
    for scenario, base in (
        spec.read(tmp_path / "simulated.toml", overrides=[*FEW, declared]),
        spec.read(tmp_path / "simulated.toml", overrides=FEW, changes=opened),
    ):
        assert not any("suite-3" in warning for warning in dataset.prepare(scenario, base).warnings)
    assert ANYTHING.min_cell == 5
