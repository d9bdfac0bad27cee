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
    extra           is 0 without secret targets, and otherwise taken to be as small as the noise allows. Its noise is
                    that of the objective.

Against the sites the dither is on the right-hand side: (D + M) x = q + s xi, with xi normal in the coordinates of v,
half of its variance by each of the two members. s = kappa sqrt(2 gap / d) for the last gap, so that it costs about
kappa^2 of it, whatever the system is; kappa is `step_noise`. At the intercept, which has no penalty, it is less.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
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
from fedsvm.algorithms.optimization.interior_point import Extent, NewtonRequest, Opened, RoundSums
from fedsvm.algorithms.optimization.local_path import opened_by
from fedsvm.algorithms.optimization.path_rounds import TOO_SMALL, Layout, PathOrder, RowPaths, told_of
from fedsvm.algorithms.optimization.path_sums import FederatedPath, NewtonPath
from fedsvm.federation.arrays import FloatArray
from fedsvm.federation.federation import Federation
from fedsvm.federation.site.program import SitePart, free, step
from fedsvm.federation.transport.keys import COORDINATOR
from fedsvm.protocols.blind_parameters import FRACTION_BITS, STRETCH, BlindSystem, OpenedSums
from fedsvm.protocols.blind_system import BlindSolution

SHOWS = (
    "in each round, each with noise: the objective, the sum of each class's dual variables, the sum of dual variables "
    "times secret offsets and three inner products of class vectors; of each class the number of rows; and Newton's "
    "system behind the secret matrices of two sites"
)

_NOISE = 0.05
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

    noises (k, 3): the largest of a member, on the objective and on extra, the sums of alphas and the inner products.
    """

    noises: FloatArray
    dithers: FloatArray

    def _shapes(self, paths: RowPaths) -> dict[str, tuple[int, ...]]:
        k = len(self.problems)
        return {**super()._shapes(paths), "noises": (k, 3), "dithers": (k, 2)}

    def systems(self, layouts: Sequence[Layout]) -> list[BlindSystem]:
        """Return the public parameters of each problem's system, whose parts are divided by their scales."""
        parts = zip(layouts, self.scales.tolist(), self.noises.tolist(), self.dithers.tolist(), strict=True)
        return [_system(*each) for each in parts]

    def solution_unit(self, place: int) -> float:
        """Return the number by which the solution of a system is multiplied to be a step."""
        return float(self.scales[place, 1] / self.scales[place, 0])

    def entries(self, paths: RowPaths, place: int, system: BlindSystem, *, keeper: bool) -> FloatArray:
        """Move the rows of one problem, and return a site's part of its system and of the numbers opened with it.

        keeper: whether this site adds 1/2 |w|^2.
        """
        problem = int(self.problems[place])
        told = paths.next_step(problem, self.iteration)
        sums, standing = paths.move(self, place, 0 * told if self.still[place] else told)
        is_tilted = paths.problems[problem].lever > 0
        opened = opened_by(sums, standing.v, intercept=is_tilted, regulariser=keeper)
        matrix, gradient, objective, alphas, vectors = self.scales[place].tolist()
        upper = sums.matrix[np.triu_indices(system.size)] / matrix
        excess = float(np.abs(upper).max(initial=0.0))
        return np.concatenate(
            [
                upper / max(excess, 1.0),
                opened.gradient / gradient,
                [opened.objective / objective],
                opened.alphas / alphas,
                [opened.extra / alphas],
                opened.rows / self.rows,
                [float(keeper), float(excess > 1.0)],
                np.ravel(opened.vectors) / vectors,
            ]
        )

    def keep_steps(self, paths: RowPaths, found: Sequence[FloatArray] | None) -> None:
        """Store the steps that the solutions of all systems give a site, if there are any."""
        for place, solutions in enumerate(found or ()):
            told = solutions[0] * self.solution_unit(place)
            paths.tell(int(self.problems[place]), self.iteration, told)


def _system(layout: Layout, scales: Sequence[float], noises: Sequence[float], dithers: Sequence[float]) -> BlindSystem:
    matrix, gradient, objective, alphas, vectors = scales
    g = layout.classes
    sums = OpenedSums(
        noises=(noises[0] / objective, *[noises[1] / alphas] * g, noises[0] / alphas, *[0.0] * (g + 2)),
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
        sums=sums,
    )


def _numbers_of(solved: Sequence[BlindSolution]) -> FloatArray:
    """Return what the coordinator reads from each solution, in rows; see `BlindPath._open`."""
    return np.stack([np.hstack([np.linalg.norm(s.found), s.trace, s.numbers, s.products.ravel()]) for s in solved])


BLIND_ARGUMENTS = {
    "iteration": free("a whole number", "nothing; a false one ends the run or spoils the model"),
    "problems": free("numbers of problems", "only a choice of problems"),
    "mus": free("numbers above 0", "sums for another barrier parameter; with an extreme one, without secret barriers"),
    "keep": free("0 or 1 of each problem", "the last point instead of the best one, nearly the same"),
    "still": free("0 or 1 of each problem", "the sums at the same point, with fresh masks and noise"),
    "scales": free("powers of two", TOO_SMALL),
    "rows": free("a number above 0", TOO_SMALL),
    "noises": free(
        "numbers above 0",
        "with small ones, sums of losses, of dual variables and of these times offsets nearly without noise, at the "
        "path's points; with a colluding site, every row of a short list",
    ),
    "dithers": free("numbers of at least 0", "nothing; a colluding site gets steps without noise"),
}
"""Of a step that takes the fields of a `BlindOrder`."""


