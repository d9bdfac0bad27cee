"""An audit of mu: the steps of noisy statistics of real sites, over neighboring source files.

`python -m benchmarks.mu_audit heart --draws 1000` needs FEDSVM_DATA for `heart`. One row lies at the ends of all
columns, which no row can contribute more than. Its site's file has the row or lacks it, in each of as many releases,
with a fresh record of answers and fresh noise. The attacker knows all other rows, and sees sums over the sites. The
command prints the mu that the errors of the optimal test prove, by bounds of Clopper and Pearson, and the promise:

- 1 site: the rows of one site alone changed between two runs, so that the noise of all others is known;
- 2, 5 and 20 sites;
- 5 sites, then 4: a site drops and the others release once more, which is another question;
- 5 sites, resumed: each site answers the same question again, with the kept answer.
"""

from __future__ import annotations

import math
import os
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from random import SystemRandom
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import patch

import numpy as np

from benchmarks.landmarks import SETS, ranges_of
from fedsvm.algorithms.attacks.membership import area, least_mu, log_likelihood_ratio, promised_area
from fedsvm.algorithms.data.statistics import products_block, statistics_blocks
from fedsvm.algorithms.data.statistics_rounds import StatisticsPlan
from fedsvm.algorithms.pan_svm import PanSite
from fedsvm.algorithms.privacy import noisy_sums
from fedsvm.federation.arrays import FloatArray
from fedsvm.federation.site.answers import AnswerRecord
from fedsvm.federation.site.partition import Partition, read_partition
from fedsvm.scenarios.data import dataset
from fedsvm.scenarios.run.offered_terms import terms_of
from fedsvm.scenarios.schema import spec
from tools.arguments import parser

ERROR = 1e-3
"""Chance that a mechanism that keeps its promise is said to break it."""


class Source:
    """Partitions of a data set over sites. The first site holds the row in question or lacks it."""

    def __init__(self, name: str, sites: int, mu: float) -> None:
        words, *overrides = SETS[name]
        count = max(3, sites)
        noisy = [*overrides, f"data.statistics_privacy={mu}"]
        scenario, base = spec.read(words, overrides=noisy, sites=count)
        ranges = ranges_of(dataset.prepare(scenario, base))
        scenario, base = spec.read(words, overrides=[*noisy, f"data.ranges={ranges}"], sites=count)
        data = dataset.prepare(scenario, base)
        self.terms, self.names = terms_of(scenario), data.names[:sites]
        self.plan = StatisticsPlan.of(self.terms)
        self.ends = self.plan.ends(data.schema.numeric, np.zeros((2, 0)))
        with tempfile.TemporaryDirectory() as folder:
            data.write_partition(0, Path(folder, "site"))
            first = read_partition(str(Path(folder, "site")))
        numeric = first.arrays["numeric"].copy()
        numeric[-1] = self.ends[1]
        self.held = replace(first, arrays={**first.arrays, "numeric": numeric})
        fewer = {key: each[:, :-1] if key == "labels" else each[:-1] for key, each in self.held.arrays.items()}
        self.lacking = replace(first, arrays=fewer)
        columns, budget = len(data.schema.numeric), self.plan.budget(data.schema.numeric)
        blocks = statistics_blocks(columns, [], len(data.classes), budget.statistics, filled=False)
        self.blocks = [*blocks, products_block(columns, budget.products)]

    def release(self, names: Sequence[str], *, is_member: bool, answers: AnswerRecord | None = None) -> FloatArray:
        """Return the sums over some sites of statistics and of products; those of others than the first are noise."""
        site = self._site(self.names[0], self.held if is_member else self.lacking, names)
        site.answers = AnswerRecord() if answers is None else answers
        middle, half = self.ends.mean(axis=0), (self.ends[1] - self.ends[0]) / 2
        own = [site.statistics.noisy_statistics(self.ends), site.statistics.noisy_products(middle, half, self.ends)]
        total = np.concatenate(own)
        for _ in names[1:]:
            others = [block.add_noise([], SystemRandom()) for block in self.blocks]
            total = total + np.concatenate(others)
        return total

    def _site(self, name: str, held: Partition, names: Sequence[str]) -> PanSite:
        site = PanSite(name, held, {"seed": 1})
        site.terms = self.terms
        site.channel = cast("Any", SimpleNamespace(sites=tuple(names), random=_residues))
        return site


def _residues(shape: Sequence[int]) -> Any:
    return np.frombuffer(os.urandom(8 * math.prod(shape)), dtype=np.uint64).reshape(shape)


def scores(source: Source, releases: Sequence[Sequence[str]], draws: int) -> tuple[FloatArray, FloatArray]:
    """Return the scores (draws,) of the optimal test on releases with the row, and on others without it."""
    blocks = source.blocks
    places = np.cumsum([block.size for block in blocks])[:-1]
    exact = {}
    with patch.object(noisy_sums, "draw_many", lambda draw, size: np.zeros(size, dtype=np.int64)):
        for names in map(tuple, releases):
            exact[names] = [source.release(names, is_member=is_member) for is_member in (True, False)]

    def score(*, is_member: bool) -> float:
        total = 0.0
        for names in map(tuple, releases):
            there, lacking = exact[names]
            rest = source.release(names, is_member=is_member) - lacking
            sigmas = [block.sigma * math.sqrt(len(names)) for block in blocks]
            total += log_likelihood_ratio(np.split(rest, places), np.split(there - lacking, places), sigmas)
        return total

    members = np.array([score(is_member=True) for _ in range(draws)])
    return members, np.array([score(is_member=False) for _ in range(draws)])


def main() -> None:
    """Print the table."""
    arguments = parser("benchmarks.mu_audit", __doc__)
    arguments.add_argument("name", choices=[name for name in SETS if name != "quickstart"])
    arguments.add_argument("--mu", type=float, default=0.5)
    arguments.add_argument("--draws", type=int, default=1000, help="releases with the row, and as many without it")
    given = arguments.parse_args()
    print(f"{'releases':>16} {'AUC':>6} {'promised':>8} {'mu proven':>9} {'mu promised':>11}")
    for sites in (1, 2, 5, 20):
        source = Source(given.name, sites, given.mu)
        _show(f"{sites}", scores(source, [source.names], given.draws), source.plan.mu)
        if sites == 5:
            again = [source.names, source.names[:-1]]
            _show("5, then 4", scores(source, again, given.draws), source.plan.mu * math.sqrt(2))
            answers = AnswerRecord()
            first, resumed = (source.release(source.names[:1], is_member=True, answers=answers) for _ in range(2))
            equal = np.array_equal(first, resumed)
            print(f"{'5, resumed':>16} {'the same answer, to the last bit' if equal else 'BROKEN: another answer'}")


def _show(releases: str, found: tuple[FloatArray, FloatArray], promised: float) -> None:
    proven = least_mu(*found, ERROR)
    broken = "  BROKEN" if proven > promised else ""
    numbers = f"{area(*found):6.3f} {promised_area(promised):8.3f} {proven:9.3f} {promised:11.3f}"
    print(f"{releases:>16} {numbers}{broken}", flush=True)


if __name__ == "__main__":
    main()
