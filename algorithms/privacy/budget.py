"""What is promised of released models, and what of it can be refused before anything starts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

from fedsvm.algorithms.settings import Positive, Share, doc

_ROUNDING = 1 + 1e-12


@dataclass(kw_only=True)
class BudgetSettings:
    """What one model promises, and all models of a run together."""

    epsilon: Annotated[Positive, doc("Privacy loss bound (epsilon) of one released model for any private row.")] = 1.0
    budget: Annotated[
        Positive | None, doc("Limit on the total epsilon of all releases of a run. Default: no limit.")
    ] = None
    budget_delta: Annotated[Share | None, doc("Limit on the total delta of all releases of a run.")] = None
    ledger: Annotated[
        str | None,
        doc("File that records every release from one data set. The budgets then cover all runs with this file."),
    ] = None

    def budget_problems(self, models: int, delta: float, *, private: bool) -> Iterator[str]:
        """What the releases of so many models would spend beyond the budget. private: whether there is noise at all."""
        if self.ledger is not None and not private:
            yield "ledger: nothing is promised without noise, and nothing charged; leave it out"
        for key, each, budget in (
            ("budget", self.epsilon, self.budget),
            ("budget_delta", delta, self.budget_delta),
        ):
            if budget is not None and not private:
                yield f"{key}: nothing is promised without noise, and nothing spent; leave it out"
            elif budget is not None and each * models > budget * _ROUNDING:
                yield (
                    f"{key}: {models} releases of {each:g} would spend {each * models:g} of a budget of {budget:g}; "
                    "raise it, or promise more of each release, or have fewer folds"
                )


def pairs_problem(features: int, public_rows: int) -> Iterator[str]:
    """Frequencies are fitted to the kernel between public rows, which need as many pairs."""
    pairs = public_rows * (public_rows - 1) // 2
    if pairs < features:
        yield (
            f"features: must be {pairs} or less, as {public_rows} public rows have pairs, got {features}; "
            "set more public rows apart, or lower it"
        )
