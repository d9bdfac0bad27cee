"""All K classes in one problem, the joint hinge (Crammer and Singer 2001, equation 7), and cutting planes for it.

    min over W (K, m')  of  1/2 |W|^2 + C sum_i max_k ([k != y_i] + w_k.f~_i - w_{y_i}.f~_i),

where f~ = (f, 1), or f without an intercept; an intercept is in |W|^2, as in LIBLINEAR. At a point W let k_i be where
the maximum of row i is (y_i where it is 0, and among equal ones) and c_i = [k_i != y_i]. One sum over the rows of a
group gives

    G = sum_i c_i (e_{k_i} - e_{y_i}) f~_i^T  (K, m'),    c = sum_i c_i,

and with them a cut: the group's loss at any W' is at least c + <G, W'>. That is one problem of K m' weights without an
intercept, with the same master, bundle, line search and certificate as one of two classes (`cutting_plane`). A round
carries g (K m' + 1) numbers, and whatever K is one row has a part in two of a group's K blocks.

One row moves the minimiser by 2 sqrt(2) C at most, since its loss has a slope of sqrt(2) |f~|, and so by less than it
moves K minimisers of one class against the others together (sqrt(K) 2 C), of more than two classes.
The interior point solves the same problem (`joint_barrier`).

Security. A block of a group may hold one row where the group has many, and is then its features, or these with a minus
sign; which the coordinator knows by inverting them where the map can be inverted.

References
----------
K. Crammer and Y. Singer, "On the algorithmic implementation of multiclass kernel-based vector machines", JMLR 2, 2001.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from fedsvm.algorithms.data.classes import members as members_of_classes
from fedsvm.algorithms.data.horizontal import HorizontalSite
from fedsvm.algorithms.features.mapped_rows import FeatureRows
from fedsvm.algorithms.optimization.cutting_plane import Line, Points
from fedsvm.algorithms.optimization.hinge_sums import FederatedOracle, groups_of, require_few_groups
from fedsvm.federation.arrays import BoolArray, FloatArray, IntArray
from fedsvm.federation.site.program import CHECKED, SitePart, free, step

_POOLED_TOLERANCE = 1e-8
"""Of LIBLINEAR, whose objective is to compare with."""


@dataclass(frozen=True)
class JointSums:
    """Rows with features f~ (n, m'), of classes (K, n) of 0 and 1, dealt to g groups: members (g, n) of 0 and 1.

    A row of no class has no loss. It is the `Oracle` of one problem where these are all rows, and a site's part of one
    where they are its own.
    """

    features: FloatArray
    classes: FloatArray
    members: FloatArray

    @classmethod
    def deal(cls, features: FloatArray, classes: FloatArray, groups: int, random: np.random.Generator) -> JointSums:
        """Return rows dealt at random to groups whose sizes differ by at most one."""
        return cls(features, classes, groups_of(len(features), groups, random))

    def joint_cuts(self, w: FloatArray) -> FloatArray:
        """Return (g, K m' + 1) G, its rows concatenated, and c of every group, at w (K m',)."""
        worst, active = self._worst(self._scores(w))
        moved = (np.equal.outer(np.arange(len(self.classes)), worst) - self.classes) * active
        groups = len(self.members)
        blocks = (self.members[:, None, :] * moved[None]).reshape(groups * len(moved), -1) @ self.features
        return np.column_stack([blocks.reshape(groups, -1), self.members @ active])

    def joint_line(self, w: FloatArray, dw: FloatArray, steps: FloatArray) -> FloatArray:
        """Return (s, 2) the loss and its derivative along dw (K m',) at each step (s,)."""
        start, slopes, rows = self._scores(w), self._scores(dw), np.arange(len(self.features))
        of_own = (self.classes * slopes).sum(axis=0)
        sums = np.empty((len(steps), 2))
        for place, t in enumerate(steps.tolist()):
            scores = start + t * slopes
            worst, active = self._worst(scores)
            losses = 1.0 + scores[worst, rows] - (self.classes * scores).sum(axis=0)
            sums[place] = losses[active].sum(), (slopes[worst, rows] - of_own)[active].sum()
        return sums

    def cuts(self, problems: IntArray, at: Points) -> FloatArray:
        """Return (k, g, K m' + 2) cuts, see `cutting_plane.Oracle`."""
        return np.stack([as_cuts(self.joint_cuts(each)) for each in at.w])

    def line(self, problems: IntArray, line: Line) -> FloatArray:
        """Return (k, s, 2) losses and derivatives, see `cutting_plane.Oracle`."""
        return np.stack([self.joint_line(*each) for each in zip(line.w, line.dw, line.steps, strict=True)])

    def _scores(self, w: FloatArray) -> FloatArray:
        """Return (K, n) w_k.f~."""
        return np.asarray(w.reshape(len(self.classes), -1) @ self.features.T)

    def _worst(self, scores: FloatArray) -> tuple[IntArray, BoolArray]:
        """Return (n,) each: the class of the largest bracket, and whether that is above 0."""
        brackets = scores + 1.0 - self.classes - (self.classes * scores).sum(axis=0)
        brackets[self.classes > 0] = 0.0
        worst = brackets.argmax(axis=0)
        active = (brackets.max(axis=0) > 0) & (self.classes.sum(axis=0) > 0)
        return worst, active


def as_cuts(sums: FloatArray) -> FloatArray:
    """Return (g, K m' + 2) cuts c + <G, W'> in the form of those of two classes: m - w.a - b d, with d = 0."""
    return np.column_stack([-sums[:, :-1], np.zeros(len(sums)), sums[:, -1]])


class JointHingeCuts(SitePart):
    """A site's part of the cuts and line searches of the joint problem."""

    def __init__(self, site: HorizontalSite, rows: FeatureRows) -> None:
        self._site, self._rows = site, rows
        self._sums = JointSums(np.zeros((0, 0)), np.zeros((0, 0)), np.zeros((0, 0)))

    @step(
        remembered=True,
        told={
            "groups": CHECKED,
            "intercept": free("true or false", "sums with one more column of ones, or without"),
        },
    )
    def deal_joint_groups(self, groups: int, intercept: bool) -> None:
        """Assign this site's rows at random to the groups of the grouped cuts.

        Raises OrderRefused for more groups than were agreed on.
        """
        site, features = self._site, self._rows.features
        require_few_groups(groups, site.terms)
        features = np.column_stack([features, np.ones(len(features))]) if intercept else features
        self._sums = JointSums.deal(features, members_of_classes(site.labels), groups, site.random("groups"))

    @step(
        told={
            "w": free("any point", "sums of losses or gradients at points of its choice: can isolate rows"),
        }
    )
    def joint_cuts(self, w: FloatArray) -> FloatArray:
        """Return this site's part of the grouped cuts."""
        return self._sums.joint_cuts(w)

    @step(
        told={
            "w, dw, steps": free("any point", "sums of losses or gradients at points of its choice: can isolate rows"),
        }
    )
    def joint_line(self, w: FloatArray, dw: FloatArray, steps: FloatArray) -> FloatArray:
        """Return this site's part of the losses along a line."""
        return self._sums.joint_line(w, dw, steps)


def train_pooled(
    train: FloatArray, test: FloatArray, classes: IntArray, prices: FloatArray | float, *, intercept: bool
) -> tuple[FloatArray, float]:
    """Return values (n', K) of test rows (n', m), and the objective, by LIBLINEAR on rows (n, m) of classes (n,).

    prices: C of all rows, or of each (n,).
    """
    from sklearn.svm import LinearSVC

    machine = LinearSVC(multi_class="crammer_singer", fit_intercept=intercept, tol=_POOLED_TOLERANCE, max_iter=10**6)
    of_rows = np.broadcast_to(np.asarray(prices, dtype=np.float64), (len(train),))
    machine.fit(train, classes, sample_weight=of_rows)
    w = np.column_stack([machine.coef_, machine.intercept_]) if intercept else machine.coef_
    features = np.column_stack([train, np.ones(len(train))]) if intercept else train
    of_classes = np.equal.outer(np.arange(len(w)), classes).astype(np.float64)
    scores = w @ features.T
    losses = (scores + 1.0 - of_classes - (of_classes * scores).sum(axis=0)).max(axis=0)
    return np.asarray(machine.decision_function(test)), float(0.5 * (w**2).sum() + of_rows @ losses)


class JointOracle(FederatedOracle):
    """The sums of the one joint problem over a federation, at points w (1, K m'); `norm_sum` is of f~."""

    def line(self, problems: IntArray, line: Line) -> FloatArray:
        """Open losses and derivatives by one secure sum; see `JointSums.joint_line`."""
        (w,), (dw,), (steps,) = line.w, line.dw, line.steps
        slopes = self._margin_bound(dw)
        bound = max(self.rows + self._margin_bound(w) + float(np.abs(steps).max()) * slopes, slopes)
        return self.federation.sum("joint_line", shape=(len(steps), 2), bound=bound, w=w, dw=dw, steps=steps)[None]

    def _open_cuts(self, problems: IntArray, at: Points, bound: float) -> FloatArray:
        """Open the cuts of each point by a secure sum of its own; see `JointSums.joint_cuts`."""
        sums = [self.federation.sum("joint_cuts", shape=(self.groups, len(w) + 1), bound=bound, w=w) for w in at.w]
        return np.stack([as_cuts(each) for each in sums])

    def _margin_bound(self, w: FloatArray) -> float:
        """Return a bound on sums over rows of |(w_k - w_y).f~|."""
        return math.sqrt(2) * float(np.linalg.norm(w)) * self.norm_sum
