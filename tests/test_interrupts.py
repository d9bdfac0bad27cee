"""Ctrl-C, pressed again and again at any moment of a run: nothing is left but a whole result, and no traceback."""

from __future__ import annotations

import importlib
import json
import os
import select
import signal
import subprocess
import sys
import threading
from pathlib import Path
from types import FrameType

import pytest

from fedsvm.scenarios.interrupts import Interrupts, terminate_as_interrupted
from tests.commands import FEDSVM
from tests.conftest import ROOT, site_processes, wait_until, workspaces

PAUSE = """
import os, sys

if os.environ.get("PAUSED") and "fedsvm" in sys.orig_argv[1]:
    event, part = os.environ["PAUSE_AT"].split(" ")
    paused, go_on = int(os.environ.pop("PAUSED")), int(os.environ["GO_ON"])

    def pause(what, details):
        global part
        if part and what == event and any(part in str(detail) for detail in details):
            part = ""
            os.write(paused, b".")
            os.read(go_on, 1)

    sys.addaudithook(pause)
"""
"""The command waits where the interpreter is about to do something; its children do not."""

WORDS = [
    "--sites",
    "3",
    "--set",
    "compare.centralised=false",
    "--set",
    "algorithm.landmarks=20",
    "--set",
    "algorithm.tolerance=1e-2",
]


@pytest.mark.parametrize(
    ("how", "moment", "status", "says"),
    [
        (signal.SIGINT, "subprocess.Popen site_process", "", "Interrupted before anything was started."),
        (signal.SIGTERM, "open .partition", "interrupted", "The run was interrupted."),
        pytest.param(
            signal.SIGINT, "shutil.rmtree fedsvm-", "interrupted", "The run was interrupted.", marks=pytest.mark.long
        ),
        (signal.SIGINT, "open result.json.partial", "completed", "Interrupted; the known results of the run are in "),
        pytest.param(
            signal.SIGTERM, "open log.jsonl", "interrupted", "The run was interrupted.", marks=pytest.mark.long
        ),
        pytest.param(
            signal.SIGTERM,
            "open ledger.parquet",
            "completed",
            "Interrupted; the known results of the run are in ",
            marks=pytest.mark.long,
        ),
        pytest.param(
            signal.SIGINT,
            "open report.html.partial",
            "completed",
            "Interrupted; the known results of the run are in ",
            marks=pytest.mark.long,
        ),
    ],
    ids=["start", "launch", "shutdown", "result", "log", "ledger", "report"],
)
def test_many_interrupts_at_any_moment_end_a_run_as_one_does(
    how: signal.Signals, moment: str, status: str, says: str, tmp_path: Path, temporary_folder: Path
) -> None:
    (tmp_path / "sitecustomize.py").write_text(PAUSE)
    paused, tell = os.pipe()
    wait, go_on = os.pipe()
    pause = {"PAUSE_AT": moment, "PAUSED": str(tell), "GO_ON": str(wait)}
    with subprocess.Popen(
        [str(FEDSVM), "run", "quickstart", *WORDS, "--out", "run"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"} | pause,
        pass_fds=[tell, wait],
    ) as process:
        assert select.select([paused], [], [], 60)[0], "it never came to this"
        for _ in range(3):
            process.send_signal(how)
        os.write(go_on, b".")
        wait_until(lambda: pressed_again(process, how))
        printed = process.stdout.read() if process.stdout else ""
    for descriptor in (paused, tell, wait, go_on):
        os.close(descriptor)
    assert process.returncode == 130, printed
    assert "Traceback" not in printed, printed
    assert says in printed
    if status:
        assert json.loads((tmp_path / "run" / "result.json").read_text())["status"] == status
    assert not list((tmp_path / "run").glob("*.partial"))
    wait_until(lambda: not site_processes(temporary_folder))
    wait_until(lambda: not workspaces(temporary_folder))


def pressed_again(process: subprocess.Popen[str], how: signal.Signals) -> bool:
    """Return whether the process has ended; if not, send one more signal."""
    if process.poll() is None:
        process.send_signal(how)
    return process.returncode is not None


def test_an_interrupt_is_raised_once_where_it_may_be() -> None:
    before = signal.getsignal(signal.SIGINT)
    caught = []
    with Interrupts() as interrupts:
        try:
            with interrupts.allow():
                press()
        except KeyboardInterrupt:
            press()
            caught.append("once")
        press()
    assert caught == ["once"]
    assert signal.getsignal(signal.SIGINT) is before


def test_an_interrupt_that_ended_nothing_is_raised_when_all_is_done() -> None:
    done = []
    with pytest.raises(KeyboardInterrupt), Interrupts() as interrupts:
        with interrupts.allow():
            pass
        press()
        done.append("written")
    assert done == ["written"]


IMPATIENT = """
from tests.test_interrupts import press

try:
    press()
except BaseException as error:  # as extension modules do
    raise ImportError("initialization failed") from error
"""


def test_an_import_is_done_before_it_is_interrupted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "impatient.py").write_text(IMPATIENT)
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(KeyboardInterrupt), Interrupts() as interrupts, interrupts.allow():
        importlib.import_module("impatient")
        wait_until(lambda: False, 10)
    assert sys.modules.pop("impatient")


