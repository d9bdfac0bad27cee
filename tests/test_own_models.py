"""Each site's own model beside the federated one: figures by hand, at the runner, at sites, and what is refused."""

from __future__ import annotations

from pathlib import Path
from statistics import NormalDist

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from fedsvm import ScenarioError, run
from fedsvm.algorithms.data.columns import LabeledRows
from fedsvm.algorithms.own_models import OwnCounts, Placements, own_counts
from fedsvm.algorithms.pan_svm import PanSettings
from fedsvm.algorithms.pooled import Pooled
from fedsvm.federation.arrays import FloatArray
from fedsvm.scenarios.figures import percent
from fedsvm.scenarios.report.summary import lines
from fedsvm.scenarios.run import measuring
from fedsvm.scenarios.run.own_models import compare_counts, compare_own, mean_own_models

CHANGES = {
    "data.source": "wdbc",
    "data.positive": "malignant",
    "data.test_fraction": 0.3,
    "compare.sites": True,
    "compare.centralised": False,
    "protocol.sum": "plain",
    "algorithm.landmarks": 20,
    "algorithm.tolerance": 1e-2,
}
LEAST, MOST = 930, 970


def drawn(random: np.random.Generator, rows: int = 200) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Decision values of a better and of a worse model of the same rows, and their labels."""
    labels = np.where(random.random(rows) < 0.4, 1.0, -1.0)
    shared = random.normal(size=rows)
    values = [distance * labels + shared + random.normal(size=rows) for distance in (1.2, 0.8)]
    return values[0], values[1], labels


def test_placements_give_the_auc_with_ties() -> None:
    federated, _, labels = drawn(np.random.default_rng(1))
    scores = np.round(federated)
    assert Placements.of(scores, labels > 0).auc == pytest.approx(roc_auc_score(labels, scores), abs=1e-12)


def test_counts_of_sites_give_the_gain_of_the_same_rows() -> None:
    random = np.random.default_rng(2)
    sites = [drawn(random, rows) for rows in (120, 80)]
    each = [OwnCounts.of(a, b, labels).to_array() for a, b, labels in sites]
    counts = OwnCounts(*(each[0] + each[1]))
    found = compare_counts("a model", counts)
    assert found is not None and found.tested_by == "sites" and not found.sites
    labels = np.concatenate([each[2] for each in sites]) > 0
    right = [(np.concatenate([each[place] for each in sites]) >= 0) == labels for place in (0, 1)]
    assert found.federated.accuracy == pytest.approx(right[0].mean())
    assert found.accuracy == pytest.approx(right[1].mean())
    gained = [*(right[0].astype(float) - right[1]), 1.0, -1.0]  # Bonett and Price add a row to each model
    error = float(np.std(gained)) / len(gained) ** 0.5
    assert found.intervals["accuracy_gain"].high == pytest.approx(np.mean(gained) + 1.959964 * error, abs=1e-6)
    areas = [[roc_auc_score(each[2], each[place]) for each in sites] for place in (0, 1)]
    assert found.auc == pytest.approx(np.average(areas[1], weights=(120, 80)), abs=1e-9)
    assert found.auc_gain == pytest.approx(np.average(np.array(areas[0]) - areas[1], weights=(120, 80)), abs=1e-9)
    assert compare_counts("a model", OwnCounts()) is None


def test_runner_and_site_agree_on_the_gain_of_a_single_own_model() -> None:
    federated, own, labels = drawn(np.random.default_rng(3))
    at_runner = compare_own("a model", federated, labels, {"north": (50, own)})
    at_site = compare_counts("a model", OwnCounts.of(federated, own, labels))
    assert at_site is not None
    for name in ("accuracy", "auc", "accuracy_gain", "auc_gain"):
        assert getattr(at_runner, name) == pytest.approx(getattr(at_site, name), abs=1e-9), name
    for name in ("accuracy_gain", "auc_gain"):
        assert at_runner.intervals[name].low == pytest.approx(at_site.intervals[name].low, abs=1e-6), name


def test_gain_intervals_hold_the_true_gain() -> None:
    random = np.random.default_rng(4)
    large = compare_own("a model", *_ordered(drawn(random, 100_000)))
    held = np.zeros(2, dtype=int)
    for _ in range(1000):
        found = compare_own("a model", *_ordered(drawn(random)))
        for place, name in enumerate(("accuracy_gain", "auc_gain")):
            held[place] += found.intervals[name].low <= getattr(large, name) <= found.intervals[name].high
    assert held.min() >= LEAST and held.max() <= MOST


@pytest.mark.parametrize(("rows", "own_models"), [(30, 1), (54, 3)])
def test_gain_intervals_hold_the_true_gain_of_good_models_on_few_rows(rows: int, own_models: int) -> None:
    """Wald's intervals are points where both models are right on all rows, and then hold the gain half of the time."""
    random, held, runs = np.random.default_rng(7), np.zeros(2, dtype=int), 500
    normal, distances = NormalDist(), (4.0, 3.5)
    true = [normal.cdf(distances[0] / scale) - normal.cdf(distances[1] / scale) for scale in (2, 2**0.5)]
    for _ in range(runs):
        labels = np.where(random.random(rows) < 0.4, 1.0, -1.0)
        shared = 0.95 * random.normal(size=rows)
        federated, *own = (
            distance / 2 * labels + shared + (1 - 0.95**2) ** 0.5 * random.normal(size=rows)
            for distance in (distances[0], *own_models * distances[1:])
        )
        found = compare_own("a model", federated, labels, {f"site-{k}": (50, each) for k, each in enumerate(own)})
        for place, name in enumerate(("accuracy_gain", "auc_gain")):
            held[place] += found.intervals[name].low <= true[place] <= found.intervals[name].high
    assert held.min() >= 0.94 * runs


