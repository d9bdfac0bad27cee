"""The coordinator of a task, run as far as it comes: in a thread of its own, which rests when nothing more is due."""

from __future__ import annotations

import logging
import math
import shlex
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import sqlalchemy as sql

from fedsvm.federation.errors import FederationError, NothingDue
from fedsvm.federation.federation import Federation
from fedsvm.federation.hosts.held_data import HeldColumn
from fedsvm.federation.hosts.invitations import JoinedSite
from fedsvm.federation.membership import DropoutPolicy
from fedsvm.federation.offline.coordinator import open_offline_federation
from fedsvm.federation.offline.endpoint import Departure, StoredArrival
from fedsvm.federation.run_journal import Journal
from fedsvm.federation.site.signed import OrderSigner
from fedsvm.federation.site.terms import Terms
from fedsvm.federation.transport.keys import COORDINATOR, Party, Roster
from fedsvm.federation.transport.signing import SigningKey
from fedsvm.federation.transport.wire import Message
from fedsvm.scenarios.hosts.coordination import dataset_of
from fedsvm.scenarios.hosts.sources import RowsAtHosts, SourceAtHosts
from fedsvm.scenarios.hub import public_rows, task_form
from fedsvm.scenarios.hub.database import Database, Participant, Task
from fedsvm.scenarios.hub.description_task import CarryOut, describe
from fedsvm.scenarios.hub.offered import offered_terms, reason_of, scenario_text
from fedsvm.scenarios.hub.prediction_task import predict
from fedsvm.scenarios.hub.stored_messages import StoredMessages
from fedsvm.scenarios.report import page
from fedsvm.scenarios.run.outcome import JOURNAL
from fedsvm.scenarios.run.runner import Run, run_and_record
from fedsvm.scenarios.run.training import train
from fedsvm.scenarios.schema.errors import ScenarioError
from fedsvm.scenarios.schema.spec import Scenario

_LOGGER = logging.getLogger(__name__)
LINGER_S = 10.0
"""Time that an idle coordinator waits before it ends; the next message runs it from the start again."""

_COORDINATORS = "coordinator.journal"


@dataclass
class _TaskThread:
    """The thread that runs one coordinator, whether it rests, was told that there is more, or broke off."""

    thread: threading.Thread | None = None
    changed: threading.Condition = field(default_factory=threading.Condition)
    is_resting: bool = False
    is_nudged: bool = False
    is_over: bool = False
    broke_off: bool = False

    def rest(self, closing: threading.Event) -> bool:
        """Wait for more, for some seconds; whether there may be. closing: set when all threads must end."""
        with self.changed:
            if not self.is_nudged:
                self.is_resting = True
                self.changed.notify_all()
                self.changed.wait_for(lambda: self.is_nudged or closing.is_set(), LINGER_S)
            goes_on, self.is_nudged, self.is_resting = self.is_nudged, False, False
            if not goes_on:
                self.is_over = True
            return goes_on and not closing.is_set()


