"""A `Federation` over sites on other hosts, which were started there and have joined."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from types import MappingProxyType

from fedsvm.federation.control import Abort
from fedsvm.federation.errors import PeerDropped
from fedsvm.federation.federation import Federation, RunObserver
from fedsvm.federation.hosts.invitations import JoinedSite
from fedsvm.federation.hosts.listening_endpoint import ListeningEndpoint
from fedsvm.federation.lifecycle import running_federation
from fedsvm.federation.links import SiteLinks, refuse_restart
from fedsvm.federation.membership import DropoutPolicy
from fedsvm.federation.processes.launcher_interface import Ended
from fedsvm.federation.run_journal import Journal
from fedsvm.federation.site.program import SumProtocol
from fedsvm.federation.site.signed import OrderSigner
from fedsvm.federation.transport.deadline import Deadline
from fedsvm.federation.transport.keys import COORDINATOR, Party, Roster

GRACE_S = 3.0
"""Maximum time for a site to connect again; then its process counts as ended."""


class RemoteSites:
    """The processes of sites on other hosts, as the coordinator knows them: connected or not.

    Parameters
    ----------
    endpoint : ListeningEndpoint
        The endpoint to which they are connected.
    sites : iterable of str
        The sites that take part. A site that declined is not watched, although its connection may close later.
    """

    def __init__(self, endpoint: ListeningEndpoint, sites: Iterable[str]) -> None:
        self._sites = frozenset(sites)
        self._read, self._write = socket.socketpair()
        self._read.setblocking(False)
        self._timers: dict[str, threading.Timer] = {}
        self._closed_at: dict[str, float] = {}
        self._restarted: set[str] = set()
        self._endpoint = endpoint
        endpoint.on_closed, endpoint.on_back = self._note_closed, self._note_back

    def fileno(self) -> int:
        """Return a descriptor that is readable when a site has been disconnected for too long."""
        return self._read.fileno()

    @property
    def pids(self) -> Mapping[str, int]:
        """Always empty: the processes on other hosts are unknown."""
        return MappingProxyType({})

    def collect_ended(self) -> list[Ended]:
        """Return the sites that did not connect again."""
        try:
            self._read.recv(1 << 12)
        except BlockingIOError:
            return []
        gone = [site for site, at_s in self._closed_at.items() if time.monotonic() - at_s >= GRACE_S]
        for site in gone:
            self._note_back(site)
        how = f"closed its connection and did not connect again within {GRACE_S:g} s"
        restarted, self._restarted = self._restarted, set()
        return [
            *(Ended(site, how, well=True) for site in gone if not self._endpoint.is_connected(site)),
            *(Ended(site, "ended, and another was started", well=True) for site in restarted),
        ]

    def note_restarted(self, site: str) -> None:
        """Record that a site has another process than at the start of the run."""
        self._restarted.add(site)
        self._write.send(b"\0")

    def close(self) -> None:
        """Stop watching."""
        self._endpoint.on_closed = self._endpoint.on_back = lambda peer: None
        for timer in self._timers.values():
            timer.cancel()
            timer.join()
        self._read.close()
        self._write.close()

    def _note_closed(self, site: str) -> None:
        if site not in self._sites:
            return
        timer = threading.Timer(GRACE_S, self._write.send, [b"\0"])
        timer.daemon = True
        self._note_back(site)
        self._timers[site], self._closed_at[site] = timer, time.monotonic()
        timer.start()

    def _note_back(self, site: str) -> None:
        if (timer := self._timers.pop(site, None)) is not None:
            timer.cancel()
            del self._closed_at[site]


def end_rounds(endpoint: ListeningEndpoint, sites: Iterable[str], run: bytes, last_round: int) -> None:
    """Ask sites to leave the round that the previous coordinator began.

    Parameters
    ----------
    endpoint : ListeningEndpoint
    sites : iterable of str
        The sites whose processes waited.
    run : bytes
        The run's 8 random bytes.
    last_round : int
        The highest round number that they may have received.
    """
    for site in sites:
        with suppress(PeerDropped):  # it left again: its next round shows that
            endpoint.send(site, Abort().to_message(run, last_round), Deadline(0))


@contextmanager
def open_remote_federation(
    endpoint: ListeningEndpoint,
    sites: RemoteSites,
    joined: Sequence[JoinedSite],
    run: bytes,
    sum_protocol: SumProtocol,
    round_timeout_s: float,
    policy: DropoutPolicy,
    *,
    observer: RunObserver | None = None,
    restart: Callable[[str], Party | None] = refuse_restart,
    signer: OrderSigner | None = None,
    journal: Journal | None = None,
) -> Iterator[Federation]:
    """Yield a federation of the sites that joined; `federation.assemble()` introduces them to each other.

    When the context ends, the coordinator sends the sites a stop with the run's outcome.

    Parameters
    ----------
    endpoint : ListeningEndpoint
        The endpoint to which they are connected.
    sites : RemoteSites
        Watches them; closed with the context.
    joined : sequence of JoinedSite
        The sites, in ring order.
    run, restart, signer
        See `SiteLinks`.
    sum_protocol, round_timeout_s, policy, observer, journal
        See `Federation`.

    Raises
    ------
    FederationError
        Too few sites answer.
    """
    me = Party(COORDINATOR, endpoint.address, endpoint.roster[COORDINATOR].public_key)
    roster = Roster([me, *(site.party for site in joined)])
    links = SiteLinks(endpoint, roster, run, sites, restart, signer=signer)
    try:
        with running_federation(links, sum_protocol, policy, round_timeout_s, observer, journal) as federation:
            yield federation
    finally:
        sites.close()
