"""`fedsvm reproduce`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedsvm.scenarios.commands.exits import FAILED, interrupted_as
from fedsvm.scenarios.commands.options import Jobs
from fedsvm.scenarios.console import print_table
from fedsvm.scenarios.interrupts import terminate_as_interrupted

app = typer.Typer()


@app.command()
def reproduce(
    ids: Annotated[
        list[str] | None, typer.Argument(metavar="[ID…]", help="Such as lu-3.2 or que; all without any.")
    ] = None,
    full: Annotated[
        bool, typer.Option("--full/--quick", help="All rows and seeds, or few of them, for a look.")
    ] = False,
    jobs: Jobs = 1,
    folder: Annotated[Path, typer.Option("--out", help="Folder for runs, page and tables.")] = Path("reproduction"),
    listed: Annotated[bool, typer.Option("--list", help="List all there is, and run nothing.")] = False,
) -> None:
    """Repeat the measurements of four papers and of this project, and write a page with a verdict for each value.

    Run again, it does what is missing. Exit status 3: a run failed, or something differs that the papers' files do not
    say will.
    """
    from fedsvm.scenarios.reproduction.chosen import Chosen

    terminate_as_interrupted()
    chosen = Chosen.of(ids or [], folder, full=full)
    if listed:
        print_table(chosen.table())
        return
    with interrupted_as(f"Interrupted; the same command does what is missing in {folder}."):
        is_worse = chosen.reproduce(jobs)
    if is_worse:
        raise typer.Exit(FAILED)
