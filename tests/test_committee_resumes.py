"""Training behind a committee whose coordinator is killed, and that is resumed: what the certificate says is true."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT, long_but_for, wait_until
from tests.test_committee_deaths import RFE, hybrid
from tests.test_resume import NAME, go_on

TOLERANCE = 1e-6


def rounds_behind_a_committee(folder: Path) -> int:
    """Return how many rounds of training the coordinator wrote down."""
    journal = folder / "journal" / NAME
    return journal.read_bytes().count(b"newton") if journal.exists() else 0


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", long_but_for(["hybrid-svm", "rfe"], "hybrid-svm"))
def test_a_resumed_model_is_within_its_gap_of_the_optimum_of_all_rows(name: str, tmp_path: Path) -> None:
    text = hybrid(tmp_path) if name == "hybrid-svm" else RFE
    path, folder = tmp_path / "own.toml", tmp_path / "run"
    path.write_text(f"federation.sites = 5\n{text}")
    changes = ("compare.centralised=true", f"algorithm.tolerance={TOLERANCE}", "data.statistics_privacy=0")
    words = [word for change in changes for word in ("--set", change)]
    line = [sys.executable, "-m", "tests.exact", "run", str(path), *words, "--journal", "--quiet", "--out", str(folder)]
    with subprocess.Popen(line, cwd=ROOT) as process:
        wait_until(lambda: rounds_behind_a_committee(folder) >= 6, 240)
        process.send_signal(signal.SIGKILL)
    before = rounds_behind_a_committee(folder)
    result = go_on(folder).result
    assert rounds_behind_a_committee(folder) > before
    assert result.model is not None
    assert result.centralised is not None
    assert result.model.gap is not None
    assert result.model.gap <= TOLERANCE
    assert result.model.objective == pytest.approx(result.centralised.objective, rel=2 * TOLERANCE)
