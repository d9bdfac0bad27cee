"""Interior point, cutting planes, LIBLINEAR and LIBSVM on the same features, in one process and one run.

`python -m benchmarks.solvers FOLDER` needs FEDSVM_DATA, takes some minutes on an idle machine, and writes solvers.json
and solvers.md. Times are of training alone, on features that are ready, by one thread, and are to be read as ratios.

LIBLINEAR and LIBSVM stop at tolerances of their own. Each is run with ever smaller ones until its primal objective is
within the gap of the best that is known, and the time is that of the run which got there. Ours stop when the gap is
*certified*. LIBLINEAR's dual solver penalises its intercept; with a large `intercept_scaling`, which would make that
harmless, it takes many times as long, so it has 1, and is judged by the objective without that penalty.

Rounds are what a federation takes: the interior point's with masks, and sums as a secure sum rounds them.
"""

from __future__ import annotations

import functools
import json
import math
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.svm import SVC, LinearSVC

from fedsvm.algorithms.data.public_rows import public_columns
from fedsvm.algorithms.features import k_means
from fedsvm.algorithms.features.kernels import Kernel
from fedsvm.algorithms.features.nystrom import NystromMap
from fedsvm.algorithms.optimization import cutting_plane, interior_point, libsvm
from fedsvm.algorithms.optimization.barrier import Problem
from fedsvm.algorithms.optimization.hinge_sums import HingeSums
from fedsvm.algorithms.optimization.interior_point import Extent, NewtonRequest, RoundSums
from fedsvm.algorithms.optimization.line_search import grid_search
from fedsvm.algorithms.optimization.local_path import LocalPath, solve_pooled
from fedsvm.algorithms.optimization.masking import Mask, draw_mask
from fedsvm.algorithms.optimization.path_rounds import WIDE_BOUND, Layout
from fedsvm.algorithms.optimization.solution import Certificate, StoppingRule
from fedsvm.federation.arrays import FloatArray, IntArray
from fedsvm.federation.channel.interface import uniform_residues
from fedsvm.protocols.arithmetic.fixed_point import FixedPoint, add
from fedsvm.scenarios.data import dataset, sources
from fedsvm.scenarios.schema import spec
from tools.arguments import parser

SCENARIOS = {"tic-tac-toe": "quickstart", "wdbc": "wdbc-10-fold", "pima": "pima"}
CASES: Sequence[tuple[str, int, float, float]] = (
    ("tic-tac-toe", 190, 10.0, 0.03),
    ("tic-tac-toe", 190, 100.0, 0.05),
    ("tic-tac-toe", 190, 1000.0, 0.05),
    ("wdbc", 114, 10.0, 1 / 30),
    ("pima", 154, 512.0, 0.0078125),
    ("a9a", 300, 100.0, 0.5),
    ("a9a", 300, 100.0, 0.05),
)
"""Data set, landmarks, C and gamma."""

GAPS = (1e-3, 1e-5)
STEP_NOISE = 0.1
MOST = 500
PEER_TOLERANCES = tuple(10.0**-power for power in range(1, 7))
PEER_ITERATIONS = 10_000
PEER_SECONDS = 240.0
"""A peer that took so long is not asked for more digits."""

GROUPS = 32
SITES = 5
REFERENCE_GAP = 1e-7


@dataclass(frozen=True)
class Line:
    """One solver on one problem to one gap: seconds and rounds, None where it has none or did not get there."""

    data: str
    landmarks: int
    C: float
    gamma: float
    gap: float
    solver: str
    seconds: float | None
    rounds: int | None = None


def features_of(data: str, landmarks: int, gamma: float) -> tuple[FloatArray, FloatArray]:
    """Return (n, m) Nystroem features of all rows of a data set, with landmarks by k-means, and (n,) labels."""
    rows, labels = _table(data)
    points = np.unique(k_means.pooled_centres(rows, landmarks, 1, 1), axis=0)
    return NystromMap.span(Kernel("rbf", gamma), points, 1e-10)(rows), labels


