"""What privacy costs on UCI Adult: AUC against epsilon for the hybrid SVM, as printed and as it can be.

`python -m benchmarks.privacy FOLDER` needs FEDSVM_DATA, takes some minutes, and writes privacy.json and privacy.svg.
27,000 private rows, 3,561 test rows, mean over 20 releases. Training is the federated run's own code over all private
rows at once, which tests compare with federated runs. Every method has the C that serves it best, as in the paper.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.metrics import roc_auc_score
from sklearn.svm import SVC

from algorithms.cutting_plane import Stopping
from algorithms.fourier import Fit, choose_frequencies
from algorithms.hinge_sums import HingeSums
from algorithms.hybrid_svm import minimised, public_weights
from algorithms.mechanisms import MechanismName, Promise, noise_for
from federation.arrays import FloatArray
from scenarios import spec, workload
from scenarios.hybrid_run import HybridRun

EPSILONS = (0.5, 1.0, 2.0, 4.0)
PRICES = (0.1, 1.0, 10.0, 100.0, 1000.0, 10_000.0)
RELEASES = 20
PUBLIC = (20, 50, 100, 200)
FREQUENCIES, SIGMA, TOLERANCE, DELTA = 60, 8.0, 1e-11, 1e-6

Rows = tuple[FloatArray, FloatArray]


def census(public: int) -> tuple[Rows, Rows, Rows]:
    """Public, private and test rows, scaled by the public ones, with labels."""
    scenario, base = spec.read("hybrid-better", overrides=[f"data.public={public}", "algorithm.features=60"])
    prepared = workload.prepare(scenario, base)
    run = HybridRun(scenario, prepared, Path())
    return run.scaled(prepared.public), run.scaled(prepared.training(-1, prepared.names)), run.scaled(prepared.tests[0])


def curve(
    name: str, public: int, fit: Fit, mechanism: MechanismName, sensitivity: float, *, prior: bool
) -> Iterator[dict[str, Any]]:
    """Mean AUC at every epsilon, at the best C."""
    given, private, test = census(public)
    random = np.random.default_rng(1)
    frequencies = choose_frequencies(given[0], FREQUENCIES, SIGMA, fit, random)
    start = np.zeros(2 * FREQUENCIES)
    if prior:
        start = public_weights(frequencies.features(given[0]), given[1], random)
    features, seen = frequencies.features(private[0]), frequencies.features(test[0])
    rows = HingeSums.dealt(features, private[1][None, :], 32, np.random.default_rng(0))
    minimisers = {C: start + minimised(rows, start, C / len(features), Stopping(TOLERANCE, 500)).w for C in PRICES}
    exact = max(float(roc_auc_score(test[1], seen @ w)) for w in minimisers.values())
    yield {"name": f"{name}, without noise", "public": public, "epsilon": None, "auc": exact}
    for epsilon in EPSILONS:
        promise = Promise(mechanism, epsilon, DELTA if mechanism == "gaussian" else 0.0)
        means = {}
        for C, w in minimisers.items():
            gap = TOLERANCE * C * (1 + float(np.linalg.norm(start)))
            noise = noise_for(promise, len(w), sensitivity * C / len(features), gap)
            scores = [seen @ noise.released(w) for _ in range(RELEASES)]
            means[C] = float(np.mean([roc_auc_score(test[1], each) for each in scores]))
        best = max(means, key=means.__getitem__)
        yield {"name": name, "public": public, "epsilon": epsilon, "auc": means[best], "C": best}


def public_alone(count: int) -> dict[str, Any]:
    """An RBF SVM of the public rows only."""
    given, _, test = census(count)
    scores = [SVC(C=C, gamma=1 / SIGMA**2).fit(*given).decision_function(test[0]) for C in (0.1, 1.0, 10.0, 100.0)]
    best = max(float(roc_auc_score(test[1], each)) for each in scores)
    return {"name": f"Public-{count}", "public": count, "epsilon": None, "auc": best}


def measure() -> Iterator[dict[str, Any]]:
    """Every point of the figure."""
    yield from (public_alone(count) for count in PUBLIC)
    yield from curve("paper's hybrid", 20, "paper", "laplace", 4.0, prior=False)
    yield from curve("private", 20, "random", "laplace", 4.0, prior=False)
    for count in (20, 100):
        yield from curve(f"hybrid-better, {count} public rows", count, "paired", "gaussian", 2.0, prior=True)
        yield from curve(f"spherical, {count} public rows", count, "paired", "spherical", 2.0, prior=True)


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    points = []
    for point in measure():
        points.append(point)
        print(point, flush=True)
    (folder / "privacy.json").write_text(json.dumps(points, indent=1) + "\n")
