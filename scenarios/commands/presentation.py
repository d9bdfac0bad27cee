"""A run as a command shows it: progress, result, report, and what went wrong."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from fedsvm.federation.text import visible
from fedsvm.scenarios.commands.exit_statuses import FAILED, INTERRUPTED, interrupted_as
from fedsvm.scenarios.console import complain, errors, out
from fedsvm.scenarios.report.live import EtaEstimator, LiveView, PlainView, SilentView, View
from fedsvm.scenarios.report.summary import print_end, print_summary
from fedsvm.scenarios.run.folder import make_folder
from fedsvm.scenarios.schema.errors import ScenarioError
from fedsvm.scenarios.streams import OutputLost

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from fedsvm.scenarios.run.result import RunResult
    from fedsvm.scenarios.run.runner import FinishedRun
    from fedsvm.scenarios.schema.spec import Scenario


def command_line() -> str:
    """Return the command that was given, as a result repeats it."""
    return shlex.join(["fedsvm", *sys.argv[1:]])


def new_folder(scenario: Scenario, folder: Path | None) -> Path:
    """Make the folder of a run. Raises ScenarioError."""
    try:
        return make_folder(scenario, folder)
    except FileExistsError:
        raise ScenarioError([f"--out: {folder} exists already; name a folder that does not, or remove it."]) from None
    except OSError as error:
        raise ScenarioError([f"--out: no folder for the results can be made: {error.strerror}."]) from error


def interrupted_run(folder: Path) -> AbstractContextManager[None]:
    """Return a context that ends the command with a sentence if the run in this folder is interrupted."""
    return interrupted_as(f"Interrupted; the known results of the run are in {folder}.")


def show_summary(result: RunResult, folder: Path) -> None:
    """Print the summary of a run that is complete."""
    if result.status == "completed":
        print_summary(out, result, folder)


def show_json(result: RunResult, folder: Path) -> None:
    """Print the result."""
    print(result.to_json(), end="")


def show_nothing(result: RunResult, folder: Path) -> None:
    """Print nothing."""


@dataclass(frozen=True)
class Presentation:
    """Choices of a command on what it shows of a run.

    Parameters
    ----------
    show : callable
        Prints the result, given with its folder.
    began : float
        Monotonic time at which the command was given.
    is_silent : bool
        Nothing but the result and errors is printed.
    has_traceback : bool, default False
        The traceback of a failure is printed.
    is_tracked : bool, default False
        The run is written to the experiment tracker too.
    """

    show: Callable[[RunResult, Path], None]
    began: float
    is_silent: bool
    has_traceback: bool = False
    is_tracked: bool = False

    def view(self, scenario: Scenario) -> View:
        """Return what shows the run while it goes on."""
        if self.is_silent:
            return SilentView()
        return (
            LiveView(errors, scenario)
            if errors.is_terminal
            else PlainView(errors, scenario.name, EtaEstimator.of(scenario))
        )

    def conclude(self, finished: FinishedRun, folder: Path) -> None:
        """Show the result and write its report. End the command with a sentence and a status if anything failed."""
        with interrupted_run(folder):
            unwritten = self._print_result(finished.result, folder)
            summarised = time.monotonic()
            unwritten = _write_report(folder) or unwritten  # when the summary is on the screen
            if self.is_tracked:
                unwritten = _track_run(folder, finished.result) or unwritten
        if finished.result.status != "completed":
            self._end_failed(finished, folder)
        if unwritten:
            complain(unwritten)
            _point_to(folder)
            raise typer.Exit(FAILED)
        if not self.is_silent:
            print_end(out, time.monotonic() - self.began, time.monotonic() - summarised)

    def _print_result(self, result: RunResult, folder: Path) -> str:
        """Show the result. Return why that cannot be done, or ""."""
        try:
            self.show(result, folder)
            sys.stdout.flush()
        except OutputLost as error:
            return f"Standard output cannot be written: {error}."
        return ""

    def _end_failed(self, finished: FinishedRun, folder: Path) -> None:
        if self.has_traceback and finished.traceback:
            errors.print(finished.traceback)
        complain(str(finished.result.error))
        _point_to(folder)
        raise typer.Exit(INTERRUPTED if finished.result.status == "interrupted" else FAILED)


def _write_report(folder: Path) -> str:
    """Write the report of a run. Return why that cannot be done, or ""."""
    from fedsvm.scenarios.report import page

    try:
        page.write_report(folder)
    except (OSError, MemoryError, ImportError, ScenarioError) as error:  # libraries that find no memory do not load
        return f"The report cannot be written ({error}); fedsvm report {folder} writes it when that has changed."
    return ""


def _track_run(folder: Path, result: RunResult) -> str:
    """Write a run to the tracker. Return why that cannot be done, or ""."""
    from fedsvm.scenarios import track

    try:
        track.track(folder, result)
    except Exception as error:  # noqa: BLE001 - whatever a store may raise, the run is over and written
        return f"The run cannot be written to the tracker ({error}); its results are in {folder}."
    return ""


def _point_to(folder: Path) -> None:
    if (folder / "result.json").is_file():
        errors.print(f"The known results of the run are in {visible(str(folder))}.", soft_wrap=True)
