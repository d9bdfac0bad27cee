"""The wrappers of the PAN-SVM dissertation over sites: the removals of a reference on pooled rows, ties and all."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.svm import SVC

from fedsvm.algorithms import filter_wrapper, voted_wrappers
from fedsvm.algorithms.data.classes import members
from fedsvm.algorithms.data.columns import LabeledRows
from fedsvm.algorithms.data.partition import site_partition
from fedsvm.algorithms.features.nystrom import NystromMap
from fedsvm.algorithms.optimization.solution import Solution
from fedsvm.algorithms.selection import filters
from fedsvm.algorithms.selection.filters import ClassMoments
from fedsvm.algorithms.selection.held_out import removal_of
from fedsvm.algorithms.selection.subsets import Subset
from fedsvm.algorithms.selection.support_sums import SupportSums
from fedsvm.algorithms.selection.training import SubsetTraining
from fedsvm.algorithms.selection.wrapper import wrapper_training
from fedsvm.algorithms.voted_wrappers import CriterionScores, SupportSite, VotedSettings
from fedsvm.federation.arrays import FloatArray, IntArray
from fedsvm.federation.site.program import SiteProgram
from fedsvm.scenarios.report.page import render
from fedsvm.scenarios.report.summary import lines
from fedsvm.scenarios.run.result import read_result
from tests.column_choice import choose, inner_folds, standardised
from tests.commands import fedsvm
from tests.conftest import long_but_for
from tests.in_process import InProcessFederation, Loss
from tests.test_runs import run

CUTS = ("algorithm.select_solver=cutting-plane", "algorithm.select_groups=32")
PLAIN = ("algorithm.remove=one", "algorithm.min_change=0", "algorithm.size=3")
FOLDS = 3
PAN = ("algorithm.wrapper=pan-svm", "algorithm.select_tolerance=1e-6", f"algorithm.inner_folds={FOLDS}")

Features = Callable[[IntArray], FloatArray]
MapOf = Callable[[IntArray], NystromMap | None]


def svm(rows: FloatArray, signs: FloatArray, tol: float = 1e-9) -> Any:
    """LIBSVM's model."""
    return SVC(kernel="linear", C=1.0, tol=tol, cache_size=500).fit(rows, signs)


def judged(rows: FloatArray, signs: FloatArray, folds: IntArray) -> tuple[int, float]:
    """Rows that are right when they are left out, and their hinge loss."""
    right, loss = 0, 0.0
    for fold in range(folds.max() + 1):
        out = folds == fold
        margins = signs[out] * svm(rows[~out], signs[~out], tol=1e-5).decision_function(rows[out])
        right, loss = right + int((margins > 0).sum()), loss + float(np.maximum(1 - margins, 0).sum())
    return right, loss


def worst(
    features: Features, left: IntArray, signs: FloatArray, folds: IntArray, places: list[int], ranks: Any
) -> tuple[int, str]:
    """The place without which most rows are right; then by loss, by rank, and the higher one."""
    found = {place: judged(features(np.delete(left, place)), signs, folds) for place in places}
    most = max(right for right, _ in found.values())
    best = [place for place in places if found[place][0] == most]
    if len(best) == 1:
        return best[0], "accuracy"
    least = min(found[place][1] for place in best)
    same = [place for place in best if found[place][1] <= least * (1 + 1e-6)]
    if len(same) == 1:
        return same[0], "loss"
    return max((place for place in same if ranks[place] == min(ranks[p] for p in same)), default=same[-1]), "rank"


def order_of(scores: FloatArray) -> IntArray:
    """Places by rising score, of equal ones the last first."""
    grain = 1e-9 * np.abs(scores[np.isfinite(scores)]).max()
    return np.lexsort((-np.arange(len(scores)), np.rint(scores / grain)))


def features_of(rows: FloatArray, map_of: MapOf) -> Features:
    """The function from columns to features of rows: the columns themselves, or those of a map."""

    def features(columns: IntArray) -> FloatArray:
        found = map_of(columns)
        return rows[:, columns] if found is None else found(rows[:, columns])

    return features


