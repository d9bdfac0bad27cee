"""Rows and columns at other hosts as sources of tasks: what a coordinator knows of data that it never sees."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar

from fedsvm.algorithms.contract import Model
from fedsvm.algorithms.data.columns import Schema
from fedsvm.algorithms.data.horizontal import HorizontalTask, count_rows
from fedsvm.algorithms.privacy.ledger import DataIdentity
from fedsvm.federation.federation import Federation
from fedsvm.federation.hosts.lobby import Guest
from fedsvm.scenarios.data.dataset import Holding, Rows, Sizes, declared_classes
from fedsvm.scenarios.hosts import public_rows
from fedsvm.scenarios.run.horizontal import RowSource, RowTask
from fedsvm.scenarios.run.outcome import ModelEvaluation
from fedsvm.scenarios.run.training import Source
from fedsvm.scenarios.run.vertical import ColumnSource


@dataclass
class SourceAtHosts(Source):
    """Data at other hosts, of which sizes are known once training began."""

    warnings: ClassVar[tuple[str, ...]] = ()
    foreseen: ClassVar[tuple[str, ...]] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the sites."""
        return tuple(self.scenario.federation.site_names)

    @property
    def classes(self) -> tuple[str, ...]:
        """Negative, then positive, or all of more."""
        return declared_classes(self.scenario.data)

    @property
    @abstractmethod
    def sizes(self) -> Sizes:
        """How much there is of everything."""

    @abstractmethod
    def held(self, site: str) -> Holding:
        """Return how much a site holds."""

    @abstractmethod
    def describe(self, guests: Sequence[Guest]) -> None:
        """Take in the columns that the sites declare."""


@dataclass
class RowsAtHosts(SourceAtHosts, RowSource):
    """Rows of the same columns at other hosts. Raises ScenarioError for public rows that cannot be read."""

    site_rows: dict[str, int] = field(init=False, default_factory=dict)
    tested: int = field(init=False, default=0)
    _columns: Schema = field(init=False, default=Schema(()))

    def __post_init__(self) -> None:
        self._public = public_rows.read(self.scenario)

    @property
    def schema(self) -> Schema:
        """The columns that all sites have."""
        return self._columns

    @cached_property
    def public(self) -> Rows:
        """The coordinator's own rows. Raises FederationError if they have other columns than the sites."""
        return public_rows.in_columns(self.scenario, self._public, self.schema)

    @property
    def identity(self) -> DataIdentity:
        """The data that a privacy ledger is charged for: the rows of these sites."""
        columns = [*self.schema.numeric, *self.schema.categorical]
        return DataIdentity.of(f"held by {', '.join(self.names)}", self.scenario.data.label, columns)

    @property
    def sizes(self) -> Sizes:
        """How much there is of everything."""
        public = 0 if self._public is None else self._public.rows
        return Sizes(sum(self.site_rows.values()) + self.tested, self._width, self.tested, public)

    @property
    def _width(self) -> int:
        return len(self.schema.numeric) + len(self.schema.categorical)

    def held(self, site: str) -> Holding:
        """Return how many rows a site trains on, and their columns."""
        return Holding(self.site_rows.get(site, 0), self._width)

    def describe(self, guests: Sequence[Guest]) -> None:
        """Take in the columns that the sites declare, which are all alike."""
        columns = guests[0].columns
        self._columns = Schema(
            tuple(each.name for each in columns if not each.categorical),
            tuple(each.name for each in columns if each.categorical),
            self.scenario.data.categories,
        )

    def note_trained(self, federation: Federation, task: RowTask) -> None:
        """Take in how many rows each site trained on."""
        self.site_rows = task.site_rows if isinstance(task, HorizontalTask) else count_rows(federation)

    def evaluate(self, federation: Federation, model: Model, task: RowTask) -> ModelEvaluation:
        """Return what sites count on rows that they hold out, and how columns were chosen."""
        found = super().evaluate(federation, model, task)
        self.tested = 0 if found.at_sites is None else found.at_sites.rows
        return found


@dataclass
class ColumnsAtHosts(SourceAtHosts, ColumnSource):
    """Columns of the same records at other hosts."""

    columns: dict[str, tuple[str, ...]] = field(init=False, default_factory=dict)

    @property
    def sizes(self) -> Sizes:
        """How much there is of everything."""
        return Sizes(self.records, sum(map(len, self.columns.values())), self.tested, public=0)

    def held(self, site: str) -> Holding:
        """Return how many records a site holds, and its columns."""
        return Holding(self.records, len(self.columns_of(site)))

    def columns_of(self, site: str) -> Sequence[str]:
        """Return the names of the columns that a site holds."""
        return self.columns.get(site, ())

    def describe(self, guests: Sequence[Guest]) -> None:
        """Take in the columns that the sites declare."""
        self.columns = {guest.party.name: tuple(column.name for column in guest.columns) for guest in guests}
