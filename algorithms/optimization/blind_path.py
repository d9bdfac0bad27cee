"""The interior point behind a committee: no site knows the masks of Newton's system; two members together do.

A round is a step that sites run, in which they speak among themselves (`fedsvm.protocols.blind_system`). All take the
step x that they were told in the round before, and share the new system; the coordinator solves it behind the masks of
two members; these take the masks off and tell all sites the next x. A round that breaks off is run again with fresh
masks and other members, from the same points.

What the coordinator certifies is opened with noise of both members, each of the full size: uniform, a share of the last
gap, so that no exact equation in the rows is left. The bound of the noise is part of the certificate.

    objective       is taken to be as large as the noise allows.
    class vectors   The coordinator sees their inner products G + E, and adds to the diagonal what makes them at least
                    G, as a quadratic form.
    alphas          may be off by the noise: see `interior_point.Opened`.

Against the sites the dither is on the right-hand side: (D + M) x = q + s xi, with xi normal in the coordinates of v,
half of its variance by each of the two members. s = kappa sqrt(2 gap / d) for the last gap, so that it costs about
kappa^2 of it, whatever the system is; kappa is `step_noise`. At the intercept, which has no penalty, it is less.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedsvm.algorithms.data.horizontal import HorizontalSite
from fedsvm.algorithms.optimization.committee import (
    LEAN,
    check_committee,
    contribute,
    dither_size,
    solve_with_committee,
)
from fedsvm.algorithms.optimization.interior_point import NewtonRequest, Opened, RoundSums
from fedsvm.algorithms.optimization.local_path import opened_by
from fedsvm.algorithms.optimization.path_rounds import Layout, PathOrder, told_of
from fedsvm.algorithms.optimization.path_sums import FederatedPath, NewtonPath
from fedsvm.federation.arrays import FloatArray
from fedsvm.federation.site.program import SitePart, free, step
from fedsvm.federation.transport.keys import COORDINATOR
from fedsvm.protocols.blind_parameters import FRACTION_BITS, STRETCH, Beside, BlindSystem
from fedsvm.protocols.blind_system import BlindSolution

SHOWS = (
    "in each round, each with noise: the objective, the sum of each class's dual variables and three inner products of "
    "class vectors; of each class the number of rows; and Newton's system behind the secret matrices of two sites"
)

_NOISE = 0.01
"""The largest noise of a member on the objective, as a share of the last gap."""

_PRODUCT_SHARE, _ALPHA_SHARE = 0.25, 0.5
"""Of that: the noise on inner products, and on sums of alphas before what these cost the bound is divided out."""

_SPREAD = 32.0
"""No normal number of 53 bits is larger, by a factor of three."""

_SMALLEST = 2.0**-30
"""The least scale of right-hand sides, over that of the matrix, so that solutions are not too large for the check."""

_STRETCH = (STRETCH * (1 + 2.0**-10)) ** 2
"""Of both masks together; with the factor of q, a step may be longer than the solution by this and STRETCH."""

_FLOAT_ERROR = 2.0**-50
"""The share of the trace of inner products that float64 and their eigenvectors may be wrong by."""


@dataclass(frozen=True)
class BlindOrder(PathOrder):
    """The order of a round. dithers (k, 2): the standard deviation of noise on q, of w and of the intercept.

    noises (k, 3): the largest of a member, on the objective, the sums of alphas and the inner products.
    """

    noises: FloatArray
    dithers: FloatArray

    def systems(self, layout: Layout) -> list[BlindSystem]:
        """Return the public parameters of each problem's system, whose parts are divided by their scales."""
        parts = zip(self.scales.tolist(), self.noises.tolist(), self.dithers.tolist(), strict=True)
        return [_system(layout, *each) for each in parts]

    def solution_unit(self, place: int) -> float:
        """Return the number by which the solution of a system is multiplied to be a step."""
        return float(self.scales[place, 1] / self.scales[place, 0])