def voted(source: str, folds: IntArray, map_of: MapOf = lambda columns: None) -> tuple[list[str], list[str]]:
    """The reference: columns in the order of their removal, and by what each was decided."""
    train, names = standardised(source)
    signs, features = train.labels, features_of(train.rows, map_of)
    left = np.flatnonzero(np.ptp(train.rows, axis=0) > 0)
    removed, decided = [], []
    while len(left) > 1:
        rows = train.rows[:, left]
        model = svm(features(left), signs)
        w = model.dual_coef_[0] @ rows[model.support_]
        support = signs * model.decision_function(features(left)) <= 1 + 1e-3
        means = [rows[signs == sign].mean(axis=0) for sign in (-1, 1)]
        moments = ClassMoments.of(rows[support], members(signs[None, support]))
        scores = [w**2, w * (means[1] - means[0]), filters.welch(moments).statistic]
        orders = [order_of(each) for each in scores]
        named = Counter(int(order[0]) for order in orders)
        place, times = named.most_common(1)[0]
        ranks = np.sum([np.argsort(order) for order in orders], axis=0)
        by = "vote"
        if times == 1:
            place, by = worst(features, left, signs, folds, sorted(named), ranks)
        removed.append(names[left[place]])
        decided.append(by)
        left = np.delete(left, place)
    return removed, decided


def backward(
    source: str, folds: IntArray, passed: list[str], map_of: MapOf = lambda columns: None
) -> tuple[list[str], list[str]]:
    """The reference of filter and wrapper, from the candidates on."""
    train, names = standardised(source)
    moments = ClassMoments.of(train.rows, members(train.labels[None, :]))
    t = filters.welch(moments).statistic
    left, removed, decided = np.array(sorted(names.index(name) for name in passed)), [], []
    while len(left) > 1:
        places = list(range(len(left)))
        place, by = worst(features_of(train.rows, map_of), left, train.labels, folds, places, t[left])
        removed.append(names[left[place]])
        decided.append(by)
        left = np.delete(left, place)
    return removed, decided


def check_reference(source: str, folder: Path, *changes: str) -> dict[str, Any]:
    """A run removes what the reference removes, and by the same."""
    changes = (*PLAIN, f"algorithm.inner_folds={FOLDS}", *changes)
    result = choose(folder, source, "voted-wrappers", *changes).result
    removed, decided = voted(source, inner_folds(folder / "own.toml", FOLDS, *changes))
    steps = result["selection"]["ranking"]["steps"]
    assert [name for step in steps for name in step["removed"]] == removed
    assert Counter(step["decided_by"] for step in steps) == Counter(decided)
    assert result["cost"]["wire_bytes"] == result["cost"]["predicted_wire_bytes"]
    return result


def test_the_vote_is_that_of_pooled_rows(tmp_path: Path) -> None:
    result = check_reference("wine", tmp_path / "run", *CUTS)
    assert {step["decided_by"] for step in result["selection"]["ranking"]["steps"]} > {"vote"}


@pytest.mark.long
@pytest.mark.parametrize("source", ["pima_diabetes", "wdbc"])
@pytest.mark.parametrize("solver", ["cutting-plane", "interior-point"])
def test_the_vote_is_that_of_pooled_rows_of_more(source: str, solver: str, tmp_path: Path, data_folder: Path) -> None:
    cheap = "protocol.sum=plain"  # another sum comes to the same votes
    check_reference(source, tmp_path / "run", f"algorithm.select_solver={solver}", "algorithm.select_groups=32", cheap)


@pytest.fixture
def trainings(monkeypatch: pytest.MonkeyPatch) -> list[SubsetTraining]:
    """The trainings of the wrappers that run."""
    found: list[SubsetTraining] = []

    def keep(*arguments: Any) -> SubsetTraining:
        found.append(wrapper_training(*arguments))
        return found[-1]

    for module in (voted_wrappers, filter_wrapper):
        monkeypatch.setattr(module, "wrapper_training", keep)
    return found


@pytest.mark.long
def test_pan_svms_vote_as_on_pooled_rows(tmp_path: Path, trainings: list[SubsetTraining]) -> None:
    changes = (*PLAIN, *PAN, "algorithm.size=best", "data.evaluation=whole")
    result = choose(tmp_path / "run", "wine", "voted-wrappers", *changes).result
    folds = inner_folds(tmp_path / "run" / "own.toml", FOLDS, *changes)
    ((training,), selection) = trainings, result["selection"]
    removed, decided = voted("wine", folds, training.map_of)
    steps = selection["ranking"]["steps"]
    assert [name for step in steps for name in step["removed"]] == removed
    assert Counter(step["decided_by"] for step in steps) == Counter(decided)
    assert result["cost"]["wire_bytes"] == result["cost"]["predicted_wire_bytes"]
    train, names = standardised("wine")
    for point in selection["curve"]:  # of PAN-SVMs, too: the accuracy of the best columns
        best = np.array([names.index(name) for name in selection["ranking"]["columns"][: point["size"]]])
        right, _ = judged(features_of(train.rows, training.map_of)(best), train.labels, folds)
        assert point["accuracy"] == pytest.approx(right / len(train.labels), abs=1.5 / len(train.labels))
    reading = selection["readings"]["whole"]
    assert reading["accuracy"] == max(point["accuracy"] for point in selection["curve"])


