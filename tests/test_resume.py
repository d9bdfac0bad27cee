"""Runs that are resumed from their journals: the model is that of a run which nobody disturbed, to the last bit."""

from __future__ import annotations

import functools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from fedsvm.algorithms.registry import OWN_ALGORITHMS
from fedsvm.federation.control import Order
from fedsvm.federation.errors import FederationError, Malformed
from fedsvm.federation.run_journal import Journal, MembershipRecord
from fedsvm.federation.site.site_journal import SiteJournal
from fedsvm.federation.transport import framefile
from fedsvm.federation.transport.wire import DATA_KIND, Message
from fedsvm.protocols.sums.registry import SUMS
from fedsvm.scenarios.data import dataset
from fedsvm.scenarios.data.dataset import FederatedDataset
from fedsvm.scenarios.run import resume, runner
from fedsvm.scenarios.run.result import read_result
from fedsvm.scenarios.run.runner import FinishedRun
from fedsvm.scenarios.schema import spec
from fedsvm.scenarios.schema.errors import ScenarioError
from fedsvm.scenarios.schema.spec import Scenario
from tests.conftest import ROOT, long_but_for, wait_until
from tests.hosts import EXACT

NAME = "coordinator.journal"
SMALL = ("data.source=made-sphere:rows=200,columns=5,margin=0.05", "data.positive=above")
HYBRID = """\
[data]
source = "wdbc"
positive = "malignant"
public = 60

[algorithm]
name = "hybrid-svm"
features = 8
C = 10.0
tolerance = 1e-9
"""
WITHOUT_DRAWS = {
    "naive-bayes": ("naive-bayes",),
    "decision-tree": ("decision-tree",),
    "logistic-regression": ("logistic-regression",),
    "least-squares": ("least-squares",),
    "binned-least-squares": ("binned-least-squares", "algorithm.bins=200"),
    "svm-admm": ("svm-admm",),
    "voting-ensemble": ("voting-ensemble",),
}
EXACTLY = {
    "pan-svm": ("quickstart", *EXACT),
    "pan-svm, cutting planes": ("quickstart", "algorithm.solver=cutting-plane"),
    **WITHOUT_DRAWS,
    "dpp-svm": ("dpp-svm-tic-tac-toe",),
    "pp-svm": ("pp-svm", "data.rows=100"),
    "hybrid-svm": (HYBRID, "algorithm.mechanism=none", *EXACT),
    "hybrid-svm, cutting planes": (HYBRID, "algorithm.mechanism=none", "algorithm.solver=cutting-plane"),
    "hybrid-svm, one-shot": (HYBRID, "algorithm.mechanism=none", "algorithm.variant=one-shot"),
    "dp-erm": (HYBRID.replace("hybrid-svm", "dp-erm").partition("features")[0], "algorithm.perturbation=none"),
    "filter": ("filter", *SMALL, "data.folds=2", "algorithm.size=3", *EXACT),
    "rfe": ("rfe", *SMALL, "data.folds=2", *EXACT),
    "sparse-svm": ("sparse-genes", *SMALL, *EXACT),
    "voted-wrappers": ("voted-wrappers", *SMALL, *EXACT),
    "filter-wrapper": ("filter-wrapper", *SMALL, "data.folds=2", *EXACT),
    "dpp-selection": ("dpp-selection", "data.folds=2", "algorithm.size=25"),
}
"""Scenarios of every algorithm that come to the same each time: what training draws at random is switched off."""


def scenario_of(case: str, folder: Path) -> tuple[str, ...]:
    """The scenario of a case, in a file if it is of ours, and what is changed of it."""
    scenario, *changes = EXACTLY[case]
    if "\n" in scenario:
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / "own.toml"
        path.write_text(scenario)
        scenario = str(path)
    return scenario, *changes


def begin(folder: Path, name: str, *changes: str) -> FinishedRun:
    """A run that is written down, in a folder of its own."""
    scenario, base = spec.read(name, overrides=["compare.centralised=false", *changes])
    resume.require_replayable(scenario)
    rows = dataset.prepare(scenario, base)
    folder.mkdir(parents=True)
    with resume.begin_journal(folder, scenario, base) as journal:
        return completed(run(scenario, rows, folder, journal))


def go_on(folder: Path) -> FinishedRun:
    """The run in a folder, resumed to its end."""
    return completed(resumed(folder))


def resumed(folder: Path) -> FinishedRun:
    """The run in a folder, resumed."""
    with resume.reopen_journal(folder) as (journal, scenario, base):
        rows = dataset.prepare(scenario, base)
        return run(scenario, rows, folder, journal)


