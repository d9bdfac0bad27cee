"""Real sites that die within rounds behind a committee: of hybrid-svm, and of the choice of columns."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedsvm.scenarios.data import dataset
from fedsvm.scenarios.oversight import receipts
from fedsvm.scenarios.oversight.receipt_comparison import compare
from fedsvm.scenarios.run import runner
from fedsvm.scenarios.run.result import RunResult
from fedsvm.scenarios.schema import spec
from tests.conftest import long_but_for
from tests.mortal_site_process import DEATH
from tests.test_secrecy import cards

PHASES = ("mask_own", "deal_masking")
"""Steps of the protocol, of a member and of the dealer."""

RFE = """
data = { source = "wine", positive = "class_0", test_fraction = 0.0 }
algorithm = { name = "rfe", landmarks = 20, masking = "committee", remove = "one", size = 9 }
compare = { centralised = false }
"""


def hybrid(folder: Path) -> str:
    return f"""
    data = {{ source = "{cards(folder / "cards.csv")}", positive = "yes", test_fraction = 0.2, public = 20 }}
    algorithm = {{ name = "hybrid-svm", features = 20, mechanism = "none", tolerance = 1e-6, masking = "committee" }}
    compare = {{ centralised = true }}
    """


def died(folder: Path, text: str, phase: str, monkeypatch: pytest.MonkeyPatch) -> tuple[RunResult, str]:
    """Run a scenario of five sites, one of which dies in the fourth round; return the result, and the site's name."""
    path = folder / "own.toml"
    path.write_text(f"federation.sites = 5\n{text}")
    monkeypatch.setenv(DEATH, f"{phase} 4 {folder / 'died'}")
    monkeypatch.setattr(runner, "SITE_MODULE", "tests.mortal_site_process")
    scenario, base = spec.read(str(path))
    (folder / "run").mkdir()
    finished = runner.run(scenario, dataset.prepare(scenario, base), folder / "run", lambda *_: None).result
    return finished, (folder / "died").read_text()


def check_receipts(folder: Path, victim: str) -> None:
    """The sites that are left wrote down the same orders, and the one that died wrote as many as it had."""
    records = {record.site: record for record in receipts.select_receipts(folder / "run", None)}
    lost = records.pop(victim)
    assert not lost.is_whole
    assert all(record.is_whole for record in records.values())
    first, *others = records.values()
    for other in others:
        assert not compare(first, other).differences
    assert not compare(first, lost).differences


@pytest.mark.parametrize("phase", long_but_for(PHASES, "mask_own"))
def test_columns_are_chosen_by_the_sites_that_are_left(
    phase: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result, victim = died(tmp_path, RFE, phase, monkeypatch)
    assert result.error is None
    assert result.model is not None
    assert result.selection is not None
    assert victim not in result.model.sites
    steps = result.selection.ranking.steps
    assert {step.sites for step in steps} == {4}
    assert all(step.certain for step in steps)
    check_receipts(tmp_path, victim)


@pytest.mark.long
@pytest.mark.parametrize("phase", PHASES)
def test_hybrid_svm_ends_within_its_certificate_of_the_rows_that_are_left(
    phase: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result, victim = died(tmp_path, hybrid(tmp_path), phase, monkeypatch)
    assert result.error is None
    assert result.model is not None
    assert result.centralised is not None
    assert victim not in result.model.sites
    assert result.model.gap is not None
    assert result.model.gap <= 1e-6
    assert result.model.objective == pytest.approx(result.centralised.objective, rel=2e-6)
    check_receipts(tmp_path, victim)