@pytest.mark.long
def test_pan_svms_remove_as_on_pooled_rows(tmp_path: Path, trainings: list[SubsetTraining]) -> None:
    changes = [*PAN, "algorithm.size=3", "algorithm.filter_keep=5", "algorithm.most_candidates=0"]
    result = choose(tmp_path / "run", "wine", "filter-wrapper", *changes).result
    ranking, folds = result["selection"]["ranking"], inner_folds(tmp_path / "run" / "own.toml", FOLDS, *changes)
    count = result["model"]["figures"]["candidates"]
    removed, decided = backward("wine", folds, ranking["columns"][:count], trainings[0].map_of)
    assert [name for step in ranking["steps"] for name in step["removed"]] == removed
    assert Counter(step["decided_by"] for step in ranking["steps"]) == Counter(decided)


def test_pan_svms_on_columns_need_landmarks_and_dual_variables() -> None:
    settings = VotedSettings(wrapper="pan-svm", features="fourier", select_solver="cutting-plane")
    assert [problem.split(":")[0] for problem in settings.wrapper_problems()] == ["wrapper", "wrapper"]
    assert not list(VotedSettings(wrapper="pan-svm").wrapper_problems())


@pytest.mark.parametrize("source", long_but_for(["wine", "pima_diabetes", "ionosphere"], "wine"))
def test_filter_and_wrapper_remove_what_pooled_rows_remove(source: str, tmp_path: Path, data_folder: Path) -> None:
    changes = [*CUTS, f"algorithm.inner_folds={FOLDS}", "algorithm.select_tolerance=1e-6", "algorithm.size=3"]
    changes += ["algorithm.filter_keep=7"] if source == "wine" else []
    result = choose(tmp_path / "run", source, "filter-wrapper", *changes).result
    ranking, folds = result["selection"]["ranking"], inner_folds(tmp_path / "run" / "own.toml", FOLDS, *changes)
    count = result["model"]["figures"]["candidates"]
    removed, decided = backward(source, folds, ranking["columns"][:count])
    assert [name for step in ranking["steps"] for name in step["removed"]] == removed
    assert Counter(step["decided_by"] for step in ranking["steps"]) == Counter(decided)
    assert ranking["ranks"] == [min(place, count + 1) for place in range(1, len(ranking["columns"]) + 1)]
    assert {"pima_diabetes": 6, "ionosphere": 17}.get(source, count) == count


def test_comparing_with_all_candidates_would_remove_the_same(tmp_path: Path) -> None:
    """Step 4 of the dissertation's second method: better than all, or the best of what is worse; either is the best."""
    train, _ = standardised("wine")
    folds = np.arange(len(train.labels)) % 3
    rows = train.rows[:, :5]
    whole, _ = judged(rows, train.labels, folds)
    found = [judged(np.delete(rows, place, axis=1), train.labels, folds)[0] for place in range(5)]
    better = [place for place in range(5) if found[place] >= whole]
    printed = max(better or range(5), key=lambda place: found[place])
    assert printed == int(np.argmax(found))


@pytest.mark.parametrize("criteria", long_but_for(["rfe", "rsvm", "svm-t"], "svm-t"))
def test_a_score_by_itself_decides_every_step(criteria: str, tmp_path: Path) -> None:
    changes = [*CUTS, f"algorithm.criteria={criteria}", "algorithm.size=3"]
    result = choose(tmp_path / "run", "wine", "voted-wrappers", *changes).result
    ranking = result["selection"]["ranking"]
    assert {step["decided_by"] for step in ranking["steps"]} == {"score"}
    assert len(ranking["steps"]) == 12
    assert (ranking["rows_determined"] is None) == (criteria != "svm-t")


def test_support_sums_are_released_where_three_rows_have_changed(tmp_path: Path) -> None:
    """Without the guard rows of patients follow from the sums by linear algebra; with it none, and the result says."""
    determined, released = {}, {}
    for least in (0, 3):
        changes = [*CUTS, "algorithm.criteria=svm-t", "algorithm.size=3", f"algorithm.min_change={least}"]
        result = choose(tmp_path / f"{least}", "wdbc", "voted-wrappers", *changes).result
        determined[least] = result["selection"]["ranking"]["rows_determined"]
        shown = [each for each in result["disclosures"] if each["step"] == "support_moments"]
        released[least] = sum(each["times"] for each in shown if each["kind"] == "design")
        told = dict(lines(read_result(tmp_path / f"{least}")))
        assert told["rows revealed"].startswith(f"{determined[least]} follow from the released support sets")
        assert any(each["kind"] == "row-difference" for each in shown) == (least == 0)
    assert determined[0] >= 5
    assert determined[3] == 0
    assert released[0] == 58 > released[3]


