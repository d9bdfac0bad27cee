"""Columns by a statistic from sums: scikit-learn's and scipy's figures, and the order that pooled rows give."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from scipy import stats
from sklearn.feature_selection import f_classif

from fedsvm.algorithms.data.classes import members, one_against_rest
from fedsvm.algorithms.data.columns import LabeledRows
from fedsvm.algorithms.filter_selection import FilterSettings, _by_score
from fedsvm.algorithms.filter_wrapper import FilterWrapperSettings, candidates
from fedsvm.algorithms.selection import filters
from fedsvm.algorithms.selection.filters import ClassMoments
from fedsvm.scenarios.data import sources
from fedsvm.scenarios.report.page import render
from fedsvm.scenarios.report.summary import lines
from fedsvm.scenarios.run.result import read_result
from tests.column_choice import choose
from tests.commands import fedsvm
from tests.conftest import long_but_for
from tests.test_runs import run

SETS = {
    "pima_diabetes": "1",
    "ionosphere": "g",
    "wdbc": "malignant",
    "colon": "t",
    "leukemia": "ALL",
    "dlbcl": "germinal",
}


def standardised(name: str) -> LabeledRows:
    """Scaled rows and signs of a data set."""
    data = sources.load(name, label="label", ignore=[], missing="refuse", base_folder=Path())
    rows = np.column_stack([each.values.astype(float) for each in data.features])
    deviation = rows.std(axis=0)
    signs = np.where(data.labels == SETS[name], 1.0, -1.0)
    return LabeledRows((rows - rows.mean(axis=0)) / np.where(deviation > 0, deviation, 1.0), signs)


def moments_of(rows: np.ndarray, signs: np.ndarray, sites: int = 5) -> ClassMoments:
    """Added up over rows that are dealt to sites by their order, so that some have one class."""
    order = np.argsort(signs, kind="stable")
    parts = np.array_split(order, sites)
    return ClassMoments.unpack(
        np.sum([ClassMoments.of(rows[part], members(signs[None, part])).pack() for part in parts], axis=0)
    )


@pytest.mark.parametrize("name", SETS)
def test_welch_and_f_are_those_of_pooled_rows(name: str, data_folder: Path) -> None:
    rows, signs = standardised(name)
    moments = moments_of(rows, signs)
    varied = ~moments.constant
    expected = stats.ttest_ind(rows[signs > 0][:, varied], rows[signs < 0][:, varied], equal_var=False)
    found = filters.welch(moments)
    np.testing.assert_allclose(found.statistic[varied], np.abs(expected.statistic), rtol=1e-9, atol=1e-11)
    np.testing.assert_allclose(found.p_value[varied], expected.pvalue, rtol=1e-6, atol=1e-300)
    f, p = f_classif(rows[:, varied], signs)
    of_all = filters.f_statistic(moments)
    np.testing.assert_allclose(of_all.statistic[varied], f, rtol=1e-6, atol=1e-11)
    np.testing.assert_allclose(of_all.p_value[varied], p, rtol=1e-6, atol=1e-300)
    scatter = ((moments.means - moments.total.means) ** 2).sum(axis=0) / np.where(
        varied, moments.scatter.sum(axis=0), 1.0
    )
    by_f, by_scatter = (filters.best_first(each, moments.constant) for each in (of_all.statistic, scatter))
    np.testing.assert_array_equal(by_f, by_scatter)
    np.testing.assert_allclose(
        filters.adjust_p_values(found.p_value[varied]),
        stats.false_discovery_control(expected.pvalue),
        rtol=1e-6,
        atol=1e-300,
    )


def test_t_does_not_depend_on_sites_splits_or_sums(tmp_path: Path) -> None:
    """Of rows dealt at random, sorted by their class so that most sites have one, and by a column."""
    scores = []
    for number, (sites, split, protocol) in enumerate(
        [(5, "random", "ring"), (8, "label-skew", "masked"), (8, "by-feature:mean-radius", "masked")]
    ):
        changes = [f"data.split={split}", f"protocol.sum={protocol}", "algorithm.size=3", "algorithm.landmarks=5"]
        ranking = choose(tmp_path / f"{number}", "wdbc", "filter", *changes, sites=sites).result["selection"]["ranking"]
        scores.append(dict(zip(ranking["columns"], ranking["scores"], strict=True)))
    for others in scores[1:]:
        assert list(others) == list(scores[0])
        np.testing.assert_allclose([others[name] for name in scores[0]], list(scores[0].values()), rtol=1e-13)


def test_f_is_of_any_number_of_classes() -> None:
    random = np.random.default_rng(0)
    rows, kinds = random.normal(size=(90, 6)), random.integers(3, size=90)
    found = filters.f_statistic(ClassMoments.of(rows, members(one_against_rest(kinds.astype(np.float64), 3))))
    np.testing.assert_allclose(found.statistic, f_classif(rows, kinds)[0], rtol=1e-9)


def test_significant_columns_are_those_whose_rates_say_so() -> None:
    """Check columns with different degrees of freedom: one with a larger t and a larger p is not kept instead."""
    random = np.random.default_rng(3)
    signs = np.repeat([-1.0, 1.0], [6, 200])
    rows = random.normal(size=(206, 60)) * np.where(signs[:, None] < 0, np.geomspace(0.05, 20, 60), 1.0)
    rows[signs > 0] += 0.5 * np.abs(random.normal(size=60)) * np.geomspace(0.05, 20, 60)
    moments = moments_of(rows, signs)
    settings = FilterSettings(size="significant", false_discovery_rate=0.1)
    scored = _by_score(moments, settings, lambda edges: edges, lambda column: rows[:, column])
    assert scored.rates is not None
    kept = int((scored.rates <= 0.1).sum())
    assert (scored.rates[scored.order[:kept]] <= 0.1).all()
    by_t = np.argsort(-scored.scores)[:kept]
    assert not (scored.rates[by_t] <= 0.1).all()


def test_columns_that_say_nothing_are_last_and_those_that_say_all_first() -> None:
    """Constant columns of any value, and one that is constant within each class."""
    signs = np.repeat([-1.0, 1.0], 10)
    rows = np.column_stack([np.full(20, 1e6), signs, np.random.default_rng(0).normal(size=20), np.zeros(20)])
    moments = moments_of(rows, signs)
    assert moments.constant.tolist() == [True, False, False, True]
    for scores in (
        filters.welch(moments).statistic,
        filters.f_statistic(moments).statistic,
        filters.squared_fisher(moments),
    ):
        assert filters.best_first(scores, moments.constant).tolist() == [1, 2, 0, 3]
    assert filters.welch(moments).p_value.tolist()[1] == 0.0


def test_fisher_of_a_first_over_a_second_power_depends_on_units_and_the_squared_does_not(data_folder: Path) -> None:
    data = sources.load("wdbc", label="label", ignore=[], missing="refuse", base_folder=Path())
    rows = np.column_stack([each.values.astype(float) for each in data.features])
    signs = np.where(data.labels == "malignant", 1.0, -1.0)
    raw = moments_of(rows, signs)
    t = filters.welch(raw).statistic
    printed = np.abs(raw.means[1] - raw.means[0]) / (raw.scatter / raw.counts[:, None]).sum(axis=0)
    assert stats.spearmanr(printed, t).statistic < 0
    larger = moments_of(rows * np.where(np.arange(30) == 7, 1000.0, 1.0), signs)
    np.testing.assert_allclose(filters.squared_fisher(larger), filters.squared_fisher(raw), rtol=1e-6)
    np.testing.assert_allclose(filters.welch(larger).statistic, t, rtol=1e-6)


def test_printed_scores_are_equations_6_1_and_6_3_and_their_thresholds_choose() -> None:
    random = np.random.default_rng(1)
    signs = np.where(np.arange(90) < 60, 1.0, -1.0)
    rows = random.normal(size=(90, 4)) + np.outer(signs, [1.5, 0.6, 0.0, 0.5])
    moments, of = moments_of(rows, signs), [rows[signs < 0], rows[signs > 0]]
    means, variances = [each.mean(axis=0) for each in of], [each.var(axis=0) for each in of]
    fisher = np.abs(means[1] - means[0]) / (variances[0] + variances[1])
    np.testing.assert_allclose(filters.printed_fisher(moments), fisher)
    between = sum((each - rows.mean(axis=0)) ** 2 for each in means)
    ratio = between / sum(len(each) * variance for each, variance in zip(of, variances, strict=True))
    np.testing.assert_allclose(filters.scatter_ratio(moments), ratio)
    below = 1 - 1e-9  # the scores are computed in another way
    second = FilterWrapperSettings(min_fisher=below * float(np.sort(fisher)[-2]), filter_p=0.5)
    assert candidates(moments, second).tolist() == [0, int(np.argsort(fisher)[-2])]
    first = FilterWrapperSettings(min_scatter_ratio=below * float(ratio.max()), filter_p=0.5)
    assert candidates(moments, first).tolist() == [int(ratio.argmax())]
    assert candidates(moments, FilterWrapperSettings(min_fisher=1e6)).tolist() == [0]


def test_mutual_information_is_that_of_the_counts() -> None:
    from sklearn.metrics import mutual_info_score

    random = np.random.default_rng(1)
    rows, signs = random.normal(size=(200, 3)), np.where(random.random(200) < 0.4, 1.0, -1.0)
    rows[:, 0] += signs
    moments = moments_of(rows, signs)
    edges = filters.bin_edges(moments, 6)
    counts = filters.bin_counts(rows, members(signs[None, :]), edges)
    expected = [mutual_info_score(signs, np.searchsorted(edges[j], rows[:, j], side="right")) for j in range(3)]
    np.testing.assert_allclose(filters.mutual_information(counts), expected, rtol=1e-9)
    assert counts.sum() == 600


@pytest.mark.parametrize("score", long_but_for(["welch", "f", "fisher", "mi", "mrmr"], "welch", "mrmr"))
def test_a_run_orders_columns_as_pooled_rows_do(score: str, tmp_path: Path) -> None:
    changes = [f"algorithm.statistic={score}", "data.folds=2", "algorithm.size=5", "protocol.sum=masked"]
    result = run("filter", tmp_path / "run", *changes, sites=4).result
    selection = result["selection"]
    assert selection["equal_positions"] == len(selection["ranking"]["columns"]) == 30
    assert len(selection["ranking"]["selected"]) == result["model"]["figures"]["columns_selected"] == 5
    assert result["cost"]["wire_bytes"] == result["cost"]["predicted_wire_bytes"]
    more = {"mi": 1, "mrmr": 4}.get(score, 0)
    assert result["cost"]["by_phase"]["select"]["rounds"] == 2 * (2 + more + 1)  # sizes, moments, the columns kept
    assert selection["readings"].keys() == {"nested"}
    assert result["centralised"]["max_decision_difference"] < 0.1


@pytest.mark.long
def test_significant_columns_predict_report_and_sweep(tmp_path: Path) -> None:
    changes = ["algorithm.size=significant", "algorithm.false_discovery_rate=1e-30", "data.folds=2"]
    result = run("filter", tmp_path / "run", *changes).result
    kept = result["selection"]["ranking"]["selected"]
    assert 1 < len(kept) < 25
    with np.load(tmp_path / "run" / "model.npz") as arrays:
        assert arrays["columns"].tolist() == kept
        assert len(arrays["offset"]) == len(arrays["scale"]) == len(kept) == arrays["landmarks"].shape[1]
    predicted = fedsvm("predict", tmp_path / "run", "wdbc", folder=tmp_path)
    assert (predicted.returncode, len(predicted.stdout.splitlines())) == (0, 570)
    data = sources.load("wdbc", label="label", ignore=[], missing="refuse", base_folder=Path())
    few = {each.name: each.values for each in data.features if each.name in kept}
    with (tmp_path / "few.csv").open("w") as file:
        writer = csv.writer(file)
        writer.writerow(few)
        writer.writerows(zip(*few.values(), strict=True))
    assert fedsvm("predict", tmp_path / "run", tmp_path / "few.csv", folder=tmp_path).stdout == predicted.stdout
    page, told = render(tmp_path / "run"), dict(lines(read_result(tmp_path / "run")))
    assert "Columns, best first" in page
    assert "worst-perimeter" in page
    assert told["columns"].startswith(f"{len(kept)} of 30 by a false discovery rate of 1e-30")
    words = [
        "--vary",
        "algorithm.statistic=welch,f",
        "--plot",
        "columns_selected:algorithm.statistic",
        "--out",
        "sweep",
    ]
    done = fedsvm("sweep", "filter", "--set", "data.folds=2", *words, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    rows = list(csv.DictReader((tmp_path / "sweep" / "sweep.csv").open()))
    assert [row["columns_selected"] for row in rows] == ["10", "10"]


def test_a_column_of_categories_may_be_chosen_in_part(tmp_path: Path) -> None:
    changes = ["data.source=tic-tac-toe", "data.positive=positive", "algorithm.size=3", "data.folds=2"]
    result = run("filter", tmp_path / "run", *changes).result
    assert len(result["selection"]["ranking"]["columns"]) == 27
    predicted = fedsvm("predict", tmp_path / "run", "tic-tac-toe", folder=tmp_path)
    assert (predicted.returncode, len(predicted.stdout.splitlines())) == (0, 959), predicted.stderr


def test_a_curve_has_three_readings_and_the_best_of_it_is_called_biased(tmp_path: Path) -> None:
    small = ["data.source=wine", "data.positive=class_0", "algorithm.size=one-se", "data.folds=2"]
    result = run("filter", tmp_path / "run", *small, "algorithm.landmarks=20", "algorithm.inner_folds=3").result
    selection = result["selection"]
    assert selection["readings"].keys() == {"nested", "separate", "whole"}
    assert selection["readings"]["nested"]["accuracy"] == pytest.approx(result["metrics"]["accuracy"])
    assert selection["readings"]["nested"]["biased"] == ""
    assert "too high" in selection["readings"]["whole"]["biased"]
    assert [point["size"] for point in selection["curve"]] == [*range(1, 11), 13]
    best = max(point["accuracy"] for point in selection["curve"])
    assert selection["readings"]["whole"]["accuracy"] == best
    page = render(tmp_path / "run")
    assert "Accuracy by number of columns" in page
    assert sum(selection["selected_in"].values()) >= 2


def test_rows_set_apart_are_judged_by_the_models_of_all_inner_folds(tmp_path: Path) -> None:
    """So that accuracies are multiples of one row of one of five models, as those of the dissertation are."""
    changes = ["algorithm.statistic=f", "algorithm.size=best", "data.evaluation=separate", "algorithm.landmarks=5"]
    result = choose(tmp_path / "run", "wine", "filter", *changes, test_fraction=0.2).result
    selection, rows = result["selection"], result["data"]["test_rows"]
    accuracies = np.array([point["test_accuracy"] for point in selection["curve"]])
    right = accuracies * 5 * rows
    np.testing.assert_allclose(right, np.rint(right), atol=1e-6)
    assert (np.rint(right) % 5 != 0).any()
    assert selection["readings"]["separate"]["accuracy"] == pytest.approx(accuracies.max())


def test_an_evaluation_on_the_rows_that_chose_is_named(tmp_path: Path) -> None:
    small = ["data.source=wine", "data.positive=class_0", "algorithm.size=best", "algorithm.landmarks=20"]
    scenario = (tmp_path / "own.toml", "whole")
    scenario[0].write_text(
        'name = "own"\n[data]\nsource = "wine"\npositive = "class_0"\nevaluation = "whole"\n'
        '[algorithm]\nname = "filter"\nsize = "best"\nlandmarks = 20\n'
    )
    result = run(str(scenario[0]), tmp_path / "run", *small).result
    assert result["metrics"] is None
    assert result["selection"]["readings"].keys() == {"whole"}
    assert result["selection"]["evaluation"] == "whole"
    told = dict(lines(read_result(tmp_path / "run")))
    assert "too high" in told["whole"]


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (
            ["algorithm.statistic=mi", "algorithm.size=significant"],
            'size: "significant" needs a statistic with p-values',
        ),
        (["data.evaluation=whole"], 'folds apply to evaluation = "nested"'),
        (["algorithm.size=0"], "algorithm.size: must be"),
    ],
)
def test_what_does_not_go_together_is_a_sentence(changes: list[str], sentence: str, tmp_path: Path) -> None:
    words = [word for change in changes for word in ("--set", change)]
    done = fedsvm("run", "filter", *words, folder=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert sentence in done.stderr


def test_an_evaluation_of_curves_is_refused_where_nothing_is_chosen(tmp_path: Path) -> None:
    done = fedsvm("run", "quickstart", "--set", "data.evaluation=separate", folder=tmp_path)
    assert done.returncode == 2
    assert "data.evaluation: pan-svm does not select columns; remove this key." in done.stderr


def test_more_columns_than_rows_are_named_with_what_they_tell(tmp_path: Path, data_folder: Path) -> None:
    changes = ["data.source=colon", "data.positive=t", "data.folds=2", "algorithm.landmarks=10"]
    result = run("filter", tmp_path / "run", *changes).result
    (sentence,) = {each[:45] for each in result["warnings"] if "of class 'n'" in each}
    assert sentence.startswith("The means of class 'n' are of 2000 columns")
    assert any("AUC of 0." in each for each in result["warnings"])
    shown = [each for each in result["disclosures"] if "class means and variances" in each["detail"]]
    assert shown[0]["shape"] == [2, 4001]


@pytest.mark.parametrize("phase", long_but_for(["setup", "select", "landmarks", "train"], "select"))
def test_a_site_that_drops_is_done_without(phase: str, tmp_path: Path) -> None:
    kill = f"faults=[{{kind='kill',site=2,phase='{phase}',round=2}}]"
    result = run("filter", tmp_path / "run", kill, "federation.sites=6", "data.folds=2").result
    assert result["model"]["sites"] == ["site-1", "site-3", "site-4", "site-5", "site-6"]
    assert len(json.dumps(result["selection"])) > 100


def test_gaps_are_filled_in_the_columns_that_are_kept(tmp_path: Path) -> None:
    """Numbers with gaps, their 0/1 columns, and categories of which some are kept: new rows with gaps are predicted."""
    random = np.random.default_rng(0)
    lines_ = ["age,weight,height,ward,ill"]
    for row in range(90):
        age = "" if row % 7 == 0 else f"{50 + 9 * (row % 2) + random.normal():.2f}"
        weight = "" if row % 2 else f"{random.normal():.2f}"
        lines_.append(f"{age},{weight},{random.normal():.2f},{'abc'[row % 3]},{('no', 'yes')[row % 2]}")
    (tmp_path / "gaps.csv").write_text("\n".join(lines_) + "\n")
    changes = [f"data.source={tmp_path / 'gaps.csv'}", "data.label=ill", "data.positive=yes", "data.missing=mean"]
    changes += ["data.missing_indicators=true", "algorithm.size=3", "data.folds=2"]
    result = run("filter", tmp_path / "run", *changes).result
    assert set(result["selection"]["ranking"]["selected"]) >= {"age", "weight is missing"}
    predicted = fedsvm("predict", tmp_path / "run", tmp_path / "gaps.csv", folder=tmp_path)
    assert (predicted.returncode, len(predicted.stdout.splitlines())) == (0, 91), predicted.stderr


def test_weights_may_stay_with_the_sites(tmp_path: Path) -> None:
    small = ["data.source=wine", "data.positive=class_0", "algorithm.size=5", "data.folds=2"]
    result = run("filter", tmp_path / "run", *small, "algorithm.release=sites").result
    assert result["metrics"]["accuracy"] > 0.9
    predicted = fedsvm("predict", tmp_path / "run", "wine", folder=tmp_path)
    assert (predicted.returncode, len(predicted.stdout.splitlines())) == (0, 179), predicted.stderr
