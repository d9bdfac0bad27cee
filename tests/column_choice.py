"""Runs that choose columns of all rows of a source, and the rows as pooled ones, for tests to compare with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from fedsvm.algorithms.data.columns import LabeledRows
from fedsvm.algorithms.data.partition import site_partition
from fedsvm.algorithms.selection.site import SelectionSite
from fedsvm.algorithms.selection.subsets import Subset, SubsetProblems
from fedsvm.federation.arrays import IntArray
from fedsvm.scenarios.data import dataset, sources
from fedsvm.scenarios.schema import spec
from tests.run_results import Ran, simulate

POSITIVE = {
    "pima_diabetes": "1",
    "ionosphere": "g",
    "wdbc": "malignant",
    "wine": "class_0",
    "colon": "t",
    "leukemia": "ALL",
    "dlbcl": "germinal",
}
"""The class that is +1, by data set."""


def standardised(name: str, positive: str = "") -> tuple[LabeledRows, list[str]]:
    """Scaled rows (n, p), signs (n,) and the names of the columns of a data set."""
    data = sources.load(name, label="label", ignore=[], missing="refuse", base_folder=Path())
    rows = np.column_stack([each.values.astype(float) for each in data.features])
    deviation = rows.std(axis=0)
    signs = np.where(data.labels == (positive or POSITIVE[name]), 1.0, -1.0)
    scaled = (rows - rows.mean(axis=0)) / np.where(deviation > 1e-9, deviation, 1.0)
    return LabeledRows(scaled, signs), [each.name for each in data.features]


def choose(folder: Path, source: str, algorithm: str, *changes: str, sites: int = 5, **data: Any) -> Ran:
    """A run of an algorithm that chooses columns, of all rows unless data say otherwise."""
    table = {"source": source, "positive": POSITIVE[source], "test_fraction": 0.0, **data}
    lines = [f'name = "{source}"', "[federation]", f"sites = {sites}", "[data]"]
    lines += [f"{key} = {_written(value)}" for key, value in table.items() if value is not None]
    lines += ["[algorithm]", f'name = "{algorithm}"', "landmarks = 20", "[compare]", "centralised = false"]
    folder.mkdir(parents=True)
    path = folder / "own.toml"
    path.write_text("\n".join(lines) + "\n")
    finished = Ran.of(simulate(path, folder, changes, another_follows=True))
    assert finished.result["error"] is None, finished.traceback
    return finished


def _written(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f'"{value}"' if isinstance(value, str) else str(value)


def inner_folds(path: Path, folds: int, *changes: str) -> IntArray:
    """(n,) the inner fold in which the sites of a scenario leave out each row of its source."""
    scenario, base = spec.read(str(path), overrides=changes)
    prepared = dataset.prepare(scenario, base)
    found = np.full(len(prepared.rows.labels), -1)
    for site_name, shard in zip(prepared.names, prepared.shards, strict=True):
        rows = prepared.rows.take(shard.rows)
        names, classes = prepared.numeric_columns, len(prepared.classes)
        partition = site_partition(rows.numeric, rows.labels, names=names, classes=classes)
        site = SelectionSite(site_name, partition, {"seed": scenario.seed})
        site.rescale(np.zeros(rows.numeric.shape[1]), np.ones(rows.numeric.shape[1]))
        posed = SubsetProblems([Subset(np.arange(1))], 1, folds).to_arguments()
        site.subsets.subset_cuts(np.zeros(1, dtype=np.int64), np.zeros(1), np.zeros(1), **posed)
        for fold in range(folds):
            found[shard.rows[~site.subsets.used_rows(fold)]] = fold
    return found
