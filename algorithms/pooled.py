"""The rows that only a simulation has in one place, and the results of methods on them."""

from __future__ import annotations

from dataclasses import dataclass

from fedsvm.algorithms.data.columns import LabeledRows
from fedsvm.federation.arrays import FloatArray


@dataclass(frozen=True)
class EvaluationRows:
    """The rows that only a simulation has together: all training rows, test rows, and public rows.

    classes: names of the negative and the positive class, or of all. weights (n,): of the rows trained on; None where
    all are 1.
    """

    train: LabeledRows
    test: LabeledRows
    public: LabeledRows | None = None
    classes: tuple[str, ...] = ("-1", "1")
    weights: FloatArray | None = None


@dataclass(frozen=True)
class Pooled:
    """The result of training on all rows, or all columns, in one place.

    scores: decision values of the test rows, as the model has them. objective: of the same problem, if there is one.
    exact: those of the kernel itself, where the model's features approximate one.
    """

    scores: FloatArray
    objective: float | None = None
    exact: FloatArray | None = None


@dataclass(frozen=True)
class Baseline:
    """Another method on the same rows: its name, a phrase for it, and its decision values of the test rows.

    seconds: of its training and of scoring the test rows; None where it has none of its own.
    """

    name: str
    phrase: str
    scores: FloatArray
    seconds: float | None = None
