"""The accuracy of default runs with all their noise, and the rows that a site names by the path and by exact weights.

`python -m benchmarks.default_noise [NAME ...] [--splits N] [--first SEED]` needs FEDSVM_DATA. It prints a line for each
way of training each data set, over splits of four to one. Features are those of `benchmarks.landmarks`, by the steps of
real sites. pan-svm then trains in this process as behind a committee of two of five sites: the same solver, with the
draws of all sites in the objective and with the noise of both members on each step. Accuracy is that of the weights
that a site has, and of released ones, which have a little more noise. Exact kernel: LIBSVM on pooled rows.

One site attacks, another in each split. It has the list of all rows of the source. It takes its own draw off, and its
own half of the noise on steps in rounds in which it is a member. `fedsvm audit` does not do the latter.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
from sklearn.svm import SVC

from benchmarks.landmarks import EXACT, NOISY, SETS, MappedSource, map_source
from fedsvm.algorithms.attacks.attack import CandidateScores, RowClaim
from fedsvm.algorithms.attacks.newton_path import PathRound, ViewedPath, signed_features
from fedsvm.algorithms.attacks.newton_steps import Members, claims_of
from fedsvm.algorithms.attacks.secret_barriers import HiddenTerms, StepSums, chances_of, coefficients, steps_taken
from fedsvm.algorithms.attacks.support_rows import SURE, SupportRows, TrainedPoint
from fedsvm.algorithms.data.columns import LabeledRows
from fedsvm.algorithms.optimization.barrier import TARGET_DEVIATION, Problem, SecretBarriers, secret_offsets
from fedsvm.algorithms.optimization.committee import LEAN, dither_size
from fedsvm.algorithms.optimization.interior_point import (
    Extent,
    NewtonRequest,
    NoiseSize,
    Opened,
    Outcome,
    RoundSums,
    solve,
)
from fedsvm.algorithms.optimization.linear_svm_settings import NOISY_STEP_NOISE, OBJECTIVE_NOISE
from fedsvm.algorithms.optimization.local_path import LocalPath, opened_by, solve_pooled
from fedsvm.algorithms.optimization.masking import dither_seed
from fedsvm.algorithms.optimization.objective_noise import noise_size, released_deviation
from fedsvm.algorithms.optimization.solution import NOISY_TOLERANCE, TOLERANCE, Solution, StoppingRule
from fedsvm.federation.arrays import BoolArray, FloatArray, IntArray, Residues
from tools.arguments import parser

NAMES = ("quickstart", "wdbc", "heart", "german", "pima")
_SPLITS, _FURTHEST, _MOST_ROUNDS = 10, 5.0, 500


@dataclass(frozen=True)
class Way:
    """A way of training: the settings that differ from the defaults."""

    statistics: tuple[str, ...] = NOISY
    objective_noise: float = OBJECTIVE_NOISE
    step_noise: float = NOISY_STEP_NOISE
    has_secrets: bool = True
    tolerance: float = NOISY_TOLERANCE


WAYS: Mapping[str, Way] = {
    "no noise": Way(EXACT, objective_noise=0.0, step_noise=0.0, has_secrets=False, tolerance=TOLERANCE),
    "noisy statistics only": Way(objective_noise=0.0, step_noise=0.0, has_secrets=False, tolerance=TOLERANCE),
    "without secrets of rows": Way(has_secrets=False),
    "default": Way(),
    "`tolerance` 0.01": Way(tolerance=0.01),
    "`tolerance` 1e-4": Way(tolerance=TOLERANCE),
    "`tolerance` 1e-4, without secrets of rows": Way(tolerance=TOLERANCE, has_secrets=False),
}


class Measured(NamedTuple):
    """The results of one way on one split: accuracies in percent, nan if not measured; claims of a site.

    excess: of the objective without noise at the weights, over its minimum, as a share of the minimum.
    """

    exact_kernel: float
    accuracy: float
    released: float
    rounds: float
    gap: float
    excess: float
    named: float
    named_by_weights: float
    wrong: float
    area: float


@dataclass
class CommitteePath(LocalPath):
    """Rows that are all here, on the path that a committee takes: each step has the noise of two members.

    step_noise: kappa. noise: the size of the noise in the objective. rounds, halves: the rounds, and the noise (2, d)
    of both members on the step after each.
    """

    problem: Problem
    step_noise: float
    noise: NoiseSize
    random: np.random.Generator
    rounds: list[PathRound] = field(default_factory=list)
    halves: list[FloatArray] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__([self.problem])
        self._next = np.zeros(self.problem.dimensions)

    def extent(self) -> Extent:
        """Return the bounds of these rows."""
        return replace(super().extent(), noise=self.noise)

    def sums(self, iteration: int, terms: Sequence[NewtonRequest], *, wide: bool) -> RoundSums:
        """Take the step that is known, and solve for the next one."""
        (asked,) = terms
        step = 0 * self._next if asked.still else self._next
        sums, self.standings[0] = self.problem.advance(
            self.standings[0], iteration, step, asked.mu, keep=asked.keep, still=asked.still
        )
        opened = opened_by(sums, self.standings[0].v, intercept=True, regulariser=True)
        dither = self._dither(asked.gap)
        self.halves.append(dither * math.sqrt(0.5) * self.random.standard_normal((2, len(dither))))
        self.rounds.append(PathRound(step, asked.mu, asked.keep, asked.still, sums={}, dither=dither))
        self._next = np.linalg.solve(opened.matrix, opened.gradient + self.halves[-1].sum(axis=0))
        length = float(np.linalg.norm(self._next))
        return RoundSums([Opened(**{**vars(opened), "gradient": np.zeros(0), "reached": length})])

    def _dither(self, gap: float) -> FloatArray:
        """Return (d,) the deviation of the noise, as in `blind_path`."""
        extent, d = self.extent(), self.problem.dimensions
        of_w = dither_size(self.step_noise, np.array(min(gap, extent.price * extent.rows)), d)
        lean = min(1.0, self.problem.lever * math.sqrt(extent.price * extent.rows / LEAN))
        return np.append(np.full(d - 1, of_w), of_w * lean)


@dataclass(frozen=True)
class SiteBarriers(SecretBarriers):
    """The barriers of rows of several sites, one behind the other. keys (1, 4) and rows: of each site."""

    keys: Sequence[Residues]
    rows: Sequence[int]

    def draw(self, v: FloatArray, rows: int) -> FloatArray:
        """Return the multiples (rows,) at a point (d,)."""
        parts = zip(self.keys, self.rows, strict=True)
        return np.concatenate([SecretBarriers(key, self.problem).draw(v, count) for key, count in parts])


@dataclass(frozen=True)
class Trained:
    """A training: its path, the draws (m,) and the keys of barriers (1, 4) of each site, and how it ended."""

    path: CommitteePath
    draws: Sequence[FloatArray]
    keys: Sequence[Residues]
    outcome: Outcome


def train(source: MappedSource, way: Way, random: np.random.Generator) -> Trained:
    """Train on the rows of all sites."""
    C, m = float(source.settings.C), source.features.shape[1]
    deviations = [
        way.objective_noise * C * math.sqrt((source.features[rows] ** 2).sum(axis=1).mean() / (len(source.sites) - 1))
        for rows in source.sites
    ]
    draws = [np.asarray(deviation * random.standard_normal(m)) for deviation in deviations]
    sizes = np.array([[each * (math.sqrt(m) + _FURTHEST), each**2] for each in deviations]).sum(axis=0)
    features = source.features[source.training]
    keys = [dither_seed() for _ in source.sites]
    problem = Problem.of(
        features, _signs(source, source.training), C, lever=math.sqrt((features**2).sum(axis=1).mean())
    )
    if way.objective_noise:
        problem = replace(problem, tilt=np.sum(draws, axis=0))
    if way.has_secrets:
        counts = [len(rows) for rows in source.sites]
        offsets = [secret_offsets(key, 0, count) for key, count in zip(keys, counts, strict=True)]
        targets = problem.targets + np.concatenate(offsets)
        problem = replace(problem, targets=targets, barriers=SiteBarriers(keys[0], 0, keys, counts))
    noise = noise_size(sizes, m) if way.objective_noise else NoiseSize()
    path = CommitteePath(problem, way.step_noise, noise, random)
    (outcome,) = solve(
        path,
        problems=1,
        dimensions=problem.dimensions,
        intercept=True,
        stopping=StoppingRule(way.tolerance, _MOST_ROUNDS),
    )
    return Trained(path, draws, keys, outcome)


def attack(source: MappedSource, way: Way, trained: Trained, site: int, random: np.random.Generator) -> Measured:
    """Return the claims of a site, and the AUC of its scores; all else is nan."""
    own, path = source.sites[site], trained.path
    words, posed = _words(source), path.problem
    others = np.setdiff1d(np.arange(len(words)), np.flatnonzero(np.isin(words, words[own])))
    problem, ours = (
        Problem.of(source.features[rows], _signs(source, rows), posed.prices[0], lever=posed.lever)
        for rows in (others, own)
    )
    m = source.features.shape[1]
    viewed = ViewedPath(np.zeros(m), float(source.settings.C), problem.lever, len(source.training), path.rounds, True)
    steps = steps_taken(viewed)
    largest = float(source.settings.C) * float((problem.features**2).sum(axis=1).mean() ** 0.5)
    sums = StepSums.of(viewed, steps, problem, trained.draws[site], way.objective_noise * largest)
    for place, number in enumerate(steps.tolist()):
        half = random.permutation(len(source.sites)).tolist().index(site)  # members are drawn anew in each round
        if half < 2:
            sums.right[place] += path.halves[number][half]
            sums.noise[place] /= 2
    if way.has_secrets:
        hidden = HiddenTerms.sample(viewed, problem, steps)
        ours = ours.with_secrets(trained.keys[site], 0)
    else:
        means = coefficients(viewed, problem, steps).T
        hidden = HiddenTerms(signed_features(problem), means, np.zeros((*means.shape, means.shape[1])))
    prior = np.full(len(others), min((len(source.training) - len(own)) / len(others), 0.98))
    members = Members(*chances_of(hidden, sums.without(viewed, ours, steps), prior))
    there = np.isin(words[others], words[source.training])
    numbers, labels = others[:, None].astype(np.float64), _signs(source, others)
    named = wrong = area = float("nan")
    for each in claims_of(LabeledRows(numbers, labels), members):
        if isinstance(each, RowClaim):
            is_right = there[np.searchsorted(others, each.rows[:, 0].astype(np.int64))]
            named, wrong = float(is_right.sum()), float((~is_right).sum())
        elif isinstance(each, CandidateScores):
            area = _area(each.scores, there)
    found, sure = Measured(*[float("nan")] * len(Measured._fields)), by_weights(source, way, trained, site, others)
    wrong += float((sure & ~there).sum())
    return found._replace(named=named, named_by_weights=float((sure & there).sum()), wrong=wrong, area=area)


def by_weights(source: MappedSource, way: Way, trained: Trained, site: int, others: IntArray) -> BoolArray:
    """Return (n,) which of the other candidates the exact weights at the end name to a site."""
    path, own = trained.path, source.sites[site]
    point = TrainedPoint(
        weights=path.problem.weights(path.standings[0].v),
        own_noise=trained.draws[site],
        target_deviation=TARGET_DEVIATION if way.has_secrets else 0.0,
        own_offsets=secret_offsets(trained.keys[site], 0, len(own)) if way.has_secrets else None,
    )
    known, unknown = (LabeledRows(source.features[rows], _signs(source, rows)) for rows in (own, others))
    attack_on_weights = SupportRows(float(source.settings.C), way.tolerance, way.objective_noise)
    found = attack_on_weights.chances(point, lambda features: features, unknown, known)
    if found is None or found.least is None:
        return np.zeros(len(others), dtype=np.bool_)
    return np.asarray(found.least > SURE)


def measure(name: str, way: Way, seed: int) -> Measured:
    """Train by a way on one split, attack, and return the results."""
    source = map_source((*SETS[name], *way.statistics, f"seed={seed}"))
    random = np.random.default_rng()
    trained = train(source, way, random)
    best = trained.path.best(trained.outcome, 0)
    features, signs = source.features[source.test], _signs(source, source.test)
    squares = float((source.features[source.training] ** 2).sum(axis=1).mean())
    released = best.w + released_deviation(squares) * random.standard_normal(len(best.w)) * bool(way.objective_noise)
    settings = source.settings
    kernel = SVC(C=settings.C, gamma=settings.gamma).fit(source.rows[source.training], _signs(source, source.training))
    found = Measured(*[float("nan")] * len(Measured._fields))
    if way.step_noise:
        found = attack(source, way, trained, seed % len(source.sites), random)
    return found._replace(
        exact_kernel=100 * float(kernel.score(source.rows[source.test], signs)),
        accuracy=100 * float(np.mean(signs * (features @ best.w + best.b) > 0)),
        released=100 * float(np.mean(signs * (features @ released + best.b) > 0)),
        rounds=float(len(trained.path.rounds)),
        gap=trained.outcome.certificate.gap,
        excess=_excess(source, best),
    )


def _excess(source: MappedSource, found: Solution) -> float:
    features, signs, C = source.features[source.training], _signs(source, source.training), float(source.settings.C)
    (best,) = solve_pooled([Problem.of(features, signs, C)], StoppingRule(1e-6, _MOST_ROUNDS))
    losses = np.maximum(0.0, 1 - signs * (features @ found.w + found.b)).sum()
    return (float(found.w @ found.w) / 2 + C * float(losses)) / best.objective - 1


def line(name: str, way: str, found: Sequence[Measured]) -> str:
    """Return a line of the table."""
    exact, accuracy, released, rounds, gap, excess, named, by_weights_alone, wrong, area = np.array(found).T
    cells = [name, way, _with_error(exact), _with_error(accuracy), _with_error(released)]
    cells += [f"{rounds.mean():.1f}", f"{np.median(gap):.1g}", f"{100 * np.median(excess):.2g} %"]
    if np.isnan(named).any():
        cells += ["", "", "", ""]
    else:
        cells += [f"{each.min():.0f} to {each.max():.0f}" for each in (named, by_weights_alone)]
        cells += [f"{wrong.max():.0f}"]
        cells += [f"{area.min():.2f} to {area.max():.2f}"]
    return f"| {' | '.join(cells)} |"


def _with_error(values: FloatArray) -> str:
    error = float(np.std(values, ddof=1)) / math.sqrt(len(values)) if len(values) > 1 else 0.0
    return f"{np.mean(values):.1f} ± {error:.1f}"


def _signs(source: MappedSource, rows: IntArray) -> FloatArray:
    return np.where(source.labels[rows] > 0, 1.0, -1.0)


def _words(source: MappedSource) -> FloatArray:
    """Return (n,) a number for each row with its label, the same for equal ones."""
    labeled = np.column_stack([source.rows, _signs(source, np.arange(len(source.rows)))])
    return np.asarray(np.unique(labeled, axis=0, return_inverse=True)[1])


def _area(scores: FloatArray, there: BoolArray) -> float:
    return float(np.mean(scores[there][:, None] > scores[~there][None, :]))


def main() -> None:
    """Print the table."""
    arguments = parser("benchmarks.default_noise", __doc__)
    arguments.add_argument("names", nargs="*", default=[*NAMES], metavar="NAME", help=", ".join(NAMES))
    arguments.add_argument("--splits", type=int, default=_SPLITS, help=f"number of splits (default: {_SPLITS})")
    arguments.add_argument("--first", type=int, default=1, help="seed of the first split (default: 1)")
    given = arguments.parse_args()
    head = [
        "data",
        "way",
        "exact kernel, %",
        "accuracy, %",
        "released, %",
        "rounds",
        "gap",
        "objective above the minimum",
        "named by the path",
    ]
    head += ["by exact weights", "wrong", "AUC of its steps"]
    print(f"| {' | '.join(head)} |\n|{'---|' * len(head)}", flush=True)
    for name in given.names:
        for title, way in WAYS.items():
            found = [measure(name, way, given.first + split) for split in range(given.splits)]
            print(line(name, title, found), flush=True)


if __name__ == "__main__":
    main()
