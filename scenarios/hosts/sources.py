"""Rows and columns at other hosts as sources of tasks: what a coordinator knows of data that it never sees."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from fedsvm.algorithms.algorithm import Model
from fedsvm.algorithms.data.columns import Schema
from fedsvm.algorithms.data.horizontal_task import HorizontalTask, count_rows
from fedsvm.algorithms.privacy.privacy_ledger import DataIdentity
from fedsvm.federation.federation import Federation
from fedsvm.federation.hosts.invitations import JoinedSite
from fedsvm.scenarios.data.dataset import Rows, SiteSize, Sizes
from fedsvm.scenarios.data.label_classes import declared_classes
from fedsvm.scenarios.hosts import public_rows
from fedsvm.scenarios.run.horizontal import RowSource, RowTask
from fedsvm.scenarios.run.outcome import ModelEvaluation
from fedsvm.scenarios.run.vertical import ColumnSource


@dataclass
class RowsAtHosts(RowSource):
    """Rows of the same columns at other hosts. Raises ScenarioError for public rows that cannot be read."""

    warnings: ClassVar[tuple[str, ...]] = ()
    foreseen: ClassVar[tuple[str, ...]] = ()
    site_rows: dict[str, int] = field(init=False, default_factory=dict)
    tested: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        self.classes, self.schema = declared_classes(self.scenario.data), Schema(())
        self._public = public_rows.read(self.scenario)

    @property
    def sizes(self) -> Sizes:
        """The numbers of rows and columns, as far as they are known."""
        public = 0 if self._public is None else self._public.rows
        return Sizes(sum(self.site_rows.values()) + self.tested, self._width, self.tested, public)

    @property
    def _width(self) -> int:
        return len(self.schema.numeric) + len(self.schema.categorical)

    def site_size(self, site: str) -> SiteSize:
        """Return the numbers of training rows and columns of a site."""
        return SiteSize(self.site_rows.get(site, 0), self._width)

    def describe(self, sites: Sequence[JoinedSite]) -> None:
        """Record the columns that the sites declare; all sites have the same ones."""
        data, columns = self.scenario.data, sites[0].columns
        numeric = tuple(each.name for each in columns if not each.categorical)
        categorical = tuple(each.name for each in columns if each.categorical)
        self.schema = Schema(numeric, categorical, data.categories)
        self.identity = DataIdentity.of(f"held by {', '.join(self.names)}", data.label, [*numeric, *categorical])

    def public_rows(self) -> Rows:
        """Return the coordinator's own rows. Raises FederationError if they have other columns than the sites."""
        return public_rows.in_columns(self.scenario, self._public, self.schema)

    def note_trained(self, federation: Federation, task: RowTask) -> None:
        """Take in how many rows each site trained on."""
        self.site_rows = task.site_rows if isinstance(task, HorizontalTask) else count_rows(federation)

    def evaluate(self, federation: Federation, model: Model, task: RowTask) -> ModelEvaluation:
        """Return what sites count on rows that they hold out, and how columns were chosen."""
        found = super().evaluate(federation, model, task)
        self.tested = 0 if found.at_sites is None else found.at_sites.rows
        return found


@dataclass
class ColumnsAtHosts(ColumnSource):
    """Columns of the same records at other hosts."""

    warnings: ClassVar[tuple[str, ...]] = ()
    foreseen: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        self.classes = declared_classes(self.scenario.data)

    @property
    def sizes(self) -> Sizes:
        """The numbers of records and columns, as far as they are known."""
        return Sizes(self.records, sum(map(len, self.columns.values())), self.tested, public=0)

    def site_size(self, site: str) -> SiteSize:
        """Return the numbers of records and columns of a site."""
        return SiteSize(self.records, len(self.columns.get(site, ())))

    def describe(self, sites: Sequence[JoinedSite]) -> None:
        """Record the columns that the sites declare."""
        self.columns = {site.party.name: tuple(column.name for column in site.columns) for site in sites}


SourceAtHosts = RowsAtHosts | ColumnsAtHosts