class TaskRunner:
    """Runs the coordinators of tasks.

    Parameters
    ----------
    database : Database
    letters : StoredMessages
    folder : Path
        Where the runs of tasks are, each in a folder of its own.
    on_over : callable
        Told of a run that is over, by the number of its task, and why it failed; None if it did not.
    signing : SigningKey
        Signs the orders of all tasks.

    Attributes
    ----------
    on_said : callable
        Told of a task in which the coordinator said something.
    """

    def __init__(
        self,
        database: Database,
        letters: StoredMessages,
        folder: Path,
        on_over: Callable[[str, str | None], None],
        signing: SigningKey,
    ) -> None:
        self._signing = signing
        self._database = database
        self._letters = letters
        self._folder = folder
        self._on_over = on_over
        self.on_said: Callable[[str], None] = lambda task_id: None
        self._lock = threading.Lock()
        self._conducted: dict[str, _TaskThread] = {}
        self._closing = threading.Event()

    def folder_of(self, task_id: str) -> Path:
        """Return the folder of a task's run."""
        return self._folder / task_id

    def never_ran(self, task_id: str) -> bool:
        """Return whether this process has not run the coordinator of a task, or it broke off."""
        with self._lock:
            known = self._conducted.get(task_id)
            return known is None or (known.is_over and known.broke_off)

    def nudge(self, task_id: str) -> None:
        """Notify the coordinator of a task that there may be messages."""
        with self._lock:
            known = self._conducted.get(task_id)
            if known is not None and not known.is_over:
                with known.changed:
                    if not known.is_over:
                        known.is_nudged, known.is_resting = True, False
                        known.changed.notify_all()
                        return
            begun = self._conducted[task_id] = _TaskThread()
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

    def _conduct(self, task_id: str, conducted: _TaskThread, before: threading.Thread | None) -> None:
        if before is not None:
            before.join()  # it is about to let go of the journal
        try:
            with suppress(NothingDue), _else_later(conducted):
                self._run(task_id, conducted)
        except Exception:
            conducted.broke_off = True
            _LOGGER.exception("the coordinator of task %s broke off and is run again", task_id)
        finally:
            with conducted.changed:
                conducted.is_over = True
                conducted.changed.notify_all()

    def _run(self, task_id: str, conducted: _TaskThread) -> None:
        with self._database.reading() as session:
            task = session.get_one(Task, task_id)
            if task.state != "running":
                return
            sites = [each for each in task.participants if each.agreement_key is not None and each.columns is not None]
        try:
            scenario = scenario_text(task)
        except ScenarioError as error:
            self._on_over(task_id, reason_of(error))
            return
        sites = [each for each in sites if each.site in scenario.federation.site_names]
        folder = self.folder_of(task_id)
        (folder / JOURNAL).mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            scenario = public_rows.placed_in(folder, scenario, task.public_rows)
            source = dataset_of(scenario)
        except ScenarioError as error:
            self._on_over(task_id, reason_of(error))
            return
        source.describe([_joined_site(each) for each in sites])
        with suppress(NothingDue), Journal(folder / JOURNAL / _COORDINATORS) as journal:
            if not journal.header:
                journal.begin({"scenario": task.scenario, "base": ""})

            def carry_out(work: Callable[[Federation], None]) -> None:
                self._carry_out(scenario, task, sites, journal, conducted, work)

            if isinstance(source, RowsAtHosts) and task.kind == task_form.DESCRIBE:
                self._on_over(task_id, _error_of(lambda: describe(source, folder, carry_out)))
            elif task.trained is not None:
                model, terms = self.folder_of(task.trained), offered_terms(task)
                self._on_over(task_id, _error_of(lambda: predict(model, terms, carry_out)))
            else:
                self._on_over(task_id, _train(source, folder, carry_out))

    def _carry_out(
        self,
        scenario: Scenario,
        task: Task,
        sites: list[Participant],
        journal: Journal,
        conducted: _TaskThread,
        work: Callable[[Federation], None],
    ) -> None:
        """Do the work over the federation of the participants."""
        coordinator = Party(COORDINATOR, "", None)
        parties = [Party(each.site, "", each.public_key, each.agreement_key, each.voucher) for each in sites]
        exchange = _Exchange(self._database, self._letters, task.id, sites, conducted, self._closing, self.on_said)
        terms = Terms.from_fields(asdict(offered_terms(task)))
        try:
            with open_offline_federation(
                Roster([coordinator, *parties]),
                task.run,
                exchange.arrivals(journal.last_round),
                exchange.say,
                scenario.protocol.secure_sum,
                DropoutPolicy(scenario.min_sites, scenario.federation.on_dropout, committee=terms.committee),
                journal,
                OrderSigner(self._signing, task.run, tuple(each.site for each in sites), terms),
            ) as exchange.federation:
                work(exchange.federation)
        finally:
            exchange.store()  # the sites are told to stop


