"""The candidates that numbers opened behind a committee decide, by lattice reduction.

`python -m benchmarks.opened_scalars [ROWS ...]` trains pan-svm on samples of wdbc at three sites, with exact
statistics: once with no noise on the opened numbers, once with the default. The list has all rows of the sample. It
prints the training rows of other sites, the candidates that a coordinator with one site decides, how many training
rows it recovers by all attacks together, and how many the site recovers alone. Each figure is the largest of the three
sites.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from unittest.mock import patch

import numpy as np
from sklearn.datasets import load_breast_cancer

from fedsvm.algorithms.attacks.opened_scalars import OpenedScalars
from fedsvm.algorithms.optimization import blind_path
from fedsvm.scenarios.data import dataset
from fedsvm.scenarios.run import runner
from fedsvm.scenarios.run.audit import PartyAudit
from fedsvm.scenarios.schema import spec
from tools.arguments import parser

ROWS = (60, 120, 200, 400)
_CHANGES = ("data.positive=malignant", "data.scale=standard", "data.statistics_privacy=0", "algorithm.gamma=0.03")
_SITES = ("federation.sites=3", "compare.centralised=false")
_LIST = 'collusion={sites=["site-1"],coordinator=true,candidates="source"}'


def audit(rows: int) -> list[PartyAudit]:
    """Return the audit of a run on so many rows. Raises RuntimeError for a failed run."""
    whole = load_breast_cancer()
    chosen = np.random.default_rng(1).permutation(len(whole.target))[:rows]
    with tempfile.TemporaryDirectory() as folder:
        table = Path(folder) / "wdbc.csv"
        lines = [[*map(repr, whole.data[row].tolist()), str(whole.target_names[whole.target[row]])] for row in chosen]
        head = [*whole.feature_names.tolist(), "label"]
        table.write_text("".join(f"{','.join(line)}\n" for line in [head, *lines]))
        scenario, base = spec.read("committee", overrides=[f"data.source={table}", *_CHANGES, *_SITES, _LIST])
        result = runner.run(scenario, dataset.prepare(scenario, base), Path(folder), audit=True).result
    if result.status != "completed":
        raise RuntimeError(f"the run must complete, got {result.status}: {result.error}")
    return list(result.audit)


def _line(rows: int, noise: str, audits: Sequence[PartyAudit]) -> str:
    both = [each for each in audits if each.coordinator and each.coalition]
    alone = [each for each in audits if len(each.coalition) == 1 and not each.coordinator]
    notes = [attack.note for each in both for attack in each.attacks if attack.attack == OpenedScalars.name]
    decided = [note for note in notes if note.startswith("decides")]
    said = max(decided, key=lambda note: int(note.split()[1])) if decided else notes[0]
    wrong = sum(each.false_claims for each in both)
    found, own = (max(each.recovered for each in some) for some in (both, alone))
    return f"| {rows} | {noise} | {max(each.rows for each in both)} | {said} | {found} | {wrong} | {own} |"


def main() -> None:
    """Print the table."""
    arguments = parser("benchmarks.opened_scalars", __doc__)
    arguments.add_argument("rows", nargs="*", type=int, default=[*ROWS], metavar="ROWS", help="sizes of samples")
    given = arguments.parse_args()
    head = "| rows | noise | of other sites | lattice reduction | recovered | false claims | by the site alone |"
    print(f"{head}\n|---|---|---|---|---|---|---|", flush=True)
    for rows in given.rows:
        with patch.object(blind_path, "_NOISE", 1e-12):  # sites refuse 0
            print(_line(rows, "none", audit(rows)), flush=True)
        print(_line(rows, "default", audit(rows)), flush=True)


if __name__ == "__main__":
    main()
