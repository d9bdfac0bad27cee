"""The registration of the sites of a run over several hosts.

The coordinator sends an offer to each site that calls. A site answers that it is ready or that it declines. Once the
run has begun, sites that were started again register anew, and others are refused.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from fedsvm.federation.columns import deviations
from fedsvm.federation.control import MAX_LOG_TEXT, RunOver
from fedsvm.federation.errors import DeadlineExpired, FederationError, LaunchError, Malformed, PeerDropped
from fedsvm.federation.hosts.held_data import HeldColumn
from fedsvm.federation.hosts.listening_endpoint import Call, ListeningEndpoint
from fedsvm.federation.hosts.messages import PROTOCOL_VERSION, Begin, Declined, Offer, Ready, SiteRefused
from fedsvm.federation.site.terms import Terms
from fedsvm.federation.text import list_names, visible
from fedsvm.federation.transport.addresses import is_tcp
from fedsvm.federation.transport.auth import REFUSED
from fedsvm.federation.transport.deadline import Deadline
from fedsvm.federation.transport.keys import COORDINATOR, KEY_BYTES, SIGNATURE_BYTES, Party
from fedsvm.federation.transport.wire import Message

_OF_TWO = ", with which each of the two learns the other's part of every sum"

MAX_SHOWN = 500
"""Maximum number of characters of another party's text that are printed."""


@dataclass(frozen=True)
class JoinedSite:
    """A site that is ready to take part, with its address, its keys and its columns."""

    party: Party
    columns: tuple[HeldColumn, ...]


@dataclass(frozen=True)
class Quorum:
    """The number of sites that a run needs.

    Parameters
    ----------
    min_sites : int
        The minimum number of sites with which the run begins.
    sum_needs : int
        The minimum number of sites of the secure sum, whatever the scenario sets.
    is_chosen : bool
        Whether the scenario sets `min_sites`. If it does not, a site that declines ends the run, since nobody agreed to
        continue without it.
    """

    min_sites: int
    sum_needs: int
    is_chosen: bool


