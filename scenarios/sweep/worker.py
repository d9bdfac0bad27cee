"""The worker that carries out runs of a sweep in sequence: `python -m fedsvm.scenarios.sweep.worker`.

A line of standard input is a run, one of standard output its end. Libraries are loaded once, and the process that sites
are forked from stays from one run to the next. When the input ends while a run goes on, the sweep is gone, and the run
ends.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import tomllib
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Self, cast

from fedsvm.scenarios.interrupts import Interrupts, terminate_as_interrupted
from fedsvm.scenarios.schema import spec
from fedsvm.scenarios.schema.errors import ScenarioError


class Workers:
    """Processes that are started as they are needed, and used again; used from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle: list[_Worker] = []
        self._all: set[_Worker] = set()
        self._is_stopped = False

    def carry_out(
        self, scenario: str, changes: Sequence[str], folder: Path, *, audit: bool = False, unset: Sequence[str] = ()
    ) -> str:
        """Run a scenario with its changes as of `--set` and `--unset`. The result is in the folder.

        audit: whether it is attacked afterwards, as `fedsvm audit` does. Returns why nothing was started, or "".
        """
        try:
            chosen, base = spec.read(scenario, overrides=changes, unset=unset)
        except ScenarioError as error:
            return " ".join(error.problems)
        with self._lock:
            if self._is_stopped:
                return ""
            worker = self._idle.pop() if self._idle else _Worker()
            self._all.add(worker)
        said = worker.carry_out(spec.short_toml(chosen), base, folder, audit=audit)
        if said is not None:
            with self._lock:
                self._idle.append(worker)
            return said
        with self._lock:  # it was killed, with its run; the next has another
            self._all.discard(worker)
        worker.end()
        return "The process that carried it out was ended."

    def interrupt(self) -> None:
        """End all, and what they run, which is left as interrupted runs are."""
        with self._lock:
            self._is_stopped = True
            for worker in self._all:
                worker.interrupt()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Wait until all have ended, now that there is nothing more to do."""
        for worker in self._all:
            worker.end()


class _Worker:
    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "fedsvm.scenarios.sweep.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        self._orders, self._answers = cast(IO[bytes], self._process.stdin), cast(IO[bytes], self._process.stdout)

    def carry_out(self, scenario: str, base: Path, folder: Path, *, audit: bool) -> str | None:
        """Run a scenario from its text. Return why nothing was started, "" if it was, and None if the worker has gone.

        Every wait within a run has its deadline. base: the folder at which relative paths start.
        """
        order = json.dumps({"scenario": scenario, "base": str(base), "folder": str(folder), "audit": audit})
        with suppress(OSError):  # it is gone
            self._orders.write(order.encode() + b"\n")
            self._orders.flush()
            if answer := self._answers.readline():
                return str(json.loads(answer))
        return None

    def interrupt(self) -> None:
        self._process.terminate()

    def end(self) -> None:
        with suppress(OSError):
            self._orders.close()
        self._process.wait()
        self._answers.close()


def _orders(orders: queue.Queue[bytes | None]) -> None:
    with os.fdopen(0, "rb", buffering=0, closefd=False) as lines:  # a buffer's lock would end the interpreter by abort
        for line in lines:
            _is_busy.set()  # from here on: one that is not begun yet must not be begun when the sweep is gone
            orders.put(line)
    orders.put(None)
    if _is_busy.is_set():
        os.kill(os.getpid(), signal.SIGTERM)


_is_busy = threading.Event()


def _carry_out(order: bytes) -> str:
    """Carry out an order. Return why nothing was started, or ""."""
    from fedsvm.scenarios.api import carry_out  # slow to import, while the first order is on its way

    told = json.loads(order)
    try:
        chosen = spec.validate(tomllib.loads(told["scenario"]))
        carry_out(chosen, Path(told["base"]), Path(told["folder"]), audit=told["audit"])
    except ScenarioError as error:
        return " ".join(error.problems)
    except Exception as error:  # noqa: BLE001 - the next run has the same process, and the sweep must say what befell
        return f"{type(error).__name__}: {error}."
    return ""


def _serve() -> None:
    answers = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)  # whatever prints, answers stay alone
    interrupts = Interrupts()
    interrupts.listen(signal.SIGINT)
    terminate_as_interrupted()
    orders: queue.Queue[bytes | None] = queue.Queue()
    threading.Thread(target=_orders, args=[orders], daemon=True).start()
    with suppress(KeyboardInterrupt):
        while not interrupts.has_raised and (order := orders.get()) is not None:
            said = _carry_out(order)
            _is_busy.clear()
            answers.write(json.dumps(said).encode() + b"\n")


if __name__ == "__main__":
    _serve()
