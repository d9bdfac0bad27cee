"""Noisy statistics of each class: the cells of rows, the estimates, and a naive Bayes that is made of them alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.naive_bayes import CategoricalNB, GaussianNB

from fedsvm.algorithms.data.class_statistics import Cells, ClassTotals
from fedsvm.algorithms.data.columns import Columns
from fedsvm.algorithms.data.encoding import Vocabulary
from fedsvm.algorithms.data.partition import held_out, site_partition
from fedsvm.algorithms.data.scaling import Scale
from fedsvm.algorithms.data.statistics import statistics_blocks
from fedsvm.algorithms.data.statistics_rounds import StatisticsPlan
from fedsvm.algorithms.naive_bayes import NaiveBayesModel, NaiveBayesSite
from fedsvm.algorithms.privacy.noisy_sums import clip_rows, compose_mu
from fedsvm.federation.arrays import FloatArray, IntArray
from fedsvm.federation.site.terms import Terms
from fedsvm.scenarios.report.summary import lines
from fedsvm.scenarios.run.result import read_result
from tests.test_runs import run

RANDOM = np.random.default_rng(7)
COUNT, ENDS = 120, np.array([[-1.0, 0.0, 0.0], [1.0, 4.0, 9.0]])
LABELS = np.where(np.arange(COUNT) % 3 == 0, 1.0, -1.0)
ROWS = ENDS.mean(axis=0) + (ENDS[1] - ENDS[0]) / 8 * (RANDOM.uniform(-2, 2, size=(COUNT, 3)) + LABELS[:, None])
KINDS = RANDOM.integers(0, 2, size=COUNT)
FOLDS = np.column_stack([np.arange(COUNT) % 4, 4 + np.arange(COUNT) // 2 % 4])


def totals_of(cells: Cells, folds: IntArray, rows: FloatArray = ROWS) -> ClassTotals:
    """Return the totals of all rows without noise."""
    own = cells.of_rows(LABELS[None, :], folds)
    moved = (np.nan_to_num(rows, nan=2.0) - ENDS.mean(axis=0)) / ((ENDS[1] - ENDS[0]) / 2)
    moved = np.where(np.isnan(rows), 0.0, moved)
    values = {
        "classes": np.ones((COUNT, 1)),
        "known": (~np.isnan(rows)).astype(np.float64),
        "sums": moved,
        "squares": moved**2,
        "categories": np.eye(2)[KINDS],
    }
    totals = {name: cells.spread(own, each).sum(axis=0) for name, each in values.items()}
    return ClassTotals(cells, totals, dict.fromkeys(totals, 0.0), ENDS)


@pytest.mark.parametrize("fold", [None, 2, 5])
def test_without_noise_the_model_is_scikit_learns_of_the_rows_of_other_folds(fold: int | None) -> None:
    cells = Cells(2) if fold is None else Cells(2, folds=4, repeats=2)
    folds = np.full((COUNT, 2), -1) if fold is None else FOLDS
    kept = np.ones(COUNT, dtype=bool) if fold is None else ~held_out(FOLDS, fold)
    found = totals_of(cells, folds).without(fold)
    scale = Scale.standard(np.append(ROWS.mean(axis=0), [0.5, 0.5]), np.append(ROWS.std(axis=0), [0.5, 0.5]))
    columns = Columns(["a", "b", "c"], Vocabulary({"kind": ["x", "y"]}), scale)
    model = NaiveBayesModel.of_statistics(found, 1e-9, columns, ("site-1",))
    scaled = columns.scale(np.hstack([ROWS, np.eye(2)[KINDS]]))
    numbers = GaussianNB().fit(scaled[kept, :3], LABELS[kept])
    categories = CategoricalNB(min_categories=2).fit(KINDS[kept, None], LABELS[kept])
    expected = numbers.predict_joint_log_proba(scaled[:, :3]) + categories.feature_log_prob_[0].T[KINDS]
    np.testing.assert_allclose(model.joint_log_likelihood(scaled), expected, rtol=1e-6)


def test_gaps_are_in_no_mean() -> None:
    rows = ROWS.copy()
    rows[::2, 1] = np.nan
    found = totals_of(Cells(2), np.full(COUNT, -1), rows).without(None)
    np.testing.assert_allclose(found.mean[1, 1], np.nanmean(rows[LABELS > 0, 1]))
    np.testing.assert_allclose(found.missing[:, 1], 0.5)


def test_noise_never_makes_a_variance_or_a_count_too_small() -> None:
    exact = totals_of(Cells(2), np.full(COUNT, -1))
    noise = np.random.default_rng(1)
    sigma = dict.fromkeys(exact.totals, 300.0)
    for _ in range(50):
        totals = {name: total + noise.normal(0, 300.0, size=total.shape) for name, total in exact.totals.items()}
        found = ClassTotals(exact.cells, totals, sigma, ENDS).without(None)
        assert (found.rows >= 300.0).all()
        assert (found.variance > 0).all()
        assert (found.counts >= 0).all()


@pytest.mark.parametrize("cells", [Cells(2), Cells(3), Cells(2, folds=4), Cells(2, folds=4, repeats=2)])
def test_a_contribution_is_no_longer_than_its_block(cells: Cells) -> None:
    classes = np.arange(COUNT) % cells.classes
    labels = LABELS[None, :] if cells.classes == 2 else np.where(np.equal.outer(np.arange(3), classes), 1.0, -1.0)
    folds = FOLDS[:, : cells.repeats] if cells.folds else np.full(COUNT, -1)
    own = cells.of_rows(labels, folds)
    blocks = {block.name: block for block in statistics_blocks(3, [2], cells.classes, 0.5, filled=True, cells=cells)}
    assert compose_mu(blocks.values()) == pytest.approx(0.5, rel=1e-12)
    longest = clip_rows(np.full((COUNT, 3), 1.0), np.sqrt(1.5))
    spread = {
        "classes": np.ones((COUNT, 1)),
        "known": np.ones((COUNT, 3)),
        "sums": longest,
        "squares": longest**2,
        "categories": np.eye(2)[KINDS],
    }
    for name, values in spread.items():
        found = cells.spread(own, values)
        assert found.shape == (COUNT, blocks[name].size)
        assert np.linalg.norm(found, axis=1).max() <= blocks[name].length * (1 + 1e-12)


def test_rows_that_a_site_holds_out_for_a_test_are_in_no_cell() -> None:
    folds = np.where(np.arange(COUNT) < 30, 0, -1)
    own = Cells(2).of_rows(LABELS[None, :], folds)
    assert own[:30].sum() == 0
    assert own[30:].sum() == 90


def test_with_noisy_statistics_a_site_opens_no_exact_sum_of_a_class() -> None:
    def steps(**reading: Any) -> str:
        terms = Terms("naive-bayes", {"var_smoothing": 1e-9}, "ring", {}, 1, reading={"scale": "standard", **reading})
        return str(NaiveBayesSite.script(terms))

    assert "class_sums" in steps()
    assert "class_sums" not in steps(statistics_privacy=0.5)
    assert StatisticsPlan.of(Terms("a", {}, "ring", {}, 1, reading={"folds": 3}), by_class=True).cells(2) == Cells(2, 3)
    held = site_partition(ROWS, LABELS, names=["a", "b", "c"])
    assert NaiveBayesSite("site-1", held, {"seed": 1}).sums_by_class


def test_a_run_opens_noisy_sums_alone_and_says_so(tmp_path: Path) -> None:
    changes = ["data.statistics_privacy=0.5", "data.folds=2", "data.test_fraction=0", "compare.centralised=false"]
    result = run("naive-bayes", tmp_path / "run", *changes).result
    opened = {each["step"] for each in result["disclosures"] if each["kind"] == "sum"}
    assert "noisy_statistics" in opened
    assert opened <= {"scale_counts", "more_scale_counts", "noisy_statistics"}
    assert result["secrecy"]["whole_run"].endswith("can tell a row with an AUC of 0.64 at most (mu 0.5)")
    shown = dict(lines(read_result(tmp_path / "run")))
    assert shown["model file"].endswith("the rest from all rows of the sites by noisy release, mu 0.5")
    assert not any(each["step"] == "hold_out" for each in result["disclosures"])
