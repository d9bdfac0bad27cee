"""What a federation needs of whatever starts its site processes, be it on this machine or elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class Ended:
    """A site process that ended, how ("exited with status 1", "was killed by signal 9"), and whether as it should."""

    site: str
    how: str
    well: bool


class Launcher(Protocol):
    """Starts site processes and watches them."""

    def fileno(self) -> int:
        """A descriptor that is readable when a process ended."""

    @property
    def pids(self) -> Mapping[str, int]:
        """The process of each site, the latest where it was restarted."""

    def ended(self) -> list[Ended]:
        """The processes that ended since the last call. Raises LaunchError if the launcher itself is gone."""
