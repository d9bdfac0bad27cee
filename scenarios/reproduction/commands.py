"""`fedsvm reproduce`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedsvm.scenarios.commands.exit_statuses import FAILED, interrupted_as
from fedsvm.scenarios.commands.options import Jobs
from fedsvm.scenarios.console import print_table
from fedsvm.scenarios.interrupts import terminate_as_interrupted

app = typer.Typer()


@app.command()
def reproduce(
    ids: Annotated[
        list[str] | None,
        typer.Argument(metavar="[ID…]", help="Measurements to repeat, such as lu-3.2 or que (default: all)."),
    ] = None,
    full: Annotated[
        bool, typer.Option("--full/--quick", help="Use all rows and seeds, or a few for a quick look.")
    ] = False,
    jobs: Jobs = 1,
    folder: Annotated[Path, typer.Option("--out", help="Folder for the runs, the page and the tables.")] = Path(
        "reproduction"
    ),
    listed: Annotated[bool, typer.Option("--list", help="List the measurements without running them.")] = False,
) -> None:
    """Repeat the measurements of four papers and of this project. Write a page with a verdict for each value.

    Repeat the command to do missing runs. Exit status 3: a run failed, or a value differs that was not expected to.
    """
    from fedsvm.scenarios.reproduction.entry_selection import EntrySelection

    terminate_as_interrupted()
    chosen = EntrySelection.of(ids or [], folder, full=full)
    if listed:
        print_table(chosen.table())
        return
    with interrupted_as(f"Interrupted; run the same command again to complete {folder}."):
        is_worse = chosen.reproduce(jobs)
    if is_worse:
        raise typer.Exit(FAILED)
