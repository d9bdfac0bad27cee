"""The view of a running run: a panel on a terminal, plain lines elsewhere."""

from __future__ import annotations

import itertools
import math
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from rich.columns import Columns
from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from fedsvm.federation.federation import Federation
from fedsvm.federation.membership import MembershipChange
from fedsvm.federation.record import LoggedMessage
from fedsvm.federation.text import visible
from fedsvm.scenarios.figures import duration, human_bytes
from fedsvm.scenarios.run.offered_terms import resolve_settings
from fedsvm.scenarios.schema.spec import Scenario

_REFRESH_PER_SECOND = 8
_WIDE = 100
"""Columns of a terminal that has room for a line for each site."""

_BESIDE = 4
"""Lines of a terminal that the panel leaves free."""

_BAR = 30
_TELLING_S = 10.0
"""Seconds between lines on the time left."""

_TELLING_GAPS = 6
"""Of fewer, the certified gap's decay says nothing of how long it goes on."""


class View(Protocol):
    """Something that can be told of a run's progress, from before it starts until after it ends."""

    def __enter__(self) -> View: ...

    def __exit__(self, *error: object) -> None: ...

    def launching(self, rows: Mapping[str, int]) -> None:
        """Show that the data are read; rows: the number per site."""

    def update(self, federation: Federation, faults: Sequence[str]) -> None:
        """Show progress after a round, or new figures of the algorithm; faults: those so far."""


class SilentView:
    """Shows nothing."""

    def launching(self, rows: Mapping[str, int]) -> None:
        """Show nothing."""

    def __enter__(self) -> SilentView:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def update(self, federation: Federation, faults: Sequence[str]) -> None:
        """Show nothing."""


class PlainView(SilentView):
    """A line when a phase begins, a fault strikes, sites leave or join, or log something, for logs and pipes."""

    def __init__(self, console: Console, name: str, ahead: EtaEstimator | None = None) -> None:
        self._console = console
        self._name = name
        self._ahead = ahead or EtaEstimator(1, None)
        self._told = time.monotonic()
        self._phase = ""
        self._changes = self._faults = self._logged = 0

    def update(self, federation: Federation, faults: Sequence[str]) -> None:
        """Print a line for each new fault, record of a site and change of membership, and if the phase is a new one."""
        progress = federation.progress
        for fault in faults[self._faults :]:
            self._faults += 1
            self._print(f"fault: {fault}")
        for record in federation.record.logged[self._logged :]:
            self._logged += 1
            self._print(record_in_words(record, federation))
        for change in federation.membership.changes[self._changes :]:
            self._changes += 1
            self._print(change_in_words(change, federation))
        if progress.phase != self._phase:
            self._phase = progress.phase
            self._print(
                f"{progress.phase} after {progress.rounds} rounds, {len(federation.sites)} sites, "
                f"{human_bytes(federation.accounts.payload_bytes)} of payload"
            )
        self._print_time_left(time.monotonic(), federation)

    def _print_time_left(self, now: float, federation: Federation) -> None:
        """Print how long the run still takes, if that is known, every few seconds."""
        self._ahead.note_progress(now, federation)
        if now - self._told >= _TELLING_S and (left := self._ahead.seconds_left(now)) is not None:
            self._told = now
            self._print(f"{_place(federation)}, about {duration(left)} left")

    def _print(self, line: str) -> None:
        self._console.print(Text(f"{self._name}: {visible(line)}"), soft_wrap=True)