def test_a_score_without_bound_makes_others_no_ties() -> None:
    """Of support rows that are all alike within their classes in one column, t is infinite there."""
    lists = CriterionScores({"svm-t": np.array([0.3, np.inf, 0.1, 0.1 + 1e-12])})
    assert lists.order("svm-t").tolist() == [3, 2, 0, 1]


def test_equal_losses_are_equal_wherever_they_fall() -> None:
    """A grid of equal losses would have borders, and two losses on both sides of one."""
    for loss in np.linspace(1.0, 1.0 + 4e-9, 9):
        places, decided = removal_of([4, 7], np.ones(2), np.array([loss, loss * (1 + 1e-13)]), np.array([2, 1]))
        assert (places.tolist(), decided) == ([7], "rank")


def test_a_class_of_which_all_rows_but_one_support_is_not_released() -> None:
    """Its sums less those of the class, which the coordinator has, would be that row; the class stands for it."""
    train, names = standardised("wine")
    columns, moments = np.arange(len(names)), ClassMoments.of(train.rows, members(train.labels[None, :]))
    margins = train.labels * train.rows[:, 0]
    beyond = np.sort(margins[train.labels > 0])[-2:].mean()  # of one row of +1 alone
    model = Solution(1.0, 0.0, 1, converged=True, w=np.where(columns == 0, (1 + 2e-3) / beyond, 0.0), b=0.0)
    for least, releases in ((3, 1), (0, 2)):
        federation: Any = support_federation(train, names)
        support = SupportSums(federation, least)
        found = support.moments(columns, model, moments)
        assert support.releases[1] == releases
        assert found.counts[1] == moments.counts[1] - (least == 0)
        determined = support.rows_determined()
        assert determined == 0 if least else determined >= 1


def test_many_columns_go_by_halves_where_two_lists_agree(tmp_path: Path) -> None:
    changes = [*CUTS, "algorithm.remove=0.4", "algorithm.size=3"]
    result = choose(tmp_path / "run", "wine", "voted-wrappers", *changes).result
    steps = result["selection"]["ranking"]["steps"]
    assert len(steps) < 12
    assert {step["decided_by"] for step in steps} <= {"vote", "rank", "accuracy", "loss"}
    assert sum(len(step["removed"]) for step in steps) == 12


def test_a_site_that_is_killed_is_done_without_and_its_support_sets_are_forgotten(tmp_path: Path) -> None:
    kill = "faults=[{kind='kill',site=2,phase='select',round=66}]"  # in step 5
    changes = [*CUTS, kill, "algorithm.size=3", f"algorithm.inner_folds={FOLDS}"]
    result = choose(tmp_path / "run", "wine", "voted-wrappers", *changes).result
    assert [step["sites"] for step in result["selection"]["ranking"]["steps"]] == [5] * 4 + [4] * 8
    assert result["selection"]["ranking"]["rows_determined"] == 0


def test_support_sets_of_one_fold_are_none_of_the_next(tmp_path: Path) -> None:
    folds = ["data.folds=3", "data.test_fraction=0", "algorithm.size=3", f"algorithm.inner_folds={FOLDS}"]
    result = choose(tmp_path / "run", "wine", "voted-wrappers", *CUTS, *folds).result
    assert len(result["metrics"]["folds"]) == 3
    assert result["metrics"]["accuracy"] > 0.9


def test_no_support_set_survives_a_site_that_drops() -> None:
    """Sums of what is left are released anew, and rows are only followed from these."""
    train, names = standardised("wine")
    columns, random = np.arange(len(names)), np.random.default_rng(0)
    moments = ClassMoments.of(train.rows, members(train.labels[None, :]))
    federation: Any = support_federation(train, names, {("support_changes", 4): Loss(("site-1",))})
    support = SupportSums(federation, 3)
    for _ in range(5):
        model = Solution(1.0, 0.0, 1, converged=True, w=random.normal(size=len(names)), b=0.0)
        federation.until_stable(functools.partial(support.moments, columns, model, moments))
    assert federation.sites == ("site-0", "site-2")
    for name in federation.sites:
        released = federation.programs[name].support_sets.released
        assert [len(sets) for sets in released] == support.releases
        assert all(number <= 2 for sets in released for number in sets)  # the fourth was asked for again
    assert federation.until_stable(support.rows_determined) == 0