def test_models_that_agree_on_all_rows_have_an_interval_and_not_a_point() -> None:
    labels = np.repeat([1.0, -1.0], 20)
    found = compare_own("a model", labels, labels, {"north": (50, labels)})
    for name in ("accuracy_gain", "auc_gain"):
        within = found.intervals[name]
        assert within.low < -0.05 and within.high > 0.05


def test_each_site_and_pooled_rows_have_a_gain_of_their_own() -> None:
    federated, own, labels = drawn(np.random.default_rng(8))
    found = compare_own("a model", federated, labels, {"north": (50, own), "south": (50, federated)})
    north, south = (found.sites[site].gain for site in ("north", "south"))
    assert north is not None and south is not None
    assert north.accuracy == pytest.approx(2 * found.accuracy_gain) and south.accuracy == 0
    assert north.auc == pytest.approx(2 * (found.auc_gain or 0)) and south.auc == 0
    pooled = measuring.compare(Pooled(own, None), federated, labels)
    assert pooled.gain is not None and pooled.gain.accuracy == north.accuracy
    assert pooled.gain.intervals == north.intervals
    assert measuring.compare(Pooled(own, None), federated, labels, is_tested=False).gain is None


Compared = tuple[FloatArray, FloatArray, dict[str, tuple[int, FloatArray]]]


def _ordered(of: tuple[FloatArray, FloatArray, FloatArray]) -> Compared:
    return of[0], of[2], {"north": (50, of[1])}


def test_folds_have_means_and_corrected_intervals() -> None:
    random = np.random.default_rng(5)
    folds = [compare_own("a model", *_ordered(drawn(random))) for _ in range(4)]
    found = mean_own_models(folds, 4)
    assert found is not None
    assert found.accuracy_gain == pytest.approx(np.mean([each.accuracy_gain for each in folds]))
    assert {each.method for each in found.intervals.values()} == {"corrected-t"}
    assert set(found.sites) == {"north"} and set(found.sites["north"].intervals) == {"accuracy", "auc"}


def test_a_threshold_that_a_rule_chose_is_not_compared_with_own_models_at_zero() -> None:
    """Otherwise a rule that finds all positive rows would make federating look harmful."""
    random = np.random.default_rng(6)
    federated, own, labels = drawn(random)
    assert compare_own("a model", federated, labels, {"north": (50, own)}).federated.accuracy == pytest.approx(
        np.mean((federated > 0) == (labels > 0))
    )


def test_run_compares_each_sites_own_model(tmp_path: Path) -> None:
    result = run("quickstart", sites=3, changes=CHANGES, out=tmp_path / "run")
    own = result.own_models
    assert result.metrics is not None and own is not None and own.tested_by == "runner"
    assert own.federated.accuracy == pytest.approx(result.metrics.accuracy)
    assert set(own.sites) == {"site-1", "site-2", "site-3"}
    assert all(each.intervals["accuracy"].low < each.accuracy for each in own.sites.values())
    assert own.accuracy == pytest.approx(np.mean([each.accuracy for each in own.sites.values()]))
    at_zero = f"{percent(own.federated.accuracy)} by the federated one, both at threshold 0"
    assert dict(lines(result))["sites alone"].endswith(at_zero)
    assert dict(lines(result))["federating"].startswith("over the sites' own models: accuracy ")
    report = (tmp_path / "run" / "report.html").read_text()
    assert "Is federating worth it?" in report and "site-3 alone" in report


