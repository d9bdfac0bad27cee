"""The sites of a run over several hosts that has begun: those that left may come back, and late ones are refused.

A site may come back as the same process, which connects again, or as a new one, which receives the offer again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace

from fedsvm.federation.control import MAX_LOG_TEXT, RunOver
from fedsvm.federation.errors import DeadlineExpired, LaunchError, PeerDropped
from fedsvm.federation.hosts.invitations import MAX_SHOWN, Invitations, JoinedSite
from fedsvm.federation.hosts.listening_endpoint import Call
from fedsvm.federation.hosts.messages import Begin, SiteRefused
from fedsvm.federation.site.terms import Terms
from fedsvm.federation.text import list_names, visible
from fedsvm.federation.transport.deadline import Deadline
from fedsvm.federation.transport.keys import Party
from fedsvm.federation.transport.wire import Message


class RegisteredSites:
    """The sites of a run. From its creation on, each further request to join is from a restarted or a late site.

    Parameters
    ----------
    invitations : Invitations
        The invitations to the run.
    joined : sequence of JoinedSite
        The sites as they joined, in ring order.
    same_columns : bool, default True
        Whether all sites have the same columns, in the order of the first.

    Attributes
    ----------
    on_restarted : callable
        Receives the name of a restarted site when it asks to join, before it is ready.
    """

    def __init__(self, invitations: Invitations, joined: Sequence[JoinedSite], *, same_columns: bool = True) -> None:
        self.on_restarted: Callable[[str], None] = lambda site: None
        self._invitations = invitations
        self._endpoint = invitations.endpoint
        self._tell = invitations.tell
        self._sites = {site.party.name: site for site in joined}
        self._same_columns = same_columns
        self._back: dict[str, Party] = {}
        self._coming: set[str] = set()
        self._started_again: set[str] = set()
        self._is_resuming = False
        self._endpoint.on_call, self._endpoint.on_answer = self._receive, self._receive_answer
        self._endpoint.on_closed = self._endpoint.on_back = lambda peer: None

    @property
    def joined(self) -> list[JoinedSite]:
        """The sites with the keys of their current processes, in ring order."""
        return list(self._sites.values())

    @property
    def terms(self) -> Terms:
        """The terms of the run."""
        return self._invitations.terms

    def begin(self) -> None:
        """Send all sites the start of the run."""
        for site in self._sites:
            self._send_begin(site)

    def wait_for(self, site: str, deadline: Deadline) -> Party | None:
        """Wait until a site without a connection is back, either the same process or one that was started again.

        Returns
        -------
        Party or None
            The site with the keys of its new process; None if the process is the same.

        Raises
        ------
        LaunchError
            The site is not back in time, or its new process declines.
        """
        self._tell(f"{site} ended, or cannot be reached; the run waits for it, at most {deadline.seconds:g} s")
        while not self._is_back(site):
            if (declined := self._invitations.declined.pop(site, None)) is not None:
                raise LaunchError(f"{site} was started again and declines: {declined.reason[:MAX_SHOWN]}")
            try:
                self._endpoint.serve(deadline)
            except DeadlineExpired:
                raise LaunchError(
                    f"{site} ended, or cannot be reached, and was not back within {deadline.seconds:g} s; start fedsvm "
                    "site there sooner, or let the coordinator wait longer (--rejoin)."
                ) from None
        self._tell(f"{site} is back")
        return self._take_back(site) if site in self._back else None

    def resume(self, deadline: Deadline) -> list[str]:
        """Wait until the sites of a run whose coordinator ended are back, either the same processes or new ones.

        Parameters
        ----------
        deadline : Deadline
            The end of the wait, which also ends when a new process declines.

        Returns
        -------
        list of str
            Sites that are not back.
        """
        self._is_resuming, waiting = True, list(self._sites)
        while waiting and not self._invitations.declined:
            try:
                self._endpoint.serve(deadline)
            except DeadlineExpired:
                break
            while self._endpoint.received() is not None:
                pass  # it belongs to a round that is over
            for site in filter(self._is_back, list(waiting)):
                waiting.remove(site)
                self._tell(f"{site} is back" + (f"; waiting for {list_names(waiting)}" if waiting else ""))
        self._is_resuming = False
        return [site for site in self._sites if not self._is_back(site)]

    def explain_missing(self, missing: Sequence[str], wait_text: str) -> str:
        """Return in a sentence why a run cannot be resumed without these sites, which `resume` returned."""
        if self._invitations.declined:
            return (
                f"{self._invitations.describe_declines()}. The run cannot continue without it; correct the cause "
                "there, and resume again."
            )
        return (
            f"After {wait_text} {', '.join(missing)} had not come back, and the run needs every site; check whether "
            "fedsvm site still runs there, or start it again, and resume with a longer --wait."
        )

    def take_back_restarted(self) -> dict[str, Party]:
        """Return the sites that were started again before the run was resumed, with their new keys."""
        return {site: self._take_back(site) for site in list(self._back)}

    def call_off(self, why: str, last_round: int, *, resumable: bool) -> None:
        """Send the connected sites the reason why the run is not resumed. New processes end, since they have no state.

        Parameters
        ----------
        why : str
            The reason, in a sentence.
        last_round : int
            The highest round number that a site may have received.
        resumable : bool
            Whether the processes that waited continue to wait.
        """
        failure = visible(why)[:MAX_LOG_TEXT]
        for site in self._sites:
            if site in self._coming:
                self._invitations.send(site, SiteRefused(failure))
                continue
            stop = RunOver(failure, resumable=resumable and site not in self._started_again)
            with suppress(PeerDropped):  # it left meanwhile, or never came back
                self._endpoint.send(site, stop.to_message(self._invitations.run, last_round), Deadline(0))

    def _is_back(self, site: str) -> bool:
        return site in self._back or (self._endpoint.is_connected(site) and site not in self._coming)

    def _take_back(self, site: str) -> Party:
        party = self._back.pop(site)
        self._sites[site] = replace(self._sites[site], party=party)
        return party

    def _receive(self, call: Call) -> None:
        site = call.peer
        why = self._invitations.reason_against(call)
        may_return = self._is_resuming or site in self.terms.restartable
        if not why and not (site in self._sites and may_return):
            why = "the run continues without it; wait for the next one."
        if why:
            self._invitations.turn_away(call, why)
            return
        self._back.pop(site, None)
        self._coming.add(site)
        self._invitations.invite(call)
        self.on_restarted(site)

    def _receive_answer(self, site: str, message: Message) -> None:
        """Process the answer of a restarted site to the offer."""
        if site not in self._coming:
            self._endpoint.refused["an answer without an offer"] += 1
            return
        if (ready := self._invitations.read_answer(site, message)) is None:
            return
        self._back[site] = self._invitations.joined_site(site, ready).party
        self._coming.discard(site)
        self._started_again.add(site)
        self._send_begin(site)

    def _send_begin(self, site: str) -> None:
        ordered = self._sites[next(iter(self._sites)) if self._same_columns else site].columns
        self._invitations.send(site, Begin(list(self._sites), [column.name for column in ordered]))
