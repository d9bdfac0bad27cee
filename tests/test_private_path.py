"""Privacy of the whole path: one source row is changed, and what becomes of the released files is compared.

A bound on how far one row moves a minimiser covers a run only if nothing before it looks at private rows: not which
rows are tested on, held out by a fold or at which site, nor what the classes and columns are. So data sets that differ
in one row of the *source* go through all of it, and the models before noise are compared with the sensitivity that
noise is sized for. Most of it runs in this process, over the programs that sites run; one pair through real processes.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedsvm.algorithms.dp_erm import perturbation
from fedsvm.algorithms.dp_erm.model import ErmModel
from fedsvm.algorithms.hybrid_svm.model import HybridModel
from fedsvm.federation.arrays import FloatArray, IntArray
from fedsvm.federation.site.partition import read_partition
from fedsvm.scenarios.data import dataset, sources
from fedsvm.scenarios.data.dataset import FederatedDataset
from fedsvm.scenarios.data.tables import Dataset
from fedsvm.scenarios.run.horizontal import SimulatedRows
from fedsvm.scenarios.run.offered_terms import resolve_settings, terms_of
from fedsvm.scenarios.schema import spec
from fedsvm.scenarios.schema.errors import ScenarioError
from fedsvm.scenarios.schema.spec import Scenario
from tests.conftest import long_but_for
from tests.in_process import InProcessFederation
from tests.test_runs import run

SMALL = ["data.public=30", "algorithm.features=20", "compare.baselines=false", "data.test_fraction=0.9"]
FOLDS = ["data.test_fraction=0.0", "data.folds=3", "algorithm.budget=3.0"]
FLIPS = 4
ROUNDING = 1e-6
"""Of the sensitivity: what training to a tolerance may add at either neighbour is in the noise, and not in 2C/n."""

CASES = {
    "hybrid-stand-in": SMALL,
    "hybrid-census": [*SMALL, "data.test_fraction=0.95"],
    "hybrid-better": SMALL,
    "dp-logistic": [],
}
by_scenario = pytest.mark.parametrize("name", long_but_for(CASES, "hybrid-stand-in", "dp-logistic"))


@pytest.fixture
def loaded(request: pytest.FixtureRequest) -> Callable[[str, Sequence[str]], tuple[Scenario, Dataset]]:
    """A scenario of the catalogue and its source; those that need a file are left out where it is not."""

    def load(name: str, changes: Sequence[str]) -> tuple[Scenario, Dataset]:
        scenario, base = spec.read(name, overrides=changes)
        if scenario.data.source == "adult_train":
            request.getfixturevalue("data_folder")
        data = scenario.data
        return scenario, sources.load(str(data.source), label=data.label, ignore=data.ignore, base_folder=base)

    return load


def flipped(data: Dataset, row: int) -> Dataset:
    """A neighbour: one row has the other label."""
    labels = data.labels.copy()
    labels[row] = next(name for name in data.classes if name != labels[row])
    return replace(data, labels=labels)


def moved(data: Dataset, row: int) -> Dataset:
    """A neighbour: one row has the other label, and the values of the next one."""
    features = []
    for feature in flipped(data, row).features:
        values = feature.values.copy()
        values[row] = values[row - 1]
        features.append(replace(feature, values=values))
    return replace(flipped(data, row), features=tuple(features))


def private_rows(prepared: FederatedDataset, count: int, seed: int = 0) -> list[int]:
    """Some rows that are somebody's secret, to test on or to train on."""
    private = np.setdiff1d(np.arange(len(prepared.rows.labels)), prepared.public)
    return [int(row) for row in np.random.default_rng(seed).choice(private, count, replace=False)]


def places(prepared: FederatedDataset) -> list[IntArray]:
    """Return the places of all rows."""
    return [prepared.public, prepared.folds, *prepared.tests, *(shard.rows for shard in prepared.shards)]


# Where rows go.


