"""`fedsvm data` and `fedsvm new`."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from fedsvm.federation.text import visible
from fedsvm.scenarios.commands.options import Label, complete_data
from fedsvm.scenarios.commands.outputs import write_new
from fedsvm.scenarios.console import out, print_table
from fedsvm.scenarios.schema.errors import ScenarioError

app = typer.Typer()
data_app = typer.Typer(invoke_without_command=True, help="List the data sets, or describe one.")
app.add_typer(data_app, name="data")


@data_app.callback()
def list_data(context: typer.Context) -> None:
    """List the built-in data sets, and where others are looked for."""
    if context.invoked_subcommand is not None:
        return
    from fedsvm.scenarios.data import sources  # needs pyarrow and scikit-learn

    rows: list[tuple[str, ...]] = [("name", "rows", "columns", "classes", "where")]
    for item in sources.available():
        figures = [str(figure) if figure is not None else "" for figure in (item.rows, item.columns, item.classes)]
        rows.append((item.name, *figures, item.place))
    print_table(rows)
    folder = sources.data_folder()
    place = str(folder) if folder else "is not set"
    out.print(f"{sources.FOLDER_VARIABLE} {place}: files there can be named without path and ending.")


@data_app.command("describe")
def describe_data(
    source: Annotated[str, typer.Argument(help="Data file, or the name of a data set.", autocompletion=complete_data)],
    label: Label = "label",
    sites: Annotated[int, typer.Option(min=1, help="Number of sites to split into.")] = 5,
    split: Annotated[str, typer.Option(help="Split, as data.split of a scenario: random, label-skew, …")] = "random",
    site: Annotated[
        str | None, typer.Option(help="Column that names the site of each row, instead of a split.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the tables as JSON.")] = False,
) -> None:
    """Show the columns, classes and missing values of a data set, and how sites would share it."""
    from fedsvm.scenarios.data import table_description

    found = table_description.describe(source, label, split, sites, Path(), site)
    if as_json:
        print(json.dumps(asdict(found), indent=1, ensure_ascii=False))
        return
    out.print(f"{visible(source)}: {found.rows} rows, {found.width} columns\n")
    for table in (found.columns, found.classes, found.sites):
        print_table(table)
        out.print()
    for warning in found.warnings:
        out.print(f"note {visible(warning)}", soft_wrap=not out.is_terminal)


@app.command("new")
def new_scenario(
    target: Annotated[Path, typer.Argument(metavar="FILE.toml", help="Scenario file to write.")],
    data: Annotated[
        list[str],
        typer.Option(
            help="Data file or name of a data set. Use SITE=FILE for each site with its own file.",
            autocompletion=complete_data,
        ),
    ],
    label: Label = "label",
    positive: Annotated[str | None, typer.Option(help="Class to predict as positive (+1).")] = None,
    site: Annotated[str | None, typer.Option(help="Column that names the site of each row.")] = None,
    ignore: Annotated[list[str] | None, typer.Option(help="Column to ignore. Repeatable.", metavar="COLUMN")] = None,
) -> None:
    """Inspect a data set and write a commented scenario for it."""
    from fedsvm.scenarios import draft

    if target.suffix != ".toml":
        raise ScenarioError([f"{target}: the name of a scenario ends in .toml."])
    made = draft.draft(target, _source(data), label, site=site, positive=positive, ignore=ignore or [])
    write_new(target, made.text)
    for ask in made.asks:
        out.print(f"note {visible(ask)}", soft_wrap=True)
    print(target)


def _source(data: list[str]) -> str | dict[str, str]:
    """Return one source, or those of sites by their names. Raises ScenarioError."""
    if len(data) == 1 and ("=" not in data[0] or Path(data[0]).is_file()):
        return data[0]
    named = dict(each.partition("=")[::2] for each in data)
    if len(named) < len(data) or not all(named.values()) or len(named) < 2:
        raise ScenarioError(
            ["--data: name one table, or of each site its file, such as --data north=n.csv --data south=s.csv."]
        )
    return named
