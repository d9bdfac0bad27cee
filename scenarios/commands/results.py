"""`fedsvm report`, `fedsvm predict-cost` and `fedsvm predict`."""

from __future__ import annotations

import json
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedsvm.federation.text import visible
from fedsvm.scenarios.commands.exit_statuses import failing, interrupted_as
from fedsvm.scenarios.commands.options import Changes, Scenario, Unset, complete_data
from fedsvm.scenarios.commands.outputs import write_new
from fedsvm.scenarios.console import errors, print_table
from fedsvm.scenarios.figures import human_bytes
from fedsvm.scenarios.interrupts import terminate_as_interrupted
from fedsvm.scenarios.schema.errors import ScenarioError

if TYPE_CHECKING:
    from fedsvm.scenarios.forecast import Total
    from fedsvm.scenarios.predict import Predictions

app = typer.Typer()


class _Unknown(StrEnum):
    """Treatments of unknown categories; the lowest version of typer takes enumerations only."""

    MISSING = "missing"
    REFUSE = "refuse"


class _Library(StrEnum):
    """Libraries and standards to export to."""

    SKLEARN = "sklearn"
    ONNX = "onnx"


class _Format(StrEnum):
    """Formats of exported files."""

    SKOPS = "skops"
    JOBLIB = "joblib"


@app.command()
def report(
    run_folders: Annotated[
        list[Path], typer.Argument(metavar="RUN_DIR…", help="Folders of runs. Several runs are compared.")
    ],
    target: Annotated[Path | None, typer.Option("--out", help="File for the comparison of several runs.")] = None,
) -> None:
    """Write the HTML report of a run again, or compare several runs."""
    from fedsvm.scenarios.report import comparison, page

    if len(run_folders) == 1 and target is None:
        print(page.write_report(run_folders[0]))
        return
    path = target or Path("comparison.html")
    write_new(path, page.render(run_folders[0]) if len(run_folders) == 1 else comparison.render(run_folders))
    print(path)


@app.command("predict-cost")
def predict_cost(
    context: typer.Context,
    scenario: Scenario,
    sites: Annotated[int, typer.Option(min=2, help="Number of sites to predict for.")],
    changes: Changes = None,
    unset: Unset = None,
    measured: Annotated[
        str, typer.Option("--measure", metavar="N,N,…", help="Three or more numbers of sites to measure first.")
    ] = "5,20,60",
    as_json: Annotated[bool, typer.Option("--json", help="Print the figures as JSON.")] = False,
) -> None:
    """Predict the cost of a scenario with many sites from a few small runs."""
    from fedsvm.scenarios import forecast

    terminate_as_interrupted()
    try:
        numbers = sorted({int(each) for each in measured.split(",")})
    except ValueError:
        raise ScenarioError([f"--measure {measured}: list numbers of sites, such as 5,20,60."]) from None
    forecast.check(sites, numbers)
    runs: list[forecast.MeasuredRun] = []
    for number in numbers:
        began = None if runs else context.find_root().obj
        with interrupted_as("Interrupted; nothing is kept of what was measured."):
            runs.append(forecast.measure(scenario, number, changes or [], unset or [], began=began))
        errors.print(f"{number} sites measured")
    totals = [run.total for run in runs]
    secure_sum = forecast.secure_sum_of(scenario, changes or [], unset or [])
    totals.append(forecast.predict(runs, secure_sum, sites))
    if as_json:
        kinds = ["measured"] * len(runs) + ["predicted"]
        print(
            json.dumps(
                [
                    {"kind": kind, **each._asdict(), "seconds": each.seconds}
                    for kind, each in zip(kinds, totals, strict=True)
                ],
                indent=1,
            )
        )
        return
    counts, seconds = (
        ("sites", "rounds", "hops", "messages"),
        ("prepare", "launch", "rounds take", "between", "end", "in all"),
    )
    head = ("", *counts, "payload", "wire", "orders", *seconds, "memory")
    print_table([head, *(_cost_row("predicted" if each is totals[-1] else "measured", each) for each in totals)])


def _cost_row(how: str, total: Total) -> tuple[str, ...]:
    carried = (human_bytes(each) for each in (total.payload_bytes, total.wire_bytes, total.control_bytes))
    parts = (total.prepare_s, total.launch_s, total.rounds_s, total.own_s, total.end_s, total.seconds)
    seconds = (f"{each:.3g} s" for each in parts)
    counts = (f"{total.sites}", f"{total.rounds}", f"{total.hops:.0f}", f"{total.messages:.0f}")
    return (how, *counts, *carried, *seconds, human_bytes(total.sites * total.site_bytes))