class BlindNewton(SitePart):
    """A site's part in the rounds of a committee, over the path that it keeps."""

    def __init__(self, site: HorizontalSite, path: NewtonPath) -> None:
        self._site, self._path = site, path

    @step(shown=SHOWS, told=BLIND_ARGUMENTS)
    def blind_newton(self, **order: Any) -> None:
        """Take part in a round of k problems, with zeros if this site knows no path, and store the steps.

        order: the fields of a `BlindOrder`.
        """
        round_, paths, layout = BlindOrder(**order), self._path.paths, self._path.start.layout
        if paths is not None:
            round_.check(paths)
        systems = round_.systems([layout] * len(round_.problems))
        if paths is None:
            contribute(self._site, systems, [np.zeros(system.entries) for system in systems])
            return
        keeper = self._site.channel.sites[0] == self._site.site
        entries = [round_.entries(paths, place, each, keeper=keeper) for place, each in enumerate(systems)]
        round_.keep_steps(paths, contribute(self._site, systems, entries))


class BlindRounds:
    """The coordinator's part of rounds whose systems are solved behind a committee.

    Parameters
    ----------
    federation : Federation
    step_noise : float
        kappa.

    Raises
    ------
    FederationError
        For a run that can have no committee.
    """

    def __init__(self, federation: Federation, step_noise: float) -> None:
        check_committee(federation)
        self._federation, self._step_noise = federation, step_noise
        self._sensitivity: dict[int, float] = {}

    def sums(
        self,
        step: str,
        iteration: int,
        terms: Sequence[NewtonRequest],
        layouts: Sequence[Layout],
        extent: Extent,
        lever: float,
        begun: Mapping[str, Any],
    ) -> RoundSums:
        """Run one round of problems with such layouts, in a step whose sites take a `BlindOrder` and what is begun."""
        order = self._order(iteration, terms, layouts, extent, lever)
        seen = solve_with_committee(self._federation, step, order.systems(layouts), _numbers_of, **vars(order), **begun)
        opened = [self._open(order, place, each, layouts[place], extent) for place, each in enumerate(seen)]
        of_vectors = max(math.sqrt(layout.features / layout.classes) for layout in layouts) / 2
        resolution = len(self._federation.sites) * max(1.0, of_vectors) * 2.0**-FRACTION_BITS
        return RoundSums(opened, resolution=resolution)

    def _order(
        self, iteration: int, terms: Sequence[NewtonRequest], layouts: Sequence[Layout], extent: Extent, lever: float
    ) -> BlindOrder:
        gaps = np.array([min(each.gap, extent.price * extent.rows * extent.target) for each in terms])
        dimensions = np.array([layout.dimensions for layout in layouts])
        of_w = dither_size(self._step_noise, gaps, dimensions)
        dithers = np.outer(of_w, [1.0, min(1.0, lever * math.sqrt(extent.price * extent.rows / LEAN))])
        first = 2 * layouts[0].classes * math.sqrt(2 * extent.price * extent.target * extent.squares)
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

    def _open(self, order: BlindOrder, place: int, seen: FloatArray, layout: Layout, extent: Extent) -> Opened | None:
        """Return what was opened of a problem, on the safe side of its noise.

        None if nobody added the regularizer, or a matrix was beyond its scale.
        """
        g, scales = layout.classes, order.scales[place]
        parts = np.split(seen, np.cumsum([1, 1, 1, g, 1, g, 2]))
        length, trace, objective, alphas, extra, counts, flags, products = parts
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
            extra=float(extra[0] * scales[3] - of_objective) if extent.offset else 0.0,
            vectors=turns * np.sqrt(np.maximum(values, 0.0)),
            rows=np.rint(counts * order.rows),
            off=of_alphas,
            reached=_STRETCH * STRETCH * float(length[0]) * order.solution_unit(place),
        )
        lengths = np.linalg.norm(opened.vectors, axis=1)
        ratio = float((lengths / np.maximum(opened.alphas, np.finfo(float).tiny)).sum())
        reached = max(opened.objective + extent.noise.constant, 0.0)
        self._sensitivity[int(order.problems[place])] = math.sqrt(2 * reached) * min(ratio, 1e12)
        return opened


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
        self._rounds = BlindRounds(arguments[0], step_noise)
        super().__init__(*arguments, masking="committee", **named)

    def _disclose(self) -> None:
        self._federation.disclose(COORDINATOR, "blind_newton", SHOWS, (self._layout.length,))

    def sums(self, iteration: int, terms: Sequence[NewtonRequest], *, wide: bool) -> RoundSums:
        """Run one round."""
        layouts = [self._layout] * len(terms)
        found = self._rounds.sums("blind_newton", iteration, terms, layouts, self._extent, self._lever, {})
        return replace(found, changed=self._note_changes())