def test_a_site_with_one_class_is_shown_and_not_counted() -> None:
    """Its constant prediction would make federating look good, or on its own test rows look harmful."""
    federated, own, labels = drawn(np.random.default_rng(9))
    of_sites = {"north": (50, own), "screening": (20, np.full(len(labels), -1.0))}
    found = compare_own("a model", federated, labels, of_sites, ["screening"])
    alone = compare_own("a model", federated, labels, {"north": (50, own)})
    assert (found.accuracy, found.auc, found.gain) == (alone.accuracy, alone.auc, alone.gain)
    assert found.one_class_sites == ("screening",) and found.test_rows == len(labels)
    folded = mean_own_models([found, alone, found], 3)
    assert folded is not None and set(folded.sites) == {"north"}
    folded = mean_own_models([found, found], 2)
    assert folded is not None and folded.one_class_sites == ("screening",)
    only = compare_own("a model", federated, labels, {"screening": of_sites["screening"]}, ["screening"])
    assert only.accuracy == pytest.approx(np.mean(labels < 0))


def test_a_site_that_trains_on_one_class_counts_no_test_rows() -> None:
    settings = PanSettings(C=1.0, kernel="linear", features="identity")
    _, _, labels = drawn(np.random.default_rng(10), 40)
    rows = labels[:, None] + np.random.default_rng(11).normal(size=(40, 1))
    test = LabeledRows(rows, labels)
    for kept, counted in ((labels > -2, 40), (labels > 0, 0)):
        train = LabeledRows(rows[kept], labels[kept])
        counts = OwnCounts(*own_counts("svm", settings, train, test, ("no", "yes"), None, rows[:, 0]))
        assert counts.rows == counted


@pytest.mark.long
@pytest.mark.parametrize("tested_by", ["runner", "sites"])
def test_run_names_a_site_with_one_class_and_compares_the_others(tested_by: str, tmp_path: Path) -> None:
    names = ["north", "south", "west"]
    random = np.random.default_rng(12)
    for name in names:
        lines_of = ["a,b,ill"]
        for _ in range(60):
            ill = name != "west" and random.random() < 0.5
            lines_of.append(f"{random.normal(ill):.3f},{random.normal():.3f},{'yes' if ill else 'no'}")
        (tmp_path / f"{name}.csv").write_text("\n".join(lines_of) + "\n")
    changes = {**CHANGES, "data.positive": "yes", "data.label": "ill", "data.tested_by": tested_by}
    del changes["data.source"]
    sources = {name: str(tmp_path / f"{name}.csv") for name in names}
    changes |= {"federation.names": names, "data.sources": sources}
    scenario = tmp_path / "one-class.toml"
    scenario.write_text('[data]\n[algorithm]\nname = "pan-svm"\n')
    result = run(scenario, changes=changes, out=tmp_path / "run")
    said = dict(lines(result))["sites alone"]
    expected = "west with rows of one class" if tested_by == "runner" else "18 rows at sites that train on one class"
    assert said.endswith(f"; not counting {expected}")
    if tested_by == "runner":
        assert "west alone (one class)" in (tmp_path / "run" / "report.html").read_text()


@pytest.mark.long
def test_run_compares_own_models_where_sites_hold_the_test_rows(tmp_path: Path) -> None:
    result = run("quickstart", sites=3, changes={**CHANGES, "data.tested_by": "sites"}, out=tmp_path / "run")
    own, at_sites = result.own_models, result.at_sites
    assert own is not None and at_sites is not None and own.tested_by == "sites" and not own.sites
    assert own.federated.accuracy == pytest.approx(at_sites.accuracy)
    assert own.intervals["auc_gain"].low <= (own.auc_gain or 0.0) <= own.intervals["auc_gain"].high
    assert (10,) in [each.shape for each in result.disclosures if each.step == "own_model_counts"]


@pytest.mark.parametrize(
    ("scenario", "changes", "message"),
    [
        ("quickstart", {"data.test_fraction": 0.0}, "compare.sites: needs test rows"),
        ("dpp-svm-rbf", {}, "compare.sites: needs sites that hold rows"),
        ("hybrid-stand-in", {}, "compare.sites: hybrid-svm promises privacy"),
    ],
)
def test_a_comparison_without_own_models_is_refused(
    scenario: str, changes: dict[str, object], message: str, tmp_path: Path
) -> None:
    with pytest.raises(ScenarioError, match=message):
        run(scenario, changes={"compare.sites": True, **changes}, out=tmp_path / "run")
