"""The results of each fold, their mean and deviation."""

from __future__ import annotations

import statistics
from typing import Any

from fedsvm.scenarios.figures import area, percent
from fedsvm.scenarios.report.run_plots import gap_curves
from fedsvm.scenarios.report.section import ReportedRun, Section
from fedsvm.scenarios.report.summary import fold_names


def _content(run: ReportedRun) -> dict[str, Any]:
    """Return a row for each fold and two for all; empty for a single model."""
    metrics = run.result.metrics
    if metrics is None or len(metrics.folds) < 2:
        return {}
    folds, name_of = metrics.folds, fold_names(run.result)
    gaps = {name: points[-1] for name, points in gap_curves(run.log, None, name_of).items()}
    head, rows = ["fold", "accuracy", "AUC", *(["iterations", "last gap"] if gaps else [])], []
    for number, fold in enumerate(folds, start=1):
        last = gaps.get(name_of(number))
        certified = ([f"{last[0]:.0f}", f"{last[1]:.1e}"] if last else ["", ""]) if gaps else []
        rows.append([name_of(number).removeprefix("fold "), percent(fold.accuracy), area(fold.auc), *certified])
    spread = statistics.stdev(fold.accuracy for fold in folds)
    empty = ["", ""] if gaps else []
    mean = ["mean", percent(metrics.accuracy), area(metrics.auc), *empty]
    areas = [fold.auc for fold in folds if fold.auc is not None]
    deviation = area(statistics.stdev(areas)) if len(areas) > 1 else ""
    return {"head": head, "rows": [*rows, mean, ["deviation", percent(spread), deviation, *empty]]}


SECTION = Section(place=16, id="folds", title="Folds", content=_content)
