"""The registration of the sites of a run over several hosts, until the run begins.

Each site that asks to join receives an offer. The run begins when all sites are ready, or enough of them at the
deadline.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fedsvm.federation.columns import deviations
from fedsvm.federation.errors import DeadlineExpired, FederationError
from fedsvm.federation.hosts.invitations import Invitations, JoinedSite
from fedsvm.federation.hosts.listening_endpoint import Call
from fedsvm.federation.hosts.messages import Ready, SiteRefused
from fedsvm.federation.hosts.registered_sites import RegisteredSites
from fedsvm.federation.text import list_names
from fedsvm.federation.transport.auth import REFUSED
from fedsvm.federation.transport.deadline import Deadline
from fedsvm.federation.transport.keys import COORDINATOR
from fedsvm.federation.transport.wire import Message

_WARNING_FOR_TWO = " (with two sites, each learns the other's part of every sum)"


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
    """The registration of the sites of a run, until it begins.

    Parameters
    ----------
    invitations : Invitations
        The invitations to the run.
    same_columns : bool, default True
        Whether all sites must have the same columns.
    """

    def __init__(self, invitations: Invitations, *, same_columns: bool = True) -> None:
        self._invitations = invitations
        self._endpoint = endpoint = invitations.endpoint
        self._tell = invitations.tell
        self._same_columns = same_columns
        self._ready: dict[str, JoinedSite] = {}
        self._away: dict[str, JoinedSite] = {}
        self._deviating: dict[str, str] = {}
        self._strangers = 0
        self._names = tuple(party.name for party in endpoint.roster if party.name != COORDINATOR)
        endpoint.on_call, endpoint.on_answer = self._receive, self._receive_answer
        endpoint.on_closed, endpoint.on_back = self._note_closed, self._note_back

    def wait(self, deadline: Deadline, quorum: Quorum, wait_text: str) -> RegisteredSites:
        """Wait until every admitted site is ready, or until the deadline if enough are, and begin the run.

        The coordinator does not wait for a site whose own policy forbids the run.

        Parameters
        ----------
        deadline : Deadline
            The end of the wait.
        quorum : Quorum
            The number of sites that the run needs.
        wait_text : str
            The deadline as its user wrote it.

        Returns
        -------
        RegisteredSites
            The sites that take part.

        Raises
        ------
        FederationError
            Too few sites are ready, a member of the committee that the terms name is not ready, or a site declines and
            the scenario does not set the number of sites.
        """
        while not self._is_settled(quorum):
            try:
                self._endpoint.serve(deadline)
            except DeadlineExpired:
                break
            self._note_strangers()
        self._turn_away_deviating()
        missing = [name for name in self._names if name not in self._ready]
        lacks_members = any(member not in self._ready for member in self._invitations.terms.committee)
        is_declined = bool(self._invitations.declined) and not quorum.is_chosen
        if len(self._ready) < quorum.min_sites or is_declined or lacks_members:
            self._raise_too_few(missing, quorum, wait_text)
        if missing:
            self._tell(f"the run begins without {list_names(missing)}")
        joined = [self._ready[name] for name in self._names if name in self._ready]
        sites = RegisteredSites(self._invitations, joined, same_columns=self._same_columns)
        sites.begin()
        return sites

    def _is_settled(self, quorum: Quorum) -> bool:
        """Return whether the wait is over: all sites that can come are ready, or too many decline."""
        by_policy = sum(declined.by_policy for declined in self._invitations.declined.values())
        expected = len(self._names) - by_policy
        return len(self._ready) == expected or expected < quorum.min_sites or (by_policy > 0 and not quorum.is_chosen)

    # Calls and answers of sites.

    def _receive(self, call: Call) -> None:
        if why := self._invitations.reason_against(call):
            self._invitations.turn_away(call, why)
            return
        self._away.pop(call.peer, None)
        self._invitations.invite(call)

    def _receive_answer(self, site: str, message: Message) -> None:
        """Process a site's answer to the offer."""
        if (ready := self._invitations.read_answer(site, message)) is not None:
            self._add_ready(site, ready)
        if all(name in self._ready or name in self._invitations.declined for name in self._names):
            self._turn_away_deviating()

    def _add_ready(self, site: str, ready: Ready) -> None:
        joined = self._ready[site] = self._invitations.joined_site(site, ready)
        self._deviating.pop(site, None)
        waiting = [name for name in self._names if name not in self._ready]
        self._tell(f"{site} is ready; {'waiting for ' + list_names(waiting) if waiting else 'all have joined'}")
        first = next(iter(self._ready.values()))
        if waiting and set(joined.columns) != set(first.columns) and (sites := list(self._differences())):
            self._tell(f"columns of {list_names(sites)} differ so far; decided when all are there")

    def _turn_away_deviating(self) -> None:
        """Refuse the sites whose columns differ from those of more than half of the ready sites; they may call again.

        If two halves differ, all are refused, since nobody can know which half is wrong.
        """
        for site, clauses in self._differences().items():
            self._ready.pop(site)
            self._deviating[site] = clauses
            why = (
                f"its columns differ from those of other sites: it {clauses}. Fix the file, or add them to data.ignore."
            )
            self._invitations.send(site, SiteRefused(why))
            self._tell(f"{site} was turned away: {why}")

    def _differences(self) -> dict[str, str]:
        """Return how the columns of ready sites differ; nothing if they need not be the same."""
        if not self._same_columns:
            return {}
        return deviations(
            {site: {each.name: each.categorical for each in joined.columns} for site, joined in self._ready.items()}
        )

    def _note_closed(self, site: str) -> None:
        if (joined := self._ready.pop(site, None)) is not None:
            self._away[site] = joined
            self._tell(f"{site} left")

    def _note_back(self, site: str) -> None:
        if (joined := self._away.pop(site, None)) is not None:
            self._ready[site] = joined
            self._tell(f"{site} is back")

    def _note_strangers(self) -> None:
        if (count := self._endpoint.refused[REFUSED]) > self._strangers:
            self._strangers = count
            self._tell(f"refused a connection whose key is not in the folder of sites ({count} so far)")

    # Too few sites.

    def _raise_too_few(self, missing: Sequence[str], quorum: Quorum, wait_text: str) -> None:
        """Send the ready sites the reason why the run does not begin, and raise FederationError with it."""
        came = list_names(list(self._ready)) if self._ready else "none"
        left = len(self._names) - len(self._invitations.declined)
        if self._invitations.declined and (left < quorum.min_sites or not quorum.is_chosen):
            why = self._why_declined(quorum, left)
        else:
            needed = f"{quorum.min_sites} are needed"
            if self._invitations.terms.committee:
                needed += f", among them the committee ({list_names(self._invitations.terms.committee)})"
            why = self._why_expired(missing, needed, wait_text, came)
        for site in self._ready:
            self._invitations.send(site, SiteRefused(why))
        raise FederationError(why[0].upper() + why[1:])

    def _why_declined(self, quorum: Quorum, left: int) -> str:
        said = self._invitations.describe_declines()
        if quorum.is_chosen or left < quorum.sum_needs:
            needed = quorum.min_sites if quorum.is_chosen else quorum.sum_needs
            return f"{said}. Fewer than the {needed} sites that are needed are left; change the scenario."
        return (
            f"{said}. The run begins with fewer sites only if the scenario sets their minimum: start again with all, "
            f"or with --set federation.min_sites={left}{_WARNING_FOR_TWO if left == 2 else ''}."
        )

    def _why_expired(self, missing: Sequence[str], needed: str, wait_text: str, came: str) -> str:
        absent = [site for site in missing if site not in self._deviating and site not in self._invitations.declined]
        why = [f"{site} has other columns ({clauses})" for site, clauses in self._deviating.items()]
        why += [self._invitations.describe_decline(site).rstrip(".") for site in self._invitations.declined]
        why += [f"{list_names(absent)} did not come"] if absent else []
        ready = len(self._ready)
        return (
            f"after {wait_text} {ready} of {len(self._names)} sites were ready ({came}), and {needed}: "
            f"{'; '.join(why)}. Fix their files or start fedsvm site there, and increase --wait."
        )
