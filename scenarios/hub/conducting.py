"""The coordinator of a task, run as far as it comes: in a thread of its own, which rests when nothing more is due."""

from __future__ import annotations

import math
import shlex
import threading
import time
import tomllib
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from algorithms.contract import VerticalAlgorithm
from algorithms.data.vertical import VerticalTask, align, labels_of
from federation.federation import Federation
from federation.hosts.lobby import Column, Guest
from federation.journal import Journal
from federation.membership import DropoutPolicy
from federation.transport.keys import COORDINATOR, Party, Roster
from federation.transport.wire import Message
from federation.visits.coordinator import visited
from federation.visits.endpoint import Arrived, Left, NothingDue
from scenarios.data.dataset import Holding, Sizes, declared_classes
from scenarios.hosts.coordination import RemoteDataset, train
from scenarios.hub.database import Database, Participant, Task
from scenarios.hub.letters import Letters
from scenarios.report import page
from scenarios.run import metrics
from scenarios.run.outcome import Alignment, Fold, Outcome, log_fold, trained
from scenarios.run.runner import Finished, Run, recorded
from scenarios.run.starter import JOURNAL
from scenarios.schema import spec
from scenarios.schema.spec import Scenario

LINGER_S = 10.0
"""How long a coordinator that has taken in all rests before it ends; the next word runs it from its start again."""

_COORDINATORS = "coordinator.journal"


@dataclass
class ColumnsAtSites:
    """What the hub knows of columns that it never sees: their names, and once training began how many records."""

    scenario: Scenario
    columns: dict[str, tuple[str, ...]]
    records: int = 0
    tested: int = 0
    warnings: tuple[str, ...] = ()
    foreseen: tuple[str, ...] = ()

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
    task = VerticalTask(scenario.data.scale, scenario.seed, 0 if scenario.data.test_fraction else None)
    with outcome.timed("train_s"):
        model = algorithm.fit(federation, task, settings)
    log_fold(federation, None, trained(model))
    test, data.tested = None, task.records.held_out
    with outcome.timed("evaluate_s"), federation.phase("evaluate"):
        if data.tested:
            labels = labels_of(federation, data.tested, task.records.label_sites, held_out=True)
            test = metrics.evaluate(algorithm.score(federation, model, data.tested), labels)
    outcome.keep(Fold(fold=None, training=trained(model), arrays=model.to_arrays(), test=test, pooled=None), algorithm)


@dataclass
class _Conducted:
    """The thread that runs one coordinator, whether it rests, and whether it was told that there is more."""

    thread: threading.Thread | None = None
    changed: threading.Condition = field(default_factory=threading.Condition)
    is_resting: bool = False
    is_nudged: bool = False
    is_over: bool = False