@dataclass
class _Exchange:
    """The messages between the coordinator of a task and its participants, which the database stores.

    Attributes
    ----------
    federation : Federation, optional
        The coordinator's, whose progress is stored with the messages; None before there is one.
    """

    database: Database
    letters: StoredMessages
    task_id: str
    sites: list[Participant]
    conducted: _TaskThread
    closing: threading.Event
    on_said: Callable[[str], None]
    federation: Federation | None = None
    _said: list[tuple[str, int, int, Message]] = field(default_factory=list)

    def say(self, site: str, number: int, place: int, message: Message) -> None:
        """Take in a message to a site; see `open_offline_federation`. The next `store` stores it."""
        self._said.append((site, number, place, message))

    def arrivals(self, last_round: int) -> Iterator[StoredArrival | Departure]:
        """Yield what came in, given the last round of the journal, until nothing more comes for some seconds."""
        after, by_id = 0, {each.id: each for each in self.sites}
        while True:
            with _else_later(self.conducted), self.database.reading() as session:
                came = list(self.letters.arrivals(session, by_id, last_round, after))
            for after, arrived in came:  # noqa: B007 - where it stopped is where it goes on
                yield arrived
            if came:
                continue
            self.store()
            if not self.conducted.rest(self.closing):
                return

    def store(self) -> None:
        """Store the messages to sites, and the progress."""
        with _else_later(self.conducted), self.database.session() as session:
            whom = {each.site: session.get_one(Participant, each.id) for each in self.sites}
            new = [
                whom[site]
                for site, number, place, message in self._said
                if self.letters.tell(session, whom[site], number, place, message)
            ]
            for each in new:
                each.due_since = each.due_since or time.time()
            if self.federation is not None:
                session.get_one(Task, self.task_id).progress = _progress_of(self.federation)
        self._said.clear()
        if new:
            self.on_said(self.task_id)


def _progress_of(federation: Federation) -> dict[str, Any]:
    now = federation.progress
    figures = {name: value for name, value in now.figures.items() if math.isfinite(value)}
    return {"phase": now.phase, "round": now.rounds, "figures": figures}


@contextmanager
def _else_later(conducted: _TaskThread) -> Iterator[None]:
    """Turn a lost database into NothingDue: the coordinator stops and is run again, and the task has not failed."""
    try:
        yield
    except (sql.exc.OperationalError, sql.exc.InterfaceError, sql.exc.TimeoutError) as error:
        conducted.broke_off = True
        _LOGGER.warning("a coordinator has no database, and is run again: %s", error)
        raise NothingDue from error


def _error_of(work: Callable[[], None]) -> str | None:
    """Do work that trains nothing. Return why it failed; None if it did not."""
    try:
        work()
    except (FederationError, ScenarioError) as error:
        return str(error)
    except Exception as error:
        _LOGGER.exception("a task failed")
        return f"An internal error: {type(error).__name__}: {error}."
    return None


def _train(source: SourceAtHosts, folder: Path, carry_out: CarryOut) -> str | None:
    """Train, and write result, model and report to a folder. Return why training failed; None if it did not."""
    this = Run(source.scenario, source, folder, shlex.join(["fedsvm", "hub"]))

    def work(federation: Federation) -> None:
        this.federation = federation
        federation.assemble(need_all=False)
        train(source, federation, this.outcome)

    result = run_and_record(this, lambda: carry_out(work)).result
    page.write_report(folder)
    return None if result.status == "completed" else result.error or ""


def _joined_site(who: Participant) -> JoinedSite:
    """Return a participant as a coordinator across hosts represents one."""
    party = Party(who.site, "", who.public_key, who.agreement_key)
    return JoinedSite(party, tuple(HeldColumn(str(name), bool(categorical)) for name, categorical in who.columns or ()))
