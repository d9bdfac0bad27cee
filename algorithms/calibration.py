"""Probabilities and thresholds of a trained model, from rows that it was not trained on, by secure sums.

Platt's sigmoid P(+1 | f) = 1 / (1 + exp(A f + B)) of decision values f maximises the likelihood of smoothed targets,
(n+ + 1) / (n+ + 2) of a positive row and 1 / (n- + 2) of a negative one. Newton's method with a line search needs one
sum of six numbers for each point that it looks at. A threshold follows from one sum more: how many rows of each class
have decision values from each of 129 marks on.

What is shown: these sums, over all sites, to the coordinator; the points A, B to the sites. The counts are a histogram
of the decision values of the rows that were set apart, to 1/16, whoever's they are.

References
----------
J. C. Platt, "Probabilistic outputs for support vector machines", 1999. H.-T. Lin, C.-J. Lin and R. C. Weng, "A note on
Platt's probabilistic outputs for support vector machines", Machine Learning 68, 2007, algorithm 1.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from fedsvm.algorithms.data.horizontal import HorizontalSite
from fedsvm.algorithms.features.mapped_rows import MappedRows
from fedsvm.algorithms.settings import MAX_COUNT, Share, doc
from fedsvm.federation.arrays import FloatArray
from fedsvm.federation.errors import FederationError
from fedsvm.federation.federation import Federation
from fedsvm.federation.site.program import SitePart, free, step
from fedsvm.federation.site.script import Script, maybe, repeat, seq, stage
from fedsvm.federation.site.terms import Terms

MARKS = np.linspace(-4.0, 4.0, 129)
"""Thresholds that may be chosen; margins of a support vector machine are at -1 and 1."""

MIN_OF_CLASS = 5
"""Of a class among the rows set apart. The first point's derivatives are the sum of each class's decision values."""

FEW_OF_CLASS = 30
"""Rows of a class, of which fewer place a threshold or a probability badly: a share of 30 rows is known to ± 9 %."""

_MAX_POINTS = 200
_SMALL_GRADIENT = 1e-8
"""Of the mean over the rows."""

_RIDGE = 1e-12
_SUFFICIENT = 1e-4
_MIN_STEP = 1e-10

Rule = Literal["zero", "half", "balanced", "sensitivity", "specificity"]


@dataclass(kw_only=True)
class ThresholdSettings:
    """From which decision value on a row is called positive."""

    threshold: Annotated[
        Rule,
        doc(
            "Rule of the decision threshold: 0 (zero), probability 1/2 (half), best balanced accuracy, or "
            "threshold_target for sensitivity or specificity."
        ),
    ] = "zero"
    threshold_target: Annotated[
        Share, doc("Minimum sensitivity or specificity on the calibration rows, for the threshold rules of that name.")
    ] = 0.9

    def threshold_problems(self, *, calibrated: bool) -> Iterator[str]:
        """Yield an error for a threshold rule without calibration rows; see `Algorithm.problems`."""
        if self.threshold != "zero" and not calibrated:
            yield f'threshold: "{self.threshold}" needs rows to be found by; set data.calibration, say to 0.2'


@dataclass(frozen=True)
class Calibration:
    """P(+1 | f) = 1 / (1 + exp(slope f + offset)), and the decision value from which a row is called positive.

    rows: how many negative and positive rows were set apart for it; None if the model comes from a file.
    """

    slope: float
    offset: float
    threshold: float = 0.0
    rows: tuple[int, int] | None = None

    def probabilities(self, decisions: FloatArray) -> FloatArray:
        """Return (n,) the probability of the class +1."""
        return sigmoid(self.slope * decisions + self.offset)

    def caution(self, classes: Sequence[Any]) -> str | None:
        """Return a warning if few rows of a class were set apart, else None.

        classes: names of the negative and the positive class.
        """
        counts = zip(self.rows or (), classes, strict=False)
        few = [f"{count} rows of {str(name)!r}" for count, name in counts if count < FEW_OF_CLASS]
        if not few:
            return None
        return (
            f"The threshold and the probabilities rest on only {' and '.join(few)} that were set apart for calibration "
            f"(fewer than {FEW_OF_CLASS}): other rows can move them much. Set more rows apart, or use more rows."
        )

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Return the calibration as a model's file holds it.

        Returns
        -------
        calibration : (3,)
            A and B of the probability 1 / (1 + exp(A f + B)) of the positive class, where f is the decision value; then
            the decision value from which a row is called positive.
        """
        return {"calibration": np.array([self.slope, self.offset, self.threshold])}

    @classmethod
    def from_arrays(cls, arrays: Any) -> Self | None:
        """Return the calibration in a model's file, or None."""
        return cls(*arrays["calibration"].tolist()) if "calibration" in arrays else None


