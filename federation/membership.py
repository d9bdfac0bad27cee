"""The membership of a run: for every site whether it takes part, and whether its process lives.

A site has *dropped* if the others continued without it. If its process still runs and answers again, it is admitted
when the next phase begins. If it is *restarted*, it takes part from the next round. `admission` sends the messages.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from fedsvm.federation.errors import SitesDropped

MEMBER_NEEDED = (
    "The terms name it as a member of the committee, and no other site may replace it: resume the run when it is "
    "back, or start again with another site in protocol.committee."
)


@dataclass(frozen=True)
class DropoutPolicy:
    """The behavior of a run when sites drop out.

    Parameters
    ----------
    min_sites : int, default 1
        The run ends with fewer sites.
    on_dropout : {"continue", "abort"}, default "continue"
        "abort" ends the run when the first site drops.
    restartable : tuple of str, default ()
        Sites that may be restarted with other keys; all sites receive this list when they start.
    restart : callable
        Returns whether to restart a restartable site whose process ended, given its name; by default True.
    silence_s : float, default 0.0
        Seconds that a run waits for a silent site whose process may still run; 0: it continues without the site.
    on_silence : callable, optional
        Called with the awaited sites.
    committee : tuple of str, default ()
        Sites that the terms name as the members of every committee. The run ends if one of them drops.
    """

    min_sites: int = 1
    on_dropout: Literal["continue", "abort"] = "continue"
    restartable: tuple[str, ...] = ()
    restart: Callable[[str], bool] = lambda site: True
    silence_s: float = 0.0
    on_silence: Callable[[Sequence[str]], None] = lambda sites: None
    committee: tuple[str, ...] = ()


@dataclass(frozen=True)
class MembershipChange:
    """Sites that left, with the reason, or joined, in a round; `sites` are those that take part from then on."""

    round: int
    phase: str
    left: Mapping[str, str]
    joined: tuple[str, ...]
    sites: tuple[str, ...]


@dataclass
class _Status:
    """The status of one site: whether it takes part, how its process ended ("" while it lives), and whether it answered
    since it dropped."""

    takes_part: bool = True
    ended: str = ""
    answered: bool = False


class Membership:
    """The sites of a run in ring order, those that take part, and the changes so far.

    Parameters
    ----------
    all_sites : tuple of str
        All sites, in ring order. At first all take part.
    policy : DropoutPolicy
        The behavior when sites drop out.

    Attributes
    ----------
    changes : list of MembershipChange
        The changes, in order.
    why_needed : str
        The reason why every site is needed, in a sentence; "" if they are not all needed.
    ended : set of str
        Sites without a process.
    """

    def __init__(self, all_sites: tuple[str, ...], policy: DropoutPolicy) -> None:
        self.all_sites = all_sites
        self.policy = policy
        self.changes: list[MembershipChange] = []
        self.why_needed = ""
        self.ended: set[str] = set()
        self._status = {site: _Status() for site in all_sites}

    def __contains__(self, site: object) -> bool:
        """Return whether a site belongs to the run."""
        return site in self._status

    @property
    def sites(self) -> tuple[str, ...]:
        """Sites that take part."""
        return tuple(site for site, status in self._status.items() if status.takes_part)

    @property
    def with_process(self) -> tuple[str, ...]:
        """Sites whose process lives, even if they do not take part."""
        return tuple(site for site, status in self._status.items() if not status.ended)

    @property
    def dropped(self) -> tuple[str, ...]:
        """Sites that do not take part although their process lives."""
        return tuple(site for site in self.with_process if not self._status[site].takes_part)

    @property
    def returned(self) -> set[str]:
        """Sites that dropped and answered again."""
        return {site for site in self.dropped if self._status[site].answered}

    @property
    def responsive(self) -> set[str]:
        """Sites whose process lives and answers, as far as is known."""
        return {site for site in self.with_process if self._status[site].takes_part or self._status[site].answered}

    def how_ended(self, site: str) -> str:
        """Return in words how the process of a site ended, or "" while it lives."""
        return self._status[site].ended

    def note_ended(self, site: str, how: str) -> None:
        """Record that the process of a site ended."""
        self._status[site].ended = f"its process {how}"
        self.ended.add(site)

    def note_restarted(self, site: str) -> None:
        """Record that a site has a process again."""
        self._status[site].ended = ""
        self.ended.discard(site)

    def note_answer(self, site: str) -> None:
        """Record that a site answered: if it dropped, it is back."""
        if not self._status[site].takes_part:
            self._status[site].answered = True

    def find_needed(self, sites: Sequence[str]) -> list[str]:
        """Return those of some sites without which the run cannot continue."""
        return [site for site in sites if self.why_needed or site in self.policy.committee]

    def change(
        self, round_number: int, phase: str, left: Mapping[str, str], joined: tuple[str, ...], label: str
    ) -> None:
        """Record who left and who joined. Raises SitesDropped if the others cannot or must not continue."""
        for site in left:
            self._status[site].takes_part = self._status[site].answered = False
        for site in joined:
            self._status[site].takes_part, self._status[site].answered = True, False
        self.changes.append(MembershipChange(round_number, phase, dict(left), joined, self.sites))
        if left and self.policy.on_dropout == "abort":
            raise SitesDropped(left, label, 'federation.on_dropout is "abort".')
        if members := {site: why for site, why in left.items() if site in self.policy.committee and site not in joined}:
            raise SitesDropped(members, label, MEMBER_NEEDED)
        if self.why_needed and (missed := {site: why for site, why in left.items() if site not in joined}):
            raise SitesDropped(missed, label, self.why_needed)
        if len(self.sites) < self.policy.min_sites:
            count = "1 site is" if len(self.sites) == 1 else f"{len(self.sites)} sites are"
            raise SitesDropped(left, label, f"{count} left, and {self.policy.min_sites} are needed.")