def run(scenario: Scenario, rows: FederatedDataset, folder: Path, journal: Journal) -> FinishedRun:
    return runner.run(scenario, rows, folder, journal=journal, another_follows=True)


def completed(finished: FinishedRun) -> FinishedRun:
    assert finished.result.status == "completed", finished.result.error
    return finished


def cut(folder: Path, target: Path, length: int) -> Path:
    """A copy of a run's journals, the coordinator's cut short."""
    shutil.copytree(folder, target)
    for path in ("result.json", "model.npz", "ledger.parquet", "scenario.toml"):
        (target / path).unlink()
    os.truncate(target / "journal" / NAME, length)
    return target


def model(folder: Path) -> dict[str, bytes]:
    with np.load(folder / "model.npz") as file:
        return {name: file[name].tobytes() for name in file.files}


def payload(folder: Path) -> Counter[tuple[str, str, str]]:
    """Payload bytes of protocols by phase and link, as both ends counted them."""
    counted: Counter[tuple[str, str, str]] = Counter()
    for row in pq.read_table(folder / "ledger.parquet").to_pylist():
        if row["protocol"] != "control":
            assert row["sent_payload_bytes"] == row["received_payload_bytes"]
            counted[row["phase"], row["from"], row["to"]] += row["payload_bytes"]
    return counted


def ends(path: Path) -> list[int]:
    """Return the ends of the records of a journal, the first being its header."""
    content, found = path.read_bytes(), [0]
    while found[-1] < len(content):
        found.append(found[-1] + 40 + int.from_bytes(content[found[-1] : found[-1] + 8], "little"))
    return found[1:]


def check(folder: Path, undisturbed: Path, *, whole_ledger: bool = True) -> None:
    """The same model; every sum revealed once, over one set of sites; every byte of a round in the ledger."""
    assert model(folder) == model(undisturbed)
    if whole_ledger:
        assert payload(folder) == payload(undisturbed)
    with Journal(folder / "journal" / NAME) as journal:
        records: list[dict[str, Any]] = journal.earlier
    for record in records:
        complete = [event for event in record.get("events", ()) if event.get("complete")]
        assert len(complete) <= 1
    for path in sorted((folder / "journal").glob("site-*.journal")):
        messages, _ = framefile.read_whole(str(path))
        named = [message.fields["sites"] for message in messages if message.kind == "order"]
        assert named
        assert all(sites is None for sites in named), "an order that was not for all sites of the run"


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("undisturbed") / "run"
    begin(folder, *EXACTLY["pan-svm"])
    return folder


@pytest.mark.parametrize("share", long_but_for([0.0, 0.3, 0.7, 1.0], 0.3, 1.0))
def test_a_run_that_is_resumed_ends_as_it_would_have(share: float, undisturbed: Path, tmp_path: Path) -> None:
    records = ends(undisturbed / "journal" / NAME)
    folder = cut(undisturbed, tmp_path / "run", records[round(share * (len(records) - 1))])
    go_on(folder)
    check(folder, undisturbed)


def test_resumed_run_counts_the_seconds_of_its_earlier_process(undisturbed: Path, tmp_path: Path) -> None:
    folder = cut(undisturbed, tmp_path / "run", ends(undisturbed / "journal" / NAME)[-1])
    result = go_on(folder).result
    earlier = read_result(undisturbed).cost
    assert result.cost is not None and earlier is not None
    for name, phase in result.cost.by_phase.items():
        assert phase.rounds_s == earlier.by_phase[name].rounds_s
        assert phase.seconds >= (phase.rounds_s or 0.0)
    in_rounds = sum(phase.rounds_s or 0.0 for phase in result.cost.by_phase.values())
    assert result.timing.total_s > result.timing.train_s + result.timing.evaluate_s > in_rounds > 0