class SiteRegistration:
    """The registration of the sites of a run.

    Parameters
    ----------
    endpoint : ListeningEndpoint
        The coordinator's endpoint. Its roster has the keys that are admitted.
    run : bytes
        The run's 8 random bytes.
    terms : Terms
        The terms that every site is offered.
    version : str
        The version of the coordinator's installation.
    tell : callable
        Receives a sentence on each event.
    same_columns : bool, default True
        Whether all sites must have the same columns.

    Attributes
    ----------
    ready_sites : dict of str to JoinedSite
        Connected sites that are ready.
    on_restarted : callable
        Receives the name of a site that was started again, once it calls and before it is ready.
    terms : Terms
        The terms that every site is offered.
    """

    def __init__(
        self,
        endpoint: ListeningEndpoint,
        run: bytes,
        terms: Terms,
        version: str,
        tell: Callable[[str], None],
        *,
        same_columns: bool = True,
    ) -> None:
        self.ready_sites: dict[str, JoinedSite] = {}
        self._endpoint = endpoint
        self._run = run
        self.terms = terms
        self._version = version
        self._tell = tell
        self._same_columns = same_columns
        self._invited: dict[str, Call] = {}
        self._away: dict[str, JoinedSite] = {}
        self._declined: dict[str, Declined] = {}
        self._deviating: dict[str, str] = {}
        self._sites: list[str] = []
        self._columns: dict[str, list[str]] = {}
        self._back: dict[str, Party] = {}
        self._coming: set[str] = set()
        self._started_again: set[str] = set()
        self._is_resuming = False
        self.on_restarted: Callable[[str], None] = lambda site: None
        self._strangers = 0
        self._names = tuple(party.name for party in endpoint.roster if party.name != COORDINATOR)
        endpoint.on_call, endpoint.on_word = self._receive, self._receive_answer
        endpoint.on_closed, endpoint.on_back = self._note_closed, self._note_back

    def wait(self, deadline: Deadline, quorum: Quorum, wait_text: str) -> list[JoinedSite]:
        """Wait until every admitted site is ready, or until the deadline if enough are. Return the sites in ring order.

        The coordinator does not wait for a site whose own policy forbids the run. wait_text: the deadline as its user
        wrote it. Raises FederationError if too few sites are ready or not all that the terms name as a committee, and
        if one declines although the scenario does not set the number of sites.
        """
        while not self._is_settled(quorum):
            try:
                self._endpoint.serve(deadline)
            except DeadlineExpired:
                break
            self._note_strangers()
        self._turn_away_deviating()
        missing = [name for name in self._names if name not in self.ready_sites]
        lacks_members = any(member not in self.ready_sites for member in self.terms.committee)
        if len(self.ready_sites) < quorum.min_sites or (self._declined and not quorum.is_chosen) or lacks_members:
            self._raise_too_few(missing, quorum, wait_text)
        if missing:
            self._tell(f"the run begins without {list_names(missing)}")
        self._begin()
        return [self.ready_sites[name] for name in self._names if name in self.ready_sites]

    def _is_settled(self, quorum: Quorum) -> bool:
        """Return whether the wait is over: all sites that can come are ready, or too many decline."""
        by_policy = sum(declined.by_policy for declined in self._declined.values())
        expected = len(self._names) - by_policy
        return (
            len(self.ready_sites) == expected or expected < quorum.min_sites or (by_policy > 0 and not quorum.is_chosen)
        )

    # Calls and answers of sites.

    def _receive(self, call: Call) -> None:
        if why := self._reason_against(call):
            self._endpoint.turn_away(call, why)
            self._tell(f"{call.peer} was turned away: {why}")
            return
        self._invited[call.peer] = call
        self._away.pop(call.peer, None)
        self._declined.pop(call.peer, None)
        ticket = self._endpoint.invite(call)
        self._send(call.peer, Offer(self._run, ticket, self.terms.to_fields()))

    def _reason_against(self, call: Call) -> str:
        """Return in a sentence why a site cannot be admitted, or "" if it can."""
        peer, join, named = call.peer, call.join, call.join.name[:MAX_SHOWN]
        if self._endpoint.is_connected(peer):
            return (
                f"{peer} is connected already, by another process with the same key; end that one, or make a key of "
                "its own for this site (fedsvm keys new)."
            )
        if join.name != peer:
            return (
                f"its key was made for {named}, and the coordinator admits it as {peer}; rename the file in the "
                f"coordinator's folder to {named}.key."
            )
        if join.address and not is_tcp(join.address):
            return (
                f"its address for other sites must be like tcp://north.example:7101, got {join.address[:MAX_SHOWN]!r}; "
                "change --advertise."
            )
        if join.protocol != PROTOCOL_VERSION:
            return (
                f"it has fedsvm {join.version[:MAX_SHOWN]}, which uses protocol {join.protocol}, and the coordinator "
                f"{self._version}, which uses protocol {PROTOCOL_VERSION}; install versions with the same protocol."
            )
        if self.terms.routing == "direct" and not join.address:
            return (
                "sites of this run connect to each other directly, and it has no address; start it with --listen and "
                '--advertise, or set protocol.routing = "via-coordinator" in the scenario.'
            )
        return ""

    def _receive_answer(self, site: str, message: Message) -> None:
        """Process a site's answer to the offer."""
        try:
            if message.kind == Ready.kind:
                self._add_ready(site, Ready.from_message(message))
            elif message.kind == Declined.kind:
                self._declined[site] = Declined.from_message(message)
                self._tell(self._describe_decline(site))
            else:
                self._endpoint.refused["not an answer to an offer"] += 1
        except Malformed as error:
            self._endpoint.refused[f"malformed: {error}"] += 1
        if all(name in self.ready_sites or name in self._declined for name in self._names):
            self._turn_away_deviating()

    def _describe_decline(self, site: str) -> str:
        return f"{site} declines: {self._declined[site].reason[:MAX_SHOWN]}"

    def _add_ready(self, site: str, ready: Ready) -> None:
        columns = _columns(ready.columns)
        _check_keys(ready)
        call = self._invited[site]
        known = self._endpoint.roster[site]
        party = Party(site, call.join.address, known.public_key, ready.agreement_key, ready.voucher)
        self.ready_sites[site] = JoinedSite(party, columns)
        self._deviating.pop(site, None)
        waiting = [name for name in self._names if name not in self.ready_sites]
        self._tell(f"{site} is ready; {'waiting for ' + list_names(waiting) if waiting else 'all have joined'}")
        first = next(iter(self.ready_sites.values()))
        if waiting and set(columns) != set(first.columns) and (sites := list(self._differences())):
            self._tell(f"columns of {list_names(sites)} differ so far; decided when all are there")

    def _turn_away_deviating(self) -> None:
        """Refuse the sites whose columns differ from those of more than half of the ready sites; they may call again.

        If two halves differ, all are refused, since nobody can know which half is wrong.
        """
        for site, clauses in self._differences().items():
            self.ready_sites.pop(site)
            self._deviating[site] = clauses
            why = (
                f"its columns differ from those of other sites: it {clauses}. Fix the file, or add them to data.ignore."
            )
            self._send(site, SiteRefused(why))
            self._tell(f"{site} was turned away: {why}")

    def _differences(self) -> dict[str, str]:
        """Return how the columns of ready sites differ; nothing if they need not be the same."""
        if not self._same_columns:
            return {}
        return deviations(
            {
                site: {each.name: each.categorical for each in joined.columns}
                for site, joined in self.ready_sites.items()
            }
        )

    def _note_closed(self, site: str) -> None:
        if (joined := self.ready_sites.pop(site, None)) is not None:
            self._away[site] = joined
            self._tell(f"{site} left")

    def _note_back(self, site: str) -> None:
        if (joined := self._away.pop(site, None)) is not None:
            self.ready_sites[site] = joined
            self._tell(f"{site} is back")

    def _note_strangers(self) -> None:
        if (count := self._endpoint.refused[REFUSED]) > self._strangers:
            self._strangers = count
            self._tell(f"refused a connection whose key is not in the folder of sites ({count} so far)")

    # Messages to sites.

    def _send(self, site: str, message: Offer | SiteRefused | Begin) -> None:
        with suppress(PeerDropped):  # it left meanwhile
            self._endpoint.send(site, message.to_message(self._endpoint.round), Deadline(0))

    def _raise_too_few(self, missing: Sequence[str], quorum: Quorum, wait_text: str) -> None:
        """Send the ready sites the reason why the run does not begin, and raise FederationError with it."""
        came = list_names(list(self.ready_sites)) if self.ready_sites else "none"
        left = len(self._names) - len(self._declined)
        if self._declined and (left < quorum.min_sites or not quorum.is_chosen):
            why = self._why_declined(quorum, left)
        else:
            needed = f"{quorum.min_sites} are needed"
            if self.terms.committee:
                needed += f", among them the committee ({list_names(self.terms.committee)})"
            why = self._why_expired(missing, needed, wait_text, came)
        for site in self.ready_sites:
            self._send(site, SiteRefused(why))
        raise FederationError(why[0].upper() + why[1:])

    def _why_declined(self, quorum: Quorum, left: int) -> str:
        said = "; ".join(map(self._describe_decline, self._declined)).rstrip(".")
        if quorum.is_chosen or left < quorum.sum_needs:
            needed = quorum.min_sites if quorum.is_chosen else quorum.sum_needs
            return f"{said}. Fewer than the {needed} sites that are needed are left; change the scenario."
        return (
            f"{said}. The run begins with fewer sites only if the scenario sets their minimum: start again with all, "
            f"or with --set federation.min_sites={left}{_OF_TWO if left == 2 else ''}."
        )

    def _why_expired(self, missing: Sequence[str], needed: str, wait_text: str, came: str) -> str:
        absent = [site for site in missing if site not in self._deviating and site not in self._declined]
        why = [f"{site} has other columns ({clauses})" for site, clauses in self._deviating.items()]
        why += [self._describe_decline(site).rstrip(".") for site in self._declined]
        why += [f"{list_names(absent)} did not come"] if absent else []
        ready = len(self.ready_sites)
        return (
            f"after {wait_text} {ready} of {len(self._names)} sites were ready ({came}), and {needed}: "
            f"{'; '.join(why)}. Fix their files or start fedsvm site there, and increase --wait."
        )

    def _begin(self) -> None:
        """Send all sites the start of the run, and refuse late ones from now on."""
        self._set_sites([name for name in self._names if name in self.ready_sites])
        for site in self._sites:
            self._send(site, Begin(self._sites, self._columns[site]))

    def _set_sites(self, sites: list[str]) -> None:
        """Set the sites of the run, and treat every further call as one of a restarted or a late site."""
        self._sites = sites
        self._columns = {site: self._columns_of(sites[0] if self._same_columns else site) for site in sites}
        self._endpoint.on_call, self._endpoint.on_word = self._receive_late, self._receive_late_answer
        self._endpoint.on_closed = self._endpoint.on_back = lambda peer: None

    def _columns_of(self, site: str) -> list[str]:
        return [column.name for column in self.ready_sites[site].columns]

    # After the run has begun.

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
            if (declined := self._declined.pop(site, None)) is not None:
                raise LaunchError(f"{site} was started again and takes no part: {declined.reason[:MAX_SHOWN]}")
            try:
                self._endpoint.serve(deadline)
            except DeadlineExpired:
                raise LaunchError(
                    f"{site} ended, or cannot be reached, and was not back within {deadline.seconds:g} s; start fedsvm "
                    "site there sooner, or let the coordinator wait longer (--rejoin)."
                ) from None
        self._tell(f"{site} is back")
        return self._take_back(site) if site in self._back else None

    def resume(self, joined: Sequence[JoinedSite], deadline: Deadline) -> list[str]:
        """Wait until the sites of a run whose coordinator ended are back, either the same processes or new ones.

        Parameters
        ----------
        joined : sequence of JoinedSite
            The sites as they joined the run, in ring order.
        deadline : Deadline
            Of the wait, which also ends when a new process declines.

        Returns
        -------
        list of str
            Sites that are not back.
        """
        self.ready_sites = {site.party.name: site for site in joined}
        self._set_sites(list(self.ready_sites))
        self._is_resuming, waiting = True, list(self.ready_sites)
        while waiting and not self._declined:
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
        return [site for site in self.ready_sites if not self._is_back(site)]

    def explain_missing(self, missing: Sequence[str], wait_text: str) -> str:
        """Return in a sentence why a run cannot be resumed without these sites, which `resume` returned."""
        if self._declined:
            said = "; ".join(map(self._describe_decline, self._declined)).rstrip(".")
            return f"{said}. The run cannot continue without; correct the cause there, and resume again."
        return (
            f"After {wait_text} {', '.join(missing)} had not come back, and the run cannot continue without; check "
            "whether fedsvm site still runs there, or start it again, and resume again (--wait)."
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
            The highest round that a site may know.
        resumable : bool
            Whether the processes that waited continue to wait.
        """
        failure = visible(why)[:MAX_LOG_TEXT]
        for site in self._sites:
            if site in self._coming:
                self._send(site, SiteRefused(failure))
                continue
            stop = RunOver(failure, resumable=resumable and site not in self._started_again)
            with suppress(PeerDropped):  # it left meanwhile, or did not come
                self._endpoint.send(site, stop.to_message(self._run, last_round), Deadline(0))

    def _is_back(self, site: str) -> bool:
        return site in self._back or (self._endpoint.is_connected(site) and site not in self._coming)

    def _take_back(self, site: str) -> Party:
        party = self._back.pop(site)
        self.ready_sites[site] = replace(self.ready_sites[site], party=party)
        return party

    def _receive_late(self, call: Call) -> None:
        site = call.peer
        why = self._reason_against(call)
        if not why and (site not in self._sites or not (self._is_resuming or site in self.terms.restartable)):
            why = "the run continues without it; wait for the next one."
        if why:
            self._endpoint.turn_away(call, why)
            self._tell(f"{site} was turned away: {why}")
            return
        self._invited[site] = call
        self._back.pop(site, None)
        self._declined.pop(site, None)
        self._coming.add(site)
        self._send(site, Offer(self._run, self._endpoint.invite(call), self.terms.to_fields()))
        self.on_restarted(site)

    def _receive_late_answer(self, site: str, message: Message) -> None:
        """Process the answer of a restarted site to the offer."""
        if site not in self._coming:
            self._endpoint.refused["an answer without an offer"] += 1
            return
        try:
            if message.kind == Declined.kind:
                self._declined[site] = Declined.from_message(message)
                self._tell(self._describe_decline(site))
                return
            ready = Ready.from_message(message)
            _check_keys(ready)
        except Malformed as error:
            self._endpoint.refused[f"malformed: {error}"] += 1
            return
        known = self.ready_sites[site].party
        address = self._invited[site].join.address
        self._back[site] = known._replace(address=address, agreement_key=ready.agreement_key, voucher=ready.voucher)
        self._coming.discard(site)
        self._started_again.add(site)
        self._send(site, Begin(self._sites, self._columns[site]))


def _columns(rows: list[list[object]]) -> tuple[HeldColumn, ...]:
    """Decode columns. Raises Malformed."""
    for row in rows:
        if not isinstance(row, list) or [type(value) for value in row] != [str, bool]:
            raise Malformed("a column must be a name and whether it is categorical")
    return tuple(HeldColumn(str(name), bool(categorical)) for name, categorical in rows)


def _check_keys(ready: Ready) -> None:
    """Raise Malformed for a key or a voucher that no roster may have."""
    if ready.agreement_key is not None and len(ready.agreement_key) != KEY_BYTES:
        raise Malformed(f"an agreement key must be {KEY_BYTES} bytes")
    if ready.voucher is not None and len(ready.voucher) != SIGNATURE_BYTES:
        raise Malformed(f"a voucher must be {SIGNATURE_BYTES} bytes")
