"""The output of an estimator with `verbose` during training: a line for each phase, and for each iteration."""

from __future__ import annotations

from fedsvm.federation.federation import Federation, RunObserver


class ProgressPrinter(RunObserver):
    """An observer that prints the progress of a run. name: what lines begin with."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._told: tuple[str, float | None] = ("", None)

    def progress_made(self, federation: Federation) -> None:
        """Print a line for a new phase or a new iteration."""
        now = federation.progress
        news = now.phase, now.figures.get("iteration")
        if news == self._told:
            return
        is_phase = news[0] != self._told[0]
        self._told = news
        figures = "" if is_phase else "".join(f", {name} {value:.6g}" for name, value in now.figures.items())
        payload = federation.accounts.payload_bytes / 1e6
        print(f"[{self._name}] {now.phase} after round {now.round}, {payload:.3g} MB of payload{figures}", flush=True)
