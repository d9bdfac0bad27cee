"""The cost of privacy on UCI Adult: AUC by epsilon for the hybrid SVM, as printed and as improved.

`python -m benchmarks.privacy FOLDER` needs FEDSVM_DATA, takes some minutes, and writes privacy.json and privacy.svg.
27,000 private rows, 5,200 test rows, mean over 20 releases: 4 for each of 5 draws of the public rows. Training is the
federated run's own code over all private rows at once, which tests compare with federated runs. Every method has the C
that serves it best on average, as in the paper.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.metrics import roc_auc_score
from sklearn.svm import SVC

from fedsvm.algorithms.data.columns import LabeledRows
from fedsvm.algorithms.data.public_rows import public_columns
from fedsvm.algorithms.features.fourier import FitName, choose_frequencies
from fedsvm.algorithms.hybrid_svm.minimizer import minimize, public_weights
from fedsvm.algorithms.optimization.solution import StoppingRule
from fedsvm.algorithms.privacy.mechanisms import MechanismName, PrivacyParameters, noise_for
from fedsvm.federation.arrays import IntArray
from fedsvm.scenarios.data import dataset
from fedsvm.scenarios.schema import spec
from tools.arguments import parser

EPSILONS = (0.5, 1.0, 2.0, 4.0)
C_GRID = (1.0, 10.0, 100.0, 300.0, 1000.0, 10_000.0)
SEEDS = range(1, 6)
RELEASES = 4
PUBLIC = (20, 50, 100, 200)
FREQUENCIES, SIGMA, TOLERANCE, DELTA = 60, 8.0, 1e-11, 1e-6


def census(count: int, seed: int) -> tuple[LabeledRows, LabeledRows, LabeledRows]:
    """Return `count` public rows, private and test rows, scaled by the public ones, with labels."""
    scenario, base = spec.read("hybrid-better", overrides=[f"data.public={count}", f"seed={seed}"])
    prepared = dataset.prepare(scenario, base)
    public = prepared.rows.take(prepared.public)
    columns = public_columns(
        prepared.schema, public.numeric, public.categorical, scenario.data.scale, scenario.data.ranges
    )

    def scaled(indices: IntArray) -> LabeledRows:
        rows = prepared.rows.take(indices)
        return LabeledRows(columns(rows.numeric, rows.categorical), rows.labels)

    return scaled(prepared.public), scaled(prepared.training(None, prepared.names)), scaled(prepared.test(None))


def curve(
    name: str, public: int, fit: FitName, mechanism: MechanismName, sensitivity: float, *, prior: bool
) -> Iterator[dict[str, Any]]:
    """Yield mean AUC without noise and at every epsilon, over draws of the public rows, at the C that is best on
    average."""
    exact: dict[float, list[float]] = defaultdict(list)
    noisy: dict[float, dict[float, list[float]]] = {epsilon: defaultdict(list) for epsilon in EPSILONS}
    for seed in SEEDS:
        given, private, test = census(public, seed)
        frequencies = choose_frequencies(given.rows, FREQUENCIES, SIGMA, fit, np.random.default_rng(seed))
        start = np.zeros(2 * FREQUENCIES)
        if prior:
            start = public_weights(frequencies.features(given.rows), given.labels, np.random.default_rng(seed))
        features, seen = frequencies.features(private.rows), frequencies.features(test.rows)
        for C in C_GRID:
            w = start + minimize(features, private.labels, start, C / len(features), StoppingRule(TOLERANCE, 500)).w
            exact[C].append(float(roc_auc_score(test.labels, seen @ w)))
            gap = TOLERANCE * C * (1 + float(np.linalg.norm(start)))
            for epsilon in EPSILONS:
                privacy = PrivacyParameters(mechanism, epsilon, DELTA if mechanism == "gaussian" else 0.0)
                noise = noise_for(privacy, len(w), sensitivity * C / len(features), gap)
                releases = (seen @ noise.released(w) for _ in range(RELEASES))
                noisy[epsilon][C] += [float(roc_auc_score(test.labels, each)) for each in releases]
    yield _point(f"{name}, without noise", public, None, exact)
    for epsilon in EPSILONS:
        yield _point(name, public, epsilon, noisy[epsilon])


def _point(name: str, public: int, epsilon: float | None, found: dict[float, list[float]]) -> dict[str, Any]:
    best = max(found, key=lambda C: float(np.mean(found[C])))
    draws = {"auc": float(np.mean(found[best])), "deviation": float(np.std(found[best])), "draws": len(found[best])}
    return {"name": name, "public": public, "epsilon": epsilon, "C": best, **draws}


def public_alone(public: int) -> dict[str, Any]:
    """Train an RBF SVM on the public rows only."""
    found: dict[float, list[float]] = defaultdict(list)
    for seed in SEEDS:
        given, _, test = census(public, seed)
        for C in (0.1, 1.0, 10.0, 100.0):
            scores = SVC(C=C, gamma=1 / SIGMA**2).fit(*given).decision_function(test.rows)
            found[C].append(float(roc_auc_score(test.labels, scores)))
    return _point(f"Public-{public}", public, None, found)


def measure() -> Iterator[dict[str, Any]]:
    """Yield every point of the figure."""
    yield from (public_alone(count) for count in PUBLIC)
    yield from curve("paper's hybrid", 20, "paper", "laplace", 4.0, prior=False)
    yield from curve("private", 20, "random", "laplace", 4.0, prior=False)
    for count in (20, 100):
        yield from curve(f"hybrid-better, {count} public rows", count, "paired", "gaussian", 2.0, prior=True)


# The figure.

WIDTH, HEIGHT, MARGIN, LOWEST, HIGHEST = 760, 440, 60, 0.70, 0.90
COLOURS = ("#1b6ca8", "#c0392b", "#2e8b57", "#8e44ad")


def figure(points: list[dict[str, Any]]) -> str:
    """Draw AUC by epsilon as an SVG: a line for each private method, dashes for those without noise."""
    lines = list(dict.fromkeys(each["name"] for each in points if each["epsilon"] is not None))
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH + 320}" height="{HEIGHT}" font-family="sans-serif" '
        'font-size="12"><rect width="100%" height="100%" fill="white"/>',
        *(
            f'<text x="{MARGIN - 8}" y="{_y(auc) + 4:.1f}" text-anchor="end">{auc:.2f}</text>'
            f'<line x1="{MARGIN}" x2="{WIDTH - 20}" y1="{_y(auc):.1f}" y2="{_y(auc):.1f}" stroke="#ddd"/>'
            for auc in np.arange(LOWEST, HIGHEST + 0.001, 0.05)
        ),
        *(f'<text x="{_x(e):.1f}" y="{HEIGHT - 30}" text-anchor="middle">{e:g}</text>' for e in EPSILONS),
        f'<text x="{WIDTH / 2}" y="{HEIGHT - 8}" text-anchor="middle">epsilon</text>',
        f'<text x="{MARGIN}" y="20">AUC on UCI Adult, 27,000 private rows, mean of 20 releases</text>',
    ]
    for number, name in enumerate(lines):
        own = [each for each in points if each["name"] == name]
        path = " ".join(f"{_x(each['epsilon']):.1f},{_y(each['auc']):.1f}" for each in own)
        colour, y = COLOURS[number % len(COLOURS)], 60 + 24 * number
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts.append(f'<line x1="{WIDTH}" x2="{WIDTH + 24}" y1="{y}" y2="{y}" stroke="{colour}" stroke-width="2"/>')
        parts.append(f'<text x="{WIDTH + 32}" y="{y + 4}">{name}</text>')
    dashed = [each for each in points if each["epsilon"] is None and each["name"].startswith(("Public", "hybrid"))]
    for number, each in enumerate(dashed):
        at = _y(each["auc"])
        parts.append(
            f'<line x1="{MARGIN}" x2="{WIDTH - 20}" y1="{at:.1f}" y2="{at:.1f}" stroke="#777" stroke-dasharray="4 4"/>'
            f'<text x="{WIDTH}" y="{90 + 24 * (len(lines) + number)}" fill="#555">{each["auc"]:.4f} '
            f"{each['name']}</text>"
            f'<text x="{MARGIN + 110 * number + 4}" y="{at - 3:.1f}" fill="#555">'
            f"{each['name'].partition(',')[0]}</text>"
        )
    return "\n".join([*parts, "</svg>\n"])


def _x(epsilon: float) -> float:
    places = np.log(np.array(EPSILONS))
    return MARGIN + 20 + float((np.log(epsilon) - places[0]) / (places[-1] - places[0])) * (WIDTH - MARGIN - 60)


def _y(auc: float) -> float:
    return HEIGHT - 50 - (auc - LOWEST) / (HIGHEST - LOWEST) * (HEIGHT - 90)


if __name__ == "__main__":
    arguments = parser("benchmarks.privacy", __doc__)
    arguments.add_argument("folder", type=Path, metavar="FOLDER", help="folder for what is measured")
    folder = arguments.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    points = []
    for point in measure():
        points.append(point)
        print(point, flush=True)
    (folder / "privacy.json").write_text(json.dumps(points, indent=1) + "\n")
    (folder / "privacy.svg").write_text(figure(points))