@by_scenario
@pytest.mark.parametrize("extra", [[], FOLDS, ["data.test_fraction=0.0"], ["federation.sites=7"]], ids=str)
def test_no_row_moves_when_another_changes(name: str, extra: list[str], loaded: Any) -> None:
    scenario, data = loaded(name, [*CASES[name], *extra])
    assert scenario.is_private
    before = dataset.deal(scenario, data)
    for row in private_rows(before, FLIPS):
        for neighbour in (flipped(data, row), moved(data, row)):
            after = dataset.deal(scenario, neighbour)
            for old, new in zip(places(before), places(after), strict=True):
                np.testing.assert_array_equal(old, new)
            assert (after.classes, after.warnings, after.schema) == (before.classes, before.warnings, before.schema)
            assert set(np.flatnonzero(after.rows.labels != before.rows.labels)) <= {row}


def test_runs_with_and_without_noise_deal_rows_alike(loaded: Any) -> None:
    scenario, data = loaded("dp-logistic", [])
    quiet, _ = loaded("dp-logistic", ["algorithm={name='dp-erm', perturbation='none'}"])
    assert not quiet.is_private
    for one, other in zip(places(dataset.deal(scenario, data)), places(dataset.deal(quiet, data)), strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_private_row_of_a_class_that_no_public_row_has_names_nothing(loaded: Any) -> None:
    """Else the model's file would say "not malignant" in place of "benign": that such a row is there."""
    scenario, data = loaded("dp-logistic", [])
    before = dataset.deal(scenario, data)
    labels = data.labels.astype("<U20").copy()
    labels[private_rows(before, 1)[0]] = "third"
    after = dataset.deal(scenario, replace(data, labels=labels))
    assert after.classes == before.classes == ("benign", "malignant")


def test_warnings_say_nothing_of_private_rows(tmp_path: Path) -> None:
    table = tmp_path / "rows.csv"
    rows = [
        (f"{number}", "?" if number == 7 else f"{number % 5}", "yes" if number < 20 else "no") for number in range(60)
    ]
    _write(table, ["a", "b", "label"], rows)
    changes = [f"data.source='{table}'", "data.positive='yes'", "data.missing='drop'", "data.public=10"]
    alone = [*changes, "federation.sites=10", "protocol.sum=plain", "algorithm.budget=2.0"]
    private, base = spec.read("dp-logistic", overrides=alone)
    said = dataset.prepare(private, base).warnings
    assert said == ("Rows with missing values are left out, and nothing is promised of whether a row is one of them.",)
    quiet, base = spec.read("dp-logistic", overrides=[*changes, "algorithm={name='dp-erm', perturbation='none'}"])
    assert dataset.prepare(quiet, base).warnings[0] == "1 rows with missing values were left out."


@pytest.mark.parametrize("split", ["label-skew", "by-feature:mean-radius", "by-value:mean-radius", "dirichlet:0.5"])
def test_dealing_by_what_is_in_private_rows_is_refused(split: str) -> None:
    with pytest.raises(ScenarioError) as refused:
        spec.read("dp-logistic", overrides=[f"data.split={split}"])
    assert f"data.split: {split} deals rows by what is in them" in str(refused.value)
    assert 'set data.split = "random"' in str(refused.value)
    spec.read("dp-logistic", overrides=[f"data.split={split}", "algorithm={name='dp-erm', perturbation='none'}"])


def test_too_few_rows_for_a_blind_split_are_refused_in_a_sentence() -> None:
    with pytest.raises(ScenarioError, match=r"data\.folds: 600 folds need as many rows, and there are 509"):
        dataset.prepare(*spec.read("dp-logistic", overrides=["data.folds=600", "algorithm.budget=600.0"]))
    with pytest.raises(ScenarioError, match=r"0\.999 of 509 rows leaves none to train on; choose a smaller fraction"):
        dataset.prepare(*spec.read("dp-logistic", overrides=["data.test_fraction=0.999"]))


# How far the model moves.


def trained(scenario: Scenario, data: Dataset, fold: int | None, folder: Path) -> tuple[FloatArray, FloatArray]:
    """Weights before noise, with all that a run's own code does to a source's rows; and the released columns and scale.

    Of objective perturbation the minimiser, for a draw of its noise that is always the same.
    """
    prepared = dataset.deal(scenario, data)
    algorithm = scenario.algorithm.implementation
    source = SimulatedRows(scenario, prepared, folder)
    terms = replace(terms_of(scenario), settings={})  # the fit below has no noise, which these would refuse
    programs = {}
    for number, site in enumerate(prepared.names):
        path = folder / site
        prepared.write_partition(number, path)
        programs[site] = algorithm.Site(site, read_partition(str(path)), {"seed": scenario.seed})
        programs[site].terms = terms
        path.unlink()
    (settings, _), task = resolve_settings(scenario), source.task(fold)
    if hasattr(settings, "mechanism"):
        settings = replace(settings, mechanism="none", delta=None)
    model = algorithm.fit(InProcessFederation(programs), task, settings)  # type: ignore[arg-type]
    assert isinstance(model, HybridModel | ErmModel)
    scale = task.columns.scale
    return model.weights, np.concatenate([scale.offset, scale.scale, *model.to_arrays().get("rho", np.zeros((0, 0)))])


def sensitivity(scenario: Scenario, data: Dataset, fold: int | None) -> float:
    """Return the claimed bound on how far one row moves the exact minimizer."""
    prepared, settings = dataset.deal(scenario, data), scenario.algorithm.settings
    rows = len(prepared.training(fold, prepared.names))
    if hasattr(settings, "mechanism"):
        return float((4 if settings.sensitivity == "paper" else 2) * settings.C / rows)
    return float(2 / (rows * settings.regularisation))


def ratios(
    scenario: Scenario, data: Dataset, *, flips: int, folder: Path, fold: int | None = None, seed: int = 0
) -> Iterator[float]:
    """Yield how far the model moves for each neighbor, as a share of the claimed bound."""
    claimed = sensitivity(scenario, data, fold)
    before, chosen = trained(scenario, data, fold, folder)
    prepared = dataset.deal(scenario, data)
    used = np.random.default_rng(seed).permutation(prepared.training(fold, prepared.names))
    for number, row in enumerate([*used[:flips].tolist(), *prepared.test(fold)[:1].tolist()]):
        neighbour = (flipped, moved)[number % 2](data, row)
        after, still_chosen = trained(scenario, neighbour, fold, folder)
        np.testing.assert_array_equal(chosen, still_chosen)
        yield float(np.linalg.norm(after - before)) / claimed


@pytest.fixture
def _fixed_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    """The noise of objective perturbation, drawn once and for all."""

    def same(size: int, scale: float) -> FloatArray:
        drawn = np.random.default_rng(3).normal(size=size)
        return np.asarray(drawn * (size * scale / np.linalg.norm(drawn)))

    monkeypatch.setattr(perturbation, "spherical", same)


@by_scenario
@pytest.mark.usefixtures("_fixed_noise")
def test_one_source_row_moves_the_model_no_further_than_noise_covers(
    name: str, loaded: Any, tmp_path: Path, record_property: Callable[..., None]
) -> None:
    scenario, data = loaded(name, CASES[name])
    found = list(ratios(scenario, data, flips=FLIPS, folder=tmp_path))
    record_property("ratios", found)
    assert max(found) <= 1 + ROUNDING
    assert max(found) > 0, "no row that is trained on was changed"


@pytest.mark.long
@pytest.mark.usefixtures("_fixed_noise")
@pytest.mark.parametrize("name", ["hybrid-stand-in", "dp-logistic"])
def test_one_source_row_moves_the_model_of_a_fold_no_further(name: str, loaded: Any, tmp_path: Path) -> None:
    scenario, data = loaded(name, [*CASES[name], *FOLDS])
    if data.rows > 10_000:
        data = data.take(np.arange(3000))
    for fold in range(3):
        assert max(ratios(scenario, data, flips=3, folder=tmp_path, fold=fold)) <= 1 + ROUNDING


@pytest.mark.long
@pytest.mark.timeout(900)
@by_scenario
@pytest.mark.usefixtures("_fixed_noise")
def test_one_source_row_moves_the_model_of_the_scenario_itself_no_further(
    name: str, loaded: Any, tmp_path: Path, record_property: Callable[..., None]
) -> None:
    """All rows, as the catalogue has it."""
    scenario, data = loaded(name, [])
    found = list(ratios(scenario, data, flips=4, folder=tmp_path, seed=1))
    record_property("ratios", found)
    assert max(found) <= 1 + ROUNDING


# Through real processes.


def _write(path: Path, names: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(names)
        writer.writerows(rows)


def pair_of_sources(data: Dataset, row: int, folder: Path) -> list[Path]:
    """A data set and its neighbour as files of one name, in two folders."""
    written = []
    for number, each in enumerate((data, flipped(data, row))):
        path = folder / str(number) / "rows.csv"
        path.parent.mkdir()
        columns = [[repr(v) if isinstance(v, float) else str(v) for v in f.values.tolist()] for f in each.features]
        names = [feature.name for feature in each.features]
        _write(path, [*names, "label"], list(zip(*columns, each.labels.tolist(), strict=True)))
        written.append(path)
    return written


def test_one_source_label_through_real_processes(tmp_path: Path, loaded: Any) -> None:
    """Without noise the model moves within its bound, and nothing else in its file does; with noise neither."""
    scenario, data = loaded("hybrid-stand-in", SMALL)
    data = data.take(np.arange(6000))
    changes = [*SMALL, "data.test_fraction=0.5", "compare.centralised=false"]
    row = int(dataset.deal(scenario, data).shards[1].rows[5])
    sources_of_pair = pair_of_sources(data, row, tmp_path)
    quiet = "algorithm={name='hybrid-svm', mechanism='none', features=20, sigma=8.0, variant='one-shot'}"
    models, told = [], []
    for number, path in enumerate(sources_of_pair):
        source = f"data.source='{path}'"
        exact = run("hybrid-stand-in", tmp_path / f"exact-{number}", *changes, source, quiet)
        models.append(dict(np.load(exact.folder / "model.npz")))
        private = run("hybrid-stand-in", tmp_path / f"private-{number}", *changes, source)
        told.append(
            (private.result, (private.folder / "log.jsonl").read_text(), dict(np.load(private.folder / "model.npz")))
        )
    claimed = 2 * 300.0 / 2985
    assert 0 < np.linalg.norm(models[1]["w"] - models[0]["w"]) <= claimed * (1 + ROUNDING)
    for one, other in ((models[0], models[1]), (told[0][2], told[1][2])):
        for name in one.keys() - {"w"}:
            np.testing.assert_array_equal(one[name], other[name])
    first, second = (_comparable(result) for result, _, _ in told)
    assert first == second
    logs = [[_without_times(json.loads(line)) for line in log.splitlines()] for _, log, _ in told]
    assert logs[0] == logs[1]
    covered = told[0][0]["privacy"]["not_covered"]
    assert [each.partition(":")[0] for each in covered] == [
        "metrics",
        "cost, progress, timing, disclosures, log.jsonl, ledger.parquet",
    ]


def _comparable(result: dict[str, Any]) -> dict[str, Any]:
    """Return a private run's result without what is not covered, and what varies by chance."""
    left_out = {"metrics", "cost", "progress", "timing", "environment", "memberships", "sites", "scenario"}
    rows = {site["name"]: site["rows"] for site in result["sites"]}
    return {"rows": rows, **{name: value for name, value in result.items() if name not in left_out}}


def _without_times(event: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in event.items() if name not in ("at_s", "seconds")}
