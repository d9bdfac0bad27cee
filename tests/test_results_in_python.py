"""A result in Python: its repr, its cards in a notebook, and its measures as a DataFrame."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fedsvm import run
from fedsvm.scenarios.report.cards import notebook_html
from fedsvm.scenarios.run.measuring import evaluate, mean_metrics
from fedsvm.scenarios.run.result import RunResult, environment


@pytest.fixture(scope="module")
def result() -> RunResult:
    """A result of three folds, as nothing but its measures is needed."""
    random = np.random.default_rng(1)
    folds = []
    for _ in range(3):
        labels = np.where(random.random(60) < 0.5, 1.0, -1.0)
        folds.append(evaluate(labels + random.normal(size=60), labels))
    return RunResult(
        status="completed",
        error=None,
        warnings=(),
        scenario={"name": "<heart>", "data": {"folds": 3}},
        metrics=mean_metrics(folds, 3),
        environment=environment(),
    )


def test_repr_is_a_line(result: RunResult) -> None:
    assert result.metrics is not None
    said = f"accuracy={result.metrics.accuracy:.4f}, auc={result.metrics.auc:.4f}"
    assert repr(result) == f"RunResult('<heart>', completed, {said}, sites=0)"
    assert repr(replace(result, metrics=None, status="failed")) == "RunResult('<heart>', failed, sites=0)"


def test_notebook_shows_the_cards_of_the_report(result: RunResult) -> None:
    shown = notebook_html(result)
    assert result._repr_html_() == shown
    assert result.metrics is not None
    assert f"{100 * result.metrics.accuracy:.2f} %" in shown and "AUC" in shown
    assert "&lt;heart&gt;" in shown and "<heart>" not in shown
    assert "There &lt;was" in notebook_html(replace(result, error="There <was no site."))


def test_to_pandas_has_a_row_for_each_measure(result: RunResult) -> None:
    pytest.importorskip("pandas")
    table = result.to_pandas()
    assert list(table.columns) == ["value", "low", "high", "deviation", "fold 1", "fold 2", "fold 3"]
    assert result.metrics is not None
    assert table.loc["auc", "value"] == result.metrics.auc
    assert table.loc["auc", ["fold 1", "fold 2", "fold 3"]].mean() == pytest.approx(result.metrics.auc)
    assert table.loc["accuracy", "low"] < table.loc["accuracy", "value"] < table.loc["accuracy", "high"]
    assert "brier" not in table.index, "the model has no probabilities"
    assert replace(result, metrics=None).to_pandas().empty


def test_progress_that_is_no_function_is_refused_before_anything_starts(tmp_path: Path) -> None:
    with pytest.raises(
        TypeError, match="progress must be a function that takes a RunProgress, such as print, got True"
    ):
        run("quickstart", progress=True, out=tmp_path / "run")  # type: ignore[arg-type]
    assert not (tmp_path / "run").exists()
