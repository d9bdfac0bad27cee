"""The record of a run: its log, its latest figures, the messages that sites logged, and the seconds of each phase."""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from fedsvm.federation.run_journal import AttemptRecord, MembershipRecord, VerbHistory
from fedsvm.federation.site_messages import LogRecord

MAX_LOGGED = 1000
"""Maximum number of log records kept of one site; the coordinator refuses further ones."""

SITES_LOGGER = "fedsvm.sites"
"""Logger on which the coordinator repeats what sites log, for programs that listen to `logging`."""


@dataclass
class Progress:
    """The phase and round that a run has reached, and the latest metrics of the algorithm.

    Attributes
    ----------
    phase : str
        The name of the phase.
    round : int
        The number of the round in messages and ledgers. A resumed run skips some numbers.
    rounds : int
        The number of rounds so far, without skipped numbers.
    figures : dict of str to float
        The latest metrics by name.
    """

    phase: str = "launch"
    round: int = 0
    rounds: int = 0
    figures: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class LoggedMessage:
    """A message that the code of a site logged, with its round, level and logger."""

    site: str
    round: int
    level: str
    logger: str
    text: str


class RunRecord:
    """The record of a run.

    Parameters
    ----------
    on_change : callable
        Called after each addition.
    history : VerbHistory or None
        Also receives attempts and changes of the membership, for the journal.

    Attributes
    ----------
    progress : Progress
        Current phase and round, and latest metrics.
    log : list of dict
        Events in order, as plain values.
    logged : list of LoggedMessage
        Messages that sites logged, in order of arrival.
    phase_seconds : dict of str to float
        Duration of each phase.
    began : float
        Start of this process's part of the run on the monotonic clock.
    earlier_s : float
        Seconds of rounds in earlier processes of the run, which this one replays or continues.
    """

    def __init__(self, on_change: Callable[[], None], history: VerbHistory | None) -> None:
        self.progress = Progress()
        self.log: list[dict[str, Any]] = []
        self.logged: list[LoggedMessage] = []
        self.phase_seconds: dict[str, float] = defaultdict(float)
        self.began = time.monotonic()
        self.earlier_s = 0.0
        self.on_change = on_change
        self._history = history

    def age_at(self, moment: float) -> float:
        """Return the seconds of the run until a moment of the monotonic clock, including those in earlier processes."""
        return moment - self.began + self.earlier_s

    def age(self) -> float:
        """Return the seconds of the run so far, including those in earlier processes."""
        return self.age_at(time.monotonic())

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Record the rounds and seconds within under `name`."""
        self.progress.phase = name
        self.on_change()
        began = self.age()
        try:
            yield
        finally:
            self.phase_seconds[name] += self.age() - began

    def add_attempt(self, attempt: AttemptRecord) -> None:
        """Record an attempt at a round."""
        self._write("round", rounds=self.progress.rounds, **vars(attempt.record))
        if self._history is not None:
            self._history.events.append(attempt)

    def add_change(self, change: MembershipRecord) -> None:
        """Record a change of the membership."""
        self._write("membership", round=change.round, left=dict(change.left), joined=list(change.joined))
        if self._history is not None:
            self._history.events.append(change)

    def add_metrics(self, **figures: float) -> None:
        """Record the latest metrics of the algorithm."""
        self.progress.figures.update(figures)
        self._write("figures", round=self.progress.round, **figures)
        self.on_change()

    def add_logged(self, site: str, record: LogRecord) -> bool:
        """Record a message that a site logged and repeat it on `SITES_LOGGER`; return False beyond the maximum."""
        if sum(each.site == site for each in self.logged) >= MAX_LOGGED:
            return False
        self.logged.append(LoggedMessage(site, self.progress.round, **vars(record)))
        self._write("site_log", **vars(self.logged[-1]))
        level = logging.getLevelNamesMapping()[record.level.upper()]
        logging.getLogger(SITES_LOGGER).log(level, "%s: %s", site, record.text)
        self.on_change()
        return True

    def _write(self, event: str, **values: Any) -> None:
        self.log.append({"event": event, "at_s": round(self.age(), 6), **values})
