"""The classes of a data set: their names, which of two is +1, and the labels of rows by number."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from fedsvm.algorithms.registry import ALGORITHMS
from fedsvm.federation.arrays import FloatArray
from fedsvm.federation.text import list_names, quote_names
from fedsvm.scenarios.data.notation import is_number
from fedsvm.scenarios.data.tables import Dataset
from fedsvm.scenarios.schema.data import DataSpec
from fedsvm.scenarios.schema.errors import QuotingProblem, ScenarioError
from fedsvm.scenarios.schema.spec import Scenario

ABOVE_MEDIAN = "above-median"
"""The value of data.positive that makes numeric labels above the median +1."""
# fmt: off
_POSITIVE = frozenset({
    "positive", "pos", "+", "true", "yes", "y", "ja", "oui", "si", "case",
    "ill", "sick", "diseased", "disease", "malignant", "cancer", "dead", "died", "deceased", "death",
    "verstorben", "gestorben", "tot",
    "event", "abnormal", "relapse", "recurrence", "present", "infected",
})
# fmt: on
"""Names of classes that everybody takes for +1."""


def halve(data: Dataset, choosing: Dataset, settings: DataSpec) -> tuple[Dataset, Dataset, tuple[str, ...]]:
    """Return data, and the rows that may choose the median, with labels that tell their side of it; and both classes.

    Raises ScenarioError where labels are no numbers, or no row that may choose is above the median.
    """
    middle = _median_label(data, choosing, settings)
    classes = f"at most {middle:g}", f"above {middle:g}"

    def side(rows: Dataset) -> Dataset:
        return replace(rows, labels=np.where(rows.labels.astype(np.float64) > middle, *classes[::-1]))

    return side(data), side(choosing), classes


def _median_label(data: Dataset, choosing: Dataset, settings: DataSpec) -> float:
    """Return the median of numeric labels, over the rows that may choose it.

    Raises ScenarioError where labels are none, or no row that may choose is above it.
    """
    if settings.classes:
        raise ScenarioError(
            [f'data.classes: data.positive = "{ABOVE_MEDIAN}" defines two classes itself; remove this key.']
        )
    if words := [name for name in data.classes if not is_number(name)]:
        raise ScenarioError(
            [f'data.positive: "{ABOVE_MEDIAN}" applies to labels that are numbers, and {data.name} has {words[0]!r}.']
        )
    numbers = choosing.labels.astype(np.float64)
    middle = float(np.median(numbers)) if len(numbers) else math.inf
    if not (numbers > middle).any():
        raise ScenarioError(
            [
                f"data.positive: of the {len(numbers)} rows of {data.name} whose labels may be looked at none is above "
                "their median; name the label that is +1."
            ]
        )
    return middle


def classes_of(data: Dataset, settings: DataSpec, *, are_all: bool = True) -> tuple[str, ...]:
    """Return the names of the classes, negative before positive if there are two: declared ones, or those of the data.

    More than two are told apart, numbers in their order and words in the alphabet's, unless one is said to be +1. Of
    two, +1 is the larger number, or the word that everybody takes for it. are_all: whether these are all rows, and not
    the public ones, which need not have one of each class that is declared. Raises ScenarioError for names that are
    none of the data, data of other classes, and where it is not plain which of two is +1.
    """
    declared, positive = settings.classes, settings.positive
    require_declared(data, declared)
    if absent := [name for name in declared if are_all and name not in data.classes]:
        raise ScenarioError([f"data.classes: {data.name} has no row of {quote_names(absent)}; remove it."])
    if positive is not None or len(declared or data.classes) == 2:
        return _two_classes(data, positive if positive is not None or not declared else declared[1])
    if declared:
        return tuple(declared)
    return tuple(sorted(data.classes, key=float) if all(map(is_number, data.classes)) else data.classes)


def declared_classes(settings: DataSpec) -> tuple[str, ...]:
    """Return the classes by declaration alone, for sites that see only some labels."""
    if settings.positive is None:
        return tuple(settings.classes)
    others = [name for name in settings.classes if name != settings.positive]
    return others[0] if len(others) == 1 else f"not {settings.positive}", settings.positive


def require_declared(data: Dataset, declared: Sequence[str]) -> None:
    """Raise ScenarioError for labels that are not declared, if any are declared."""
    if others := [name for name in data.classes if declared and name not in declared]:
        them = "it" if len(others) == 1 else "them"
        said = f"data.classes: {data.name} has {quote_names(others)} too; add {them}, or remove the rows."
        raise ScenarioError([QuotingProblem(said, "data.classes: a label is none of the declared classes")])


def labels_of(data: Dataset, classes: tuple[str, ...]) -> FloatArray:
    """Return (n,) +1 for the second of two classes and -1 otherwise; for more, the number of each row's class, -1 for
    none."""
    if len(classes) == 2:
        return np.where(data.labels == classes[1], 1.0, -1.0)
    number = {name: float(place) for place, name in enumerate(classes)}
    return np.array([number.get(label, -1.0) for label in data.labels.tolist()])


def require_able(scenario: Scenario, data: Dataset, classes: tuple[str, ...]) -> None:
    """Raise ScenarioError for more classes than the algorithm, or a method to compare with, supports."""
    if len(classes) == 2:
        return
    has = f"{data.name} has {len(classes)} classes ({list_names(classes)})"
    algorithm, problems = scenario.algorithm.implementation, []
    if not algorithm.multiclass:
        alike = [(name, each) for name, each in ALGORITHMS.loadable() if each.partition == algorithm.partition]
        able = " or ".join(name for name, each in alike if each.multiclass)
        problems.append(
            f"data.positive: {has}, and {algorithm.name} supports two classes; name the one that is +1, or set "
            f"algorithm.name to {able}."
        )
    if scenario.data.calibration and getattr(scenario.algorithm.settings, "threshold", "zero") != "zero":
        problems.append(
            f"algorithm.threshold: {has}, and a threshold needs two; remove it, or name the one that is +1 by "
            "data.positive."
        )
    if problems:
        raise ScenarioError(problems)


def _two_classes(data: Dataset, positive: str | None) -> tuple[str, str]:
    """Return (negative, positive) by name: positive is the larger number, or the word that usually means +1.

    Raises ScenarioError for a name that is none of the data, and where none is told and it is not plain.
    """
    found = data.classes
    classes = list_names(found)
    if positive is not None and positive not in found:
        raise ScenarioError([f"data.positive: {positive!r} is not a label of {data.name}; it has {classes}."])
    chosen = positive if positive is not None else obvious_positive(found)
    if chosen is None:
        raise ScenarioError(
            [
                f"data.positive: the classes of {data.name} are {classes}; name the one that is +1: --set "
                f"{shlex.quote(f'data.positive={found[0]}')}."
            ]
        )
    others = [name for name in found if name != chosen]
    return others[0] if len(others) == 1 else f"not {chosen}", chosen


def obvious_positive(classes: Sequence[str]) -> str | None:
    """Return which of two classes is evidently +1, or None."""
    if all(map(is_number, classes)):
        return max(classes, key=float)
    known = [name for name in classes if name.lower() in _POSITIVE]
    return known[0] if len(known) == 1 else None


def note_pooled_classes(data: Dataset, classes: tuple[str, ...]) -> Iterator[str]:
    """Yield a sentence if several classes become -1, so that a mistake is noticed."""
    if len(classes) > 2:
        return
    others = [name for name in data.classes if name != classes[1]]
    if len(others) > 1:
        yield f"Class {classes[1]!r} is +1, by data.positive; all others became -1: {quote_names(others)}."
