"""The privacy accountant: every release of a run, and the budget that they must not exceed."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import astuple, dataclass, field
from pathlib import Path
from typing import Any, Self

from fedsvm.algorithms.privacy.privacy_ledger import DataIdentity, PrivacyLedger, Spent, require_room

Once = Callable[[str, Callable[[], Any]], Any]
"""Does something once for a purpose; a resumed run gets the earlier outcome: see `Federation.journaled_random`."""


@dataclass(frozen=True)
class Release:
    """Something that was released, how, and whom it protects private rows from.

    sensitivity: None where noise is not added to what is released, but to what is minimised. drawn_by: who drew the
    noise. lattice: the distance of its points, None where it has none. share_epsilon: of one site's part with that
    site's share of the noise alone, where sites put both into a sum. remarks: what else to know of it, in sentences.
    """

    what: str
    epsilon: float
    delta: float
    mechanism: str
    sensitivity: float | None
    noise_scale: float
    protects_against: tuple[str, ...]
    drawn_by: str
    lattice: float | None = None
    share_epsilon: float | None = None
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True)
class PrivacyBudget:
    """Of epsilon and delta for all releases together; None is without limit."""

    epsilon: float | None
    delta: float | None


@dataclass(frozen=True)
class LedgerReport:
    """The total spent by all runs charged to a ledger, including this one."""

    path: str
    epsilon: float
    delta: float
    releases: int


@dataclass(frozen=True)
class PrivacyReport:
    """The total spent, the mechanism of the last release, the budget, and every release.

    ledger: what other runs of the same ledger spent. not_covered: what else is known of private rows and not covered
    by noise, in sentences.
    """

    epsilon: float
    delta: float
    mechanism: str
    sensitivity: float | None
    noise_scale: float
    protects_against: tuple[str, ...]
    drawn_by: str
    lattice: float | None
    budget: PrivacyBudget
    releases: tuple[Release, ...]
    ledger: LedgerReport | None = None
    not_covered: tuple[str, ...] = ()


@dataclass
class PrivacyAccountant:
    """Every release of a run, and a budget of epsilon and delta that they must not exceed; releases add up.

    ledger: what they are charged to; then the budget is for all that is in it. charged: all of it after the last one.
    """

    epsilon: float = math.inf
    delta: float = math.inf
    releases: list[Release] = field(default_factory=list)
    ledger: PrivacyLedger | None = None
    charged: Spent = field(default_factory=Spent)

    @classmethod
    def within(cls, settings: Any, data: DataIdentity) -> Self:
        """Return an accountant with the budget and the ledger of an algorithm's settings; without them, no limit.

        data: what is trained on, which a ledger must be of.
        """
        of_epsilon, of_delta = getattr(settings, "budget", None), getattr(settings, "budget_delta", None)
        path = getattr(settings, "ledger", None)
        return cls(
            math.inf if of_epsilon is None else of_epsilon,
            math.inf if of_delta is None else of_delta,
            ledger=None if path is None else PrivacyLedger(Path(path).resolve(), data),
        )

    @property
    def spent(self) -> tuple[float, float]:
        """epsilon and delta of all releases together."""
        return sum(each.epsilon for each in self.releases), sum(each.delta for each in self.releases)

    def check_budget(self, epsilon: float, delta: float) -> None:
        """Raise FederationError, before anything is computed from private rows, where the budget has no room."""
        spent, where = Spent(*self.spent), ""
        if self.ledger is not None:
            spent, where = self.ledger.spent(), f" of {self.ledger.path}"
        require_room(spent, epsilon, delta, (self.epsilon, self.delta), where)

    def spend(self, release: Release, once: Once = lambda purpose, draw: draw()) -> None:
        """Write a release down. Raises FederationError where the budget has no room for it.

        once: so that a run that is resumed does not charge the ledger again.
        """
        limits, ledger = (self.epsilon, self.delta), self.ledger
        if ledger is not None:
            charged = once(
                f"what {release.what} was charged",
                lambda: astuple(ledger.charge(release.epsilon, release.delta, release.what, limits)),
            )
            self.charged = Spent(*charged)
        else:
            require_room(Spent(*self.spent), release.epsilon, release.delta, limits)
        self.releases.append(release)

    def report(self) -> PrivacyReport | None:
        """Return the entries of a result on the releases so far; None without any."""
        if not self.releases:
            return None
        (epsilon, delta), last = self.spent, self.releases[-1]
        return PrivacyReport(
            epsilon=epsilon,
            delta=delta,
            mechanism=last.mechanism,
            sensitivity=last.sensitivity,
            noise_scale=last.noise_scale,
            protects_against=last.protects_against,
            drawn_by=last.drawn_by,
            lattice=last.lattice,
            budget=PrivacyBudget(_finite(self.epsilon), _finite(self.delta)),
            releases=tuple(self.releases),
            ledger=None if self.ledger is None else LedgerReport(str(self.ledger.path), **vars(self.charged)),
        )


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