def sigmoid(z: FloatArray) -> FloatArray:
    """Return (n,) 1 / (1 + exp(z)), without overflow."""
    shrunk = np.exp(-np.abs(z))
    return np.where(z >= 0, shrunk / (1 + shrunk), 1 / (1 + shrunk))


class CalibrationRows(SitePart):
    """The rows set apart at a site, by which a model is calibrated."""

    def __init__(self, site: HorizontalSite, mapped: MappedRows) -> None:
        self._site, self._mapped = site, mapped
        self._decisions: FloatArray = np.zeros(0)

    @step(
        remembered=True,
        told={
            "w": free("any weights", "sums over decision values by a model of its choice, of the rows set apart"),
            "b": free("any number", "sums over decision values by a model of its choice, of the rows set apart"),
        },
    )
    def score_apart(self, w: FloatArray, b: float) -> None:
        """Take the decision values of the rows set apart."""
        if self._site.is_scaled:  # else this is of an earlier fold, and the site was restarted
            self._decisions = self._mapped.features_apart @ w + b

    @step
    def classes_apart(self) -> FloatArray:
        """Return the (2,) number of negative and of positive rows set apart."""
        labels = self._labels
        return np.array([float((labels < 0).sum()), float((labels > 0).sum())])

    @step(
        bound=math.inf,
        told={
            "slope, offset": free(
                "any number", "sums of the likelihood at points of its choice, which can isolate rows set apart"
            ),
            "targets": free("two numbers", "another weighting of the same sums"),
        },
    )
    def sigmoid_sums(self, slope: float, offset: float, targets: list[float]) -> FloatArray:
        """Return the (6,) negative log likelihood, its gradient (2,) and the three numbers of its Hessian.

        targets: of the negative and of the positive class.
        """
        return likelihood(self._decisions, self._labels, slope, offset, targets)

    @step
    def called_positive(self) -> FloatArray:
        """Return the (2, 129) number of negative and positive rows with decision values from each mark on."""
        above, labels = np.greater_equal.outer(self._decisions, MARKS), self._labels
        return np.stack([above[labels < 0].sum(axis=0), above[labels > 0].sum(axis=0)]).astype(np.float64)

    @property
    def _labels(self) -> FloatArray:
        """(n,) of +1 and -1."""
        return np.asarray(self._site.partition.arrays["labels"][0, self._site.calibrating])


def calibration(terms: Terms) -> Script:
    """Return the script of `calibrate`, if the terms set rows apart for it and the coordinator gets the weights."""
    if not terms.reading.get("calibration") or terms.settings.get("release", "everyone") != "everyone":
        return seq()
    counted = [] if terms.settings.get("threshold") in ("zero", "half") else ["called_positive"]
    halvings = math.ceil(-math.log2(_MIN_STEP)) + 1
    fitted = repeat("sigmoid_sums", 1, 1 + _MAX_POINTS * halvings)
    return maybe(stage("score_apart", "classes_apart", fitted, *counted))


