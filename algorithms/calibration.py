"""Probabilities and thresholds of a trained model, from rows that it was not trained on, by secure sums.

Platt's sigmoid P(+1 | f) = 1 / (1 + exp(A f + B)) of decision values f maximises the likelihood of smoothed targets,
(n+ + 1) / (n+ + 2) of a positive row and 1 / (n- + 2) of a negative one. Newton's method with a line search needs one
sum of six numbers for each point that it looks at. A threshold follows from one sum more: how many rows of each class
have decision values from each of 129 marks on.

More than two classes have a sigmoid for each binary problem, all fitted in the same rounds. Probabilities of each class
against the others are divided by their sum. Those of every two classes are coupled: see `coupled`.

What is shown: these sums, over all sites, to the coordinator; the points A, B to the sites. The counts are a histogram
of the decision values of the rows that were set apart, to 1/16, whoever's they are.

References
----------
J. C. Platt, "Probabilistic outputs for support vector machines", 1999. H.-T. Lin, C.-J. Lin and R. C. Weng, "A note on
Platt's probabilistic outputs for support vector machines", Machine Learning 68, 2007, algorithm 1. T.-F. Wu, C.-J. Lin
and R. C. Weng, "Probability estimates for multi-class classification by pairwise coupling", JMLR 5, 2004.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray

from fedsvm.algorithms.data.classes import Scheme, members, one_against_one, pairs, signs_of
from fedsvm.algorithms.data.horizontal import HorizontalSite
from fedsvm.algorithms.features.mapped_rows import MappedRows
from fedsvm.algorithms.settings import MAX_COUNT, Share, doc
from fedsvm.federation.arrays import FloatArray
from fedsvm.federation.errors import FederationError, OrderRefused
from fedsvm.federation.federation import Federation
from fedsvm.federation.site.program import SitePart, free, step
from fedsvm.federation.site.script import Script, maybe, repeat, seq, stage
from fedsvm.federation.site.terms import Terms

MARKS = np.linspace(-4.0, 4.0, 129)
"""Thresholds that may be chosen; margins of a support vector machine are at -1 and 1."""

MIN_OF_CLASS = 5
"""Of a class among the rows set apart. The first point's derivatives are the sum of each class's decision values."""

FEW_OF_CLASS = 30
"""The fewest rows of a class that place a threshold or a probability well: a share of 30 rows is known to ± 9 %."""

_MAX_POINTS = 200
_SMALL_GRADIENT = 1e-8
"""Of the mean over the rows."""

_LEAST_CHANCE = 1e-7
"""Of a class in a pair, as LIBSVM has it; with 0 the system of `coupled` can be singular."""

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
            yield f'threshold: "{self.threshold}" needs rows to fit it; set data.calibration, for example to 0.2'


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
        fitted = "The threshold and the probabilities rest" if self.threshold else "The probabilities rest"
        return _caution(fitted, self.rows or (), classes)

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Return the calibration as a model's file holds it.

        Returns
        -------
        calibration : (3,) or (P, 2)
            A and B of the probability 1 / (1 + exp(A f + B)) of the positive class, where f is the decision value; then
            the decision value from which a row is called positive. Of more than two classes: A and B of each problem.
        """
        return {"calibration": np.array([self.slope, self.offset, self.threshold])}

    @classmethod
    def from_arrays(cls, arrays: Any) -> Self | None:
        """Return the calibration in a model's file, or None."""
        return cls(*arrays["calibration"].tolist()) if "calibration" in arrays else None


@dataclass(frozen=True)
class ClassCalibration:
    """Sigmoids (P, 2) of the problems of more than two classes: slope and offset of each, as of `Calibration`.

    scheme: what the problems are, see `data.classes`. rows (K,): how many of each class were set apart for it; None if
    the model comes from a file.
    """

    sigmoids: FloatArray
    scheme: Scheme
    rows: tuple[int, ...] | None = None
    threshold: ClassVar[float] = 0.0

    def probabilities(self, values: FloatArray) -> FloatArray:
        """Return (n, K) the probability of each class, from the decision values (n, P) of the problems."""
        chances = sigmoid(values * self.sigmoids[:, 0] + self.sigmoids[:, 1])
        if self.scheme == "ovo":
            return couple(chances)
        total = chances.sum(axis=1, keepdims=True)
        even = np.full_like(chances, 1 / chances.shape[1])
        return np.asarray(np.divide(chances, total, out=even, where=total > 0))

    def caution(self, classes: Sequence[Any]) -> str | None:
        """Return a warning if few rows of a class were set apart, else None."""
        return _caution("The probabilities rest", self.rows or (), classes)

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Return the sigmoids as a model's file holds them; see `Calibration.to_arrays`."""
        return {"calibration": self.sigmoids}

    @classmethod
    def from_arrays(cls, arrays: Any, scheme: Scheme) -> Self | None:
        """Return the sigmoids in a model's file, or None."""
        return cls(arrays["calibration"], scheme) if "calibration" in arrays else None