class Pressing:
    """Ctrl-C is pressed while it is thrown away, where no exception leaves."""

    def __del__(self) -> None:
        press()


def test_an_interrupt_that_the_interpreter_could_only_print_comes_once_more() -> None:
    hook = sys.unraisablehook
    with pytest.raises(KeyboardInterrupt), Interrupts() as interrupts, interrupts.allow():
        Pressing()
        wait_until(lambda: False, 10)
    assert sys.unraisablehook is hook


def test_an_interrupt_is_not_heard_again_while_it_is_dealt_with() -> None:
    done = []
    with pytest.raises(KeyboardInterrupt), Interrupts() as interrupts, interrupts.allow():
        try:
            press()
        finally:
            press()
            done.append("all")
    assert done == ["all"]


def test_a_handler_of_a_users_own_is_not_called_again_while_what_it_raised_is_dealt_with() -> None:
    done = []

    def leave(number: int, frame: FrameType | None) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGINT, leave)
    try:
        with pytest.raises(TimeoutError), Interrupts() as interrupts, interrupts.allow():
            try:
                press()
            finally:
                press()
                done.append("all")
        assert signal.getsignal(signal.SIGINT) is leave
    finally:
        signal.signal(signal.SIGINT, before)
    assert done == ["all"]


def test_an_interrupt_before_it_may_be_raised_is_raised_when_it_may() -> None:
    with pytest.raises(KeyboardInterrupt), Interrupts() as interrupts:
        press()
        with interrupts.allow():
            raise AssertionError("it was kept until all is over")


def test_presses_during_an_import_end_one_run_and_not_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "impatient.py").write_text("from tests.test_interrupts import press\nfor _ in range(5): press()\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(KeyboardInterrupt), Interrupts() as interrupts, interrupts.allow():
        importlib.import_module("impatient")
    assert sys.modules.pop("impatient")


def test_outside_of_the_main_thread_signals_are_left_alone() -> None:
    before, found = signal.getsignal(signal.SIGINT), []

    def run() -> None:
        with Interrupts() as interrupts, interrupts.allow():
            found.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(60)
    assert found == [before]


def test_ignored_hangup_stays_ignored() -> None:
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        terminate_as_interrupted()
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
        assert signal.getsignal(signal.SIGTERM) == signal.getsignal(signal.SIGINT)
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


def press() -> None:
    """Ctrl-C, heard by this very process before the next line."""
    signal.raise_signal(signal.SIGINT)


COUNT = """
import os, sys

def count(what, details):
    if what == "subprocess.Popen" and any("site_process" in str(detail) for detail in details):
        with open(os.environ["COUNTED"], "a") as file:
            file.write("server\\n")

if "fedsvm" in sys.orig_argv[1]:
    sys.addaudithook(count)
"""


def test_a_command_starts_one_server(tmp_path: Path) -> None:
    """While it reads its data, and not another when libraries have changed the environment."""
    (tmp_path / "sitecustomize.py").write_text(COUNT)
    environment = os.environ | {"PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}", "COUNTED": str(tmp_path / "counted")}
    done = subprocess.run(
        [str(FEDSVM), "run", "quickstart", *WORDS, "--out", "run"], cwd=tmp_path, env=environment, check=False
    )
    assert done.returncode == 0
    assert (tmp_path / "counted").read_text() == "server\n"
