"""Columns and scale of private rows, as declared or as public rows have them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

from algorithms.data.encoding import Vocabulary
from algorithms.data.horizontal import Scale
from algorithms.data.public_rows import prepare, scale_from_public
from algorithms.privacy.mechanisms import PrivacyAccountant
from federation.arrays import FloatArray, IntArray
from federation.federation import Federation
from scenarios.data.dataset import NO_FOLD, FederatedDataset
from scenarios.schema.spec import Scenario

Rows = tuple[FloatArray, FloatArray]
"""(n, d) scaled rows and (n,) labels."""


@dataclass(frozen=True)
class PublicColumns:
    """Nothing of it is chosen by looking at private rows."""

    scenario: Scenario
    workload: FederatedDataset

    @cached_property
    def vocabulary(self) -> Vocabulary:
        """Categories that are declared, or that public rows have."""
        rows, declared = self.workload.rows.take(self.workload.public), self.scenario.data.categories
        columns = zip(self.workload.categorical_columns, rows.categorical.T, strict=True)
        return Vocabulary({name: sorted(declared.get(name, set(column.tolist()))) for name, column in columns})

    @cached_property
    def scale(self) -> Scale:
        """Of the public rows, but for columns whose range is declared."""
        rows = self.workload.rows.take(self.workload.public)
        encoded = self.vocabulary.encode(rows.numeric, rows.categorical)
        found = scale_from_public(encoded, self.scenario.data.scale)
        for name, (low, high) in self.scenario.data.ranges.items():
            place = self.names.index(name)
            found.offset[place], found.scale[place] = (high + low) / 2, (high - low) / 2
        return found

    @property
    def names(self) -> list[str]:
        return [*self.workload.numeric_columns, *self.vocabulary.columns]

    @property
    def public(self) -> Rows:
        """The public rows, scaled, and their labels."""
        return self.scaled(self.workload.public)

    def scaled(self, indices: IntArray) -> Rows:
        """Rows (n, d) in these columns and on this scale, and labels (n,)."""
        rows = self.workload.rows.take(indices)
        return self.scale(self.vocabulary.encode(rows.numeric, rows.categorical)), rows.signs

    def split(self, fold: int, sites: tuple[str, ...]) -> tuple[Rows, Rows]:
        """Rows that these sites train on while a fold is held out, and those it is tested on."""
        held_out = self.workload.tests[max(fold, 0)]
        train = self.scaled(self.workload.training(fold, sites))
        return train, self.scaled(held_out) if len(held_out) else train

    @property
    def folds(self) -> list[int]:
        return list(range(len(self.workload.tests))) if self.scenario.data.folds is not None else [NO_FOLD]

    def prepare(self, federation: Federation, fold: int) -> None:
        """Have the sites hold a fold out, and encode and scale the others."""
        nobody = len(self.workload.tests)  # a fold that no row is in
        values = list(self.vocabulary.values.values())
        prepare(federation, values, self.scale, fold if fold != NO_FOLD else nobody)

    def account(self) -> PrivacyAccountant:
        """An account with the scenario's budget."""
        chosen = self.scenario.algorithm
        return PrivacyAccountant(chosen.budget or math.inf, chosen.budget_delta or math.inf)
