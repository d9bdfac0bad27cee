"""The view of a running run: on a terminal of any width, and the remaining time."""

from __future__ import annotations

import math
import os
import pty
import subprocess
from pathlib import Path

import pytest

from fedsvm.scenarios.report.live import EtaEstimator, sparkline
from tests.commands import FEDSVM


def test_the_gaps_decay_tells_how_long_training_takes() -> None:
    ahead = EtaEstimator(folds=1, tolerance=1e-4)
    for second in range(8):
        assert ahead.seconds_left(second) is None or second > 5
        ahead.note(second, "train", math.exp(-second))
    assert ahead.seconds_left(7.0) == pytest.approx(math.log(1e4) - 7)
    assert ahead.seconds_left(8.0) == pytest.approx(math.log(1e4) - 8)
    assert ahead.seconds_left(20.0) is None  # the estimate ran out


def test_a_gap_that_does_not_fall_tells_nothing() -> None:
    ahead = EtaEstimator(folds=1, tolerance=1e-4)
    for second in range(20):
        ahead.note(second, "train", 0.5 + second / 100)
    assert ahead.seconds_left(20.0) is None


def test_training_that_is_repeated_tells_nothing() -> None:
    ahead = EtaEstimator(folds=1, tolerance=1e-4)
    for start in (0.0, 5.0):
        ahead.note(start, "train", None)
        ahead.note(start + 1, "setup", None)
    assert ahead.seconds_left(7.0) is None


def test_folds_that_are_done_tell_how_long_the_others_take() -> None:
    ahead = EtaEstimator(folds=5, tolerance=1e-4)
    for start in (0.0, 10.0, 20.0):
        ahead.note(start, "setup", None)
        assert ahead.seconds_left(start) is None or start > 10
        ahead.note(start + 1, "train", None)
    assert ahead.seconds_left(21.0) == 30.0
    assert ahead.seconds_left(25.0) == 26.0


@pytest.mark.parametrize("columns", [80, 200])
def test_a_terminal_shows_a_panel_that_fits_and_then_the_summary(columns: int, tmp_path: Path) -> None:
    """Standard output and error are a terminal of the kernel's; what it gets is what a person sees."""
    ours, theirs = pty.openpty()
    words = [str(FEDSVM), "run", "quickstart", "--set", "compare.centralised=false", "--out", str(tmp_path / "run")]
    words += [
        "--set",
        "algorithm.cut_groups=4",
        "--set",
        "algorithm.landmarks=60",
        "--set",
        "algorithm.tolerance=1e-4",
        "--fault",
        "kill:site=3,phase=train,round=2",
    ]
    environment = os.environ | {"COLUMNS": str(columns), "LINES": "36", "TERM": "xterm"}
    with subprocess.Popen(words, stdout=theirs, stderr=theirs, stdin=subprocess.DEVNULL, env=environment) as run:
        os.close(theirs)
        shown = b""
        while chunk := _read(ours):
            shown += chunk
        assert run.wait(60) == 0
    os.close(ours)
    text = shown.decode()
    for seen in (
        "live sites",
        "4 of 5, without site-3",
        "last fault",
        "train round 2: site-3 dropped",
        "certified gap",
        "time left",
        "progress",
        "reading data",
        "5 in 5 processes",
    ):
        assert seen in text
    assert ("last round ended" in text) == (columns == 200)
    lines = [_without_controls(line) for line in text.replace("\r", "\n").splitlines()]
    assert max(map(len, lines)) <= columns


def _read(descriptor: int) -> bytes:
    """Return what a terminal shows next; nothing after its writer is gone."""
    try:
        return os.read(descriptor, 65536)
    except OSError:
        return b""


def _without_controls(line: str) -> str:
    """A line as it stands on the screen."""
    found, hidden = "", False
    for letter in line:
        if letter == "\x1b":
            hidden = True
        elif hidden:
            hidden = not letter.isalpha()
        else:
            found += letter
    return found


def test_the_share_that_is_done_counts_models_and_decades() -> None:
    ahead = EtaEstimator(folds=2, tolerance=1e-4)
    assert ahead.share() is None
    ahead.note(0.0, "train", 1.0)
    ahead.note(1.0, "train", 1e-2)
    assert ahead.share() == pytest.approx(0.25)
    ahead.note(2.0, "evaluate", 1e-5)
    ahead.note(3.0, "train", 1.0)
    assert ahead.share() == pytest.approx(0.5)
    ahead.note(4.0, "train", 1e-9)
    assert ahead.share() == 1.0
    ahead.note(5.0, "setup", None)
    ahead.note(6.0, "train", None)
    assert ahead.share() is None  # a model is trained again


def test_a_sparkline_shows_decades() -> None:
    assert sparkline([1.0, 1e-7]) == "█▁"
    assert sparkline([10.0**-power for power in range(8)]) == "█▇▆▅▄▃▂▁"
    assert sparkline([0.5]) == ""
    assert sparkline([0.5, 0.5]) == "▁▁"
    assert len(sparkline([1.0 / (1 + n) for n in range(100)])) == 24
