"""Arguments and options that several commands have, and the words that a shell completes for them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer

from fedsvm.scenarios.schema.errors import ScenarioError

_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def complete_scenario(incomplete: str) -> list[tuple[str, str]]:
    """Return the scenarios of the catalogue that begin so, each with its meaning."""
    from fedsvm.scenarios.schema import spec

    return [(name, line) for name, line in spec.catalogue().items() if name.startswith(incomplete)]


def complete_data(incomplete: str) -> Iterable[str]:
    """Return the data sets that begin so."""
    from fedsvm.scenarios.data import sources

    return [item.name for item in sources.available() if item.name.startswith(incomplete)]


def complete_algorithm(incomplete: str) -> Iterable[str]:
    """Return the algorithms that begin so."""
    from fedsvm.algorithms.registry import ALGORITHMS

    return [name for name in ALGORITHMS if name.startswith(incomplete)]


def complete_sum(incomplete: str) -> Iterable[str]:
    """Return the secure sums that begin so."""
    from fedsvm.protocols.sums.registry import SUMS

    return [name for name in SUMS if name.startswith(incomplete)]


_SCENARIO = typer.Argument(
    help="Scenario file (TOML), or the name of a scenario in the catalogue.", autocompletion=complete_scenario
)

Scenario = Annotated[str, _SCENARIO]
OptionalScenario = Annotated[str | None, _SCENARIO]
Changes = Annotated[list[str] | None, typer.Option("--set", help="Change a key: key.path=value. Repeatable.")]
Unset = Annotated[
    list[str] | None, typer.Option("--unset", metavar="KEY", help="Remove a key that the file sets. Repeatable.")
]
RunFolder = Annotated[Path | None, typer.Option("--out", help="Folder for the results. It must not exist yet.")]
PrintJson = Annotated[bool, typer.Option("--json", help="Print only result.json.")]
JsonLog = Annotated[
    bool, typer.Option("--log-json", help="Write each line of the log on standard error as a JSON object.")
]
CorrectionsFile = Annotated[
    Path | None,
    typer.Option(
        "--corrections", help="TOML file with rename, missing_values, recode and convert for this site's own file."
    ),
]

Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of a failure.")]
Jobs = Annotated[int, typer.Option(min=1, help="Number of runs at the same time.")]
Names = Annotated[
    str | None, typer.Option(help="Sites of a run across hosts, such as east,north,south.", metavar="NAME,NAME,…")
]
Label = Annotated[str, typer.Option(help="Column that holds the classes.")]


def names_of(listed: str | None) -> list[str]:
    """Return the sites in a list with commas."""
    return [] if listed is None else [name.strip() for name in listed.split(",")]


def seconds(option: str, text: str) -> float:
    """Return the seconds of "90", "90s", "30m", "2h" or "1d". Raises ScenarioError for other text."""
    unit = _SECONDS.get(text[-1:])
    try:
        found = float(text[:-1] if unit else text) * (unit or 1.0)
    except ValueError:
        found = 0.0
    if not 0 < found <= 30 * _SECONDS["d"]:
        raise ScenarioError([f"{option}: must be a time such as 90s, 30m or 2h, at most 30d, got {text}."])
    return found


def require_address(option: str, address: str) -> None:
    """Raise ScenarioError for text that is not a tcp address with a port."""
    from fedsvm.federation.transport.addresses import is_tcp

    if not is_tcp(address):
        raise ScenarioError(
            [
                f"{option}: must be an address such as tcp://north.example:7101 or tcp://[2001:db8::7]:7101, got "
                f"{address}."
            ]
        )


def require_site_name(where: str, name: str) -> None:
    """Raise ScenarioError for a name that no site can have. where: the option or file that has it."""
    from fedsvm.scenarios.schema.federation import require_name

    try:
        require_name(name)
    except ValueError as error:
        raise ScenarioError([f"{where}: {error}."]) from error