def likelihood(
    decisions: FloatArray, labels: FloatArray, slope: float, offset: float, targets: list[float]
) -> FloatArray:
    """Return (6,) numbers, see `CalibrationRows.sigmoid_sums`."""
    target, z = np.where(labels > 0, targets[1], targets[0]), slope * decisions + offset
    p = sigmoid(z)
    value = np.maximum(z, 0) + np.log1p(np.exp(-np.abs(z))) - (1 - target) * z
    left, spread = target - p, p * (1 - p)
    gradient = [left @ decisions, left.sum()]
    return np.array([value.sum(), *gradient, spread @ decisions**2, spread @ decisions, spread.sum()])


def calibrate(federation: Federation, w: FloatArray, b: float, settings: ThresholdSettings) -> Calibration:
    """Fit the sigmoid of a linear model's decision values, and the threshold by the rule of the settings.

    Raises FederationError where too few of the rows set apart are of a class.
    """

    def stage() -> Calibration:
        federation.run("score_apart", remember=True, w=w, b=b)
        counts = np.rint(federation.sum("classes_apart", shape=(2,), bound=float(MAX_COUNT)))
        if counts.min() < MIN_OF_CLASS:
            raise FederationError(
                f"Of the rows that were set apart to calibrate by {counts.min():.0f} are of one class, and "
                f"{MIN_OF_CLASS} are needed for sums over them not to be single rows' decision values: raise "
                "data.calibration, or remove it."
            )
        slope, offset = _fitted(federation, counts)
        rows = (int(counts[0]), int(counts[1]))
        if settings.threshold in ("zero", "half"):
            return Calibration(slope, offset, -offset / slope if settings.threshold == "half" and slope else 0.0, rows)
        called = np.rint(federation.sum("called_positive", shape=(2, len(MARKS)), bound=float(MAX_COUNT)))
        return Calibration(slope, offset, chosen_threshold(settings, counts, called), rows)

    return federation.until_stable(stage)


def chosen_threshold(settings: ThresholdSettings, counts: FloatArray, called: FloatArray) -> float:
    """Return one of the marks. counts (2,) negative and positive rows; called (2, 129) those from each mark on.

    sensitivity: the highest that calls enough of the positive rows so; specificity: the lowest that spares enough of
    the negative ones; where none does, the lowest or the highest mark. balanced: the middle one of the best.
    """
    specificity, sensitivity = 1 - called[0] / counts[0], called[1] / counts[1]
    if settings.threshold == "sensitivity":
        enough = np.flatnonzero(sensitivity >= settings.threshold_target)
        return float(MARKS[enough[-1] if len(enough) else 0])
    if settings.threshold == "specificity":
        enough = np.flatnonzero(specificity >= settings.threshold_target)
        return float(MARKS[enough[0] if len(enough) else -1])
    balanced = specificity + sensitivity
    best = np.flatnonzero(balanced >= balanced.max() - 1e-12)
    return float(MARKS[best[len(best) // 2]])


def _fitted(federation: Federation, counts: FloatArray) -> tuple[float, float]:
    """Return A and B, by Newton's method with halved steps."""
    negative, positive = counts.tolist()
    targets = [1 / (negative + 2), (positive + 1) / (positive + 2)]

    def at(point: FloatArray) -> FloatArray:
        slope, offset = point.tolist()
        return federation.sum("sigmoid_sums", shape=(6,), bound=math.inf, slope=slope, offset=offset, targets=targets)

    point = np.array([0.0, math.log((negative + 1) / (positive + 1))])
    value, *rest = at(point).tolist()
    share = 1.0
    for _ in range(_MAX_POINTS):
        gradient, hessian = np.array(rest[:2]), np.array([[rest[2], rest[3]], [rest[3], rest[4]]])
        if np.abs(gradient).max() < _SMALL_GRADIENT * counts.sum() or share < _MIN_STEP:
            break
        direction = -np.linalg.solve(hessian + _RIDGE * np.eye(2), gradient)
        share = 1.0
        while share >= _MIN_STEP:
            next_value, *next_rest = at(point + share * direction).tolist()
            if next_value < value + _SUFFICIENT * share * float(gradient @ direction):
                point, value, rest = point + share * direction, next_value, next_rest
                break
            share /= 2
    slope, offset = point.tolist()
    return slope, offset