def _system(layout: Layout, scales: Sequence[float], noises: Sequence[float], dithers: Sequence[float]) -> BlindSystem:
    matrix, gradient, objective, alphas, vectors = scales
    g = layout.classes
    beside = Beside(
        noises=(noises[0] / objective, *[noises[1] / alphas] * g, *[0.0] * (g + 2)),
        vectors=g,
        length=layout.features,
        product_noise=noises[2] / vectors**2,
    )
    return BlindSystem(
        layout.dimensions,
        problems=1,
        scale=1.0,
        penalty=1 / matrix,
        free=g - 1,
        is_told=True,
        dither=dithers[0] / gradient,
        free_dither=dithers[1] / gradient,
        beside=beside,
    )


def _numbers_of(solved: Sequence[BlindSolution]) -> FloatArray:
    """Return what the coordinator reads from each solution, in rows; see `BlindPath._open`."""
    return np.stack([np.hstack([np.linalg.norm(s.found), s.trace, s.numbers, s.products.ravel()]) for s in solved])


class BlindNewton(SitePart):
    """A site's part in the rounds of a committee, over the path that it keeps."""

    def __init__(self, site: HorizontalSite, path: NewtonPath) -> None:
        self._site, self._path = site, path

    @step(
        shown=SHOWS,
        told={
            "iteration": free("a whole number", "nothing; another one ends the run or spoils the model"),
            "problems": free("numbers of problems", "nothing beyond a choice of which problems are solved"),
            "mus": free("any numbers", "sums of another barrier"),
            "keep": free("0 or 1 of each problem", "the last point in place of the best one, which is nearly the same"),
            "still": free("0 or 1 of each problem", "the sums at the same point, with fresh masks and noise"),
            "scales": free("any numbers", "nothing; the sums in another unit"),
            "rows": free("a whole number", "nothing; the counts in another unit"),
            "noises": free(
                "any numbers",
                "sums of losses and of dual variables without noise, at the path's points; with a site in league, "
                "every row of a short list",
            ),
            "dithers": free("any numbers", "nothing; to a site in league with it, steps without noise"),
        },
    )
    def blind_newton(self, **order: Any) -> None:
        """Take part in a round of k problems, with zeros if this site knows no path, and keep the steps it is told.

        order: the fields of a `BlindOrder`.
        """
        round_, path = BlindOrder(**order), self._path
        systems = round_.systems(path.start.layout)
        keeper = self._site.channel.sites[0] == self._site.site
        entries = [self._entries(round_, place, each, keeper=keeper) for place, each in enumerate(systems)]
        found = contribute(self._site, systems, entries)
        if path.paths is not None and found is not None:
            for place, solutions in enumerate(found):
                told = solutions[0] * round_.solution_unit(place)
                path.paths.tell(int(round_.problems[place]), round_.iteration, told)

    def _entries(self, round_: BlindOrder, place: int, system: BlindSystem, *, keeper: bool) -> FloatArray:
        """Move the rows of one problem, and return this site's part of its system and of what is beside it."""
        if (paths := self._path.paths) is None:
            return np.zeros(system.entries)
        problem = int(round_.problems[place])
        told = paths.next_step(problem, round_.iteration)
        sums, standing = paths.move(round_, place, 0 * told if round_.still[place] else told)
        is_tilted = paths.problems[problem].lever > 0
        opened = opened_by(sums, standing.v, intercept=is_tilted, regulariser=keeper)
        matrix, gradient, objective, alphas, vectors = round_.scales[place].tolist()
        upper = sums.matrix[np.triu_indices(system.size)] / matrix
        excess = float(np.abs(upper).max(initial=0.0))
        return np.concatenate(
            [
                upper / max(excess, 1.0),
                opened.gradient / gradient,
                [opened.objective / objective],
                opened.alphas / alphas,
                opened.rows / round_.rows,
                [float(keeper), float(excess > 1.0)],
                np.ravel(opened.vectors) / vectors,
            ]
        )


