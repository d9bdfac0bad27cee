"""The task service: a hub in its own process, people who read pages, and participants who never meet."""

from __future__ import annotations

import json
import re
import shutil
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

from fedsvm.algorithms.optimization import libsvm
from fedsvm.federation.channel.agreement import KeyAgreement
from fedsvm.protocols.sums.registry import SUMS
from fedsvm.scenarios.data import splits
from fedsvm.scenarios.oversight import receipts
from fedsvm.scenarios.oversight.receipt_comparison import compare
from fedsvm.scenarios.run.result import read_result
from tests import hub as hubs
from tests.conftest import wait_until
from tests.hub import CREATOR, SITES, Person, RunningHub, cells, create, hospitals, join, link_of, simulated, watching

pytestmark = [pytest.mark.timeout(600)]
VISITS = 13
"""Of each participant, at most: see docs/task-service.md."""


@dataclass
class Finished:
    """A task that three participants finished without ever meeting."""

    running: RunningHub
    number: str
    person: Person
    folder: Path
    spans: list[tuple[str, float, float]] = field(default_factory=list)
    said: list[str] = field(default_factory=list)


def exchange_keys(folder: Path) -> None:
    """Have every participant give the others its public key."""
    (folder / "keys").mkdir(exist_ok=True)
    for site in SITES:
        shutil.copy(folder / f"visits-{site}" / "visitor.key", folder / "keys" / f"{site}.key")


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Finished]:
    folder = tmp_path_factory.mktemp("hub")
    files, _, _ = cells(folder)
    with hubs.hub(folder) as running:
        anna = running.signed_in(CREATOR)
        done = Finished(running, create(running, anna), anna, folder)
        links = {site: link_of(running, site) for site in SITES}
        for _ in range(VISITS + 1):
            for site in SITES:
                began = time.time()
                pinned = ("--sites", str(folder / "keys")) if len(done.said) >= len(SITES) else ()
                ended = join(folder, links[site], files[site], "--folder", f"visits-{site}", *pinned)
                done.spans.append((site, began, time.time()))
                done.said.append(ended.stderr)
                assert ended.returncode == 0, ended.stderr
            exchange_keys(folder)
            if all("is over" in said for said in done.said[-3:]):
                break
        yield done


@pytest.mark.long
def test_three_who_never_meet_train_the_pooled_model(finished: Finished) -> None:
    folder = finished.folder
    assert all(before[2] <= after[1] for before, after in zip(finished.spans, finished.spans[1:], strict=False))
    wait_until(lambda: "completed" in finished.person.get(f"/tasks/{finished.number}")[1])
    _, table, labels = cells(folder)
    training, _ = splits.blind_test_split(len(table), 0.2, 0)
    rows = (table - table[training].mean(axis=0)) / table[training].std(axis=0)
    signs = np.where(labels == "M", 1.0, -1.0)
    exact = libsvm.dual(rows[training] @ rows[training].T, signs[training], 1.0)
    weights = np.concatenate([np.load(folder / f"visits-{site}" / "model.npz")["weights"] for site in SITES])
    with np.load(folder / "hub" / "tasks" / finished.number / "model.npz") as model:
        found = rows @ weights + model["b"]
    assert np.abs(found - exact.decision_function(rows @ rows[training].T)).max() < 1e-9


@pytest.mark.long
def test_receipts_of_a_task_are_signed_and_equal_and_have_the_fingerprints_of_its_page(finished: Finished) -> None:
    page = finished.person.get(f"/tasks/{finished.number}")[1]
    records = [receipts.only(finished.folder / f"visits-{site}" / "task.receipt", None, None) for site in SITES]
    for record in records:
        assert record.is_whole, record.problems
        assert record.signing["site"] and record.signed.keys() == record.links.keys()
        assert receipts.fingerprint([record.signing["coordinator"]]) in page
        assert all(shown in page for name, shown in record.key_rows if name in SITES)
    assert not any(compare(records[0], other).differences for other in records[1:])
    for site, first_visit in zip(SITES, finished.said, strict=False):
        assert dict(records[0].key_rows)[site] in first_visit
        assert receipts.fingerprint([records[0].signing["coordinator"]]) in first_visit


@pytest.mark.long
def test_the_number_of_visits_is_as_documented(finished: Finished) -> None:
    assert len(finished.spans) <= len(SITES) * VISITS, finished.said