def test_a_site_that_is_killed_is_done_without_in_filter_and_wrapper(tmp_path: Path) -> None:
    kill = "faults=[{kind='kill',site=2,phase='select',round=20}]"
    all_of = ["algorithm.most_candidates=0", "algorithm.filter_keep=6"]
    changes = [*CUTS, kill, "algorithm.size=3", *all_of, f"algorithm.inner_folds={FOLDS}"]
    result = choose(tmp_path / "run", "wine", "filter-wrapper", *changes).result
    assert result["model"]["sites"] == ["site-1", "site-3", "site-4", "site-5"]
    assert [len(step["removed"]) for step in result["selection"]["ranking"]["steps"]] == [1] * 5


def test_more_candidates_than_are_affordable_go_by_weight(tmp_path: Path) -> None:
    changes = [*CUTS, "algorithm.most_candidates=4", "algorithm.size=2", f"algorithm.inner_folds={FOLDS}"]
    result = choose(tmp_path / "run", "wine", "filter-wrapper", *changes).result
    steps = result["selection"]["ranking"]["steps"]
    assert steps[0]["decided_by"] == "score"
    assert len(steps[0]["removed"]) > 1
    assert steps[-1]["decided_by"] in ("accuracy", "loss", "rank")


@pytest.mark.parametrize("name", long_but_for(["voted-wrappers", "filter-wrapper"], "voted-wrappers"))
def test_a_scenario_runs_predicts_and_reports(name: str, tmp_path: Path) -> None:
    small = ["data.source=wine", "data.positive=class_0", "algorithm.size=3", "algorithm.landmarks=20", *CUTS]
    result = run(name, tmp_path / "run", *small, f"algorithm.inner_folds={FOLDS}").result
    assert result["metrics"]["accuracy"] > 0.8
    assert "Order of removal" in render(tmp_path / "run")
    predicted = fedsvm("predict", tmp_path / "run", "wine", folder=tmp_path)
    assert (predicted.returncode, len(predicted.stdout.splitlines())) == (0, 179)


def test_a_number_of_columns_beside_thresholds_is_refused(tmp_path: Path) -> None:
    words = ["--set", "algorithm.filter_keep=3", "--set", "algorithm.min_fisher=0.5"]
    done = fedsvm("run", "filter-wrapper", *words, folder=tmp_path)
    assert done.returncode == 2
    assert "algorithm.filter_keep: excludes min_fisher and min_scatter_ratio; keep one of them." in done.stderr


def test_a_gap_that_does_not_tell_support_rows_is_refused(tmp_path: Path) -> None:
    done = fedsvm("run", "voted-wrappers", "--set", "algorithm.select_tolerance=1e-3", folder=tmp_path)
    assert done.returncode == 2
    assert "select_tolerance: must be 1e-5 or less for support rows" in done.stderr


def support_federation(
    train: LabeledRows, names: list[str], losses: dict[tuple[str, int], Loss] | None = None
) -> InProcessFederation:
    """Three sites with scaled rows."""
    programs: dict[str, SiteProgram] = {}
    for number, part in enumerate(np.array_split(np.arange(len(train.labels)), 3)):
        partition = site_partition(train.rows[part], train.labels[part], names=names)
        site = SupportSite(f"site-{number}", partition, {"seed": 1})
        site.rescale(np.zeros(len(names)), np.ones(len(names)))
        programs[site.site] = site
    return InProcessFederation(programs, losses=losses)


@pytest.mark.parametrize("source", ["wdbc", "ionosphere", "wine"])
def test_support_rows_are_libsvms(source: str, data_folder: Path) -> None:
    """At a gap of 1e-6, by margins of at most 1.001; and so are class sums over them."""
    train, names = standardised(source)
    federation: Any = support_federation(train, names)
    moments = ClassMoments.of(train.rows, members(train.labels[None, :]))
    settings = VotedSettings(select_solver="cutting-plane", select_groups=32)
    columns = np.arange(len(names))
    (found,) = SubsetTraining(federation, moments, settings).train([Subset(columns)], 1e-6)
    supporting = SupportSums(federation, 3).moments(columns, found, moments)
    expected = svm(train.rows, train.labels)
    assert supporting.counts.tolist() == expected.n_support_.tolist()
    rows, signs = train.rows[expected.support_], train.labels[expected.support_]
    pooled = filters.welch(ClassMoments.of(rows, members(signs[None, :]))).statistic
    np.testing.assert_allclose(filters.welch(supporting).statistic, pooled, rtol=1e-6)
