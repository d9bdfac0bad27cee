"""What a person sees while a run works: a panel on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Protocol

from rich.console import Console
from rich.live import Live
from rich.table import Table

from federation.coordinator import Federation

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
    """A line when a phase begins, for logs and pipes."""

    def __init__(self, console: Console, name: str) -> None:
        self._console = console
        self._name = name
        self._phase = ""

    def update(self, federation: Federation) -> None:
        """Print a line if the phase is a new one."""
        progress = federation.progress
        if progress.phase != self._phase:
            self._phase = progress.phase
            self._console.print(
                f"{self._name}: {progress.phase} after {progress.round} rounds, {len(federation.sites)} sites, "
                f"{human_bytes(federation.accounts.payload_bytes)} of payload",
                highlight=False,
                soft_wrap=True,
            )


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
            "live sites": str(len(federation.sites)),
            "traffic": f"{human_bytes(payload)} of payload, {human_bytes(payload / seconds)}/s",
        }
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


def human_bytes(count: float) -> str:
    """3 significant digits and a unit: 12.3 kB, 4.56 MB."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000 or unit == "GB":
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.3g} {unit}"
        count /= 1000
    raise AssertionError
