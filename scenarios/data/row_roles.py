"""The part that each row plays: public, tested on, held out by a fold, or set apart to calibrate; the others train.

Where private rows choose nothing (`is_blind`), the parts follow from their number and the seed, not from their values.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fedsvm.algorithms.calibration import MIN_OF_CLASS
from fedsvm.algorithms.data.partition import NO_FOLD, held_out
from fedsvm.federation.arrays import FloatArray, IntArray
from fedsvm.scenarios.data import splits
from fedsvm.scenarios.data.tables import Dataset
from fedsvm.scenarios.schema.data import DataSpec
from fedsvm.scenarios.schema.errors import ScenarioError
from fedsvm.scenarios.schema.spec import Scenario


def is_blind(scenario: Scenario) -> bool:
    """Return whether private rows choose nothing, with or without noise, so that the two can be compared."""
    return scenario.algorithm.implementation.scaling == "public-rows"


def choose_public(scenario: Scenario, data: Dataset) -> tuple[IntArray, IntArray]:
    """Return the indices of the public rows and of the others."""
    count = scenario.data.public
    if count >= data.rows:
        raise ScenarioError([f"data.public: {data.name} has {data.rows} rows, and some must be private; lower it."])
    if len(data.elsewhere) and not 0 < count <= data.elsewhere.sum():
        most = int(data.elsewhere.sum())
        raise ScenarioError([f"data.public: must be from 1 to {most} rows of {data.name}, got {count}."])
    shuffled = np.random.default_rng([scenario.seed, 5]).permutation(data.rows)
    if len(data.tested):  # rows that are tested on are nobody's, but not public
        shuffled = shuffled[np.argsort(data.tested[shuffled], kind="stable")]
    private = shuffled[count:]
    if len(data.elsewhere):  # public rows are of another population than private ones
        shuffled = shuffled[np.argsort(~data.elsewhere[shuffled], kind="stable")]
        private = np.flatnonzero(~data.elsewhere)
    public = np.sort(shuffled[:count])
    if count and len(np.unique(data.labels[public])) < 2:
        raise ScenarioError([f"data.public: the {count} public rows are of one class; set more apart."])
    return public, np.sort(private)


def choose_held_out(scenario: Scenario, data: Dataset, private: IntArray) -> tuple[IntArray, tuple[IntArray, ...]]:
    """Return (n,) or (n, repeats), the fold that holds a row out, -1 for none, and the test rows of each, all private.

    Without folds, test rows are dealt to nobody; where their columns are what sites hold, they are held out as fold 0.
    If sites test the model, they hold out rows of their own instead: see `held_out_by_sites`.
    """
    settings, labels = scenario.data, data.labels[private]
    blind = is_blind(scenario) or not settings.stratify
    folds = np.full(data.rows, NO_FOLD)
    if settings.tested_by == "sites":
        return folds, (np.zeros(0, dtype=np.int64),)
    if len(data.tested):
        return folds, (np.flatnonzero(data.tested),)
    if (count := settings.folds) is not None:
        _require_untold(settings, len(private))
        dealt = [
            repeat * count
            + (splits.blind_folds(len(private), count, seed) if blind else splits.folds(labels, count, seed))
            for repeat, seed in enumerate(_fold_seeds(scenario))
        ]
        folds = np.full((data.rows, settings.repeats), NO_FOLD)
        folds[private] = np.column_stack(dealt)
        folds = folds[:, 0] if settings.repeats == 1 else folds
        return folds, tuple(np.flatnonzero(held_out(folds, fold)) for fold in range(settings.models))
    if blind:
        _, chosen = splits.blind_test_split(len(private), settings.test_fraction, scenario.seed)
    else:
        _, chosen = splits.test_split(labels, settings.test_fraction, scenario.seed)
    test = private[chosen]
    if settings.partition == "vertical":
        folds[test] = 0
    return folds, (test,)


def held_out_by_sites(scenario: Scenario, signs: FloatArray, sites: Sequence[IntArray]) -> IntArray:
    """Return (n,) or (n, repeats), the fold in which a row's site holds it out, -1 for none."""
    settings = scenario.data
    folds = np.full((len(signs), settings.repeats), NO_FOLD)
    for name, rows in zip(scenario.federation.site_names, sites, strict=True):
        own = own_folds_of(settings, signs[rows], name, scenario.seed)
        folds[rows] = own.reshape(len(rows), -1)
    return folds[:, 0] if settings.repeats == 1 else folds


def own_folds_of(settings: DataSpec, labels: FloatArray, site: str, seed: int) -> IntArray:
    """Return the rows that one site holds out, by the [data] table; labels (n,)."""
    how = {"fraction": settings.test_fraction, "folds": settings.folds, "repeats": settings.repeats}
    dealt = labels if settings.stratify else np.ones(len(labels))
    return splits.own_folds(dealt, site, seed, **how)  # type: ignore[arg-type]


def _fold_seeds(scenario: Scenario) -> list[int]:
    """Return the seed of each repeat of cross-validation; the first is the scenario's own."""
    others = range(1, scenario.data.repeats)
    return [scenario.seed, *(int(np.random.default_rng([scenario.seed, 9, r]).integers(2**31)) for r in others)]


def _require_untold(settings: DataSpec, rows: int) -> None:
    """Raise ScenarioError for as many sums over folds as there are rows, from which each row's part follows."""
    told = settings.repeats * ((settings.folds or 1) - 1) + 1
    if settings.partition == "horizontal" and settings.repeats > 1 and told >= rows:
        raise ScenarioError(
            [
                f"data.repeats: sums over {settings.models} folds are {told} independent ones over {rows} rows, and "
                "reveal what each of them adds; use fewer repeats or folds."
            ]
        )


def choose_calibrating(
    scenario: Scenario, labels: FloatArray, private: IntArray, tests: tuple[IntArray, ...]
) -> NDArray[np.bool_]:
    """Return (n,) the rows that calibrate models: a share of each class of those available for training; or (0,)."""
    if not scenario.data.calibration:
        return np.zeros(0, dtype=np.bool_)
    random = np.random.default_rng([scenario.seed, 8])
    dealt = private if scenario.data.folds is not None else np.setdiff1d(private, tests[0])
    apart = np.zeros(len(labels), dtype=np.bool_)
    for label in np.unique(labels):
        rows = dealt[labels[dealt] == label]
        count = round(scenario.data.calibration * len(rows))
        if not MIN_OF_CLASS <= count < len(rows):
            raise ScenarioError(
                [
                    f"data.calibration: {scenario.data.calibration:g} of {len(rows)} rows of a class is {count}; each "
                    f"class needs {MIN_OF_CLASS} to calibrate by, or sums over them show single rows' decision values, "
                    "and some to train on."
                ]
            )
        apart[random.permutation(rows)[:count]] = True
    return apart
