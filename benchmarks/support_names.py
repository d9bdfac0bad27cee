"""Rows that the weights of a model name, and the accuracy, against the noise in the objective.

`python -m benchmarks.support_names` prints a table for real data sets of the data folder. The attacker holds the model
and the list of all rows of the source; see `fedsvm.algorithms.attacks.support_rows`. The noise is that of all sites
but one, which the attack is told.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from fedsvm.algorithms.attacks.attack import Prior, RowClaim
from fedsvm.algorithms.attacks.model_file import file_view
from fedsvm.algorithms.attacks.support_rows import SupportRows
from fedsvm.algorithms.data.columns import LabeledRows
from fedsvm.algorithms.features.fourier import FourierMap
from fedsvm.algorithms.optimization.barrier import Problem
from fedsvm.algorithms.optimization.local_path import solve_pooled
from fedsvm.algorithms.optimization.solution import StoppingRule
from fedsvm.scenarios.data import dataset
from fedsvm.scenarios.schema import spec
from tools.arguments import parser

CASES = (("heart", 0.05), ("wdbc", 0.03), ("pima_diabetes", 0.1), ("german", 0.05))
NOISES = (0.0, 0.05, 0.1, 0.2, 0.3)
FREQUENCIES, TOLERANCE, DRAWS = 100, 1e-4, 5


def encoded(name: str) -> tuple[LabeledRows, np.ndarray]:
    """Return all rows of a source, with 0/1 columns for categories, and which are training rows."""
    scenario = spec.validate({"name": name, "data": {"source": name, "statistics_privacy": 0.0}})
    prepared = dataset.prepare(scenario, Path.cwd())
    columns = [prepared.rows.numeric]
    columns += [(values[:, None] == np.unique(values)).astype(np.float64) for values in prepared.rows.categorical.T]
    chosen = np.zeros(len(prepared.rows.labels), dtype=np.bool_)
    chosen[prepared.training(None, scenario.federation.site_names)] = True
    return LabeledRows(np.hstack(columns), np.where(prepared.rows.labels > 0, 1.0, -1.0)), chosen


def main() -> None:
    """Print the table."""
    parser("benchmarks.support_names", __doc__).parse_args()
    print("| data | C | support rows | noise | named | wrong | accuracy, % |\n|---|---|---|---|---|---|---|")
    for name, gamma in CASES:
        (rows, labels), chosen = encoded(name)
        offset, scale = rows[chosen].mean(axis=0), rows[chosen].std(axis=0)
        scale = np.where(scale > 0, scale, 1.0)
        feature_map = FourierMap.draw(gamma, FREQUENCIES, rows.shape[1], seed=1)
        features = feature_map((rows - offset) / scale)
        there = {row.tobytes() for row in rows[chosen]}
        for C in (1.0, 10.0, 100.0):
            for noise in NOISES:
                tilts = noise * C * np.random.default_rng(1).standard_normal((DRAWS, features.shape[1]))
                problems = [Problem.of(features[chosen], labels[chosen], C, tilt=tilt) for tilt in tilts]
                drawn = solve_pooled(problems, StoppingRule(TOLERANCE, 200))
                right = [labels * (features @ each.w + each.b) > 0 for each in drawn]
                support = int((labels[chosen] * (features[chosen] @ drawn[0].w + drawn[0].b) < 1.01).sum())
                arrays = {**feature_map.to_fields(), "offset": offset, "scale": scale, "columns": np.array([])}
                view = file_view({**arrays, "w": drawn[0].w, "b": np.array(drawn[0].b)})
                prior = Prior(candidates=LabeledRows(rows, labels))
                outcomes = SupportRows(C, TOLERANCE, noise)(view, prior)
                (claim,) = [each for each in outcomes if isinstance(each, RowClaim)]
                named = sum(row.tobytes() in there for row in claim.rows)
                accuracy = 100 * np.mean([each[~chosen].mean() for each in right])
                wrong = len(claim.rows) - named
                print(f"| {name} | {C:g} | {support} | {noise:g} | {named} | {wrong} | {accuracy:.1f} |", flush=True)


if __name__ == "__main__":
    main()
