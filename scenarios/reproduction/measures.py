"""The figures of a result, by their place in result.json, and some that are derived from several."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Reading:
    """A figure of a run, and its standard error over the run's folds, None of a single one."""

    value: float
    error: float | None = None


def reading(result: Mapping[str, Any], measure: str, scale: float) -> Reading | None:
    """Return a measure of a completed run's result.

    Parameters
    ----------
    result : mapping
        What result.json holds.
    measure : str
        Where the figure stands, such as metrics.accuracy, or a name of `DERIVED`.
    scale : float
        What figure and standard error are multiplied by.

    Returns
    -------
    Reading or None
        None where the result has no such figure, or something else in its place.
    """
    try:
        found = DERIVED[measure](result) if measure in DERIVED else at(result, measure)
    except (TypeError, ValueError):
        return None
    if not isinstance(found, int | float) or not math.isfinite(found):
        return None
    return Reading(scale * float(found), _fold_error(result, measure, scale))


def at(result: Any, path: str) -> Any:
    """Return the value at a path of keys and indices; None if there is none."""
    for part in path.split("."):
        if isinstance(result, Mapping):
            result = result.get(part)
        elif isinstance(result, list) and part.isdigit() and int(part) < len(result):
            result = result[int(part)]
        else:
            return None
    return result


def _fold_error(result: Mapping[str, Any], measure: str, scale: float) -> float | None:
    """Return the standard error of a mean over folds: their deviation by the root of their number; repeats add
    nothing."""
    name = "accuracy" if measure == "error" else measure.removeprefix("metrics.")
    deviation, folds = at(result, f"metrics.deviations.{name}"), at(result, "metrics.folds") or []
    if deviation is None or len(folds) < 2 or not (measure == "error" or measure.startswith("metrics.")):
        return None
    dealt_once = at(result, "scenario.data.folds") or len(folds)
    return scale * float(deviation) / math.sqrt(min(len(folds), dealt_once))


def _error_of(path: str) -> Callable[[Mapping[str, Any]], float | None]:
    def error(result: Mapping[str, Any]) -> float | None:
        accuracy = at(result, path)
        return None if accuracy is None else 1 - float(accuracy)

    return error


def _each(result: Mapping[str, Any], path: str, name: str) -> list[float]:
    """Return a figure of each entry of a list that has it."""
    found = (at(each, name) for each in at(result, path) or [])
    return [float(figure) for figure in found if isinstance(figure, int | float)]


def _private_rows(result: Mapping[str, Any]) -> float | None:
    held = _each(result, "sites", "rows")
    return sum(held) if held else None


def _fewest_rows(result: Mapping[str, Any]) -> float | None:
    return min(_each(result, "sites", "rows"), default=None)


def _most_rows(result: Mapping[str, Any]) -> float | None:
    return max(_each(result, "sites", "rows"), default=None)


def _classes(result: Mapping[str, Any]) -> float | None:
    classes = at(result, "model.classes")
    return None if classes is None else float(len(classes))


def _on_unit_interval(result: Mapping[str, Any]) -> float | None:
    """Return the gamma for columns in [0, 1] that is equivalent to the run's for [-1, 1]."""
    gamma = at(result, "scenario.algorithm.gamma")
    return 4 * gamma if isinstance(gamma, float) else None


def _largest_site_cpu(result: Mapping[str, Any]) -> float | None:
    return max(_each(result, "sites", "cpu_s"), default=None)


def _fold_spread(result: Mapping[str, Any]) -> float | None:
    areas = _each(result, "metrics.folds", "auc")
    return max(areas) - min(areas) if areas else None


def _recovered_rows(result: Mapping[str, Any]) -> float | None:
    alone = [each for each in at(result, "audit") or [] if at(each, "coordinator") and not at(each, "coalition")]
    return at(alone[0], "recovered") if alone else None


def _false_claims(result: Mapping[str, Any]) -> float | None:
    claims = _each(result, "audit", "false_claims")
    return sum(claims) if claims else None


def _beyond_formula(result: Mapping[str, Any]) -> float | None:
    measured, predicted = at(result, "cost.wire_bytes"), at(result, "cost.predicted_wire_bytes")
    return None if measured is None or predicted is None else float(measured - predicted)


DERIVED: Mapping[str, Callable[[Mapping[str, Any]], float | None]] = {
    "error": _error_of("metrics.accuracy"),
    "error-of-libsvm": _error_of("baselines.libsvm-rbf.accuracy"),
    "classes": _classes,
    "gamma-on-unit-interval": _on_unit_interval,
    "rows-recovered-by-coordinator": _recovered_rows,
    "false-claims": _false_claims,
    "wire-bytes-beyond-formula": _beyond_formula,
    "private-rows": _private_rows,
    "fewest-rows-at-a-site": _fewest_rows,
    "most-rows-at-a-site": _most_rows,
    "largest-site-cpu": _largest_site_cpu,
    "spread-of-fold-auc": _fold_spread,
}
"""Figures that no result has as they are: 1 - accuracy, CPU seconds of the busiest site, and the like."""