class BlindPath(FederatedPath):
    """A `FederatedPath` whose systems are solved behind a committee.

    Parameters
    ----------
    *arguments, **named
        Those of a `FederatedPath`.
    step_noise : float
        kappa.
    """

    def __init__(self, *arguments: Any, step_noise: float, **named: Any) -> None:
        check_committee(arguments[0])
        super().__init__(*arguments, masking="committee", **named)
        self._step_noise = step_noise
        self._sensitivity: dict[int, float] = {}

    def _disclose(self) -> None:
        self._federation.disclose(COORDINATOR, "blind_newton", SHOWS, (self._layout.length,))

    def sums(self, iteration: int, terms: Sequence[NewtonRequest], *, wide: bool) -> RoundSums:
        """Run one round."""
        order = self._order(iteration, terms)
        systems = order.systems(self._layout)
        seen = solve_with_committee(self._federation, "blind_newton", systems, _numbers_of, **vars(order))
        opened = [self._open(order, place, each) for place, each in enumerate(seen)]
        of_vectors = math.sqrt(self._layout.features / self._layout.classes) / 2
        resolution = len(self._federation.sites) * max(1.0, of_vectors) * 2.0**-FRACTION_BITS
        return RoundSums(opened, changed=self._note_changes(), resolution=resolution)

    def _order(self, iteration: int, terms: Sequence[NewtonRequest]) -> BlindOrder:
        extent = self._extent
        gaps = np.array([min(each.gap, extent.price * extent.rows * extent.target) for each in terms])
        of_w = dither_size(self._step_noise, gaps, self._layout.dimensions)
        dithers = np.outer(of_w, [1.0, min(1.0, self._lever * math.sqrt(extent.price * extent.rows / LEAN))])
        first = 2 * self._layout.classes * math.sqrt(2 * extent.price * extent.target * extent.squares)
        costs = np.array([1 + self._sensitivity.get(each.problem, first) for each in terms])
        noises = (
            _NOISE
            * gaps[:, None]
            * np.column_stack([np.ones(len(terms)), _ALPHA_SHARE / costs, np.full(len(terms), _PRODUCT_SHARE)])
        )
        order = BlindOrder(iteration, **told_of(terms), rows=extent.rows, noises=noises, dithers=dithers)
        least = np.maximum(_SPREAD * of_w, _SMALLEST * order.scales[:, 0])
        order.scales[:, 1] = np.maximum(order.scales[:, 1], 2.0 ** np.ceil(np.log2(least)))
        return order

    def _open(self, order: BlindOrder, place: int, seen: FloatArray) -> Opened | None:
        """Return what was opened of a problem, on the safe side of its noise.

        None if nobody added the regularizer, or a matrix was beyond its scale.
        """
        g, scales = self._layout.classes, order.scales[place]
        length, trace, objective, alphas, counts, flags, products = np.split(seen, np.cumsum([1, 1, 1, g, g, 2]))
        of_objective, of_alphas, of_products = 2 * order.noises[place]  # by two members
        if np.rint(flags).tolist() != [1.0, 0.0]:
            return None
        gram = products.reshape(g, g) * scales[4] ** 2
        apart = of_products + _FLOAT_ERROR * max(float(np.trace(gram)), 0.0)
        values, turns = np.linalg.eigh(gram + g * apart * np.eye(g))
        opened = Opened(
            matrix=_STRETCH**2 * scales[0] * trace[None, :],
            gradient=np.zeros(0),
            objective=float(objective[0] * scales[2] + of_objective),
            alphas=alphas * scales[3],
            vectors=turns * np.sqrt(np.maximum(values, 0.0)),
            rows=np.rint(counts * order.rows),
            off=of_alphas,
            reached=_STRETCH * STRETCH * float(length[0]) * order.solution_unit(place),
        )
        lengths = np.linalg.norm(opened.vectors, axis=1)
        ratio = float((lengths / np.maximum(opened.alphas, np.finfo(float).tiny)).sum())
        reached = max(opened.objective + self._extent.noise.constant, 0.0)
        self._sensitivity[int(order.problems[place])] = math.sqrt(2 * reached) * min(ratio, 1e12)
        return opened
