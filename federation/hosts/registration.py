"""The coordinator waits for its sites: it makes each an offer, keeps those that take it, and turns others away."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from fedsvm.federation.columns import deviations
from fedsvm.federation.control import MAX_LOG_TEXT, RunOver
from fedsvm.federation.errors import DeadlineExpired, FederationError, LaunchError, Malformed, PeerDropped
from fedsvm.federation.hosts.listening_endpoint import Call, ListeningEndpoint
from fedsvm.federation.hosts.messages import PROTOCOL_VERSION, Begin, Declined, Offer, Ready, SiteRefused, is_tcp
from fedsvm.federation.site.terms import Terms
from fedsvm.federation.text import list_names, visible
from fedsvm.federation.transport.auth import REFUSED
from fedsvm.federation.transport.deadline import Deadline
from fedsvm.federation.transport.keys import COORDINATOR, KEY_BYTES, SIGNATURE_BYTES, Party
from fedsvm.federation.transport.wire import Message

MAX_SHOWN = 500
"""Letters of what somebody else says that are shown."""


@dataclass(frozen=True)
class HeldColumn:
    """One column of what a site holds."""

    name: str
    categorical: bool


@dataclass(frozen=True)
class JoinedSite:
    """A site that is ready to take part: where others reach it, its keys, and what columns it holds."""

    party: Party
    columns: tuple[HeldColumn, ...]


@dataclass(frozen=True)
class Quorum:
    """The number of sites that a run needs.

    Parameters
    ----------
    min_sites : int
        With fewer it does not begin.
    sum_needs : int
        The part of it that its secure sum needs, whatever the scenario says.
    is_chosen : bool
        Whether the scenario says `min_sites`. If it does not, a site that declines ends the run: nobody agreed to go on
        without it.
    """

    min_sites: int
    sum_needs: int
    is_chosen: bool


class SiteRegistration:
    """The registration of sites until all have joined.

    Parameters
    ----------
    endpoint : ListeningEndpoint
        The coordinator's; its roster has the keys that are admitted.
    run : bytes
        The run's 8 random bytes.
    terms : Terms
        What the run asks of every site.
    version : str
        The version of the coordinator's installation.
    tell : callable
        Told of whatever happens, in a sentence.
    alike : bool, default True
        Whether all sites have the same columns, or each its own.

    Attributes
    ----------
    guests : dict of str to JoinedSite
        Sites that are ready, and there.
    on_restarted : callable
        Told of a site that was started again in mid-run.
    terms : Terms
        As sites are offered them.
    """

    def __init__(
        self,
        endpoint: ListeningEndpoint,
        run: bytes,
        terms: Terms,
        version: str,
        tell: Callable[[str], None],
        *,
        alike: bool = True,
    ) -> None:
        self.guests: dict[str, JoinedSite] = {}
        self._endpoint = endpoint
        self._run = run
        self.terms = terms
        self._version = version
        self._tell = tell
        self._alike = alike
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
        endpoint.on_call, endpoint.on_word = self._receive, self._hear
        endpoint.on_closed, endpoint.on_back = self._note_closed, self._note_back

    def wait(self, deadline: Deadline, quorum: Quorum, how_long: str) -> list[JoinedSite]:
        """Wait until every admitted site is ready, or until time is up and enough are. Those that are, in ring order.

        Nobody waits for a site whose own policy forbids it to take part. how_long: the deadline as its user wrote it.
        Raises FederationError where too few are there, and where one declines and the quorum was not chosen.
        """
        while not self._is_settled(quorum):
            try:
                self._endpoint.serve(deadline)
            except DeadlineExpired:
                break
            self._note_strangers()
        self._turn_away_deviating()
        missing = [name for name in self._names if name not in self.guests]
        if len(self.guests) < quorum.min_sites or (self._declined and not quorum.is_chosen):
            self._send_away(missing, quorum, how_long)
        if missing:
            self._tell(f"the run begins without {list_names(missing)}")
        self._close()
        return [self.guests[name] for name in self._names if name in self.guests]

    def _is_settled(self, quorum: Quorum) -> bool:
        """Return whether it is known how many sites the run has, before time is up."""
        by_policy = sum(declined.by_policy for declined in self._declined.values())
        expected = len(self._names) - by_policy
        return len(self.guests) == expected or expected < quorum.min_sites or (by_policy > 0 and not quorum.is_chosen)

    # What sites say.

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
        """Return why a site cannot be admitted, in a sentence, or ""."""
        peer, join, named = call.peer, call.join, call.join.name[:MAX_SHOWN]
        if self._endpoint.is_connected(peer):
            return (
                f"{peer} is there already, by another process with the same key; end that one, or make this site a key "
                "of its own (fedsvm keys new)."
            )
        if join.name != peer:
            return (
                f"its key was made for {named}, and the coordinator admits it as {peer}; rename the file in the "
                f"coordinator's folder to {named}.key."
            )
        if join.address and not is_tcp(join.address):
            return (
                f"it says that others reach it at {join.address[:MAX_SHOWN]!r}; it must be as tcp://north.example:7101."
            )
        if join.protocol != PROTOCOL_VERSION:
            return (
                f"it has fedsvm {join.version[:MAX_SHOWN]}, which speaks protocol {join.protocol}, and the coordinator "
                f"{self._version}, which speaks protocol {PROTOCOL_VERSION}; install versions of the same protocol."
            )
        if self.terms.routing == "direct" and not join.address:
            return (
                "sites of this run connect to each other directly, and it has no address; start it with --listen and "
                '--advertise, or set protocol.routing = "via-coordinator" in the scenario.'
            )
        return ""

    def _hear(self, site: str, message: Message) -> None:
        """Process a site's answer to the offer."""
        try:
            if message.kind == Ready.kind:
                self._seat(site, Ready.from_message(message))
            elif message.kind == Declined.kind:
                self._declined[site] = Declined.from_message(message)
                self._tell(self._said_by(site))
            else:
                self._endpoint.refused["not a word of joining"] += 1
        except Malformed as error:
            self._endpoint.refused[f"malformed: {error}"] += 1
        if all(name in self.guests or name in self._declined for name in self._names):
            self._turn_away_deviating()

    def _said_by(self, site: str) -> str:
        return f"{site} declines: {self._declined[site].reason[:MAX_SHOWN]}"

    def _seat(self, site: str, ready: Ready) -> None:
        columns = _columns(ready.columns)
        _check_keys(ready)
        call = self._invited[site]
        known = self._endpoint.roster[site]
        party = Party(site, call.join.address, known.public_key, ready.agreement_key, ready.voucher)
        self.guests[site] = JoinedSite(party, columns)
        self._deviating.pop(site, None)
        waiting = [name for name in self._names if name not in self.guests]
        self._tell(f"{site} is ready; {'waiting for ' + list_names(waiting) if waiting else 'all are there'}")
        first = next(iter(self.guests.values()))
        if waiting and set(columns) != set(first.columns) and (sites := list(self._differences())):
            self._tell(f"columns of {list_names(sites)} differ so far; decided when all are there")

    def _turn_away_deviating(self) -> None:
        """Turn away the sites whose columns are not those of most sites that are ready; they may come again."""
        for site, clauses in self._differences().items():
            self.guests.pop(site)
            self._deviating[site] = clauses
            why = (
                f"its columns differ from those of other sites: it {clauses}. Fix the file, or add them to data.ignore."
            )
            self._send(site, SiteRefused(why))
            self._tell(f"{site} was turned away: {why}")

    def _differences(self) -> dict[str, str]:
        """Return how the columns of sites that are ready differ; nothing if each has its own."""
        if not self._alike:
            return {}
        return deviations(
            {site: {each.name: each.categorical for each in guest.columns} for site, guest in self.guests.items()}
        )

    def _note_closed(self, site: str) -> None:
        if (guest := self.guests.pop(site, None)) is not None:
            self._away[site] = guest
            self._tell(f"{site} left")

    def _note_back(self, site: str) -> None:
        if (guest := self._away.pop(site, None)) is not None:
            self.guests[site] = guest
            self._tell(f"{site} is back")

    def _note_strangers(self) -> None:
        if (count := self._endpoint.refused[REFUSED]) > self._strangers:
            self._strangers = count
            self._tell(f"refused a connection whose key is not in the folder of sites ({count} so far)")

    # What is said to them.

    def _send(self, site: str, message: Offer | SiteRefused | Begin) -> None:
        with suppress(PeerDropped):  # it left meanwhile
            self._endpoint.send(site, message.to_message(self._endpoint.round), Deadline(0))

    def _send_away(self, missing: Sequence[str], quorum: Quorum, how_long: str) -> None:
        """Tell the sites that joined that there will be no run, and raise FederationError."""
        came = list_names(list(self.guests)) if self.guests else "none"
        left = len(self._names) - len(self._declined)
        if self._declined and (left < quorum.min_sites or not quorum.is_chosen):
            why = self._why_declined(quorum, left)
        else:
            why = self._why_expired(missing, quorum.min_sites, how_long, came)
        for site in self.guests:
            self._send(site, SiteRefused(why))
        raise FederationError(why[0].upper() + why[1:])

    def _why_declined(self, quorum: Quorum, left: int) -> str:
        said = "; ".join(map(self._said_by, self._declined)).rstrip(".")
        if quorum.is_chosen or left < quorum.sum_needs:
            needed = quorum.min_sites if quorum.is_chosen else quorum.sum_needs
            return f"{said}. Fewer than the {needed} sites that are needed are left; change the scenario."
        return (
            f"{said}. The run goes on with fewer sites only if it is told to; change the scenario, or start again "
            f"with --set federation.min_sites={left}."
        )

    def _why_expired(self, missing: Sequence[str], min_sites: int, how_long: str, came: str) -> str:
        absent = [site for site in missing if site not in self._deviating]
        why = [f"{site} has other columns ({clauses})" for site, clauses in self._deviating.items()]
        why += [f"{list_names(absent)} did not come"] if absent else []
        return (
            f"after {how_long} {len(self.guests)} of {len(self._names)} sites were ready ({came}), and {min_sites} are "
            f"needed: {'; '.join(why)}. Fix their files or start fedsvm site there, and increase --wait."
        )

    def _close(self) -> None:
        """Tell all sites that the run begins, and late ones that it has begun."""
        self._begin_with([name for name in self._names if name in self.guests])
        for site in self._sites:
            self._send(site, Begin(self._sites, self._columns[site]))

    def _begin_with(self, sites: list[str]) -> None:
        """Treat every further site as restarted or late."""
        self._sites = sites
        self._columns = {site: self._columns_of(site if not self._alike else sites[0]) for site in sites}
        self._endpoint.on_call = self._receive_late
        self._endpoint.on_closed = self._endpoint.on_back = lambda peer: None

    def _columns_of(self, site: str) -> list[str]:
        return [column.name for column in self.guests[site].columns]

    # Once the run has begun.

    def wait_for(self, site: str, deadline: Deadline) -> Party | None:
        """Wait until a site that has no connection is back, be it the same process or one that was started again.

        Returns
        -------
        Party or None
            The site with the keys of its new process; None where the process is the same.

        Raises
        ------
        LaunchError
            It is not back in time.
        """
        self._tell(f"{site} ended, or cannot be reached; the run waits for it, at most {deadline.seconds:g} s")
        while not self._is_back(site):
            try:
                self._endpoint.serve(deadline)
            except DeadlineExpired:
                raise LaunchError(
                    f"{site} ended, or cannot be reached, and was not back within {deadline.seconds:g} s; start fedsvm "
                    "site there sooner, or let the coordinator wait longer (--rejoin)."
                ) from None
        self._tell(f"{site} is back")
        return self._take_back(site) if site in self._back else None

    def resume(self, guests: Sequence[JoinedSite], deadline: Deadline) -> list[str]:
        """Wait until the sites of a run whose coordinator ended are back, be it the same processes or new ones.

        Parameters
        ----------
        guests : sequence of JoinedSite
            As they were when the run began, in ring order.
        deadline : Deadline
            Of the wait.

        Returns
        -------
        list of str
            Sites that did not come.
        """
        self.guests = {guest.party.name: guest for guest in guests}
        self._begin_with(list(self.guests))
        self._is_resuming, waiting = True, list(self.guests)
        while waiting:
            try:
                self._endpoint.serve(deadline)
            except DeadlineExpired:
                break
            while self._endpoint.received() is not None:
                pass  # whatever it is, it is of a round that is over
            for site in filter(self._is_back, list(waiting)):
                waiting.remove(site)
                self._tell(f"{site} is back" + (f"; waiting for {list_names(waiting)}" if waiting else ""))
        self._is_resuming = False
        return [site for site in self.guests if not self._is_back(site)]

    def take_back_restarted(self) -> dict[str, Party]:
        """Return those of the sites that were started again before the run was resumed, with their new keys."""
        return {site: self._take_back(site) for site in list(self._back)}

    def call_off(self, why: str, heard: int, *, resumable: bool) -> None:
        """Tell the connected sites why the run is not resumed. New processes end, since they know nothing of it.

        Parameters
        ----------
        why : str
            In a sentence.
        heard : int
            No round that sites heard of is above this one.
        resumable : bool
            Whether the processes that waited go on waiting.
        """
        failure = visible(why)[:MAX_LOG_TEXT]
        for site in self._sites:
            if site in self._coming:
                self._send(site, SiteRefused(failure))
                continue
            stop = RunOver(failure, resumable=resumable and site not in self._started_again)
            with suppress(PeerDropped):  # it left meanwhile, or did not come
                self._endpoint.send(site, stop.to_message(self._run, heard), Deadline(0))

    def _is_back(self, site: str) -> bool:
        return site in self._back or (self._endpoint.is_connected(site) and site not in self._coming)

    def _take_back(self, site: str) -> Party:
        party = self._back.pop(site)
        self.guests[site] = replace(self.guests[site], party=party)
        return party

    def _receive_late(self, call: Call) -> None:
        site = call.peer
        why = self._reason_against(call)
        if not why and (site not in self._sites or not (self._is_resuming or site in self.terms.restartable)):
            why = "the run goes on without it; wait for the next one."
        if why:
            self._endpoint.turn_away(call, why)
            self._tell(f"{site} was turned away: {why}")
            return
        self._invited[site] = call
        self._back.pop(site, None)
        self._coming.add(site)
        self._endpoint.on_word = self._hear_late
        self._send(site, Offer(self._run, self._endpoint.invite(call), self.terms.to_fields()))
        self.on_restarted(site)

    def _hear_late(self, site: str, message: Message) -> None:
        """Process the answer of a restarted site to the offer."""
        if message.kind != Ready.kind or site not in self._invited:
            return
        try:
            ready = Ready.from_message(message)
            _check_keys(ready)
        except Malformed as error:
            self._endpoint.refused[f"malformed: {error}"] += 1
            return
        known = self.guests[site].party
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
