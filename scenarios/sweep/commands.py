"""`fedsvm sweep`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from fedsvm.scenarios.commands.exit_statuses import FAILED, interrupted_as
from fedsvm.scenarios.commands.options import Changes, Jobs, Scenario, Unset
from fedsvm.scenarios.console import complain, errors, print_table
from fedsvm.scenarios.figures import TimeLeft
from fedsvm.scenarios.interrupts import terminate_as_interrupted
from fedsvm.scenarios.schema import spec
from fedsvm.scenarios.sweep.charts import SEED

app = typer.Typer()


@app.command()
def sweep(
    scenario: Scenario,
    vary: Annotated[list[str], typer.Option("--vary", help="Values to try: key.path=v1,v2,…. Repeatable.")],
    changes: Changes = None,
    unset: Unset = None,
    plots: Annotated[
        list[str] | None,
        typer.Option("--plot", help="Plot to draw: measure:axis[:group], such as gap:round:algorithm.cut_groups."),
    ] = None,
    jobs: Jobs = 1,
    folder: Annotated[Path | None, typer.Option("--out", help="Folder for the sweep (default: sweeps/NAME).")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the rows as JSON.")] = False,
) -> None:
    """Run a grid of scenarios and write a table, CSV and plots. Repeat the command to do missing runs."""
    from fedsvm.scenarios.sweep import grid

    terminate_as_interrupted()
    axes = tuple(grid.SweepAxis.read(each) for each in vary)
    named, _ = spec.read(scenario, overrides=changes or [], unset=unset or [])
    target = folder or Path("sweeps") / named.name
    chosen = grid.Sweep(scenario, tuple(changes or []), axes, target, tuple(unset or []))
    chosen.check()
    drawn = [grid.read_plot(each, axes, chosen.measures) for each in plots or []] or grid.default_plots(axes)
    chosen.prepare()
    with interrupted_as(f"Interrupted; run the same command again to complete {chosen.folder}."):
        left = TimeLeft(len(chosen.missing()))
        chosen.run(
            jobs,
            lambda point, said: errors.print(
                f"{point.name} {said or 'done'}{left.after_one()}", soft_wrap=True, markup=False
            ),
        )
    rows = chosen.write()
    charts = [chart for plot in drawn if (chart := chosen.draw(plot, rows)) is not None]
    chosen.write_page(charts)
    listed = [*rows, *chosen.summary_rows(rows)]
    if as_json:
        print(json.dumps(listed, indent=1))
    else:
        _print_table(listed, [axis.key for axis in axes])
        print(chosen.folder)
    if chosen.missing():
        complain(f"{len(chosen.missing())} of {len(chosen.points)} runs did not complete; sweep.csv has the reasons.")
        raise typer.Exit(FAILED)


def _print_table(rows: list[dict[str, Any]], keys: list[str]) -> None:
    shown = [*keys, "status", "accuracy", "rounds", "payload_bytes", "total_s"]
    head = tuple(name.rpartition(".")[2].removesuffix("_bytes").removesuffix("_s") for name in shown)
    print_table([head, *(tuple(_cell(_format_mean(row, name)) for name in shown) for row in rows)])


def _format_mean(row: dict[str, Any], name: str) -> Any:
    """Return a value of a row. Where runs differ in the seed, their mean and deviation stand in its place."""
    return row["summary"] if name == SEED and "summary" in row else row[name]


def _cell(value: Any) -> str:
    return "" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)
