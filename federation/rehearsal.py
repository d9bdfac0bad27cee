"""A few rounds of a federation in one process, before sites are forked from it.

What code does for the first time costs a site memory that is its own, and time: CPython puts specialised instructions
into it, and caches and pools are filled. Done before the fork, all sites share it: of three parts of their own memory
they save one. The sites here are threads, on sockets as encrypted as later; threads and sockets are gone in the end.
"""

from __future__ import annotations

import os
import queue
import secrets
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from federation.arrays import FloatArray
from federation.errors import LaunchError
from federation.federation import Federation
from federation.membership import DropoutPolicy
from federation.processes.contract import Ended
from federation.site.logs import SILENT
from federation.site.partition import Partition
from federation.site.policy import SitePolicy
from federation.site.program import Installation, SiteProgram, SumProtocol, step
from federation.site.site import Assignment, run_site
from federation.transport.endpoint import Endpoint
from federation.transport.keys import COORDINATOR, KeyPair, Party, Roster
from federation.transport.wire import RUN_ID_BYTES

SITES = ("site-1", "site-2", "site-3")
ROUNDS = 20
"""After so many CPython has put specialised instructions into the code."""

_LISTEN = "tcp://127.0.0.1:*"
_WAIT_S = 10.0


class _Part(SiteProgram):
    @step
    def part(self) -> FloatArray:
        return np.ones(3)


class _Threads:
    """Starts sites as threads of this process, of which none ends before it is told to."""

    def __init__(self, installation: Installation) -> None:
        self.pids: Mapping[str, int] = {}
        self._installation = installation
        self._reports: queue.Queue[dict[str, Any]] = queue.Queue()
        self._ends, self._never = os.pipe()
        self._threads: list[threading.Thread] = []

    def start(self, assignment: Assignment) -> Party:
        """Start a site and wait until it has reported in. Raises LaunchError."""
        life = (assignment, self._installation, self._reports.put, self._ends)
        self._threads.append(threading.Thread(target=run_site, args=life, daemon=True))
        self._threads[-1].start()
        try:
            party: Party = self._reports.get(timeout=_WAIT_S)["party"]
        except queue.Empty:
            raise LaunchError(f"{assignment.name} did not start within {_WAIT_S:g} s.") from None
        return party

    def fileno(self) -> int:
        return self._ends

    def ended(self) -> list[Ended]:
        return []

    def close(self) -> None:
        """Wait until all have ended, as they do once they are told to or hear nothing for a while."""
        for thread in self._threads:
            thread.join()
        os.close(self._ends)
        os.close(self._never)


def rehearse(protocol: SumProtocol) -> int:
    """Run some rounds of a sum.

    Parameters
    ----------
    protocol : SumProtocol
        What the rounds run.

    Returns
    -------
    int
        How many rounds were complete.

    Raises
    ------
    FederationError
        They could not be run.
    """
    with _federation(protocol) as federation:
        federation.assemble()
        for _ in range(ROUNDS):
            federation.sum("part", shape=(3,), bound=1.0)
    return len(federation.accounts.rounds)


@contextmanager
def _federation(protocol: SumProtocol) -> Iterator[Federation]:
    run, keys = secrets.token_bytes(RUN_ID_BYTES), KeyPair.generate()
    policy = SitePolicy(SITES, protocol.name, dict(protocol.options), min_sites=len(SITES))
    launcher = _Threads(Installation({"part": _Part}, {protocol.name: lambda **options: protocol}))
    with tempfile.TemporaryDirectory() as folder, Endpoint(COORDINATOR, _LISTEN, keys, len(SITES)) as endpoint:
        me = Party(COORDINATOR, endpoint.address, keys.public)
        try:
            parties = [launcher.start(_assignment(site, run, me, policy, Path(folder))) for site in SITES]
            dropouts = DropoutPolicy(len(SITES), "abort")
            federation = Federation(
                endpoint, Roster([me, *parties]), run, launcher, protocol, _WAIT_S, policy=dropouts, restart=_never
            )
            try:
                yield federation
            finally:
                federation.dismiss()
        finally:
            launcher.close()


def _never(site: str) -> Party:
    raise LaunchError(f"{site} is not restarted in a rehearsal.")


def _assignment(site: str, run: bytes, coordinator: Party, policy: SitePolicy, folder: Path) -> Assignment:
    path = folder / site
    Partition(arrays={}).write(str(path))
    return Assignment(
        name=site,
        run=run,
        listen=_LISTEN,
        peers=len(SITES),
        encrypted=True,
        coordinator_address=coordinator.address,
        coordinator_key=coordinator.public_key,
        program="part",
        partition_path=str(path),
        policy=policy,
        needs_pairwise_keys=True,
        patience_s=_WAIT_S,
        log_level=SILENT,
    )