@pytest.mark.long
def test_report_counts_the_seconds_between_visits(finished: Finished) -> None:
    with closing(sqlite3.connect(finished.folder / "hub" / "hub.sqlite")) as database:
        asked = "select begun_at, ended_at from tasks where id = ?"
        began, ended = database.execute(asked, (finished.number,)).fetchone()
    assert ended - began > 5
    result = read_result(finished.folder / "hub" / "tasks" / finished.number)
    timing = result.timing
    assert timing.total_s == pytest.approx(ended - began, abs=3)
    assert 0.7 * timing.total_s < timing.train_s + timing.evaluate_s < timing.total_s
    assert result.cost is not None
    assert sum(phase.rounds_s or 0.0 for phase in result.cost.by_phase.values()) > 0.7 * (ended - began)
    assert "ended on" in finished.person.get(f"/tasks/{finished.number}")[1]


@pytest.mark.long
def test_who_is_not_there_is_asked_once_between_two_visits(finished: Finished) -> None:
    for site in SITES:
        asked = [mail for mail in finished.running.mails(f"{site}@example.org") if mail.startswith("Your turn")]
        visits = [span for span in finished.spans if span[0] == site]
        assert 0 < len(asked) <= len(visits)


@pytest.mark.long
def test_a_participant_refuses_a_hub_that_changed_the_key_of_another(tmp_path: Path) -> None:
    """One that was given no key goes on; one whose policy requires keys sends nothing without them."""
    files, _, _ = cells(tmp_path)
    policy = tmp_path / "policy.toml"
    policy.write_text("pinned = true\n")
    with hubs.hub(tmp_path) as running:
        create(running, running.signed_in(CREATOR))
        links = {site: link_of(running, site) for site in SITES}

        def visit(site: str, *options: str) -> tuple[int, str]:
            ended = join(tmp_path, links[site], files[site], "--folder", f"visits-{site}", *options)
            return ended.returncode, ended.stderr

        assert visit("clinic")[0] == 0
        with closing(sqlite3.connect(running.folder / "hub.sqlite", timeout=30)) as database, database:
            database.execute(
                "update participants set agreement_key = ? where site = 'clinic'", [KeyAgreement(b"").public]
            )
        assert [visit(site)[0] for site in ("north", "south")] == [0, 0]
        exchange_keys(tmp_path)
        assert visit("south")[0] == 0
        status, said = visit("north", "--policy", str(policy))
        assert status == 3
        assert "run this command again with --sites" in said
        status, said = visit("north", "--policy", str(policy), "--sites", str(tmp_path / "keys"))
        assert status == 3
        assert "the keys of clinic are not signed with its pinned key" in " ".join(said.split())


@pytest.mark.long
def test_nothing_is_readable_in_the_database(finished: Finished) -> None:
    content = b"".join(path.read_bytes() for path in (finished.running.folder).glob("hub.sqlite*"))
    _, table, labels = cells(finished.folder)
    assert b"Malignant or not" in content
    for value in table.ravel():
        assert value.tobytes() not in content
        assert repr(float(value)).encode() not in content
    encoded = SUMS["masked"](threshold=0.66).encode(np.where(labels == "M", 1.0, -1.0), 1.0, len(SITES))
    assert encoded.tobytes()[:256] not in content
    for site in SITES:
        token = link_of(finished.running, site).rpartition("/")[2].partition("#")[0]
        assert token.encode() not in content
        assert token not in finished.running.log.read_text()


@pytest.mark.long
def test_who_watches_trains_as_in_a_deployment_and_may_leave_and_come_back(tmp_path: Path, database: str) -> None:
    files = hospitals(tmp_path)
    with hubs.hub(tmp_path, "--database", database) as running:
        anna = running.signed_in(CREATOR)
        exact = {"set-masking": "none", "set-step_noise": "0"}
        number = create(running, anna, algorithm="pan-svm", **{"set-kernel": "rbf", **exact})
        visits = {site: watching(tmp_path, link_of(running, site), files[site]) for site in SITES}

        def has_begun() -> bool:
            found = re.search(r"round (\d+)", anna.get(f"/tasks/{number}/progress")[1])
            return found is not None and int(found[1]) >= 3

        wait_until(has_begun, 60)
        visits["south"].kill()
        visits["south"].wait()
        assert "completed" not in anna.get(f"/tasks/{number}/progress")[1]
        visits["south"] = watching(tmp_path, link_of(running, "south"), files["south"])
        assert [visit.wait(100) for visit in visits.values()] == [0, 0, 0]
        wait_until(lambda: "completed" in anna.get(f"/tasks/{number}/progress")[1])
        with np.load(running.folder / "tasks" / number / "model.npz") as model:
            weights = np.asarray(model["w"])
    assert np.abs(weights - simulated(tmp_path, files)).max() < 1e-9


