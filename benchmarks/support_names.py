"""Rows that the weights of a model name, and the accuracy, against the noise in the objective.

`python -m benchmarks.support_names` prints a table for real data sets of the data folder. The attacker has the list of
all rows of the source, and the released weights, or those that a site has, with its own noise taken off; see
`fedsvm.algorithms.attacks.support_rows`. Landmarks are drawn from the moments of the training rows. The attack is told
the size of the noise, which is that of all sites but one. With noise, rows have secret targets. Of several draws the
most rows named are printed, and the mean AUC and accuracy.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from fedsvm.algorithms.attacks.attack import CandidateScores, Prior, RowClaim
from fedsvm.algorithms.attacks.epochs import Epoch
from fedsvm.algorithms.attacks.model_file import file_view
from fedsvm.algorithms.attacks.support_rows import SupportRows, TrainedPoint, last_point
from fedsvm.algorithms.data.columns import LabeledRows
from fedsvm.algorithms.features.drawn_landmarks import normal_draws
from fedsvm.algorithms.features.kernels import Kernel
from fedsvm.algorithms.features.nystrom import NystromMap
from fedsvm.algorithms.optimization.barrier import TARGET_DEVIATION, Problem
from fedsvm.algorithms.optimization.local_path import solve_pooled
from fedsvm.algorithms.optimization.masking import dither_seed
from fedsvm.algorithms.optimization.objective_noise import released_deviation
from fedsvm.algorithms.optimization.solution import StoppingRule
from fedsvm.federation.arrays import BoolArray, FloatArray
from fedsvm.scenarios.data import dataset
from fedsvm.scenarios.schema import spec
from tools.arguments import parser

CASES = (
    ("tic-tac-toe", 10.0, 0.1),
    ("heart", 1.0, 0.05),
    ("wdbc", 10.0, 0.03),
    ("pima_diabetes", 100.0, 0.1),
    ("german", 1.0, 0.05),
)
NOISES = (0.0, 0.1, 0.2, 0.3)
MOST_LANDMARKS, TOLERANCE, DRAWS = 200, 1e-6, 4


class _SiteRows(SupportRows):
    """The attack of a site, whose weights are exact."""

    def _points(self, epoch: Epoch, prior: Prior) -> list[TrainedPoint]:
        point = last_point(epoch, prior.posed)
        return [] if point is None else [TrainedPoint(point, target_deviation=TARGET_DEVIATION if self._noise else 0.0)]


def encoded(name: str) -> tuple[LabeledRows, BoolArray]:
    """Return all rows of a source, with 0/1 columns for categories, and which are training rows."""
    scenario = spec.validate({"name": name, "data": {"source": name, "statistics_privacy": 0.0}})
    prepared = dataset.prepare(scenario, Path.cwd())
    columns = [prepared.rows.numeric]
    columns += [(values[:, None] == np.unique(values)).astype(np.float64) for values in prepared.rows.categorical.T]
    chosen = np.zeros(len(prepared.rows.labels), dtype=np.bool_)
    chosen[prepared.training(None, scenario.federation.site_names)] = True
    return LabeledRows(np.hstack(columns), np.where(prepared.rows.labels > 0, 1.0, -1.0)), chosen


def attacked(
    attack: SupportRows, arrays: dict[str, FloatArray], data: LabeledRows, chosen: BoolArray
) -> tuple[int, int, float]:
    """Return how many rows are named, how many claims are wrong, and the AUC."""
    there, auc, named, wrong = {row.tobytes() for row in data.rows[chosen]}, float("nan"), 0, 0
    for outcome in attack(file_view(arrays), Prior(candidates=data)):
        if isinstance(outcome, RowClaim):
            named = sum(row.tobytes() in there for row in outcome.rows)
            wrong = len(outcome.rows) - named
        elif isinstance(outcome, CandidateScores):
            found = np.array([row.tobytes() in there for row in outcome.candidates.rows])
            auc = float(np.mean(outcome.scores[found][:, None] > outcome.scores[~found][None, :]))
    return named, wrong, auc


def main() -> None:
    """Print the table."""
    parser("benchmarks.support_names", __doc__).parse_args()
    print("| data | C | noise | named by the file | wrong | AUC | named by a site | wrong | AUC | accuracy, % |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for name, C, gamma in CASES:
        data, chosen = encoded(name)
        offset, scale = data.rows[chosen].mean(axis=0), data.rows[chosen].std(axis=0)
        scale = np.where(scale > 0, scale, 1.0)
        if name == "tic-tac-toe":
            offset, scale = np.zeros_like(offset), np.ones_like(scale)
        scaled, random = (data.rows - offset) / scale, np.random.default_rng(1)
        count = min(MOST_LANDMARKS, int(chosen.sum()) // 4)
        moments = scaled[chosen].mean(axis=0), np.cov(scaled[chosen].T)
        feature_map = NystromMap.span(Kernel("rbf", gamma=gamma), normal_draws(*moments, count, random), 1e-9)
        features = feature_map(scaled)
        mean_square = float((features[chosen] ** 2).sum(axis=1).mean())
        fields = {**feature_map.to_fields(), "offset": offset, "scale": scale, "columns": np.array([])}
        for noise in NOISES:
            tilts = noise * C * mean_square**0.5 * random.standard_normal((DRAWS, features.shape[1]))
            problems = [Problem.of(features[chosen], data.labels[chosen], C, tilt=tilt) for tilt in tilts]
            problems = [problem.with_secrets(dither_seed(), 0) if noise else problem for problem in problems]
            rows: list[tuple[float, ...]] = []
            for found in solve_pooled(problems[: DRAWS if noise else 1], StoppingRule(TOLERANCE, 200)):
                w = found.w + bool(noise) * released_deviation(mean_square) * random.standard_normal(len(found.w))
                of_file, of_site = (
                    attacked(kind(C, TOLERANCE, noise), {**fields, "w": each, "b": np.array(found.b)}, data, chosen)
                    for kind, each in ((SupportRows, w), (_SiteRows, found.w))
                )
                right = data.labels * (features @ w + found.b) > 0
                rows.append((*of_file, *of_site, 100 * right[~chosen].mean()))
            most, mean = np.max(rows, axis=0), np.mean(rows, axis=0)
            print(
                f"| {name} | {C:g} | {noise:g} | {most[0]:.0f} | {most[1]:.0f} | {mean[2]:.3f} | {most[3]:.0f} | "
                f"{most[4]:.0f} | {mean[5]:.3f} | {mean[6]:.1f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