def _table(data: str) -> tuple[FloatArray, FloatArray]:
    """Return rows and labels: a9a as in its file, the others on the scale of their scenarios."""
    if data in SCENARIOS:
        scenario, base = spec.read(SCENARIOS[data])
        prepared = dataset.prepare(scenario, base)
        rows, schema = prepared.rows, prepared.schema
        columns = public_columns(schema, rows.numeric, rows.categorical, scenario.data.scale, {})
        return columns(rows.numeric, rows.categorical), rows.labels
    table = sources.load(f"{data}_train", label="label", base_folder=Path())
    rows_of = np.column_stack([feature.values for feature in table.features]).astype(np.float64)
    return rows_of, np.where(table.labels.astype(np.float64) > 0, 1.0, -1.0)


def measure(data: str, landmarks: int, C: float, gamma: float) -> Iterator[Line]:
    """Yield every solver's time to every gap. Raises AssertionError for one that claims a gap it has not reached."""
    features, labels = features_of(data, landmarks, gamma)
    problem = Problem.of(features, labels, C, lever=math.sqrt((features**2).sum() / len(features)))
    (best,) = solve_pooled([problem], StoppingRule(REFERENCE_GAP, MOST))
    for gap in GAPS:
        line = functools.partial(Line, data, landmarks, C, gamma, gap)
        for solver, solve in _ours(problem).items():
            began = time.perf_counter()
            found, rounds = solve(StoppingRule(gap, MOST))
            seconds = time.perf_counter() - began
            if found.converged and found.objective > best.objective / (1 - gap):
                raise AssertionError(f"{solver} certified {gap} of {data}, and is further from the optimum")
            yield line(solver, seconds if found.converged else None, rounds if found.converged else None)
        for name, peer in PEERS.items():
            yield line(name, _seconds_to(peer, features, labels, C, best.objective / (1 - gap)))


def _ours(problem: Problem) -> dict[str, Callable[[StoppingRule], tuple[Certificate, int]]]:
    """Return the interior point alone, as a federation runs it without and with noise on its steps, and the cutting
    plane."""

    def pooled(stopping: StoppingRule) -> tuple[Certificate, int]:
        (found,) = solve_pooled([problem], stopping)
        return found, found.iterations

    def masked(noise: float, stopping: StoppingRule) -> tuple[Certificate, int]:
        path = SitesInMemory(problem)
        size = problem.dimensions
        (found,) = interior_point.solve(
            path, problems=1, dimensions=size, intercept=True, stopping=stopping, step_noise=noise
        )
        return found.certificate, path.rounds

    return {
        "interior point": pooled,
        "interior point, 5 sites, masks": lambda stopping: masked(0.0, stopping),
        f"interior point, 5 sites, masks, noise {STEP_NOISE}": lambda stopping: masked(STEP_NOISE, stopping),
        "cutting plane, 32 groups": lambda stopping: _by_cutting_planes(problem, stopping),
    }


def _by_cutting_planes(problem: Problem, stopping: StoppingRule) -> tuple[Certificate, int]:
    rows = HingeSums.deal(problem.features, problem.labels[None, :], GROUPS, np.random.default_rng(0))
    (found,) = cutting_plane.solve(
        rows,
        problems=1,
        dimensions=problem.features.shape[1],
        groups=GROUPS,
        C=float(problem.prices[0]),
        stopping=stopping,
        search=grid_search,
        on_iteration=lambda iteration, solutions: None,
    )
    return found, 2 * found.iterations + 1


class SitesInMemory:
    """A path over five sites in this process: masks, and sums as a secure sum rounds them."""

    def __init__(self, problem: Problem) -> None:
        parts = np.array_split(np.arange(len(problem.labels)), SITES)
        self._whole = LocalPath([problem])
        self._sites = [LocalPath([_rows(problem, part)]) for part in parts]
        self._layout = Layout(problem.dimensions, problem.features.shape[1])
        self._seed = uniform_residues((1, 4))
        self.rounds = 0

    def extent(self) -> Extent:
        """Return the bounds of all rows."""
        return self._whole.extent()

    def sums(self, iteration: int, terms: Sequence[NewtonRequest], *, wide: bool) -> RoundSums:
        """Run one round."""
        (term,), rows, size = terms, self.extent().rows, self._layout
        self.rounds += 1
        if term.step.any():
            term = replace(term, step=self._mask(iteration - 1).transposed_times(term.step))
        encoding = FixedPoint.for_bound(WIDE_BOUND if wide else 1.0, SITES)
        total = np.zeros((encoding.limbs, size.length), dtype=np.uint64)
        for number, site in enumerate(self._sites):
            opened = site.opened(iteration, term, regulariser=number == 0, mask=self._mask(iteration))
            packed = size.pack(opened, term.scales.to_array(), rows, keeper=number == 0)
            total = add(total, encoding.encode(packed))
        return RoundSums([size.unpack(encoding.decode(total), term.scales.to_array(), rows)])

    @functools.lru_cache(maxsize=2)  # noqa: B019 - a path lives for one measurement
    def _mask(self, iteration: int) -> Mask:
        mask = draw_mask(self._seed, f"0 {iteration}", self._layout.dimensions, self._layout.features, "congruence")
        if mask is None:
            raise AssertionError("nothing is masked")
        return mask


