"""The command line: the commands of every area, and errors as sentences.

Exit status: 0 done, 2 nothing was started, 3 the run failed or something could not be written, 130 interrupted.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping
from importlib.metadata import version
from typing import Annotated, Any

import typer

from fedsvm.federation.errors import FederationError
from fedsvm.federation.processes.limits import refused_tasks_explained
from fedsvm.scenarios.commands.exit_statuses import FAILED, WRONG
from fedsvm.scenarios.console import complain
from fedsvm.scenarios.schema.errors import ScenarioError
from fedsvm.scenarios.streams import OutputLost

AREAS: Mapping[str, tuple[str, ...]] = {
    "fedsvm.scenarios.commands.run": ("run", "audit", "check-sum"),
    "fedsvm.scenarios.hosts.coordinator_command": ("coordinate",),
    "fedsvm.scenarios.hosts.site_command": ("site",),
    "fedsvm.scenarios.hosts.preparation_commands": ("keys", "policy"),
    "fedsvm.scenarios.oversight.commands": ("explain", "receipt"),
    "fedsvm.scenarios.hub.commands": ("hub", "join"),
    "fedsvm.scenarios.commands.results": ("report", "predict-cost", "predict", "export"),
    "fedsvm.scenarios.sweep.commands": ("sweep",),
    "fedsvm.scenarios.reproduction.commands": ("reproduce",),
    "fedsvm.scenarios.commands.files": ("schema", "scenarios"),
    "fedsvm.scenarios.commands.data": ("new", "data"),
    "fedsvm.scenarios.commands.describe": ("describe",),
    "fedsvm.scenarios.sets": ("sets",),
    "fedsvm.scenarios.runs": ("runs",),
}
"""The commands of each module, which has them in its `app`."""

_HELP_OPTIONS = ["-h", "--help"]


def application(asked: str = "") -> typer.Typer:
    """Return the command line, only with the area of the requested command, since imports take time."""
    app = typer.Typer(
        no_args_is_help=True,
        context_settings={"help_option_names": _HELP_OPTIONS},
        pretty_exceptions_enable=False,
        callback=_options,
    )
    for area in [module for module, names in AREAS.items() if asked in names] or AREAS:
        app.add_typer(importlib.import_module(area).app)
    return app


def _hide_flag_types(command: Any) -> None:
    """Remove the type after options that take no value, from the help of a command and of its subcommands."""
    for parameter in command.get_params(typer.Context(command, help_option_names=_HELP_OPTIONS)):
        if getattr(parameter, "is_flag", False):
            parameter.metavar = ""
    for subcommand in getattr(command, "commands", {}).values():
        _hide_flag_types(subcommand)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"fedsvm {version('fedsvm')}")
        raise typer.Exit


def _options(
    wanted: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Train federated support vector machines over real processes, and see what a protocol costs and reveals."""


def main(app: typer.Typer, began: float) -> None:
    """Run the command line. Every error ends in a sentence and an exit status.

    began: when the process started, on the monotonic clock in seconds.
    """
    try:
        try:
            with refused_tasks_explained():
                command = typer.main.get_command(app)
                _hide_flag_types(command)
                command(obj=began)
        finally:
            sys.stdout.flush()
    except OutputLost as error:
        if not error.reader_left:
            complain(f"Standard output cannot be written: {error}.")
        sys.exit(FAILED)
    except ScenarioError as error:
        for problem in error.problems:
            complain(problem)
        sys.exit(WRONG)
    except OSError as error:
        complain(f"{error.filename or 'A file'} cannot be read or written: {error.strerror}.")
        sys.exit(FAILED)
    except FederationError as error:  # before any run: a sum of another package cannot be loaded
        complain(str(error))
        sys.exit(WRONG)
