"""The privacy ledger: what all runs spend of one data set, refused where the budget ends, whoever spends meanwhile."""

from __future__ import annotations

import fcntl
import json
import multiprocessing
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from fedsvm.algorithms.estimators.public_rows import PrivateErmClassifier
from fedsvm.algorithms.privacy import privacy_ledger
from fedsvm.algorithms.privacy.accountant import PrivacyAccountant, Release
from fedsvm.algorithms.privacy.privacy_ledger import DataIdentity, PrivacyLedger
from fedsvm.federation.errors import FederationError
from fedsvm.scenarios.run.result import RunResult
from fedsvm.scenarios.schema import spec
from fedsvm.scenarios.schema.errors import ScenarioError
from tests.run_results import simulate
from tests.tasks import table

DATA = DataIdentity.of("patients", "label", ["age", "sex"])
UNLIMITED = (float("inf"), float("inf"))
RUNS, EACH = 4, 25


def test_what_is_charged_adds_up_over_all_who_open_it(tmp_path: Path) -> None:
    path = tmp_path / "patients.ledger"
    assert PrivacyLedger(path, DATA).spent().releases == 0
    PrivacyLedger(path, DATA).charge(1.0, 1e-6, "a model", UNLIMITED)
    spent = PrivacyLedger(path, DATA).charge(0.5, 0.0, "another", UNLIMITED)
    assert (spent.epsilon, spent.delta, spent.releases) == (1.5, 1e-6, 2)
    assert PrivacyLedger(path, DATA).spent() == spent
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    head, *entries = [json.loads(line) for line in path.read_text().splitlines()]
    assert head["source"] == "patients"
    assert [entry["what"] for entry in entries] == ["a model", "another"]


def test_a_budget_is_of_all_of_it(tmp_path: Path) -> None:
    charged = PrivacyLedger(tmp_path / "ledger", DATA)
    charged.charge(1.5, 0.0, "a model", (2.0, 1.0))
    before = charged.path.read_bytes()
    with pytest.raises(
        FederationError, match=r"epsilon = 1, delta = 0 after 1\.5 and 0 of .*ledger would exceed .* of 2"
    ):
        charged.charge(1.0, 0.0, "a model", (2.0, 1.0))
    assert charged.path.read_bytes() == before


