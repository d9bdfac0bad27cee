"""Sites on other hosts that hold columns of the same records: what a coordinator knows of them, and training."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from fedsvm.algorithms.contract import VerticalAlgorithm
from fedsvm.algorithms.data.vertical import VerticalTask, align, labels_of
from fedsvm.federation.federation import Federation
from fedsvm.federation.hosts.lobby import Guest
from fedsvm.scenarios.data.dataset import Holding, Sizes, declared_classes
from fedsvm.scenarios.run import metrics
from fedsvm.scenarios.run.outcome import Alignment, Fold, Outcome, log_fold, trained
from fedsvm.scenarios.schema.spec import Scenario


@dataclass
class ColumnsAtSites:
    """What a coordinator knows of columns that it never sees: their names, and once training began how many records."""

    scenario: Scenario
    columns: dict[str, tuple[str, ...]] = field(default_factory=dict)
    records: int = 0
    tested: int = 0
    warnings: tuple[str, ...] = ()
    foreseen: tuple[str, ...] = ()

    def describe(self, guests: Sequence[Guest]) -> None:
        """Take in what the sites say that they hold."""
        self.columns = {guest.party.name: tuple(column.name for column in guest.columns) for guest in guests}

    @property
    def names(self) -> tuple[str, ...]:
        """Of the sites."""
        return tuple(self.scenario.federation.site_names)

    @property
    def classes(self) -> tuple[str, ...]:
        """Negative, then positive."""
        return declared_classes(self.scenario.data)

    @property
    def sizes(self) -> Sizes:
        """How much there is of everything."""
        return Sizes(self.records, sum(map(len, self.columns.values())), self.tested, public=0)

    def held(self, site: str) -> Holding:
        """How many records a site holds, and its columns."""
        return Holding(self.records, len(self.columns.get(site, ())))


def train_on_columns(scenario: Scenario, data: ColumnsAtSites, federation: Federation, outcome: Outcome) -> None:
    """Train one model on columns that are at different sites, and have the sites score the rows they hold out."""
    algorithm, settings = scenario.algorithm.implementation, scenario.algorithm.settings
    if not isinstance(algorithm, VerticalAlgorithm):
        raise TypeError(f"{algorithm.name} must be a VerticalAlgorithm")
    with outcome.timed("train_s"), federation.phase("setup"):
        data.records = align(federation, scenario.data.align)
        outcome.alignment = Alignment(scenario.data.align, data.records)
    classes = len(data.classes)
    task = VerticalTask(scenario.data.scale, scenario.seed, 0 if scenario.data.test_fraction else None, classes)
    with outcome.timed("train_s"):
        model = algorithm.fit(federation, task, settings)
    log_fold(federation, None, trained(model))
    test, data.tested = None, task.records.held_out
    with outcome.timed("evaluate_s"), federation.phase("evaluate"):
        if data.tested:
            labels = labels_of(federation, data.tested, task.records.label_sites, held_out=True, classes=classes)
            test = metrics.evaluate(algorithm.score(federation, model, data.tested), labels)
    outcome.keep(Fold(fold=None, training=trained(model), arrays=model.to_arrays(), test=test, pooled=None), algorithm)
