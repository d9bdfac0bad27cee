"""The result of selecting columns: their order, how it was decided, and the accuracy of the best of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

DecidedBy = Literal["score", "vote", "accuracy", "loss", "rank"]
"""A score alone, two of three lists, held-out accuracy, held-out loss where that was equal, or the sum of ranks."""


@dataclass(frozen=True)
class RankingStep:
    """Columns that were removed in one step, the first of them first.

    decided_by: by what. certain: whether the optimum itself, and not only the point near it that was reached, has them
    removed; None where nothing is certified. gap: the relative gap of the model whose weights decided. rounds: of the
    step. sites: how many took part.
    """

    removed: tuple[str, ...]
    decided_by: DecidedBy
    certain: bool | None
    gap: float | None
    rounds: int
    sites: int


@dataclass(frozen=True)
class CurvePoint:
    """Accuracy of the best columns, so many: over inner folds of the training rows, with its standard error.

    test_accuracy: on rows that chose nothing, the mean of the inner folds' models (of an elastic net the model of all
    training rows); None where there are no such rows.
    """

    size: int
    accuracy: float
    standard_error: float
    test_accuracy: float | None = None


@dataclass(frozen=True)
class FeatureRanking:
    """Columns from the best to the worst.

    Parameters
    ----------
    columns : tuple of str
        All of them, the best first.
    ranks : tuple of int
        Of each, from 1; equal where nothing tells them apart.
    scores : tuple of float or None
        Of each; None where it has none, or an infinite one.
    score : str
        What scores are, in a phrase.
    selected : tuple of str
        Those that the model is of, in the order of the source.
    size_rule : str
        How their number was decided, in a phrase.
    steps : tuple of RankingStep
        How columns were removed, of methods that remove them.
    curve : tuple of CurvePoint
        Accuracy against size, where it was measured.
    rows_determined : int, optional
        Rows that follow from the support sets that were released, of methods that release them.
    stability : tuple of float
        Of each column the share of half-samples that chose it, where stability was asked for.
    """

    columns: tuple[str, ...]
    ranks: tuple[int, ...]
    scores: tuple[float | None, ...]
    score: str
    selected: tuple[str, ...]
    size_rule: str
    steps: tuple[RankingStep, ...] = ()
    curve: tuple[CurvePoint, ...] = ()
    rows_determined: int | None = None
    stability: tuple[float, ...] = ()

    def rename(self, names: Mapping[str, str]) -> FeatureRanking:
        """Return the ranking with other names of the columns."""

        def told(columns: tuple[str, ...]) -> tuple[str, ...]:
            return tuple(names[column] for column in columns)

        steps = tuple(replace(step, removed=told(step.removed)) for step in self.steps)
        return replace(self, columns=told(self.columns), selected=told(self.selected), steps=steps)


def column_of(site: str, number: int) -> str:
    """Return the public name of a site's column, whose name only the site knows. number: from 0."""
    return f"{site}:{number}"