@app.command()
def predict(
    run_folder: Annotated[Path, typer.Argument(metavar="RUN_DIR", help="Folder of a run.")],
    rows: Annotated[
        str,
        typer.Argument(metavar="DATA", help="Data file, or the name of a data set.", autocompletion=complete_data),
    ],
    target: Annotated[Path | None, typer.Option("--out", help="File to write (default: standard output).")] = None,
    identifier: Annotated[
        str | None,
        typer.Option("--id", metavar="COLUMN", help="Column to use as row identifier instead of the row number."),
    ] = None,
    site: Annotated[str | None, typer.Option(help="Site whose corrections (data.by_site) apply to the rows.")] = None,
    unknown: Annotated[
        _Unknown,
        typer.Option(metavar="missing|refuse", help="Treatment of categories that the model does not know."),
    ] = _Unknown.MISSING,
    report: Annotated[
        bool,
        typer.Option("--report", help="Print drift, and measures of rows that have a label, not predictions."),
    ] = False,
    over_sites: Annotated[
        bool,
        typer.Option(
            "--over-sites", help="For sites that hold columns: one process per site computes its part, by secure sums."
        ),
    ] = False,
) -> None:
    """Predict new rows with the model of a run. The output is CSV: row, decision value and class."""
    from fedsvm.scenarios import column_prediction, predict

    decide = partial(column_prediction.ask_sites, run_folder) if over_sites else None
    with failing(), interrupted_as("Interrupted; nothing was predicted."):
        predicted = predict.predict(
            run_folder, rows, identifier, site, unknown=unknown.value, judge=report, decide=decide
        )
    text = "\n".join(predicted.lines()) + "\n"
    for doubt in predicted.doubts:
        errors.print(f"note {visible(rows)}: {visible(doubt)}", soft_wrap=True, markup=False)
    if predicted.threshold:
        errors.print(f"note threshold: {_threshold(predicted)}", soft_wrap=True, markup=False)
    if report:
        _print_report(predicted)
    elif target is None:
        print(text, end="")
    if target is not None:
        write_new(target, text)


@app.command()
def export(
    run_folder: Annotated[Path, typer.Argument(metavar="RUN_DIR", help="Folder of a run.")],
    target: Annotated[Path | None, typer.Option("--out", help="File to write (default: model.FORMAT).")] = None,
    to: Annotated[
        _Library, typer.Option(metavar="sklearn|onnx", help="A scikit-learn pipeline, or an ONNX graph.")
    ] = _Library.SKLEARN,
    form: Annotated[
        _Format | None,
        typer.Option(
            "--format",
            metavar="skops|joblib",
            help="File of a pipeline: skops (default) runs no code when it is loaded, joblib is a pickle.",
        ),
    ] = None,
) -> None:
    """Export the model of a run as a scikit-learn pipeline or an ONNX graph that loads without fedsvm."""
    from fedsvm.scenarios import export

    if to is _Library.ONNX and form is not None:
        raise ScenarioError(["--format: applies to scikit-learn pipelines; remove it, or export --to sklearn."])
    written: export.Format = "onnx" if to is _Library.ONNX else (form or _Format.SKOPS).value
    path = target or Path(f"model.{written}")
    if path.exists():
        raise ScenarioError([f"--out: {path} exists already; name another file."])
    export.export(run_folder, path, written)
    print(path)


def _threshold(predicted: Predictions) -> str:
    return f"rows are {predicted.classes[1]!r} from a decision value of {predicted.threshold:.4g} on"


def _print_report(predicted: Predictions) -> None:
    """Print the measures of predictions with their intervals, and how columns differ from the training rows."""
    from fedsvm.scenarios import drift
    from fedsvm.scenarios.report import summary

    found = [("model", f"trained by fedsvm {predicted.version}")]
    if len(predicted.classes) == 2:
        found.append(("threshold", _threshold(predicted)))
    if predicted.measured is not None:
        found += summary.measure_lines(predicted.measured, predicted.classes, "on these rows")
    width = max(len(name) for name, _ in found)
    for name, value in found:
        print(f"{name.ljust(width)}  {visible(value)}")
    print()
    print_table([drift.HEAD, *(each.cells() for each in predicted.drift)])