class LiveView:
    """A panel that is redrawn in place, and gone when the run ends.

    Where a terminal is wide and high enough, it has a line for each site.
    """

    def __init__(self, console: Console, scenario: Scenario) -> None:
        self._name = scenario.name
        self._began = time.monotonic()
        self._ahead = EtaEstimator.of(scenario)
        self._shown = {"phase": "reading data"}
        self._share: float | None = None
        self._sites = SiteLines()
        self._console = console
        self._live = Live(
            console=console, refresh_per_second=_REFRESH_PER_SECOND, transient=True, get_renderable=self._panel
        )

    def __enter__(self) -> LiveView:
        self._live.start(refresh=True)
        return self

    def __exit__(self, *error: object) -> None:
        self._live.stop()

    def launching(self, rows: Mapping[str, int]) -> None:
        """Show that the data are read and sites are started."""
        self._sites.rows = rows
        self._shown = {"phase": "launch", "sites": str(len(rows))}

    def update(self, federation: Federation, faults: Sequence[str]) -> None:
        """Take in what is shown when the panel is drawn anew, which happens meanwhile too: time goes on."""
        progress, figures = federation.progress, federation.progress.figures
        now = time.monotonic()
        seconds = max(now - self._began, 1e-3)
        self._ahead.note_progress(now, federation)
        self._sites.note(now, federation)
        payload = federation.accounts.payload_bytes
        shown = {
            "now": _place(federation),
            "rounds": str(progress.rounds),
            "live sites": _live(federation),
            "traffic": f"{human_bytes(payload)} of payload, {human_bytes(payload / seconds)}/s",
        }
        if faults:
            earlier = f" (and {len(faults) - 1} before it)" if len(faults) > 1 else ""
            shown["last fault"] = f"{faults[-1]}{earlier}"
        if federation.record.logged:
            before = len(federation.record.logged) - 1
            earlier = f" (and {before} before it)" if before else ""
            shown["last logged"] = f"{record_in_words(federation.record.logged[-1], federation)}{earlier}"
        if federation.membership.changes:
            shown["last change"] = change_in_words(federation.membership.changes[-1], federation)
        if "iteration" in figures:
            shown["iteration"] = f"{figures['iteration']:.0f}"
        if "audited" in figures:
            shown["audited"] = f"{figures['audited']:.0f} of {figures['to_audit']:.0f} parties or coalitions"
        if "gap" in figures:
            shown["certified gap"] = f"{figures['gap']:.1e}  {sparkline(self._ahead.gaps)}".rstrip()
        if (left := self._ahead.seconds_left(now)) is not None:
            shown["time left"] = f"about {duration(left)}"
        self._shown, self._share = shown, self._ahead.share()

    def _panel(self) -> Group:
        panel = Table(title=self._name, title_justify="left", show_header=False, box=None, pad_edge=False)
        panel.add_column(style="dim")
        panel.add_column()
        for name, value in self._shown.items():
            panel.add_row(name, Text(visible(value)))
        panel.add_row("elapsed", f"{time.monotonic() - self._began:.1f} s")
        if self._share is not None:
            bar = Columns([ProgressBar(1.0, self._share, width=_BAR), Text(f"{100 * self._share:.0f} %")])
            panel.add_row("progress", bar)
        width, height = self._console.size
        lines = self._sites.table(time.monotonic())
        if width < _WIDE or lines.row_count == 0 or height < panel.row_count + lines.row_count + _BESIDE:
            return Group(panel)
        return Group(panel, Text(), lines)


@dataclass
class SiteLines:
    """The state of each site during a run. rows: the number per site."""

    rows: Mapping[str, int] = field(default_factory=dict)
    _lines: dict[str, tuple[str, int]] = field(default_factory=dict)
    _heard: dict[str, float] = field(default_factory=dict)
    _sent: Counter[str] = field(default_factory=Counter)
    _counted: int = 0

    def note(self, now: float, federation: Federation) -> None:
        """Take in who takes part at `now`, in seconds, and what the links carried since the last time."""
        entries = federation.accounts.entries
        for link, entry in itertools.islice(entries.items(), self._counted, None):
            self._sent[link.sender] += entry.agreed.predicted_wire_bytes
        self._counted = len(entries)
        there = set(federation.sites)
        self._heard |= dict.fromkeys(there, now)
        self._lines = {
            site: ("takes part" if site in there else "out", self._sent[site])
            for site in federation.membership.all_sites
        }

    def table(self, now: float) -> Table:
        """Return a line for each site at `now`; none before the first round."""
        table = Table(box=None, pad_edge=False, header_style="dim")
        for name in ("site", "state", "rows", "sent", "last round ended"):
            table.add_column(name, justify="left" if name in ("site", "state") else "right")
        for site, (state, sent) in self._lines.items():
            ago = f"{now - self._heard[site]:.1f} s ago" if site in self._heard else ""
            told = (visible(site), state, str(self.rows.get(site, "")), human_bytes(sent), ago)
            table.add_row(*map(Text, told), style="red" if state == "out" else "")
        return table


_BLOCKS = "▁▂▃▄▅▆▇█"
_MAX_BLOCKS = 24


def sparkline(gaps: Sequence[float]) -> str:
    """Return the last of some positive numbers as blocks of logarithmic height; empty for fewer than two."""
    known = [math.log(gap) for gap in gaps[-_MAX_BLOCKS:] if gap > 0]
    if len(known) < 2:
        return ""
    low, high = min(known), max(known)
    step = (high - low) / (len(_BLOCKS) - 1) or 1.0
    return "".join(_BLOCKS[round((value - low) / step)] for value in known)


