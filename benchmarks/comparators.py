"""PAN-SVM and the methods it is compared with, on the same rows at the same sites, in one table.

`python -m benchmarks.comparators FOLDER [NAME …]` needs FEDSVM_DATA, takes some minutes, and writes comparators.json
and comparators.md; with names only those data sets. Every line is a run of five site processes over a ring sum, with
the same fifth of the rows to test on.

The coordinator is audited as one that has a list of all records of the source, where these are 2,000 or fewer, and
without a list where they are more: what it recovers it recovers alone, with the rows' labels, and false claims are in
the first file. Where that is nothing, no attack of ours finds any; of some methods (naive Bayes, a vote) there is none
on sums, and of some (least squares, ADMM) none that does without a list.

Of a9a 6,000 rows are taken, drawn once, since sites of ADMM solve a problem of all their rows in every iteration.

`iterations` are rounds of training that a method repeats; `rounds` and `payload` count all of a run's, landmarks, scale
and audit-free evaluation included. `gap` is certified to the optimum of LIBSVM's problem in the same features; a method
that solves another problem has none. Seconds are of training, on a machine that does other things too: ratios at best.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedsvm.scenarios.data import dataset, sources
from fedsvm.scenarios.run import runner
from fedsvm.scenarios.run.result import RunResult
from fedsvm.scenarios.schema import spec
from fedsvm.scenarios.schema.spec import Scenario
from tools.arguments import parser

DATA: Mapping[str, tuple[dict[str, Any], dict[str, float], float]] = {
    "fourclass by feature": (
        {"source": "fourclass", "positive": "1", "scale": "minmax", "split": "by-feature:f1"},
        {"C": 8.0, "gamma": 8.0},
        0.35,
    ),
    "wdbc": ({"source": "wdbc", "positive": "malignant", "scale": "standard"}, {"C": 10.0, "gamma": 0.03}, 0.25),
    "pima": (
        {"source": "pima_diabetes", "positive": "1", "scale": "minmax"},
        {"C": 512.0, "gamma": 0.0078125},
        0.25,
    ),
    "a9a, 6,000 rows": ({"source": "a9a.csv", "positive": "1", "scale": "none"}, {"C": 1.0, "gamma": 0.02}, 300),
}
"""By name: the [data] table, C and gamma, and landmarks: a share, or a count."""

MAX_LISTED = 2_000
"""Of more records the attacks that need a list do not try."""

DRAWN = ("a9a_train", "a9a.csv", 6_000)
"""A data set of the folder of FEDSVM_DATA, the file that some of its rows are written to, and how many these are."""


@dataclass(frozen=True)
class Line:
    """One method on one data set; see the module."""

    data: str
    method: str
    accuracy: float
    iterations: int | None
    gap: float | None
    rounds: int
    payload_bytes: int
    train_s: float
    recovered: int
    false_claims: int
    rows: int


def methods(svm: Mapping[str, float], landmarks: float) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each method by name, and its [algorithm] table."""
    common = {**svm, "landmarks": landmarks}
    yield "PAN-SVM, interior point", {"name": "pan-svm", "tolerance": 1e-4, "step_noise": 0.1, **common}
    yield "PAN-SVM, cutting planes", {"name": "pan-svm", "solver": "cutting-plane", **common}
    yield "ADMM, as Boyd's", {"name": "svm-admm", "bias": "regularised", **common}
    yield "ADMM, free intercept", {"name": "svm-admm", **common}
    yield "ensemble", {"name": "voting-ensemble", "release": "sites", **common}
    yield "Fourier + LS", {"name": "least-squares", "features": "fourier", "frequencies": 250, "gamma": svm["gamma"]}
    yield "tree", {"name": "decision-tree"}
    yield "naive Bayes", {"name": "naive-bayes"}


