"""The privacy accountant: every release of a run, and the budget that they must not exceed."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Self

from federation.errors import FederationError


@dataclass(frozen=True)
class Release:
    """Something that was released, how, and whom it protects private rows from.

    sensitivity: None where noise is not added to what is released, but to what is minimised. drawn_by: who drew the
    noise. lattice: the distance of its points, None where it has none.
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


@dataclass(frozen=True)
class Budget:
    """Of epsilon and delta for all releases together; None is without limit."""

    epsilon: float | None
    delta: float | None


@dataclass(frozen=True)
class PrivacyReport:
    """What was spent in all, how the last release was made, the budget, and every release."""

    epsilon: float
    delta: float
    mechanism: str
    sensitivity: float | None
    noise_scale: float
    protects_against: tuple[str, ...]
    drawn_by: str
    lattice: float | None
    budget: Budget
    releases: tuple[Release, ...]


@dataclass
class PrivacyAccountant:
    """Every release of a run, and a budget of epsilon and delta that they must not exceed; releases add up."""

    epsilon: float = math.inf
    delta: float = math.inf
    releases: list[Release] = field(default_factory=list)

    @classmethod
    def within(cls, settings: Any) -> Self:
        """One with the budget of an algorithm's settings; without limit where they have none."""
        of_epsilon, of_delta = getattr(settings, "budget", None), getattr(settings, "budget_delta", None)
        return cls(math.inf if of_epsilon is None else of_epsilon, math.inf if of_delta is None else of_delta)

    @property
    def spent(self) -> tuple[float, float]:
        """epsilon and delta of all releases together."""
        return sum(each.epsilon for each in self.releases), sum(each.delta for each in self.releases)

    def check_budget(self, epsilon: float, delta: float) -> None:
        """Raise FederationError, before anything is computed from private rows, where the budget has no room."""
        spent = self.spent
        if spent[0] + epsilon > self.epsilon * (1 + 1e-12) or spent[1] + delta > self.delta * (1 + 1e-12):
            raise FederationError(
                f"A release of epsilon = {epsilon:g}, delta = {delta:g} after {spent[0]:g} and {spent[1]:g} would "
                f"exceed the budget of {self.epsilon:g} and {self.delta:g}; nothing is released. Raise the budget, or "
                "release less often or with a smaller epsilon."
            )

    def spend(self, release: Release) -> None:
        """Write a release down. Raises FederationError where the budget has no room for it."""
        self.check_budget(release.epsilon, release.delta)
        self.releases.append(release)

    def report(self) -> PrivacyReport | None:
        """What a result says of the releases so far; None where nothing was released."""
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
            budget=Budget(_finite(self.epsilon), _finite(self.delta)),
            releases=tuple(self.releases),
        )


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
