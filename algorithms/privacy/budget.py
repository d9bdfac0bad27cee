"""The privacy guarantee of released models, and the parts of it that can be refused before anything starts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

from fedsvm.algorithms.settings import Positive, Share, doc

_ROUNDING = 1 + 1e-12


@dataclass(kw_only=True)
class BudgetSettings:
    """The guarantees of one model, and of all models of a run together."""

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
        """Yield how the releases of this number of models would exceed the budget. private: whether there is noise."""
        if self.ledger is not None and not private:
            yield "ledger: without noise there is no privacy guarantee to charge; remove it"
        for key, each, budget in (
            ("budget", self.epsilon, self.budget),
            ("budget_delta", delta, self.budget_delta),
        ):
            if budget is not None and not private:
                yield f"{key}: without noise there is no privacy guarantee to budget; remove it"
            elif budget is not None and each * models > budget * _ROUNDING:
                yield (
                    f"{key}: {models} releases of {each:g} would spend {each * models:g} of a budget of {budget:g}; "
                    "raise it, lower epsilon, or use fewer folds"
                )


def pairs_problem(features: int, public_rows: int) -> Iterator[str]:
    """Yield an error if there are fewer pairs of public rows than frequencies to fit to them."""
    pairs = public_rows * (public_rows - 1) // 2
    if pairs < features:
        yield (
            f"features: must be {pairs} or less, as {public_rows} public rows have pairs, got {features}; "
            "set more public rows apart, or lower it"
        )
