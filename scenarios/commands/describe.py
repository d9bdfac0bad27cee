"""`fedsvm describe`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedsvm.federation.text import visible
from fedsvm.scenarios.commands.exit_statuses import failing, interrupted_as
from fedsvm.scenarios.commands.options import Changes, Scenario, Unset
from fedsvm.scenarios.commands.outputs import make_new, write_new
from fedsvm.scenarios.console import out, print_table
from fedsvm.scenarios.interrupts import terminate_as_interrupted
from fedsvm.scenarios.schema import spec

if TYPE_CHECKING:
    from fedsvm.algorithms.column_description import ColumnDescription

app = typer.Typer()


@app.command()
def describe(
    scenario: Scenario,
    changes: Changes = None,
    unset: Unset = None,
    folder: Annotated[
        Path | None, typer.Option("--out", help="Folder for description.json, description.html and receipts.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the description as JSON.")] = False,
) -> None:
    """Describe the columns over all sites: counts, gaps, means, quantiles and categories, by secure sums.

    Across hosts: fedsvm coordinate --describe.
    """
    from fedsvm.scenarios import description
    from fedsvm.scenarios.data.site_column import resolve_site_names

    terminate_as_interrupted()
    chosen, base = spec.read(scenario, overrides=changes or [], unset=unset or [])
    if folder is not None:
        make_new(folder)
    with failing(), interrupted_as("Interrupted; nothing was described."):
        found = description.describe_simulation(resolve_site_names(chosen, base), base, folder)
    if folder is not None:
        write(found, chosen.name, folder)
    show(found, as_json=as_json)


def write(found: ColumnDescription, name: str, folder: Path) -> None:
    """Write a description to a folder, as JSON and as a page. name: of the scenario."""
    from fedsvm.scenarios import description

    write_new(folder / "description.json", description.to_json(found))
    write_new(folder / "description.html", description.page(found, name))


def show(found: ColumnDescription, *, as_json: bool) -> None:
    """Print a description, as tables or as JSON."""
    from fedsvm.scenarios import description

    if as_json:
        print(description.to_json(found), end="")
        return
    print(f"rows     {description.class_line(found)}")
    print(f"privacy  {description.privacy_line(found)}")
    for head, lines in (
        (description.NUMERIC_HEAD, list(description.numeric_lines(found))),
        (description.CATEGORICAL_HEAD, list(description.categorical_lines(found))),
    ):
        if lines:
            out.print()
            print_table([head, *lines])
    for sentence in description.notes(found):
        out.print(f"note {visible(sentence)}", soft_wrap=True)