def _liblinear(features: FloatArray, labels: FloatArray, C: float, tolerance: float) -> tuple[FloatArray, float]:
    svm = LinearSVC(loss="hinge", C=C, tol=tolerance, max_iter=PEER_ITERATIONS, random_state=0).fit(features, labels)
    return svm.coef_[0], float(svm.intercept_[0])


def _libsvm(features: FloatArray, labels: FloatArray, C: float, tolerance: float) -> tuple[FloatArray, float]:
    svm = SVC(kernel="linear", C=C, tol=tolerance, cache_size=libsvm.CACHE_MB).fit(features, labels)
    return svm.coef_[0], float(svm.intercept_[0])


def _rows(problem: Problem, part: IntArray) -> Problem:
    return Problem(
        problem.features[part], problem.labels[part], problem.prices[part], problem.targets[part], problem.lever
    )


Peer = Callable[[FloatArray, FloatArray, float, float], tuple[FloatArray, float]]
PEERS: dict[str, Peer] = {"LIBLINEAR": _liblinear, "LIBSVM": _libsvm}


def _seconds_to(peer: Peer, features: FloatArray, labels: FloatArray, C: float, objective: float) -> float | None:
    """Return the seconds of a peer to a primal objective, at the first of its tolerances that reaches it."""
    for tolerance in PEER_TOLERANCES:
        began = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # its objective says it
            w, b = peer(features, labels, C, tolerance)
        seconds = time.perf_counter() - began
        hinge = np.maximum(0.0, 1.0 - labels * (features @ w + b)).sum()
        if 0.5 * w @ w + C * hinge <= objective:
            return seconds
        if seconds > PEER_SECONDS:
            return None
    return None


def table(lines: Sequence[Line]) -> str:
    """Return seconds as ratios to LIBLINEAR's, and rounds, a line for each problem and gap, in Markdown."""
    solvers = list(dict.fromkeys(line.solver for line in lines))
    head = ["data set", "landmarks", "C", "gamma", "gap", *solvers]
    rows = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for key in dict.fromkeys((line.data, line.landmarks, line.C, line.gamma, line.gap) for line in lines):
        of_key = {
            line.solver: line for line in lines if (line.data, line.landmarks, line.C, line.gamma, line.gap) == key
        }
        floor = of_key["LIBLINEAR"].seconds
        cells = [f"{value:.3g}" if isinstance(value, float) else str(value) for value in key]
        rows.append(f"| {' | '.join([*cells, *(_cell(of_key[solver], floor) for solver in solvers)])} |")
    return "\n".join([*rows, ""])


def _cell(line: Line, floor: float | None) -> str:
    if line.seconds is None:
        return "not reached"
    ratio = f" ({line.seconds / floor:.2g} of LIBLINEAR)" if floor and line.solver != "LIBLINEAR" else ""
    return f"{line.seconds:.2f} s{ratio}" + (f", {line.rounds} rounds" if line.rounds else "")


if __name__ == "__main__":
    arguments = parser("benchmarks.solvers", __doc__)
    arguments.add_argument("folder", type=Path, metavar="FOLDER", help="folder for what is measured")
    folder = arguments.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    measured: list[Line] = []
    for case in CASES:
        measured += measure(*case)
        print(table([line for line in measured if (line.data, line.landmarks, line.C, line.gamma) == case]), flush=True)
    (folder / "solvers.json").write_text(json.dumps([asdict(line) for line in measured], indent=1) + "\n")
    (folder / "solvers.md").write_text(table(measured))
