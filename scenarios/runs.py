"""`fedsvm runs`: lists the runs in a folder, sorted and filtered, and deletes some."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from fedsvm.scenarios.console import print_table
from fedsvm.scenarios.figures import human_bytes, percent
from fedsvm.scenarios.run.folder import LATEST, RUNS
from fedsvm.scenarios.run.log import NAME as LOG
from fedsvm.scenarios.run.result import RESULT, RunResult, read_result
from fedsvm.scenarios.schema import spec
from fedsvm.scenarios.schema.errors import ScenarioError, nearest

_UNFINISHED = "unfinished"
_OF_RUNS = ("run", "status")
"""The filters in addition to the keys of scenarios."""

app = typer.Typer()
runs_app = typer.Typer(
    invoke_without_command=True, help="List the runs in a folder, sorted and filtered; `runs delete` removes some."
)
app.add_typer(runs_app, name="runs")
_IN = typer.Option("--in", help="Folder that contains the runs.")


@dataclass(frozen=True)
class Found:
    """A run in a folder; result: None if it is still running or was killed."""

    folder: Path
    result: RunResult | None

    @property
    def status(self) -> str:
        """The status: completed, failed, interrupted or unfinished."""
        return _UNFINISHED if self.result is None else self.result.status

    def value(self, key: str) -> Any:
        """Return the value of a filter: the name, the status, or a scenario key by its path; None if it is absent."""
        if key in _OF_RUNS:
            return self.folder.name if key == "run" else self.status
        found: Any = self.result.scenario if self.result is not None else {}
        for part in key.split("."):
            found = found.get(part) if isinstance(found, Mapping) else None
        return found


def _accuracy(result: RunResult) -> float | None:
    return result.metrics.accuracy if result.metrics else None


def _wire(result: RunResult) -> float | None:
    return result.cost.predicted_wire_bytes if result.cost else None


ORDERS: Mapping[str, Callable[[RunResult], Any]] = {
    "date": lambda result: result.environment.date,
    "accuracy": _accuracy,
    "wire": _wire,
    "time": lambda result: result.timing.total_s,
    "rounds": lambda result: result.cost.rounds if result.cost else None,
}
"""The sort keys of runs in addition to their names."""


def find(folder: Path) -> list[Found]:
    """Return the runs in a folder, by name. Raises ScenarioError if there is no such folder."""
    if not folder.is_dir():
        raise ScenarioError([f"There is no folder {folder}; name the folder of your runs by --in."])
    paths = (path for path in sorted(folder.iterdir()) if not path.is_symlink())
    return [_find(path) for path in paths if (path / RESULT).is_file() or (path / LOG).is_file()]


def _find(path: Path) -> Found:
    return Found(path, read_result(path) if (path / RESULT).is_file() else None)


def filter_runs(runs: Sequence[Found], conditions: Sequence[str]) -> list[Found]:
    """Return the runs that satisfy every condition "key=value".

    Raises ScenarioError for an invalid condition, and for a key that is neither a run's nor a scenario's.
    """
    kept = list(runs)
    for condition in conditions:
        key, equals, wanted = (part.strip() for part in condition.partition("="))
        if not equals or not key:
            raise ScenarioError([f"--where {condition}: write it as key=value, such as algorithm.C=10."])
        if all(run.value(key) is None for run in runs) and key not in (known := [*_OF_RUNS, *spec.keys()]):
            raise ScenarioError(
                [
                    f"--where {condition}: there is no key {key!r}; use {', '.join(_OF_RUNS)} or a key of the "
                    f"scenario with its table, such as protocol.sum.{_similar_key(key, known)}"
                ]
            )
        kept = [run for run in kept if _format_value(run.value(key)) == wanted]
    return kept


def _similar_key(key: str, known: Sequence[str]) -> str:
    """Return a hint for an unknown key: the same key in its table, or a similar one."""
    within = [path for path in known if path.endswith(f".{key}")]
    return f" Did you mean {within[0]!r}?" if within else nearest(key, known)


def _format_value(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def sort_runs(runs: Sequence[Found], by: str) -> list[Found]:
    """Return runs in ascending order; runs without the value come last. Raises ScenarioError for an unknown order."""
    if by == "run":
        return sorted(runs, key=lambda run: run.folder.name)
    if by not in ORDERS:
        raise ScenarioError([f"--sort {by}: must be one of run, {', '.join(ORDERS)}.{nearest(by, ORDERS)}"])
    values = [(ORDERS[by](run.result) if run.result is not None else None, run) for run in runs]
    known = sorted(((value, run) for value, run in values if value is not None), key=lambda pair: pair[0])
    return [run for _, run in known] + [run for value, run in values if value is None]


def delete(folder: Path, names: Sequence[str], *, unfinished: bool) -> None:
    """Remove all of these runs, or none. Raises ScenarioError for names of no run, and OSError."""
    there = {run.folder.name: run for run in find(folder)}
    problems = []
    for name in names:
        if name not in there:
            problems.append(f"{folder} has no run {name!r}.{nearest(name, there)}")
        elif there[name].status == _UNFINISHED and not unfinished:
            problems.append(f"{name} has no result: it still runs, or was killed; if it was killed, add --unfinished.")
    if problems:
        raise ScenarioError(problems)
    for name in dict.fromkeys(names):
        shutil.rmtree(there[name].folder)
    latest = folder / LATEST
    if latest.is_symlink() and not latest.exists():
        latest.unlink()


@runs_app.callback()
def list_runs(
    context: typer.Context,
    folder: Annotated[Path, _IN] = RUNS,
    sort: Annotated[str, typer.Option(help="Sort by run, date, accuracy, wire, time or rounds (ascending).")] = "date",
    reverse: Annotated[bool, typer.Option("--reverse", help="Sort in descending order.")] = False,
    where: Annotated[
        list[str] | None,
        typer.Option("--where", help="Filter: key=value, where key is status, run or a scenario key. Repeatable."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the list as JSON.")] = False,
) -> None:
    """List the runs in a folder."""
    if context.invoked_subcommand is not None:
        return
    runs = sort_runs(filter_runs(find(folder), where or []), sort)
    if as_json:
        print(json.dumps([_plain(run) for run in (reversed(runs) if reverse else runs)], indent=1))
        return
    print_table([("run", "date", "status", "accuracy", "rounds", "wire", "seconds"), *_rows(runs, reverse)])


def _plain(run: Found) -> dict[str, Any]:
    """Return a run's figures as plain values; None if they are unknown."""
    result = run.result
    return {
        "run": run.folder.name,
        "status": run.status,
        **{name: of(result) if result is not None else None for name, of in ORDERS.items()},
    }


def _rows(runs: Sequence[Found], reverse: bool) -> Iterator[tuple[str, ...]]:
    for run in reversed(runs) if reverse else runs:
        if (result := run.result) is None:
            yield run.folder.name, "", run.status, "", "", "", ""
            continue
        accuracy, wire = _accuracy(result), _wire(result)
        yield (
            run.folder.name,
            result.environment.date.replace("T", " ")[:16],
            run.status,
            "" if accuracy is None else percent(accuracy),
            str(result.cost.rounds) if result.cost else "",
            "" if wire is None else human_bytes(wire),
            f"{result.timing.total_s:.1f}",
        )


@runs_app.command("delete")
def delete_runs(
    names: Annotated[list[str], typer.Argument(metavar="RUN…", help="Names of runs, as `fedsvm runs` lists them.")],
    folder: Annotated[Path, _IN] = RUNS,
    unfinished: Annotated[bool, typer.Option("--unfinished", help="Also delete runs without a result.")] = False,
) -> None:
    """Delete runs and their folders."""
    delete(folder, names, unfinished=unfinished)
    for name in dict.fromkeys(names):
        print(f"{folder / name} deleted")