def test_a_charge_is_on_the_disk_before_anything_is_released(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The whole line is written, then synced, and the lock is held until then."""
    path, synced, sync = tmp_path / "ledger", [], os.fsync

    def record(descriptor: int) -> None:
        with path.open() as other, pytest.raises(BlockingIOError):
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        synced.append(path.read_bytes())
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", record)
    for number in (1, 2):
        PrivacyLedger(path, DATA).charge(1.0, 0.0, "a model", UNLIMITED)
        assert len(synced) == number
        assert synced[-1] == path.read_bytes()
        assert synced[-1].count(b"a model") == number


def test_an_accountant_counts_what_others_spent(tmp_path: Path) -> None:
    def accountant() -> PrivacyAccountant:
        return PrivacyAccountant(2.0, ledger=PrivacyLedger(tmp_path / "ledger", DATA))

    release = Release("weights", 1.0, 0.0, "laplace", 1.0, 1.0, ("everyone",), "the coordinator")
    first, second = accountant(), accountant()
    first.spend(release)
    second.check_budget(1.0, 0.0)
    second.spend(release)
    report = second.report()
    assert report is not None
    assert report.ledger is not None
    assert (report.epsilon, report.ledger.epsilon, report.ledger.releases) == (1.0, 2.0, 2)
    for each in (first, second, accountant()):
        with pytest.raises(FederationError, match="nothing is released"):
            each.check_budget(0.1, 0.0)
        with pytest.raises(FederationError, match="nothing is released"):
            each.spend(release)


def _spend(path: Path) -> int:
    """Return how many charges the budget allowed."""
    done = 0
    for _ in range(EACH):
        try:
            PrivacyLedger(path, DATA).charge(1.0, 0.0, "a model", (60.0, 1.0))
        except FederationError:
            continue
        done += 1
    return done


@pytest.mark.long
def test_runs_at_the_same_time_do_not_overspend_together(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    with multiprocessing.get_context("spawn").Pool(RUNS) as pool:
        done = pool.map(_spend, [path] * RUNS)
    assert sum(done) == 60
    assert PrivacyLedger(path, DATA).spent().releases == 60


def test_a_lock_that_is_never_given_up_is_no_wait_without_an_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(privacy_ledger, "PATIENCE_S", 0.1)
    held = PrivacyLedger(tmp_path / "ledger", DATA)
    held.charge(1.0, 0.0, "a model", UNLIMITED)
    with (
        held._open_locked(os.O_RDONLY),
        pytest.raises(FederationError, match=r"locked by another process for 0\.1 s"),
    ):
        PrivacyLedger(held.path, DATA).charge(1.0, 0.0, "a model", UNLIMITED)


@pytest.mark.parametrize(
    ("damage", "line"),
    [
        (lambda text: text[:-9], 2),
        (lambda text: text.replace('"epsilon": 1.0', '"epsilon": -1.0'), 2),
        (lambda text: text.replace('"epsilon": 1.0', '"epsilon": NaN'), 2),
        (lambda text: text + "[]\n", 3),
        (lambda text: "hello\n" + text, 1),
        (lambda text: text.partition("\n")[2], 1),
        (lambda text: "\x00\xff" * 40, 1),
    ],
)
def test_a_damaged_ledger_is_refused_and_left_as_it_is(damage: Any, line: int, tmp_path: Path) -> None:
    kept = PrivacyLedger(tmp_path / "ledger", DATA)
    kept.charge(1.0, 0.0, "a model", UNLIMITED)
    kept.path.write_text(damage(kept.path.read_text()))
    before = kept.path.read_bytes()
    for use in (kept.spent, lambda: kept.charge(0.1, 0.0, "a model", UNLIMITED)):
        with pytest.raises(FederationError, match=f"is damaged in line {line}: .* Put it back from a copy"):
            use()
    assert kept.path.read_bytes() == before


def test_a_ledger_of_other_data_is_refused(tmp_path: Path) -> None:
    PrivacyLedger(tmp_path / "ledger", DATA).charge(1.0, 0.0, "a model", UNLIMITED)
    for other, said in [
        (DataIdentity.of("citizens", "label", ["age", "sex"]), r"of the data set 'patients', and not of 'citizens'"),
        (DataIdentity.of("patients", "label", ["age"]), "of the data set 'patients' with other columns, and not of"),
        (DataIdentity.of("patients", "sex", ["age", "label"]), "with other columns"),
    ]:
        with pytest.raises(FederationError, match=said):
            PrivacyLedger(tmp_path / "ledger", other).spent()
    with pytest.raises(FederationError, match="cannot be opened: No such file or directory; nothing is released"):
        PrivacyLedger(tmp_path / "nowhere" / "ledger", DATA).charge(1.0, 0.0, "a model", UNLIMITED)


# Runs.


def outcome(folder: Path, *changes: str) -> RunResult:
    """The result of a run in this process, whatever came of it."""
    return simulate("dp-logistic", folder, changes).result


def test_runs_compose_until_the_budget_is_spent_and_a_run_that_fails_has_spent(tmp_path: Path) -> None:
    changes = [f"algorithm.ledger='{tmp_path / 'wdbc.ledger'}'", "algorithm.budget=2.0", "compare.centralised=false"]
    first = outcome(tmp_path / "1", *changes)
    second = outcome(tmp_path / "2", *changes, "algorithm.perturbation='output'")
    assert second.privacy is not None
    assert second.privacy.ledger is not None
    assert first.privacy is not None
    assert (first.privacy.epsilon, second.privacy.epsilon, second.privacy.ledger.epsilon) == (1.0, 1.0, 2.0)
    assert second.privacy.budget.epsilon == 2.0
    third = outcome(tmp_path / "3", *changes)
    assert third.status == "failed"
    assert third.error is not None
    assert "after 2 and" in third.error
    assert third.model is None
    assert third.progress is not None
    assert {each.step for each in third.disclosures} <= {"encode_known"}, "private rows were asked for something"


def test_nothing_is_charged_where_nothing_is_promised(tmp_path: Path) -> None:
    with pytest.raises(
        ScenarioError, match=r"algorithm\.ledger: without noise there is no privacy guarantee to charge"
    ):
        spec.read("dp-logistic", overrides=["algorithm={name='dp-erm', perturbation='none', ledger='x'}"])


def test_fits_of_an_estimator_compose_too(tmp_path: Path) -> None:
    rows, labels = table(120)
    model = PrivateErmClassifier(public=0.3, epsilon=1.0, budget=1.5, ledger=str(tmp_path / "ledger"), sites=3)
    model.fit(rows, labels)
    assert model.result_["privacy"]["ledger"]["releases"] == 1
    with pytest.raises(FederationError, match="after 1 and 0 of"):
        model.fit(rows, labels)
