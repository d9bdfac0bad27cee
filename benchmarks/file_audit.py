"""The training rows that a model file names to whoever has a list of candidates.

`python -m benchmarks.file_audit [NAME ...]` trains pan-svm on quickstart, wdbc, heart, german and pima (FEDSVM_DATA),
with exact statistics and `local` landmarks, and at the default: noisy statistics with declared ranges, and `auto`
landmarks. It prints how many rows the attacks of `fedsvm audit` on the file alone name, right and wrong. The list has
all rows of the source. German takes some minutes.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from benchmarks.landmarks import SETS, ranges_of
from fedsvm.algorithms.data.columns import LabeledRows
from fedsvm.algorithms.data.encoding import Vocabulary
from fedsvm.scenarios.data import dataset
from fedsvm.scenarios.data.dataset import Rows
from fedsvm.scenarios.run import runner
from fedsvm.scenarios.run.audit import GroundTruth, PartyAudit, file_audits
from fedsvm.scenarios.run.offered_terms import resolve_settings
from fedsvm.scenarios.saved_model import read_arrays
from fedsvm.scenarios.schema import spec
from tools.arguments import parser

NAMES = ("quickstart", "wdbc", "heart", "german", "pima")
_EXACT = ("data.statistics_privacy=0", "algorithm.landmark_method=local")
_MU = 0.5


def audit(name: str, *, is_exact: bool) -> PartyAudit:
    """Return what the holder of a model file with a list of candidates finds. Raises RuntimeError for a failed run."""
    words, *chosen = SETS[name]
    changes = [*chosen, "compare.centralised=false", *(_EXACT if is_exact else [f"data.statistics_privacy={_MU}"])]
    scenario, base = spec.read(words, overrides=changes)
    rows = dataset.prepare(scenario, base)
    if not is_exact and rows.schema.numeric:
        scenario, base = spec.read(words, overrides=[*changes, f"data.ranges={ranges_of(rows)}"])
        rows = dataset.prepare(scenario, base)
    with tempfile.TemporaryDirectory() as folder:
        result = runner.run(scenario, rows, Path(folder)).result
        if result.status != "completed":
            raise RuntimeError(f"the run must complete, got {result.status}: {result.error}")
        arrays = read_arrays(Path(folder) / "model.npz")
    values = {
        column: sorted(set(entries))
        for column, entries in zip(rows.schema.categorical, rows.rows.categorical.T, strict=True)
    }
    vocabulary = Vocabulary(values)
    if list(arrays["columns"]) != [*rows.schema.numeric, *vocabulary.columns]:
        raise RuntimeError(f"the columns of the file must be those of the rows, got {list(arrays['columns'])}")

    def encode(some: Rows) -> LabeledRows:
        return LabeledRows(vocabulary.encode(some.numeric, some.categorical), some.labels)

    held = {site: encode(rows.rows.take(shard.rows)) for site, shard in zip(rows.names, rows.shards, strict=True)}
    truth = GroundTruth(held, {}, None, len(rows.classes), encode(rows.rows))
    settings, _ = resolve_settings(scenario)
    return file_audits(arrays, scenario.algorithm.implementation.file_attacks(settings), truth)[-1]


def main() -> None:
    """Print the table."""
    arguments = parser("benchmarks.file_audit", __doc__)
    arguments.add_argument("names", nargs="*", default=[*NAMES], metavar="NAME", help=", ".join(NAMES))
    given = arguments.parse_args()
    print("| data | statistics | training rows | named | wrong |\n|---|---|---|---|---|", flush=True)
    for name in given.names:
        for is_exact in (True, False):
            found = audit(name, is_exact=is_exact)
            how = "exact, `local`" if is_exact else "default"
            print(f"| {name} | {how} | {found.rows} | {found.recovered} | {found.false_claims} |", flush=True)


if __name__ == "__main__":
    main()
