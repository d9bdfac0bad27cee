"""Faults that a site inflicts on itself at an exact place in a run: a round of a phase, before one of its messages.

So a kill or a stall during a protocol is reproducible. The relays cause faults on links.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from fedsvm.federation.arrays import Residues
from fedsvm.federation.faults.fault_kind import site_fault


@dataclass(frozen=True)
class OwnFault:
    """A fault that a site inflicts on itself.

    Parameters
    ----------
    number : int
        The number of the fault in its scenario.
    kind : str
        The name of a `SiteFault`.
    phase : str
        The phase of the run in which it occurs.
    round : int
        The round within the phase, from 1.
    message : int, default 0
        It occurs before the site's message of this number in the round; 0: when the order arrives.
    for_s : float or None, default None
        Seconds after which the launcher ends a stall; None: never.
    """

    number: int
    kind: str
    phase: str
    round: int
    message: int = 0
    for_s: float | None = None


class OwnFaults:
    """The faults that one site inflicts on itself. `report` notifies the launcher before each."""

    def __init__(self, faults: Iterable[Mapping[str, Any]], report: Callable[[dict[str, Any]], None]) -> None:
        self._faults = [OwnFault(**fault) for fault in faults]
        self._report = report

    def begin_round(self, phase: str, phase_round: int) -> tuple[OwnFaults, ...]:
        """Start the faults that are due when the round begins; later ones wait in an observer of the channel."""
        if not self._faults:
            return ()
        self._due = [fault for fault in self._faults if (fault.phase, fault.round) == (phase, phase_round)]
        self._sent = 0
        self._strike()
        return (self,) if self._due else ()

    def sending(self, peer: str, array: NDArray[Any]) -> None:
        """Start the faults that are due before this message."""
        self._sent += 1
        self._strike()

    def received(self, peer: str, array: NDArray[Any]) -> None:
        """Ignore an array that was received."""

    def drew(self, residues: Residues, stream: str = "") -> None:
        """Ignore a random vector."""

    def _strike(self) -> None:
        for fault in self._due:
            if fault.message == self._sent:
                self._report({"fault": fault.number, "for_s": fault.for_s})
                if (kind := site_fault(fault.kind)) is not None:
                    os.kill(os.getpid(), kind.signal)