class Conductor:
    """Runs the coordinators of tasks.

    Parameters
    ----------
    database : Database
    letters : Letters
    folder : Path
        Where the runs of tasks are, each in a folder of its own.
    on_over : callable
        Told of a run that is over, by the number of its task, and how it ended.

    Attributes
    ----------
    on_said : callable
        Told of a task in which the coordinator said something.
    """

    def __init__(
        self,
        database: Database,
        letters: Letters,
        folder: Path,
        on_over: Callable[[str, Finished], None],
    ) -> None:
        self._database = database
        self._letters = letters
        self._folder = folder
        self._on_over = on_over
        self.on_said: Callable[[str], None] = lambda task_id: None
        self._lock = threading.Lock()
        self._conducted: dict[str, _Conducted] = {}
        self._closing = threading.Event()

    def folder_of(self, task_id: str) -> Path:
        """The folder of a task's run."""
        return self._folder / task_id

    def never_ran(self, task_id: str) -> bool:
        """Whether the coordinator of a task was not run since this one is there."""
        with self._lock:
            return task_id not in self._conducted

    def nudge(self, task_id: str) -> None:
        """There may be more for the coordinator of a task to take in."""
        with self._lock:
            known = self._conducted.get(task_id)
            if known is not None and not known.is_over:
                with known.changed:
                    if not known.is_over:
                        known.is_nudged, known.is_resting = True, False
                        known.changed.notify_all()
                        return
            begun = self._conducted[task_id] = _Conducted()
            words = (task_id, begun, known.thread if known is not None else None)
            begun.thread = threading.Thread(target=self._conduct, args=words, name=f"task {task_id}")
            begun.thread.start()

    def settle(self, task_id: str, within_s: float) -> None:
        """Wait until the coordinator of a task rests or has ended, but no longer than that."""
        with self._lock:
            known = self._conducted.get(task_id)
        if known is not None:
            with known.changed:
                known.changed.wait_for(lambda: known.is_resting or known.is_over, within_s)

    def close(self) -> None:
        """End all threads, where they rest."""
        self._closing.set()
        with self._lock:
            conducted = list(self._conducted.values())
        for each in conducted:
            with each.changed:
                each.changed.notify_all()
            if each.thread is not None:
                each.thread.join()

    def _conduct(self, task_id: str, conducted: _Conducted, before: threading.Thread | None) -> None:
        if before is not None:
            before.join()  # it is about to let go of the journal
        try:
            self._run(task_id, conducted)
        finally:
            with conducted.changed:
                conducted.is_over = True
                conducted.changed.notify_all()

    def _run(self, task_id: str, conducted: _Conducted) -> None:
        with self._database.reading() as session:
            task = session.get_one(Task, task_id)
            if task.state != "running":
                return
            sites = [each for each in task.participants if each.agreement_key is not None and each.columns is not None]
        scenario = spec.validate(tomllib.loads(task.scenario))
        sites = [each for each in sites if each.site in scenario.federation.site_names]
        folder = self.folder_of(task_id)
        (folder / JOURNAL).mkdir(mode=0o700, parents=True, exist_ok=True)
        columns_at = {each.site: tuple(str(name) for name, _ in each.columns or ()) for each in sites}
        if isinstance(scenario.algorithm.implementation, VerticalAlgorithm):
            data: ColumnsAtSites | RemoteDataset = ColumnsAtSites(scenario, columns_at)
        else:
            data = RemoteDataset.of(scenario)
            data.describe([_guest(sites[0])])
        this = Run(scenario, data, folder, shlex.join(["fedsvm", "hub"]))
        with suppress(NothingDue), Journal(folder / JOURNAL / _COORDINATORS) as journal:
            if not journal.header:
                journal.begin({"scenario": task.scenario, "base": ""})
            finished = recorded(this, lambda: self._carry_out(this, task, sites, journal, conducted))
            page.write_report(folder)
            self._on_over(task_id, finished)

    def _carry_out(
        self, this: Run, task: Task, sites: list[Participant], journal: Journal, conducted: _Conducted
    ) -> None:
        scenario = this.scenario
        roster = Roster(
            [Party(COORDINATOR, "", None), *(Party(s.site, "", s.public_key, s.agreement_key) for s in sites)]
        )
        said: list[tuple[str, int, int, Message]] = []

        def keep(federation: Federation | None = None) -> None:
            """Store what was said, and how far it is."""
            with self._database.session() as session:
                whom = {each.site: session.get_one(Participant, each.id) for each in sites}
                new = [
                    whom[site]
                    for site, number, place, message in said
                    if self._letters.tell(session, whom[site], number, place, message)
                ]
                for each in new:
                    each.due_since = each.due_since or time.time()
                if federation is not None:
                    now = federation.progress
                    session.get_one(Task, task.id).progress = {
                        "phase": now.phase,
                        "round": now.round,
                        "figures": {name: value for name, value in now.figures.items() if math.isfinite(value)},
                    }
            said.clear()
            if new:
                self.on_said(task.id)

        def arrivals() -> Iterator[Arrived | Left]:
            after, last = 0, journal.last_round
            while True:
                with self._database.reading() as session:
                    came = list(self._letters.arrivals(session, {each.id: each for each in sites}, last, after))
                for after, arrived in came:  # noqa: B007 - where it stopped is where it goes on
                    yield arrived
                if came:
                    continue
                keep(this.federation)
                if not self._rest(conducted):
                    return

        policy = DropoutPolicy(scenario.min_sites, scenario.federation.on_dropout)
        try:
            with visited(
                roster,
                task.run,
                arrivals(),
                lambda *words: said.append(words),
                scenario.protocol.secure_sum,
                policy,
                journal,
            ) as federation:
                this.federation = federation
                federation.assemble(need_all=False)
                if isinstance(this.dataset, ColumnsAtSites):
                    train_on_columns(scenario, this.dataset, federation, this.outcome)
                elif isinstance(this.dataset, RemoteDataset):
                    train(scenario, this.dataset, federation, this.outcome)
        finally:
            keep(this.federation)  # the sites are told to stop

    def _rest(self, conducted: _Conducted) -> bool:
        """Wait for more, for some seconds; whether there may be."""
        with conducted.changed:
            if not conducted.is_nudged:
                conducted.is_resting = True
                conducted.changed.notify_all()
                conducted.changed.wait_for(lambda: conducted.is_nudged or self._closing.is_set(), LINGER_S)
            goes_on, conducted.is_nudged, conducted.is_resting = conducted.is_nudged, False, False
            if not goes_on:
                conducted.is_over = True
            return goes_on and not self._closing.is_set()


def _guest(who: Participant) -> Guest:
    """A participant as a coordinator across hosts knows one."""
    party = Party(who.site, "", who.public_key, who.agreement_key)
    return Guest(party, tuple(Column(str(name), bool(categorical)) for name, categorical in who.columns or ()))
