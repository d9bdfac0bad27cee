"""The optimal membership test against the noisy statistics of a scenario, measured over fresh noise.

`python -m benchmarks.membership quickstart --draws 1000` prints, for several mu and numbers of sites whose noise the
attacker does not know, the area under the curve of the likelihood ratio next to the promise, Phi(mu / sqrt(2)), and the
mu that the errors of the test prove. The attacker knows all other rows; the row in question contributes as much as a
row can. One site is the case in which its rows alone change between two runs. With "5, then 4" a site drops in the
middle of the release, and the attacker has both, whose mu composes to sqrt(2) times one.
"""

from __future__ import annotations

import math
from random import SystemRandom

import numpy as np

from fedsvm.algorithms.attacks.membership import area, least_mu, margin, promised_area, scores
from fedsvm.algorithms.data.statistics import statistics_blocks
from fedsvm.algorithms.privacy.noisy_sums import NoisyBlock
from fedsvm.federation.arrays import FloatArray
from fedsvm.scenarios.data import dataset
from fedsvm.scenarios.schema import spec
from tools.arguments import parser

MUS = (0.5, 1.0)
RELEASES = ((1,), (2,), (5,), (20,), (5, 4))
"""The sites of each release that the attacker has."""

ERROR = 1e-3
"""Chance that a mechanism that keeps its promise is said to break it."""


def longest(block: NoisyBlock) -> FloatArray:
    """Return the longest contribution of a row to a block, spread over all entries."""
    return np.full(block.size, block.length / block.size**0.5)


def main() -> None:
    """Print the table."""
    arguments = parser("benchmarks.membership", __doc__)
    arguments.add_argument("scenario")
    arguments.add_argument("--draws", type=int, default=1000, help="releases with the row, and as many without it")
    given = arguments.parse_args()
    scenario, base = spec.read(given.scenario)
    prepared = dataset.prepare(scenario, base)
    columns = len(prepared.numeric_columns)
    values = [len(np.unique(column)) for column in prepared.rows.categorical.T]
    print(f"{given.scenario}: {columns} numeric columns, {len(values)} categorical ones, {given.draws} draws")
    print(f"{'mu':>4} {'sites':>9} {'AUC':>6} {'at least':>8} {'promised':>8} {'mu proven':>9}")
    for mu in MUS:
        blocks = statistics_blocks(columns, values, len(prepared.classes), mu, filled=False)
        row = [longest(block) for block in blocks]
        for sites in RELEASES:
            found = [scores(blocks, row, count, given.draws, SystemRandom()) for count in sites]
            members, others = (np.sum(each, axis=0) for each in zip(*found, strict=True))
            auc, proven = area(members, others), least_mu(members, others, ERROR)
            least, total = auc - margin(given.draws, ERROR), mu * math.sqrt(len(sites))
            broken = "  BROKEN" if least > promised_area(total) or proven > total else ""
            named = ", then ".join(map(str, sites))
            print(f"{mu:4} {named:>9} {auc:6.3f} {least:8.3f} {promised_area(total):8.3f} {proven:9.3f}{broken}")


if __name__ == "__main__":
    main()