@dataclass
class EtaEstimator:
    """An estimate of the remaining training time, from completed folds, or from the gap's decay.

    folds: models to train. tolerance: the gap at which each is done, None where training has none.
    """

    folds: int
    tolerance: float | None
    _phase: str = ""
    _starts: list[float] = field(default_factory=list)
    _gaps: list[tuple[float, float]] = field(default_factory=list)
    _audit_began: float = 0.0
    _audited: tuple[float, float, float] = (0.0, 0.0, 0.0)

    @classmethod
    def of(cls, scenario: Scenario) -> EtaEstimator:
        """Return an estimator for the models of a scenario."""
        settings, _ = resolve_settings(scenario)
        return cls(scenario.data.models, getattr(settings, "tolerance", None))

    def note_progress(self, now: float, federation: Federation) -> None:
        """Take in how far a federation is at `now`, in seconds."""
        progress, figures = federation.progress, federation.progress.figures
        if progress.phase == "audit":
            self.note_audit(now, figures.get("audited", 0.0), figures.get("to_audit", 0.0))
        else:
            self.note(now, progress.phase, figures.get("gap"))

    def note_audit(self, now: float, done: float, total: float) -> None:
        """Take in for how many coalitions of how many the run was attacked at `now`, in seconds."""
        if self._phase != "audit":
            self._phase, self._audit_began = "audit", now
        if done != self._audited[1]:
            self._audited = now, done, total

    def note(self, now: float, phase: str, gap: float | None) -> None:
        """Take in where a run is at `now`, in seconds, and the certified gap of the model in training."""
        if phase == "train" != self._phase:
            self._starts.append(now)
            self._gaps.clear()
        self._phase = phase
        if gap and phase == "train" and (not self._gaps or gap != self._gaps[-1][1]):
            self._gaps.append((now, gap))

    @property
    def gaps(self) -> list[float]:
        """Those of the model in training, as they came."""
        return [gap for _, gap in self._gaps]

    def share(self) -> float | None:
        """Return the completed share of training, from 0 to 1, by models and decades of the gap; None if unknown."""
        done = len(self._starts) - 1
        if done < 0 or done >= self.folds:
            return None
        within = 0.0
        if self.tolerance and len(self._gaps) > 1:
            first, last = self._gaps[0][1], min(gap for _, gap in self._gaps)
            within = min(1.0, math.log(first / last) / max(math.log(first / self.tolerance), 1e-9))
        elif self.folds == 1:
            return None
        return (done + within) / self.folds

    def seconds_left(self, now: float) -> float | None:
        """Return the time from `now` until the last model is trained, or all are audited.

        It is None if it is unknown, also where an estimate ran out before the work ended.
        """
        if self._phase == "audit":
            left = self._audit_left(now)
        elif len(self._starts) > self.folds:  # some are trained again, and nobody knows how often
            return None
        elif len(self._starts) > 1:
            each = (self._starts[-1] - self._starts[0]) / (len(self._starts) - 1)
            left = (self.folds - len(self._starts) + 1) * each - (now - self._starts[-1])
        else:
            left = self._decay_left(now)
        return left if left > 0 else None

    def _audit_left(self, now: float) -> float:
        """Return the time that the other coalitions take; 0 if unknown. The current one may be the slowest."""
        when, done, total = self._audited
        if not done:
            return 0.0
        current = now - when
        each = max((when - self._audit_began) / done, current)
        return (total - done) * each - current

    def _decay_left(self, now: float) -> float:
        """Return the time until the gap is at the tolerance, by its decay; 0 if unknown."""
        if self.folds > 1 or self.tolerance is None or len(self._gaps) < _TELLING_GAPS:
            return 0.0
        (then, before), (last, gap) = self._gaps[len(self._gaps) // 2], self._gaps[-1]
        if gap >= before or last <= then:
            return 0.0
        decay = math.log(before / gap) / (last - then)
        return math.log(max(1.0, gap / self.tolerance)) / decay - (now - last)


def _live(federation: Federation) -> str:
    """Return how many sites take part, and which do not."""
    sites = federation.membership.all_sites
    out = [site for site in sites if site not in federation.sites]
    if not out:
        return str(len(sites))
    named = ", ".join(out[:3]) + (f" and {len(out) - 3} more" if len(out) > 3 else "")
    return f"{len(federation.sites)} of {len(sites)}, without {named}"


def _place(federation: Federation) -> str:
    """Return the phase of a run and its last round within this phase."""
    progress = federation.progress
    last = federation.accounts.rounds.get(progress.round)
    return last.place if last is not None and last.phase == progress.phase else progress.phase


def _place_of(number: int, federation: Federation, phase: str) -> str:
    """Return the place of a round; the phase alone if nothing ran under this number."""
    found = federation.accounts.rounds.get(number)
    return phase if found is None else found.place


def change_in_words(change: MembershipChange, federation: Federation) -> str:
    """Return who left and why, or joined, and how many sites there are."""
    left = "; ".join(f"{site} dropped ({why})" for site, why in change.left.items())
    joined = ", ".join(change.joined)
    back = f"{joined} {'takes' if len(change.joined) == 1 else 'take'} part again" if joined else ""
    happened = "; ".join(part for part in (left, back) if part)
    return f"{_place_of(change.round, federation, change.phase)}: {happened}; {len(change.sites)} sites"


def record_in_words(record: LoggedMessage, federation: Federation) -> str:
    """Return a log record as text, such as "site-2: warning in train round 3, py.warnings: …"."""
    place = _place_of(record.round, federation, "launch")
    return f"{record.site}: {record.level} in {place}, {record.logger}: {record.text}"
