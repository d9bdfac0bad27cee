"""The work that sites share because it is done before they are forked, and that nothing else is left of it."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from pathlib import Path
from types import CodeType

import numpy as np
import pytest

from fedsvm.federation.errors import DeadlineExpired
from fedsvm.federation.processes.launcher_cache import SPARE
from fedsvm.federation.site import warm_up
from fedsvm.federation.site.partition import Partition
from fedsvm.federation.site.site_policy import SitePolicy
from fedsvm.federation.site.warm_up import warm_up_server
from fedsvm.federation.startup import local_federation
from fedsvm.federation.transport.deadline import Deadline
from fedsvm.federation.transport.endpoint import Endpoint
from fedsvm.protocols.sums.ring import RING


@pytest.fixture(autouse=True)
def _no_spare_server() -> None:
    """None of an earlier test, which would end in the middle of this one."""
    SPARE.close()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="a process lists its open files there")
def test_a_rehearsal_leaves_nothing_open(tmp_path: Path) -> None:
    lifeline, life = os.pipe()
    threads = set(threading.enumerate())
    before = len(list(Path("/proc/self/fd").iterdir())), logging.getLogger().handlers[:]
    ran = SitePolicy.check_roster.__code__, Endpoint._dial.__code__
    warm_up_server(tmp_path, lifeline, lambda: None)
    now = SitePolicy.check_roster.__code__, Endpoint._dial.__code__
    after = len(list(Path("/proc/self/fd").iterdir())), logging.getLogger().handlers[:]
    os.close(lifeline)
    os.close(life)
    assert after == before
    assert set(threading.enumerate()) <= threads
    assert not list(tmp_path.iterdir())
    assert now == ran and not any(code is then for code, then in zip(now, ran, strict=True)), "the site did not join"


def test_what_sites_compute_is_practiced_and_its_code_laid_side_by_side(tmp_path: Path) -> None:
    ran: list[CodeType] = []

    def practice() -> None:
        def inner() -> None: ...

        inner()
        ran.extend([practice.__code__, inner.__code__])

    before = practice.__code__, next(each for each in practice.__code__.co_consts if isinstance(each, CodeType))
    lifeline, life = os.pipe()
    warm_up_server(tmp_path, lifeline, practice)
    os.close(lifeline)
    os.close(life)
    assert len(ran) >= 2 * 10, "sites would put specialised instructions into the code"
    assert [code is then for code, then in zip(ran[:2], before, strict=True)] == [True, True]
    assert ran[-2:] == list(before) and not any(code is then for code, then in zip(ran[-2:], before, strict=True))


def test_a_failed_warm_up_is_left_to_the_sites(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    threads = set(threading.enumerate())
    monkeypatch.setattr(warm_up, "_LISTEN", "tcp://203.0.113.1:*")
    lifeline, life = os.pipe()
    warm_up_server(tmp_path, lifeline, lambda: None)
    warm_up_server(tmp_path / "missing", lifeline, lambda: None)
    os.close(lifeline)
    os.close(life)
    assert not list(tmp_path.iterdir())
    assert set(threading.enumerate()) <= threads


def test_a_slow_machine_warms_up_once_without_a_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    lives: list[int] = []

    def never(self: Endpoint, deadline: Deadline, *, for_answers: bool = True) -> None:
        lives.append(threading.get_ident())
        raise DeadlineExpired

    monkeypatch.setattr(Endpoint, "wait", never)
    monkeypatch.setattr(warm_up, "_PATIENCE_S", 0.0)
    lifeline, life = os.pipe()
    warm_up_server(tmp_path, lifeline, lambda: None)
    os.close(lifeline)
    os.close(life)
    assert len(lives) <= 2
    assert capfd.readouterr() == ("", "")


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="a process lists its open files there")
def test_a_site_lets_go_of_what_is_its_servers() -> None:
    nothing = Partition({"rows": np.zeros((1, 1))})
    sites = dict.fromkeys(("site-1", "site-2", "site-3"), nothing)
    with local_federation("tests.site_process", "drill", sites, RING, settings={"seed": 0}) as run:
        for pid in run.pids.values():
            process = Path("/proc") / str(pid)
            status = dict(line.split(":\t") for line in (process / "status").read_text().splitlines())
            caught = int(status["SigCgt"], 16)
            server = Path("/proc") / status["PPid"]
            pipes = {end.readlink().name for end in (server / "fd").iterdir() if end.readlink().name.startswith("pipe")}
            shared = [end.name for end in (process / "fd").iterdir() if end.readlink().name in pipes]
            flags = [int((process / "fdinfo" / end).read_text().split("flags:\t")[1].split()[0], 8) for end in shared]
            assert not caught >> (signal.SIGCHLD - 1) & 1
            assert [each & os.O_ACCMODE for each in flags] == [os.O_RDONLY], "it holds its own lifeline"