@pytest.mark.parametrize("sum_name", long_but_for(SUMS, "masked"))
def test_it_does_under_every_sum(sum_name: str, tmp_path: Path) -> None:
    begin(tmp_path / "whole", *EXACTLY["pan-svm"], f"protocol.sum={sum_name}", "protocol.rings=1")
    records = ends(tmp_path / "whole" / "journal" / NAME)
    folder = cut(tmp_path / "whole", tmp_path / "cut", records[len(records) // 2] + 3)
    go_on(folder)
    check(folder, tmp_path / "whole")


LAST = 80
"""A coordinator that is killed lags a round behind its sites; one whose journal is cut must not by `SKIPPED_ROUNDS`."""

OTHERS = [name for name in EXACTLY if name != "pan-svm"]


@pytest.mark.parametrize("algorithm", long_but_for(OTHERS, "naive-bayes", "hybrid-svm, one-shot"))
def test_it_does_with_every_algorithm(algorithm: str, tmp_path: Path) -> None:
    begin(tmp_path / "whole", *scenario_of(algorithm, tmp_path))
    records = ends(tmp_path / "whole" / "journal" / NAME)
    folder = cut(tmp_path / "whole", tmp_path / "cut", records[max(len(records) // 2, len(records) - LAST)])
    go_on(folder)
    check(folder, tmp_path / "whole")


def test_records_that_were_aligned_in_secret_stay_in_that_order(tmp_path: Path) -> None:
    """Another run has another order, which follows from the sites' secret numbers."""
    begin(tmp_path / "whole", "dpp-svm-unaligned", "algorithm.kernel=linear")
    records = ends(tmp_path / "whole" / "journal" / NAME)
    folder = cut(tmp_path / "whole", tmp_path / "cut", records[3])
    go_on(folder)
    check(folder, tmp_path / "whole")


def test_no_algorithm_is_left_out() -> None:
    assert {name.partition(",")[0] for name in EXACTLY} == set(OWN_ALGORITHMS)


def test_masks_and_dither_are_those_of_before(tmp_path: Path) -> None:
    """Training draws at random: cut before its last rounds, which draw nothing any more, it ends the same."""
    begin(tmp_path / "whole", "quickstart")
    records = ends(tmp_path / "whole" / "journal" / NAME)
    folder = cut(tmp_path / "whole", tmp_path / "cut", records[-3])
    go_on(folder)
    check(folder, tmp_path / "whole")


def test_a_fault_before_the_end_of_the_journal_is_not_struck_again(tmp_path: Path) -> None:
    scenario, base = spec.read("quickstart", overrides=EXACT, faults=["kill:site=3,phase=train,round=5"])
    rows = dataset.prepare(scenario, base)
    whole = tmp_path / "whole"
    whole.mkdir()
    with resume.begin_journal(whole, scenario, base) as journal:
        completed(run(scenario, rows, whole, journal))
    records = ends(whole / "journal" / NAME)
    folder = cut(whole, tmp_path / "cut", records[-4])
    finished = go_on(folder)
    assert model(folder) == model(whole)
    assert finished.result.model is not None and "site-3" not in finished.result.model.sites


def test_a_journal_that_is_cut_at_any_byte_of_its_last_record_counts_as_without_it(
    tmp_path: Path,
) -> None:
    path = tmp_path / NAME
    with Journal(path) as journal:
        journal.begin({"scenario": "", "base": ""})
        for number in range(3):
            journal.journaled_random(f"number {number}", lambda number=number: np.full((2, 2), float(number)))  # type: ignore[misc]
    *_, before, last = ends(path)
    whole = path.read_bytes()
    cuts = [whole[:length] for length in range(before, last)]
    flips = [whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :] for place in range(before, last)]
    for damaged in (*cuts, *flips):
        path.write_bytes(damaged)
        with Journal(path) as journal:
            assert len(journal.earlier) == 2
        assert path.stat().st_size == before
    with Journal(path) as journal:
        known = [journal.journaled_random(f"number {number}", lambda: np.zeros((2, 2))) for number in range(3)]
    assert [values[0, 0] for values in known] == [0.0, 1.0, 0.0]


def test_every_record_of_a_journal_is_on_the_disk_before_it_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, synced, sync = tmp_path / NAME, [], os.fsync

    def record(descriptor: int) -> None:
        synced.append(path.read_bytes())
        sync(descriptor)

    with Journal(path) as journal:
        monkeypatch.setattr(os, "fsync", record)
        journal.begin({"scenario": "", "base": ""})
        assert synced == [path.read_bytes()]
        for number in (1, 2):
            journal.journaled_random(f"number {number}", lambda: 1.0)
            assert synced[number:] == [path.read_bytes()]
    assert len(set(synced)) == 3


def test_each_resumption_skips_rounds_that_the_one_before_may_have_begun(tmp_path: Path) -> None:
    path = tmp_path / NAME
    with Journal(path) as journal:
        journal.begin({})
    for expected in (100, 200):
        with Journal(path) as journal:
            journal.skip_rounds(100)
            assert journal.skipped_to == expected


def test_journal_names_the_last_process_of_a_site_that_took_part(tmp_path: Path) -> None:
    path, order = tmp_path / NAME, Order("sums", "ring")
    with Journal(path) as journal:
        journal.begin({})
        for process in ("old process", "newer process"):
            journal.expect_return("north", process)
            journal.history.events.append(MembershipRecord(1, "train", {"north": "ended"}, ("north",)))
            journal.write(order, None, changed=False)
        journal.expect_return("north", "process that no verb tells of")
        journal.history.events.append(MembershipRecord(2, "train", {"south": "ended"}, ("south",)))
        journal.write(order, None, changed=False)
    with Journal(path) as journal:
        assert journal.returned == {"north": "newer process"}


def test_a_journal_of_another_version_is_left_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, of_site = tmp_path / NAME, tmp_path / "site.journal"
    with monkeypatch.context() as earlier, Journal(path) as journal:
        earlier.setattr("fedsvm.federation.run_journal.VERSION", 1)
        journal.begin({"scenario": "", "base": ""})
    with pytest.raises(FederationError, match="another version of fedsvm; resume with that one, or start a new run"):
        Journal(path)
    with framefile.create(str(of_site)) as file:
        framefile.write(file, Message(DATA_KIND, bytes(8), fields={"what": "drew"}, arrays={"value": np.ones(3)}))
    content = bytearray(of_site.read_bytes())
    content[8] = 1  # the first byte of the first message
    of_site.write_bytes(content)
    with pytest.raises(Malformed, match="another format or version"):
        SiteJournal(str(of_site))
    assert of_site.read_bytes() == content


def test_torn_record_of_megabytes_is_read_at_once(tmp_path: Path) -> None:
    path = tmp_path / "coordinator.journal"
    with Journal(path) as journal:
        journal.begin({})
        journal.journaled_random("key", lambda: b"k")
        journal.journaled_random("matrix", lambda: np.random.default_rng(0).normal(size=1 << 19))
    os.truncate(path, path.stat().st_size - 1)
    began = time.process_time()
    with Journal(path) as journal:
        assert [record["digest"] for record in journal.earlier] == [b"key"]
    assert time.process_time() - began < 1, "a search at each of its bytes takes seconds"


@pytest.mark.parametrize("torn", [False, True])
def test_reading_a_journal_tells_its_progress(torn: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A torn record is searched: here for what looks like beginnings of records and is none."""
    path = tmp_path / NAME
    told: list[str] = []
    with Journal(path) as journal:
        journal.begin({})
        for number in range(3):
            journal.journaled_random(f"number {number}", lambda: bytes(10**6) + b"\xa4what" + bytes(8))
    if torn:
        os.truncate(path, path.stat().st_size - 1)
    monkeypatch.setattr("fedsvm.federation.run_journal.READING_SHOWN_EVERY_S", 0.0)
    with Journal(path, told.append):
        assert told == [f"reading the journal: {read} of 3 MB" for read in ([0, 1, 2, 2, 3] if torn else [0, 1, 2, 3])]
    told.clear()
    monkeypatch.setattr("fedsvm.federation.run_journal.READING_SHOWN_EVERY_S", 60.0)
    with Journal(path, told.append):
        assert told == []


RESUME = """
import sys

from fedsvm.__main__ import main
from fedsvm.federation import run_journal

run_journal.READING_SHOWN_EVERY_S = 0.0
sys.argv = ["fedsvm", "run", "--resume", *sys.argv[1:]]
main()
"""


def test_resumed_run_tells_that_it_reads_its_journal(undisturbed: Path, tmp_path: Path) -> None:
    folder = cut(undisturbed, tmp_path / "run", ends(undisturbed / "journal" / NAME)[-3])
    megabytes = (folder / "journal" / NAME).stat().st_size / 1e6
    words = [sys.executable, "-c", RESUME, str(folder)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr.startswith(f"{folder}: reading the journal: 0 of {megabytes:.0f} MB\n")
    rounds = json.loads((folder / "result.json").read_text())["cost"]["rounds"]
    told = [int(number) for number in re.findall(r"after (\d+) rounds", done.stderr)]
    assert told and max(told) <= rounds  # their numbers skip some, since the last may have been sent
    logged = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    ended = [event for event in logged if event["event"] == "round"]
    assert [event["rounds"] for event in ended] == list(range(1, rounds + 1))
    assert ended[-1]["round"] > rounds  # as in the ledger


def test_a_journal_that_is_damaged_before_its_last_record_is_not_believed(tmp_path: Path) -> None:
    path = tmp_path / NAME
    with Journal(path) as journal:
        journal.begin({"scenario": "", "base": ""})
        for number in range(3):
            journal.journaled_random(f"number {number}", lambda: np.zeros(2))
    whole, places = path.read_bytes(), ends(path)
    for place in range(places[0], places[2]):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0x80]) + whole[place + 1 :])
        with pytest.raises(FederationError, match=r"is damaged after its record [12], and later records follow"):
            Journal(path)
        assert path.stat().st_size == len(whole)


@pytest.mark.parametrize("lost", ["the file", "its end"])
def test_a_site_that_lost_the_end_of_its_journal_says_so(lost: str, undisturbed: Path, tmp_path: Path) -> None:
    folder = cut(undisturbed, tmp_path / "run", ends(undisturbed / "journal" / NAME)[-3])
    path = folder / "journal" / "site-2.journal"
    path.write_bytes(b"" if lost == "the file" else path.read_bytes()[: path.stat().st_size // 3])
    result = resumed(folder).result
    assert result.status == "failed"
    assert "site-2 failed in round 0 (launch, step join): its journal is incomplete and cannot be replayed" in str(
        result.error
    )


def test_a_run_that_goes_otherwise_than_its_journal_says_stops_with_a_sentence(
    undisturbed: Path, tmp_path: Path
) -> None:
    folder = cut(undisturbed, tmp_path / "run", ends(undisturbed / "journal" / NAME)[-3])
    with resume.reopen_journal(folder) as (journal, scenario, base):
        other = scenario.model_copy(update={"seed": scenario.seed + 1})
        rows = dataset.prepare(other, base)
        result = run(other, rows, folder, journal).result
    assert result.status == "failed"
    assert "The run differs from its journal" in str(result.error)


def test_two_processes_cannot_resume_one_run(undisturbed: Path, tmp_path: Path) -> None:
    folder = cut(undisturbed, tmp_path / "run", ends(undisturbed / "journal" / NAME)[-3])
    with (
        resume.reopen_journal(folder),
        pytest.raises(FederationError, match="is written by another process; a run has one coordinator"),
        resume.reopen_journal(folder),
    ):
        pass


def test_a_run_without_a_journal_cannot_be_resumed(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match="has no journal; only runs"), resume.reopen_journal(tmp_path):
        pass


@pytest.mark.parametrize("perturbation", long_but_for(["objective", "output"], "objective"))
def test_noise_is_drawn_once_and_a_release_charged_once(perturbation: str, tmp_path: Path) -> None:
    ledger = tmp_path / "wdbc.ledger"
    changes = [f"algorithm.perturbation={perturbation}", f'algorithm.ledger="{ledger}"']
    begin(tmp_path / "run", "dp-logistic", *changes)
    charged = ledger.read_text()
    places = ends(tmp_path / "run" / "journal" / NAME)
    with Journal(tmp_path / "run" / "journal" / NAME) as journal:
        drawn = [number for number, each in enumerate(journal.earlier, start=1) if each["what"] == "drawn"]
    charge = drawn[-1] if perturbation == "objective" else drawn[1]
    for number in {drawn[1], drawn[-1], len(places) - 2}:  # behind b or the charge, behind the last draw, and later
        if number < charge:
            ledger.unlink()
        folder = cut(tmp_path / "run", tmp_path / f"after-{number}", places[number])
        finished = go_on(folder)
        if perturbation == "objective" or number >= drawn[-1]:
            assert model(folder) == model(tmp_path / "run")
        assert finished.result.privacy is not None and finished.result.privacy.epsilon == 1.0
        assert any(each.startswith("journal: ") for each in finished.result.privacy.not_covered)
        assert len(ledger.read_text().splitlines()) == len(charged.splitlines())


NOISY = ("algorithm.variant=one-shot", "algorithm.epsilon=1.0", "algorithm.tolerance=1e-10")


@pytest.mark.parametrize("mechanism", long_but_for(["spherical", "laplace", "gaussian"], "spherical"))
def test_a_site_adds_the_same_share_of_noise_to_a_release_whatever_process_it_is(
    mechanism: str, tmp_path: Path
) -> None:
    """A site may have seen the sum that was lost with the coordinator: another share would be another release."""
    ledger, scenario = tmp_path / "wdbc.ledger", tmp_path / "own.toml"
    scenario.write_text(HYBRID)
    delta = ("algorithm.delta=1e-6",) if mechanism == "gaussian" else ()
    changes = (*NOISY, f"algorithm.mechanism={mechanism}", *delta, f'algorithm.ledger="{ledger}"')
    begin(tmp_path / "run", str(scenario), *changes, "federation.min_sites=4")
    charged = ledger.read_text()
    places = ends(tmp_path / "run" / "journal" / NAME)
    for number, place in enumerate(places[5:], start=5):  # from where the release was charged
        folder = cut(tmp_path / "run", tmp_path / f"after-{number}", place)
        go_on(folder)
        if mechanism != "spherical" or place == places[-1]:  # which the coordinator draws, when all is journalled
            assert model(folder) == model(tmp_path / "run")
        assert ledger.read_text() == charged


def test_a_release_that_a_site_is_lost_in_is_charged_once_more_and_not_by_who_resumes(tmp_path: Path) -> None:
    ledger, path = tmp_path / "wdbc.ledger", tmp_path / "own.toml"
    path.write_text(HYBRID)
    noise = (*NOISY, "algorithm.mechanism=laplace", f'algorithm.ledger="{ledger}"', "federation.min_sites=4")
    scenario, base = spec.read(
        str(path), overrides=["compare.centralised=false", *noise], faults=["kill:site=3,phase=train,round=4"]
    )
    rows, whole = dataset.prepare(scenario, base), tmp_path / "whole"
    whole.mkdir()
    with resume.begin_journal(whole, scenario, base) as journal:
        finished = completed(run(scenario, rows, whole, journal))
    charged = ledger.read_text()
    assert finished.result.privacy is not None
    assert [each.what for each in finished.result.privacy.releases] == [
        "weights of the model",
        "weights of the model, summed again over other sites",
    ]
    places = ends(whole / "journal" / NAME)
    for number, place in enumerate(places[-2:]):  # the second charge is in the journal, and its sum is or is not
        folder = cut(whole, tmp_path / f"cut-{number}", place)
        again = go_on(folder)
        assert model(folder) == model(whole)
        assert again.result.privacy is not None and again.result.privacy.epsilon == finished.result.privacy.epsilon
        assert ledger.read_text() == charged


def test_what_draws_at_random_by_itself_is_not_written_down(monkeypatch: pytest.MonkeyPatch) -> None:
    scenario, _ = spec.read("naive-bayes")
    monkeypatch.setattr(scenario.algorithm.implementation.Site, "is_replayable", False)
    with pytest.raises(ScenarioError, match="--journal: sites cannot repeat their steps"):
        resume.require_replayable(scenario)


KILLS = int(os.environ.get("FEDSVM_KILLS", str(len(EXACTLY))))


@pytest.fixture(scope="module")
def wholes(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """The run of a case that nobody disturbed, by its changes."""

    @functools.cache
    def whole(case: str, *changes: str) -> Path:
        folder = tmp_path_factory.mktemp("whole")
        begin(folder / "run", *scenario_of(case, folder), *changes)
        return folder / "run"

    return whole


@pytest.mark.long
@pytest.mark.parametrize("kill", range(KILLS))
def test_a_coordinator_that_is_killed_at_a_random_moment(
    kill: int, wholes: Callable[..., Path], tmp_path: Path
) -> None:
    """Every algorithm in turn, and every sum; `FEDSVM_KILLS=50` for as many moments."""
    random = np.random.default_rng(int.from_bytes(os.urandom(4), "little"))
    case, sum_name = list(EXACTLY)[kill % len(EXACTLY)], list(SUMS)[(kill + kill // len(EXACTLY)) % len(SUMS)]
    changes = (f"protocol.sum={sum_name}", "protocol.rings=1", "protocol.segments=2")
    undisturbed, folder = wholes(case, *changes), tmp_path / "killed"
    scenario, *own = scenario_of(case, tmp_path)
    words = [word for change in ["compare.centralised=false", *own, *changes] for word in ("--set", change)]
    line = [sys.executable, "-m", "tests.exact", "run", scenario, *words, "--journal", "--quiet", "--out", str(folder)]
    with subprocess.Popen(line, cwd=ROOT) as process:
        written, journal = undisturbed / "journal" / NAME, folder / "journal" / NAME
        moment = int(random.integers(ends(written)[0], written.stat().st_size))
        wait_until(lambda: (journal.is_file() and journal.stat().st_size >= moment) or process.poll() is not None, 120)
        process.send_signal(signal.SIGKILL)
    go_on(folder)
    check(folder, undisturbed, whole_ledger=False)