def scenario_of(name: str, algorithm: Mapping[str, Any], *, listed: bool) -> Scenario:
    """Return a scenario of one method on one data set, with an attacking coordinator. listed: it has all records of the
    source."""
    known = {"candidates": "source"} if listed else {}
    return spec.validate(
        {
            "name": "comparators",
            "seed": 1,
            "federation": {"sites": 5, "round_timeout_s": 300.0},
            "data": {"label": "label", **DATA[name][0]},
            "algorithm": dict(algorithm),
            "compare": {"centralised": False},
            "collusion": {"sites": [], "coordinator": True, **known},
        }
    )


def measured(name: str, folder: Path) -> Iterator[Line]:
    """Yield the results of every method on one data set."""
    _, svm, landmarks = DATA[name]
    for method, algorithm in methods(svm, landmarks):
        scenario = scenario_of(name, algorithm, listed=False)
        rows = dataset.prepare(scenario, folder.parent)
        if len(rows.rows.numeric) <= MAX_LISTED:
            scenario = scenario_of(name, algorithm, listed=True)
            rows = dataset.prepare(scenario, folder.parent)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        result = runner.run(scenario, rows, folder).result
        yield _line(name, method, result)


def _line(data: str, method: str, result: RunResult) -> Line:
    if result.model is None or result.cost is None or result.metrics is None:
        raise SystemExit(f"{method} on {data}: {result.error}")
    timing = result.timing
    return Line(
        data=data,
        method=method,
        accuracy=result.metrics.accuracy,
        iterations=result.model.iterations,
        gap=result.model.gap,
        rounds=result.cost.rounds,
        payload_bytes=result.cost.payload_bytes,
        train_s=timing.train_s if timing else 0.0,
        recovered=result.audit[0].recovered,
        false_claims=result.audit[0].false_claims,
        rows=sum(site.rows for site in result.sites),
    )


def table(lines: Sequence[Line]) -> str:
    """Return the lines as a table in Markdown."""
    heads = "data | method | accuracy | iterations | gap | rounds | payload | seconds | rows recovered"
    body = [
        f"| {each.data} | {each.method} | {100 * each.accuracy:.1f} % | {_or_dash(each.iterations)} | "
        f"{_or_dash(each.gap, '.1e')} | {each.rounds} | {each.payload_bytes / 1e6:.2f} MB | {each.train_s:.1f} | "
        f"{each.recovered} of {each.rows} |"
        for each in lines
    ]
    return "\n".join([f"| {heads} |", "|" + "---|" * 9, *body, ""])


def _or_dash(value: float | None, how: str = "") -> str:
    return "-" if value is None else format(value, how)


def draw(folder: Path) -> None:
    """Write some rows of a data set that is too large."""
    source, name, count = DRAWN
    table = sources.load(source, label="label", base_folder=folder)
    chosen = np.sort(np.random.default_rng(0).permutation(table.rows)[:count])
    columns = [np.asarray(each.values)[chosen] for each in table.features]
    with (folder / name).open("w") as file:
        file.write(",".join([*(each.name for each in table.features), "label"]) + "\n")
        for *values, label in zip(*columns, table.labels[chosen], strict=True):
            file.write(",".join([*(f"{value:g}" for value in values), str(label)]) + "\n")


def main(folder: Path, names: Sequence[str]) -> None:
    """Measure, and write both files."""
    folder.mkdir(parents=True, exist_ok=True)
    draw(folder)
    lines: list[Line] = []
    for name in names or DATA:
        for line in measured(name, folder / "run"):
            lines.append(line)
            print(table([line]).splitlines()[-1], flush=True)
    shutil.rmtree(folder / "run", ignore_errors=True)
    (folder / "comparators.json").write_text(json.dumps([asdict(line) for line in lines], indent=1) + "\n")
    (folder / "comparators.md").write_text(table(lines))


if __name__ == "__main__":
    arguments = parser("benchmarks.comparators", __doc__)
    arguments.add_argument("folder", type=Path, metavar="FOLDER", help="folder for what is measured")
    arguments.add_argument("data", nargs="*", metavar="DATA", help="data sets; all without any")
    chosen = arguments.parse_args()
    main(chosen.folder, chosen.data)