def _caution(what: str, counts: Sequence[int], classes: Sequence[Any]) -> str | None:
    named = zip(counts, classes, strict=False)
    few = [f"{count} rows of {str(name)!r}" for count, name in named if count < FEW_OF_CLASS]
    if not few:
        return None
    return (
        f"{what} on only {' and '.join(few)} that were set apart for calibration "
        f"(fewer than {FEW_OF_CLASS}): other rows can move them much. Set more rows apart, or use more rows."
    )


def couple(chances: FloatArray) -> FloatArray:
    """Return (n, K) probabilities p of classes from those (n, K (K - 1) / 2) of the first class of every two.

    They minimize the sum over pairs of (r_ji p_i - r_ij p_j)^2, where r_ij is the chance of i in the pair (Wu, Lin and
    Weng 2004, the second method). The minimum solves a linear system: Q p = b 1 and p sums to 1.
    """
    count = (1 + math.isqrt(1 + 8 * chances.shape[1])) // 2
    first, second = pairs(count).T
    against = np.zeros((len(chances), count, count))
    kept = np.clip(chances, _LEAST_CHANCE, 1 - _LEAST_CHANCE)
    against[:, first, second], against[:, second, first] = kept, 1 - kept
    system = np.ones((len(chances), count + 1, count + 1))
    system[:, :count, :count] = -against.transpose(0, 2, 1) * against
    diagonal = np.arange(count)
    system[:, diagonal, diagonal] = (against**2).sum(axis=1)
    system[:, count, count] = 0.0
    right = np.zeros((len(chances), count + 1, 1))
    right[:, count] = 1.0
    found = np.clip(np.linalg.solve(system, right)[:, :count, 0], 0.0, 1.0)
    return np.asarray(found / found.sum(axis=1, keepdims=True))


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
    def score_apart(self, w: FloatArray, b: float | FloatArray) -> None:
        """Take the decision values of the rows set apart.

        Of more than two classes w is (P, m) and b (P,), one for each problem. Raises OrderRefused for another number of
        problems.
        """
        wanted = () if len(self._classes) == 1 else (len(self._labels),)
        if w.shape[:-1] != wanted or np.shape(b) != wanted:
            raise OrderRefused(f"w must have the weights of {len(self._labels)} problems, and b their intercepts")
        if self._site.is_scaled:  # else this is of an earlier fold, and the site was restarted
            self._decisions = np.atleast_2d((self._mapped.features_apart @ w.T + b).T)

    @step
    def classes_apart(self) -> FloatArray:
        """Return the (K,) number of rows set apart of each class; of two classes of negative and of positive ones."""
        return np.asarray(members(self._classes).sum(axis=1))

    @step(
        bound=math.inf,
        told={
            "slope, offset": free(
                "any number", "sums of the likelihood at points of its choice, which can isolate rows set apart"
            ),
            "targets": free("two numbers", "another weighting of the same sums"),
        },
    )
    def sigmoid_sums(
        self, slope: float | FloatArray, offset: float | FloatArray, targets: list[float] | FloatArray
    ) -> FloatArray:
        """Return the (6,) negative log likelihood, its gradient (2,) and the three numbers of its Hessian.

        targets: of the negative and of the positive class. Of more than two classes slope (P,), offset (P,) and targets
        (P, 2) are those of the problems, and so are the sums (P, 6).
        """
        told = (np.atleast_1d(slope), np.atleast_1d(offset), np.atleast_2d(targets))
        if {len(each) for each in told} != {len(self._labels)}:
            raise OrderRefused(f"slope, offset and targets must be of {len(self._labels)} problems")
        sums = []
        for decisions, labels, a, b, aims in zip(self._decisions, self._labels, *told, strict=True):
            part = labels != 0
            sums.append(likelihood(decisions[part], labels[part], float(a), float(b), aims.tolist()))
        return np.array(sums) if len(sums) > 1 else sums[0]

    @step
    def called_positive(self) -> FloatArray:
        """Return the (2, 129) number of negative and positive rows with decision values from each mark on."""
        above, labels = np.greater_equal.outer(self._decisions[0], MARKS), self._labels[0]
        return np.stack([above[labels < 0].sum(axis=0), above[labels > 0].sum(axis=0)]).astype(np.float64)

    @property
    def _labels(self) -> FloatArray:
        """(P, n) of +1, -1, and 0 of a row that is not part of a problem; of two classes (1, n)."""
        is_by_pairs = len(self._classes) > 1 and self._site.terms.settings.get("multiclass") == "ovo"
        return one_against_one(self._classes) if is_by_pairs else self._classes

    @property
    def _classes(self) -> FloatArray:
        """(K, n) of +1 and -1, each class against the others; of two classes (1, n)."""
        return np.asarray(self._site.partition.arrays["labels"][:, self._site.calibrating])


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
        counts = _count_rows(federation, 2)
        ((slope, offset),) = _fit_sigmoids(federation, counts[None, :]).tolist()
        rows = (int(counts[0]), int(counts[1]))
        if settings.threshold in ("zero", "half"):
            return Calibration(slope, offset, -offset / slope if settings.threshold == "half" and slope else 0.0, rows)
        called = np.rint(federation.sum("called_positive", shape=(2, len(MARKS)), bound=float(MAX_COUNT)))
        return Calibration(slope, offset, chosen_threshold(settings, counts, called), rows)

    return federation.until_stable(stage)


