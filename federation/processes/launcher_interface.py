"""The interface of a launcher, which starts site processes on this machine or elsewhere."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from fedsvm.federation.site.assignment import Assignment
from fedsvm.federation.transport.keys import Party


@dataclass(frozen=True)
class Ended:
    """A site process that ended: how ("exited with status 1", "was killed by signal 9"), and whether regularly."""

    site: str
    how: str
    well: bool


class Launcher(Protocol):
    """Starts site processes and watches them."""

    def fileno(self) -> int:
        """Return a descriptor that is readable when a process ended."""

    @property
    def pids(self) -> Mapping[str, int]:
        """The current process of each site."""

    def collect_ended(self) -> list[Ended]:
        """Return the processes that ended since the last call. Raises LaunchError if the launcher itself is gone."""


class SiteLauncher(Launcher, Protocol):
    """A launcher that starts sites on request.

    Attributes
    ----------
    host : str
        The address at which sites reach this machine.
    workspace : Path or None
        A folder on this machine for the files of one run, once `prepare` has returned.
    struck, continued
        See `LocalLauncher`.
    """

    host: str
    workspace: Path | None
    struck: dict[int, float]
    continued: list[tuple[str, float]]

    def prepare(self) -> Path:
        """Wait until sites can be started, and return the workspace. Raises LaunchError."""

    def start(self, assignments: Iterable[Assignment]) -> list[Party]:
        """Start a site for each assignment and wait until all have reported in. Raises LaunchError."""
