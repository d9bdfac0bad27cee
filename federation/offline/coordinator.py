"""A `Federation` over stored messages: the coordinator runs again when there are new ones, as far as they allow.

Complete verbs answer from the journal. The current verb starts again and reads the sites' stored messages. It sends the
same messages again, each with the same number, by which the store recognizes them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType

from fedsvm.federation.federation import Federation
from fedsvm.federation.lifecycle import running_federation
from fedsvm.federation.links import SiteLinks
from fedsvm.federation.membership import DropoutPolicy
from fedsvm.federation.offline.endpoint import Departure, StoredArrival, StoredEndpoint
from fedsvm.federation.processes.launcher_interface import Ended
from fedsvm.federation.run_journal import Journal
from fedsvm.federation.site.program import SumProtocol
from fedsvm.federation.site.signed import OrderSigner
from fedsvm.federation.transport.keys import COORDINATOR, Roster
from fedsvm.federation.transport.wire import Message

StoreMessage = Callable[[str, int, int, Message], None]
"""Stores a message of the coordinator, given the site, the round, and its number among the site's messages in it."""


class OfflineSites:
    """The processes of offline sites, as the coordinator knows them: a site takes part until it leaves for good."""

    def __init__(self, endpoint: StoredEndpoint) -> None:
        self._endpoint = endpoint

    def fileno(self) -> int:
        """Return -1, since there is no descriptor: the endpoint reports when a site left."""
        return -1

    @property
    def pids(self) -> Mapping[str, int]:
        """Always empty: the processes on other hosts are unknown."""
        return MappingProxyType({})

    def collect_ended(self) -> list[Ended]:
        """Return the sites that left since the last call."""
        left = self._endpoint.left
        return [Ended(gone.site, gone.how, well=True) for gone in (left.popleft() for _ in range(len(left)))]


@contextmanager
def open_offline_federation(
    roster: Roster,
    run: bytes,
    arrivals: Iterator[StoredArrival | Departure],
    store_message: StoreMessage,
    sum_protocol: SumProtocol,
    policy: DropoutPolicy,
    journal: Journal,
    signer: OrderSigner | None = None,
) -> Iterator[Federation]:
    """Yield a federation of offline sites; `federation.assemble()` introduces them to each other.

    The context ends by NothingDue if it needs a message that no site has sent yet. If it ends otherwise, the sites
    receive a stop.

    Parameters
    ----------
    roster : Roster
        The coordinator, and the sites with the keys by which they agree on secrets.
    run : bytes
        The run's 8 random bytes.
    arrivals : iterator
        The sites' messages of the current round, or before the first one, in their order of arrival.
    store_message : StoreMessage
        Stores each message of the coordinator.
    sum_protocol, policy, journal
        See `Federation`.
    signer : OrderSigner, optional
        Signs the orders.
    """
    places: Counter[tuple[str, int]] = Counter()

    def store(site: str, message: Message) -> None:
        store_message(site, message.round, places[site, message.round], message)
        places[site, message.round] += 1

    endpoint = StoredEndpoint(COORDINATOR, roster, arrivals, store)
    links = SiteLinks(endpoint, roster, run, OfflineSites(endpoint), skipped_rounds=0, signer=signer)
    with running_federation(links, sum_protocol, policy, _NO_TIMEOUT_S, journal=journal) as federation:
        try:
            yield federation
        finally:
            endpoint.is_closing = True


_NO_TIMEOUT_S = 1e6
"""Round timeout in seconds, in effect none: the hub, which waits for days, decides which site is late."""