@pytest.mark.long
@pytest.mark.parametrize("when", ["before it begins", "before its first round"])
def test_a_run_goes_on_without_one_who_withdraws(when: str, tmp_path: Path) -> None:
    files = hospitals(tmp_path)
    with hubs.hub(tmp_path) as running:
        anna = running.signed_in(CREATOR)
        number = create(running, anna, algorithm="pan-svm", min_sites="2", **{"set-kernel": "rbf"})
        links = {site: link_of(running, site) for site in SITES}
        for site in ("south", "north", "clinic") if when == "before its first round" else ("south",):
            assert join(tmp_path, links[site], files[site], "--folder", f"visits-{site}").returncode == 0
        withdraws = join(tmp_path, links["south"], "", "--folder", "visits-south", "--decline", "no time")
        assert withdraws.returncode == 0, withdraws.stderr
        visits = {site: watching(tmp_path, links[site], files[site]) for site in ("clinic", "north")}
        assert [visit.wait(100) for visit in visits.values()] == [0, 0]
        wait_until(lambda: "completed" in anna.get(f"/tasks/{number}/progress")[1])
        assert "no time" in anna.get(f"/tasks/{number}")[1]
        late = join(tmp_path, links["south"], files["south"], "--folder", "visits-south")
        assert (late.returncode, "no longer takes part" in late.stderr) == (3, True)


@pytest.mark.long
def test_half_of_those_invited_train_with_masked_sums_if_the_creator_allows_it(tmp_path: Path) -> None:
    files = hospitals(tmp_path)
    others = ("east", "lake", "west")
    with hubs.hub(tmp_path) as running:
        anna = running.signed_in(CREATOR)
        invited = "\n".join(f"{site} {site}@example.org" for site in (*SITES, *others))
        number = create(running, anna, algorithm="pan-svm", invited=invited, min_sites="3", **{"set-kernel": "rbf"})
        for site in others:
            assert join(tmp_path, link_of(running, site), "", "--decline", "no time").returncode == 0
        visits = [watching(tmp_path, link_of(running, site), files[site]) for site in SITES]
        assert [visit.wait(100) for visit in visits] == [0, 0, 0]
        wait_until(lambda: "completed" in anna.get(f"/tasks/{number}/progress")[1])


@pytest.mark.long
def test_a_task_of_three_classes_is_tested_in_folds(tmp_path: Path) -> None:
    files, table, labels = cells(tmp_path)
    labels = np.where(table[:, 3] > 0.7, "X", labels)
    lines = files["clinic"].read_text().splitlines()
    named = [f"{line.rpartition(',')[0]},{label}" for line, label in zip(lines[1:], labels, strict=True)]
    files["clinic"].write_text("\n".join([lines[0], *named, ""]))
    with hubs.hub(tmp_path) as running:
        anna = running.signed_in(CREATOR)
        number = create(running, anna, more_classes="X", folds="2")
        visits = [watching(tmp_path, link_of(running, site), files[site]) for site in SITES]
        assert [visit.wait(200) for visit in visits] == [0, 0, 0]
        wait_until(lambda: "completed" in anna.get(f"/tasks/{number}/progress")[1])
        result = json.loads((running.folder / "tasks" / number / "result.json").read_text())
    folds, kinds, right = splits.blind_folds(len(table), 2, 0), np.array(["B", "M", "X"]), []
    for fold in range(2):
        train, test = folds != fold, folds == fold
        rows = (table - table[train].mean(axis=0)) / table[train].std(axis=0)
        duals = [
            libsvm.dual(rows[train] @ rows[train].T, np.where(labels[train] == kind, 1.0, -1.0), 1.0) for kind in kinds
        ]
        scores = [dual.decision_function(rows[test] @ rows[train].T) for dual in duals]
        right.append((kinds[np.argmax(scores, axis=0)] == labels[test]).mean())
    assert result["metrics"]["accuracy"] == pytest.approx(np.mean(right))


@pytest.mark.long
def test_another_file_than_at_the_first_visit_is_refused_and_so_is_one_without_labels(tmp_path: Path) -> None:
    files, _, _ = cells(tmp_path)
    with hubs.hub(tmp_path) as running:
        anna = running.signed_in(CREATOR)
        create(running, anna)
        links = {site: link_of(running, site) for site in SITES}
        wrong = join(tmp_path, links["clinic"], files["north"], "--folder", "visits-clinic")
        assert (wrong.returncode, "diagnosis" in wrong.stderr) == (3, True), wrong.stderr
        for site in SITES:
            assert join(tmp_path, links[site], files[site], "--folder", f"visits-{site}").returncode == 0
        text = files["south"].read_text()
        files["south"].write_text(text.replace("0.", "1.", 1))
        changed = join(tmp_path, links["south"], files["south"], "--folder", "visits-south")
        assert (changed.returncode, "has changed since the first visit" in changed.stderr) == (3, True), changed.stderr
        stolen = join(tmp_path, links["south"], files["south"], "--folder", "visits-eve")
        assert (stolen.returncode, "with another key" in stolen.stderr) == (3, True), stolen.stderr
