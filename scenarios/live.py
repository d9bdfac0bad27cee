"""What a person sees while a run works: a panel on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Protocol

from rich.console import Console
from rich.live import Live
from rich.table import Table

from federation.coordinator import Federation
from federation.membership import Change

_REFRESH_PER_SECOND = 8


class View(Protocol):
    """Something that can be told of a run's progress, from before it starts until after it ends."""

    def __enter__(self) -> View: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def update(self, federation: Federation) -> None:
        """Called after every round, and when the algorithm has new figures."""


class SilentView:
    """Shows nothing."""

    def __enter__(self) -> SilentView:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass

    def update(self, federation: Federation) -> None:
        """Show nothing."""


class PlainView(SilentView):
    """A line when a phase begins or sites leave or join, for logs and pipes."""

    def __init__(self, console: Console, name: str) -> None:
        self._console = console
        self._name = name
        self._phase = ""
        self._changes = 0

    def update(self, federation: Federation) -> None:
        """Print a line for every change of membership, and if the phase is a new one."""
        progress = federation.progress
        for change in federation.membership.changes[self._changes :]:
            self._changes += 1
            self._print(change_in_words(change))
        if progress.phase != self._phase:
            self._phase = progress.phase
            self._print(
                f"{progress.phase} after {progress.round} rounds, {len(federation.sites)} sites, "
                f"{human_bytes(federation.accounts.payload_bytes)} of payload"
            )

    def _print(self, line: str) -> None:
        self._console.print(f"{self._name}: {line}", highlight=False, soft_wrap=True)


class LiveView:
    """A panel that is redrawn in place, and gone when the run ends."""

    def __init__(self, console: Console, name: str) -> None:
        self._name = name
        self._began = time.monotonic()
        self._live = Live(console=console, refresh_per_second=_REFRESH_PER_SECOND, transient=True)

    def __enter__(self) -> LiveView:
        self._live.start()
        self._live.update(self._panel({"phase": "launch"}))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()

    def update(self, federation: Federation) -> None:
        """Redraw."""
        progress, figures = federation.progress, federation.progress.figures
        seconds = max(time.monotonic() - self._began, 1e-3)
        payload = federation.accounts.payload_bytes
        shown = {
            "phase": progress.phase,
            "round": str(progress.round),
            "live sites": _live(federation),
            "traffic": f"{human_bytes(payload)} of payload, {human_bytes(payload / seconds)}/s",
        }
        if federation.membership.changes:
            shown["last change"] = change_in_words(federation.membership.changes[-1])
        if "gap" in figures:
            shown["iteration"] = f"{figures['iteration']:.0f}"
            shown["certified gap"] = f"{figures['gap']:.1e}"
        self._live.update(self._panel(shown))

    def _panel(self, shown: dict[str, str]) -> Table:
        panel = Table(title=self._name, title_justify="left", show_header=False, box=None, pad_edge=False)
        panel.add_column(style="dim")
        panel.add_column()
        for name, value in shown.items():
            panel.add_row(name, value)
        panel.add_row("elapsed", f"{time.monotonic() - self._began:.1f} s")
        return panel


def _live(federation: Federation) -> str:
    """How many sites take part, and which do not."""
    sites = federation.membership.all_sites
    out = [site for site in sites if site not in federation.sites]
    if not out:
        return str(len(sites))
    named = ", ".join(out[:3]) + (f" and {len(out) - 3} more" if len(out) > 3 else "")
    return f"{len(federation.sites)} of {len(sites)}, without {named}"


def change_in_words(change: Change) -> str:
    """Who left and why, or joined, and how many sites there are."""
    left = "; ".join(f"{site} dropped ({why})" for site, why in change.left.items())
    joined = ", ".join(change.joined)
    back = f"{joined} {'takes' if len(change.joined) == 1 else 'take'} part again" if joined else ""
    happened = "; ".join(part for part in (left, back) if part)
    return f"round {change.round} ({change.phase}): {happened}; {len(change.sites)} sites"


def human_bytes(count: float) -> str:
    """3 significant digits and a unit: 12.3 kB, 4.56 MB."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000 or unit == "GB":
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.3g} {unit}"
        count /= 1000
    raise AssertionError