def calibrate_classes(
    federation: Federation, w: FloatArray, b: FloatArray, scheme: Scheme, classes: int
) -> ClassCalibration:
    """Fit a sigmoid for each problem of a linear model of more than two classes, with weights w (P, m) and b (P,).

    Raises FederationError where too few of the rows set apart are of a class.
    """

    def stage() -> ClassCalibration:
        federation.run("score_apart", remember=True, w=w, b=b)
        counts, signs = _count_rows(federation, classes), signs_of(classes, scheme)
        of_problems = np.column_stack([(signs < 0) @ counts, (signs > 0) @ counts])
        return ClassCalibration(_fit_sigmoids(federation, of_problems), scheme, tuple(int(count) for count in counts))

    return federation.until_stable(stage)


def _count_rows(federation: Federation, classes: int) -> FloatArray:
    """Return (K,) how many rows of each class are set apart. Raises FederationError if there are too few."""
    counts = np.rint(federation.sum("classes_apart", shape=(classes,), bound=float(MAX_COUNT)))
    if counts.min() < MIN_OF_CLASS:
        raise FederationError(
            f"Of the calibration rows {counts.min():.0f} are of one class, and "
            f"{MIN_OF_CLASS} are needed for sums over them not to be single rows' decision values: raise "
            "data.calibration, or remove it."
        )
    return np.asarray(counts)


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


def _fit_sigmoids(federation: Federation, counts: FloatArray) -> FloatArray:
    """Return (P, 2) the A and B of each problem, from the numbers (P, 2) of its negative and positive rows.

    All problems are in the same rounds. One that is done asks for its last point again.
    """
    targets = np.column_stack([1 / (counts[:, 0] + 2), (counts[:, 1] + 1) / (counts[:, 1] + 2)])
    searches = [_search(negative, positive) for negative, positive in counts.tolist()]
    points, found = [next(search) for search in searches], dict[int, FloatArray]()
    while len(found) < len(searches):
        for place, sums in enumerate(_sums_at(federation, points, targets)):
            if place in found:
                continue
            try:
                points[place] = searches[place].send(sums)
            except StopIteration as done:
                found[place] = done.value
    return np.array([found[place] for place in range(len(searches))])


def _sums_at(federation: Federation, points: Sequence[FloatArray], targets: FloatArray) -> FloatArray:
    """Return (P, 6) sums at the point of each problem."""
    slope, offset = np.array(points).T
    told: dict[str, Any] = {"slope": slope, "offset": offset, "targets": targets}
    if len(points) == 1:
        told = {"slope": float(slope[0]), "offset": float(offset[0]), "targets": targets[0].tolist()}
    shape = (len(points), 6) if len(points) > 1 else (6,)
    return np.atleast_2d(federation.sum("sigmoid_sums", shape=shape, bound=math.inf, **told))


def _search(negative: float, positive: float) -> Generator[FloatArray, FloatArray, FloatArray]:
    """Yield points A, B at which sums (6,) are needed, and return the best, by Newton's method with halved steps."""
    point = np.array([0.0, math.log((negative + 1) / (positive + 1))])
    value, *rest = (yield point).tolist()
    share = 1.0
    for _ in range(_MAX_POINTS):
        gradient, hessian = np.array(rest[:2]), np.array([[rest[2], rest[3]], [rest[3], rest[4]]])
        if np.abs(gradient).max() < _SMALL_GRADIENT * (negative + positive) or share < _MIN_STEP:
            break
        direction = -np.linalg.solve(hessian + _RIDGE * np.eye(2), gradient)
        share = 1.0
        while share >= _MIN_STEP:
            next_value, *next_rest = (yield point + share * direction).tolist()
            if next_value < value + _SUFFICIENT * share * float(gradient @ direction):
                point, value, rest = point + share * direction, next_value, next_rest
                break
            share /= 2
    return point
