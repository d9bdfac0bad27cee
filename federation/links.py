"""The coordinator's links to its sites: processes, sockets and identities."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from fedsvm.federation.errors import LaunchError
from fedsvm.federation.processes.launcher_interface import Launcher
from fedsvm.federation.run_journal import SKIPPED_ROUNDS
from fedsvm.federation.site.signed import OrderSigner
from fedsvm.federation.transport.keys import Party, Roster
from fedsvm.federation.transport.message_transport import MessageTransport


def refuse_restart(site: str) -> Party:
    """Raise LaunchError: this coordinator starts no sites."""
    raise LaunchError(f"{site} runs on a host of its own and cannot be started from here.")


@dataclass(frozen=True)
class SiteLinks:
    """The coordinator's links to its sites.

    Parameters
    ----------
    endpoint : MessageTransport
        Carries the coordinator's messages.
    roster : Roster
        All parties; the sites in ring order.
    run : bytes
        The run's 8 random bytes.
    launcher : Launcher
        Reports when the process of a site ends.
    restart : callable, optional
        Starts the process of a site again; returns None if the earlier process is back.
    views : callable, optional
        Returns the roster with the addresses by which a party reaches the others, given its name and the roster.
    skipped_rounds : int, default SKIPPED_ROUNDS
        Number of rounds that a resumed run skips; 0 if the journal has every order that sites received.
    signer : OrderSigner, optional
        Signs the coordinator's orders.
    """

    endpoint: MessageTransport
    roster: Roster
    run: bytes
    launcher: Launcher
    restart: Callable[[str], Party | None] = refuse_restart
    views: Callable[[str, Roster], Roster] = lambda party, roster: roster
    skipped_rounds: int = SKIPPED_ROUNDS
    signer: OrderSigner | None = None

    @property
    def sites(self) -> tuple[str, ...]:
        """The names of the sites, in ring order."""
        return tuple(party.name for party in self.roster if party.name != self.endpoint.name)
