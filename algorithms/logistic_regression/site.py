"""The site half of logistic regression."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedsvm.algorithms.calibration import calibration
from fedsvm.algorithms.data.horizontal import each_model, preparation
from fedsvm.algorithms.features.mapped_rows import mapping
from fedsvm.algorithms.least_squares import with_ones
from fedsvm.algorithms.logistic_regression.systems import newton_systems, newton_terms, penalties_of
from fedsvm.algorithms.mapped_site import MappedSite
from fedsvm.algorithms.optimization.committee import contribute
from fedsvm.algorithms.optimization.weighting import agreement_on_factors
from fedsvm.federation.arrays import FloatArray
from fedsvm.federation.site.program import AGREED, CHECKED, free, step
from fedsvm.federation.site.script import Script, repeat, stage
from fedsvm.federation.site.terms import Terms

BLIND_STEPS = (
    "at every point Newton's step and the loss of all rows, each with noise, and Newton's system behind the secret "
    "matrices of two sites"
)


class LogisticSite(MappedSite):
    """The site half."""

    @classmethod
    def script(cls, terms: Terms) -> Script:
        """Return the script of `LogisticRegression.fit`."""
        round_ = "blind_steps" if terms.settings["masking"] == "committee" else "newton_sums"
        steps = repeat(round_, 0, terms.settings["max_iterations"])
        trained = stage("squared_norms", agreement_on_factors(terms), steps)
        return each_model(terms, stage(preparation(terms), mapping(terms)), trained, calibration(terms))

    @step(
        told={
            "points": free("any point", "sums of losses or gradients at points of its choice: can isolate rows"),
            "scales": free("three numbers", "nothing; the sums in another unit"),
            "intercept": AGREED,
            "problems": free("numbers of problems", "only a choice of problems"),
            "factors": CHECKED,
        }
    )
    def newton_sums(
        self,
        points: FloatArray,
        scales: FloatArray,
        intercept: bool,
        problems: Sequence[int] = (0,),
        factors: Sequence[float] = (),
    ) -> FloatArray:
        """Return the (k, 1 + d + d (d + 1)/2) loss, gradient and upper triangle of the Hessian at points (k, d).

        Each is divided by its number of `scales` (3,). problems: the k problems that the points belong to; with more
        than two classes, each against the others. factors: of the losses of the classes; by default 1 for each.

        Raises OrderRefused for other factors than were agreed on.
        """
        return self._newton_sums(points, scales, problems, factors, intercept=intercept)

    def _newton_sums(
        self,
        points: FloatArray,
        scales: FloatArray,
        problems: Sequence[int],
        factors: Sequence[float],
        *,
        intercept: bool,
    ) -> FloatArray:
        self.row_weights.check_factors(factors)
        z, prices = with_ones(self.mapped.features, intercept=intercept), self.row_weights.prices(1.0, factors)
        sums = []
        for labels, point in zip(self.labels[list(problems)], points, strict=True):
            loss, gradient, hessian = newton_terms(z, labels, point, prices)
            triangle = hessian[np.triu_indices(len(point))]
            sums.append(np.concatenate([[loss / scales[0]], gradient / scales[1], triangle / scales[2]]))
        return np.stack(sums)

    @step(
        shown=BLIND_STEPS,
        told={
            "points": free("any point", "Newton's steps, and losses with noise, at points of its choice"),
            "scales": free("three numbers", "nothing; the sums in another unit"),
            "noises": free("any numbers", "losses without noise"),
            "dithers": free("any numbers", "steps without noise"),
            "intercept, regularisation": AGREED,
            "problems": free("numbers of problems", "only a choice of problems"),
            "factors": CHECKED,
        },
    )
    def blind_steps(
        self,
        points: FloatArray,
        scales: FloatArray,
        noises: FloatArray,
        dithers: FloatArray,
        intercept: bool,
        regularisation: float,
        problems: Sequence[int] = (0,),
        factors: Sequence[float] = (),
    ) -> None:
        """Take part in solving Newton's systems at points (k, d), and in adding up the losses there.

        scales, noises, dithers: see `newton_systems`. problems, factors: see `newton_sums`.

        Raises OrderRefused for other factors than were agreed on.
        """
        sums = self._newton_sums(points, scales, problems, factors, intercept=intercept)
        d = points.shape[1]
        pulls = penalties_of(d, regularisation, intercept=intercept) * points / scales[1] / len(self.channel.sites)
        entries = [
            np.concatenate([total[1 + d :], -(total[1 : 1 + d] + pull), total[:1]])
            for total, pull in zip(sums, pulls, strict=True)
        ]
        contribute(self, newton_systems(d, scales, noises, dithers, regularisation, intercept=intercept), entries)
