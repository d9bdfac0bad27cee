"""The rows of a scenario, cut into what each site holds and what is kept for the test."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from federation.arrays import FloatArray, IntArray
from federation.partition import Partition
from scenarios import datasets, partition
from scenarios.datasets import Dataset
from scenarios.problems import ScenarioError
from scenarios.spec import Scenario

NO_FOLD = -1


@dataclass(frozen=True)
class Rows:
    """numeric (n, p), categorical (n, q) text, signs (n,) of +1 and -1."""

    numeric: FloatArray
    categorical: NDArray[np.str_]
    signs: FloatArray

    def take(self, indices: IntArray | NDArray[np.bool_]) -> Rows:
        """These rows only."""
        return Rows(self.numeric[indices], self.categorical[indices], self.signs[indices])


@dataclass(frozen=True)
class Workload:
    """Everything about the data that a run needs.

    rows: all of them. names: of the sites. sites: indices of each site's rows. folds: (n,) the fold that holds a row
    out, -1 for none. tests: indices of the test rows, one array per fold, or a single one. classes: negative, then
    positive.
    """

    rows: Rows
    numeric_columns: tuple[str, ...]
    categorical_columns: tuple[str, ...]
    classes: tuple[str, str]
    names: tuple[str, ...]
    sites: tuple[IntArray, ...]
    folds: IntArray
    tests: tuple[IntArray, ...]
    warnings: tuple[str, ...]

    def training(self, fold: int, names: Sequence[str]) -> IntArray:
        """Indices of the rows that these sites train on while `fold` is held out."""
        held = np.sort(np.concatenate([self.sites[self.names.index(name)] for name in names]))
        return held[self.folds[held] != fold] if fold != NO_FOLD else held

    def write_partition(self, site: int, path: Path) -> None:
        """Write the rows of one site to a file that only its owner may read."""
        mine = self.rows.take(self.sites[site])
        columns = [np.unique(column, return_inverse=True) for column in mine.categorical.T]
        codes = np.column_stack([codes for _, codes in columns]) if columns else np.zeros((len(mine.signs), 0))
        arrays = {
            "numeric": mine.numeric,
            "codes": codes.astype(np.int64),
            "labels": mine.signs[None, :],
            "folds": self.folds[self.sites[site]],
        }
        Partition(arrays, {"categories": [categories.tolist() for categories, _ in columns]}).write(str(path))


def prepare(scenario: Scenario, base_folder: Path) -> Workload:
    """Load the data, set the test rows apart, and deal the others to the sites.

    Raises ScenarioError, saying what to change, before any process is started.
    """
    settings = scenario.data
    data = datasets.load(
        settings.source,
        label=settings.label,
        ignore=settings.ignore,
        missing=settings.missing,
        base_folder=base_folder,
    )
    classes = _classes(data, settings.positive)
    signs = np.where(data.labels == classes[1], 1.0, -1.0)
    folds = np.full(data.rows, NO_FOLD)
    if settings.folds is not None:
        folds = partition.folds(data.labels, settings.folds, scenario.seed)
        tests = tuple(np.flatnonzero(folds == fold) for fold in range(settings.folds))
        dealt = np.arange(data.rows)
    else:
        dealt, test = partition.test_split(data.labels, settings.test_fraction, scenario.seed)
        tests = (test,)
    _check_declared(data, settings.categories)
    sites = _deal(scenario, data, dealt)
    names = scenario.federation.site_names
    return Workload(
        rows=_rows(data, signs),
        numeric_columns=tuple(feature.name for feature in data.features if not feature.categorical),
        categorical_columns=tuple(feature.name for feature in data.features if feature.categorical),
        classes=classes,
        names=tuple(names),
        sites=sites,
        folds=folds,
        tests=tests,
        warnings=(
            *([f"{data.dropped} rows with missing values were left out."] if data.dropped else []),
            *partition.sites_without_a_class(names, [signs[site] for site in sites], classes),
        ),
    )


def _deal(scenario: Scenario, data: Dataset, dealt: IntArray) -> tuple[IntArray, ...]:
    random = np.random.default_rng([scenario.seed, 1])
    names = scenario.federation.site_names
    parts = partition.horizontal(scenario.data.split, data.take(dealt), len(names), random)
    return tuple(dealt[part] for part in parts)


def _classes(data: Dataset, positive: str | None) -> tuple[str, str]:
    """(negative, positive): by name, or the last of two in sorted order."""
    found = data.classes
    if positive is not None and positive not in found:
        raise ScenarioError([f"data.positive: {positive!r} is not a label of {data.name}; it has {', '.join(found)}."])
    if positive is None and len(found) > 2:
        raise ScenarioError(
            [f"data.positive: {data.name} has {len(found)} classes ({', '.join(found[:8])}); say which one is +1."]
        )
    chosen = found[-1] if positive is None else positive
    others = [name for name in found if name != chosen]
    return others[0] if len(others) == 1 else f"not {chosen}", chosen


def _check_declared(data: Dataset, declared: dict[str, list[str]]) -> None:
    problems = []
    columns = {feature.name: feature for feature in data.features}
    for name, values in declared.items():
        feature = columns.get(name)
        if feature is None or not feature.categorical:
            problems.append(f"data.categories.{name}: {data.name} has no categorical column of that name.")
        elif missing := sorted(set(feature.values.tolist()) - set(values)):
            problems.append(f"data.categories.{name}: add {', '.join(map(repr, missing[:8]))}, which the data hold.")
    if problems:
        raise ScenarioError(problems)


def _rows(data: Dataset, signs: FloatArray) -> Rows:
    numeric: Sequence[FloatArray] = [f.values.astype(np.float64) for f in data.features if not f.categorical]
    categorical = [f.values.astype(np.str_) for f in data.features if f.categorical]
    return Rows(
        np.column_stack(numeric) if numeric else np.zeros((data.rows, 0)),
        np.column_stack(categorical) if categorical else np.zeros((data.rows, 0), dtype="<U1"),
        signs,
    )
