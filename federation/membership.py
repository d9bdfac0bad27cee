"""Who takes part: which sites are in, which are out and why, and what happens when one is lost.

A site that is lost is out. If its process still lives and answers again, it is let in when the next phase begins; if
it can be started again, it takes part from the next round.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from federation.errors import SitesLost
from federation.transport.keys import Party


@dataclass(frozen=True)
class DropoutPolicy:
    """What a run does when sites are lost.

    fewest: fewer sites must not go on. on_dropout: "abort" ends the run with the first loss. revive: starts a lost
    site again, or returns None for one that stays away.
    """

    fewest: int = 1
    on_dropout: Literal["continue", "abort"] = "continue"
    revive: Callable[[str], Party | None] = lambda site: None


@dataclass(frozen=True)
class Change:
    """Sites that left, with the reason, or joined, in a round; `sites` are those that take part from then on."""

    round: int
    phase: str
    left: Mapping[str, str]
    joined: tuple[str, ...]
    sites: tuple[str, ...]


@dataclass
class Membership:
    """The sites of a run in ring order, those that are in, and how that came to be."""

    all_sites: tuple[str, ...]
    survival: DropoutPolicy
    sites: tuple[str, ...] = ()
    ended: dict[str, str] = field(default_factory=dict)
    """Sites whose process ended, and how."""
    returned: set[str] = field(default_factory=set)
    """Sites that are out and answered again."""
    changes: list[Change] = field(default_factory=list)
    why_needed: str = ""
    """What the others cannot do without, in a sentence, once no site can be spared."""

    def __post_init__(self) -> None:
        self.sites = self.all_sites

    @property
    def reachable(self) -> tuple[str, ...]:
        """Sites with a process, whether they are in or out."""
        return tuple(site for site in self.all_sites if site not in self.ended)

    @property
    def out(self) -> tuple[str, ...]:
        """Sites with a process that do not take part."""
        return tuple(site for site in self.reachable if site not in self.sites)

    @property
    def responsive(self) -> set[str]:
        """Sites with a process that answers, as far as is known."""
        return {site for site in self.reachable if site in self.sites or site in self.returned}

    def change(
        self, round_number: int, phase: str, left: Mapping[str, str], joined: tuple[str, ...], label: str
    ) -> None:
        """Write down who left and who joined. Raises SitesLost if the others cannot or must not go on."""
        stay = (set(self.sites) - set(left)) | set(joined)
        self.returned -= set(joined) | set(left)
        self.sites = tuple(site for site in self.all_sites if site in stay)
        self.changes.append(Change(round_number, phase, dict(left), joined, self.sites))
        if left and self.survival.on_dropout == "abort":
            raise SitesLost(left, label, 'federation.on_dropout is "abort".')
        if self.why_needed and (gone := {site: why for site, why in left.items() if site not in joined}):
            raise SitesLost(gone, label, self.why_needed)
        if len(self.sites) < self.survival.fewest:
            raise SitesLost(left, label, f"{_counted(len(self.sites))} left, and {self.survival.fewest} are needed.")


def _counted(sites: int) -> str:
    return "1 site is" if sites == 1 else f"{sites} sites are"
