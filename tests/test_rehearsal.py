"""What sites share because it was done before they are forked; and that nothing else is left of it."""

from __future__ import annotations

import logging
import os
import sys
import threading
from pathlib import Path

import pytest

from federation.site import rehearsal
from federation.site.policy import SitePolicy
from federation.site.rehearsal import rehearse
from federation.transport.endpoint import Endpoint


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="a process lists its open files there")
def test_a_rehearsal_leaves_nothing_open(tmp_path: Path) -> None:
    lifeline, life = os.pipe()
    before = len(list(Path("/proc/self/fd").iterdir())), threading.enumerate(), logging.getLogger().handlers[:]
    ran = SitePolicy.check_roster.__code__, Endpoint._dial_party.__code__
    rehearse(tmp_path, lifeline)
    now = SitePolicy.check_roster.__code__, Endpoint._dial_party.__code__
    after = len(list(Path("/proc/self/fd").iterdir())), threading.enumerate(), logging.getLogger().handlers[:]
    os.close(lifeline)
    os.close(life)
    assert after == before
    assert not list(tmp_path.iterdir())
    assert now == ran and not any(code is then for code, then in zip(now, ran, strict=True)), "the site did not join"


def test_what_cannot_be_rehearsed_is_left_to_the_sites(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = threading.enumerate()
    monkeypatch.setattr(rehearsal, "_LISTEN", "tcp://203.0.113.1:*")
    lifeline, life = os.pipe()
    rehearse(tmp_path, lifeline)
    rehearse(tmp_path / "missing", lifeline)
    os.close(lifeline)
    os.close(life)
    assert not list(tmp_path.iterdir())
    assert threading.enumerate() == before
