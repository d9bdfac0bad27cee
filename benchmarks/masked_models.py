"""Models behind a committee compared with those of congruence, on 100 random problems.

Their condition numbers go up to 1e13.

`python -m benchmarks.masked_models [--problems N]` takes a minute, in memory. Both certificates must be true: their
lower bounds are below the other model's objective, and no model's objective is above its certified one. The objectives
of both models must differ by at most the tolerance.
"""

from __future__ import annotations

import math

import numpy as np

from fedsvm.algorithms.optimization.barrier import Problem
from fedsvm.algorithms.optimization.masking import Masking
from fedsvm.algorithms.optimization.solution import Certificate
from tests.test_interior_point import primal, train
from tools.arguments import parser

TOLERANCE = 1e-5
_LARGEST = 6.0
"""Decimal orders by which columns of the last problem differ: the square is its condition number."""

_ROUNDING = 1e-9
_STEP_NOISE = 0.1


def problem_of(number: int, problems: int) -> tuple[Problem, float]:
    """Return a problem and the condition number of its features' second moments, which grows with its number."""
    random = np.random.default_rng(number)
    rows, m = int(random.integers(20, 80)), int(random.integers(2, 12))
    spread = _LARGEST * number / max(1, problems - 1)
    labels = np.where(np.arange(rows) % 3 == 0, -1.0, 1.0)
    features = random.normal(size=(rows, m)) + 0.5 * labels[:, None]
    features *= np.append(1.0, 10 ** random.uniform(-spread, 0, size=m - 1))
    features[:, -1] *= 10**-spread / np.abs(features[:, -1]).max()
    lever = math.sqrt(float((features**2).sum(axis=1).mean()))
    condition = float(np.linalg.cond(features)) ** 2
    return Problem.of(features, labels, 10 ** random.uniform(-2, 3), lever=lever), condition


def trained(problem: Problem, masking: Masking) -> tuple[float, Certificate]:
    """Return the objective of the released model, and its certificate."""
    found = train(problem, masking=masking, noise=_STEP_NOISE, tolerance=TOLERANCE, sites=3)
    if found.weights is None:
        raise RuntimeError("training released no weights")
    return primal(problem, found.weights[0, :-1], float(found.weights[0, -1])), found.certificate


def is_true(objective: float, certificate: Certificate, other: float) -> bool:
    """Return whether a certificate holds for its own model, and bounds the other's."""
    own = certificate.converged and objective <= certificate.objective * (1 + _ROUNDING)
    return own and certificate.lower_bound <= other * (1 + _ROUNDING)


def main() -> None:
    """Train and print."""
    arguments = parser("benchmarks.masked_models", __doc__)
    arguments.add_argument("--problems", type=int, default=100, metavar="N", help="100 by default")
    count = arguments.parse_args().problems
    apart, conditions, untrue = [], [], 0
    for number in range(count):
        problem, condition = problem_of(number, count)
        (masked, of_masked), (blind, of_blind) = (trained(problem, each) for each in ("congruence", "committee"))
        untrue += not (is_true(masked, of_masked, blind) and is_true(blind, of_blind, masked))
        apart.append(abs(masked - blind) / min(masked, blind))
        conditions.append(condition)
    beyond = sum(each > TOLERANCE for each in apart)
    print(f"{count} problems, condition numbers {min(conditions):.1e} to {max(conditions):.1e}")
    print(f"objectives differ by {max(apart):.1e} at most, {beyond} by more than {TOLERANCE:g}")
    print(f"untrue certificates: {untrue}")


if __name__ == "__main__":
    main()
