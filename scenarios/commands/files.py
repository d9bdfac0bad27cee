"""`fedsvm scenarios` and `fedsvm schema`."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from fedsvm.algorithms.registry import ALGORITHMS
from fedsvm.algorithms.settings import settings
from fedsvm.scenarios.commands.options import complete_algorithm, complete_scenario
from fedsvm.scenarios.console import out, print_table
from fedsvm.scenarios.schema import spec
from fedsvm.scenarios.schema.errors import ScenarioError

app = typer.Typer()
scenarios_app = typer.Typer(
    invoke_without_command=True, help="List the catalogue of scenarios, or show one of its files."
)
app.add_typer(scenarios_app, name="scenarios")


@app.command()
def schema() -> None:
    """Print the JSON schema of scenario files, for editors."""
    print(json.dumps(spec.json_schema(), indent=1))


@scenarios_app.callback()
def list_scenarios(context: typer.Context) -> None:
    """List the catalogue."""
    if context.invoked_subcommand is None:
        print_table(list(spec.catalogue().items()))


@scenarios_app.command("show")
def show_scenario(
    name: Annotated[str, typer.Argument(help="Name in the catalogue.", autocompletion=complete_scenario)],
) -> None:
    """Print a file of the catalogue, to copy and edit."""
    print(spec.catalogue_text(name), end="")


@scenarios_app.command("keys")
def list_keys(
    name: Annotated[
        str | None, typer.Argument(help="Algorithm to describe (default: all).", autocompletion=complete_algorithm)
    ] = None,
) -> None:
    """List the settings of an algorithm, or of all: allowed values, default, and meaning."""
    if name is not None and name not in ALGORITHMS:
        raise ScenarioError([f"There is no algorithm {name!r}; this installation has {', '.join(ALGORITHMS)}."])
    for algorithm in [name] if name is not None else [known for known, _ in ALGORITHMS.loadable()]:
        out.print(f"{algorithm}: {ALGORITHMS[algorithm].summary}", soft_wrap=True)
        rows = [("key", "must be", "default", "meaning")]
        rows += [
            (key.name, key.requirement, "" if key.default is None else json.dumps(key.default), key.sentence)
            for key in settings(ALGORITHMS[algorithm].Settings)
        ]
        print_table(rows)
        out.print()
