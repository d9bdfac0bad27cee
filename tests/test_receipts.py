"""A site's receipt: what it says of a real run, which changes of its file are found, and two sites compared."""

from __future__ import annotations

import json
import stat
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from fedsvm import run
from fedsvm.federation.control import Order, SumTerms
from fedsvm.federation.errors import StepRefused
from fedsvm.federation.site.chain import OrderChain
from fedsvm.federation.site.receipt import IN_SUM, Receipt, verify_lines
from fedsvm.federation.site.terms import Terms
from fedsvm.federation.transport.keys import COORDINATOR, Party, Roster
from fedsvm.federation.transport.signing import SigningKey
from fedsvm.scenarios.cli import application
from fedsvm.scenarios.oversight import receipts
from fedsvm.scenarios.oversight.receipt_comparison import compare, render_page
from fedsvm.scenarios.schema.errors import ScenarioError
from tests.hosts import hosts
from tests.run_results import simulate
from tests.test_hosts import resumed

SITES = ("east", "north", "south")
RUN = b"run-1..."


def order(number: int, **parameters: float) -> Order:
    terms = SumTerms((2, number), 1.0, {}, COORDINATOR)
    return Order("sums", "ring", terms, parameters, phase="train", phase_round=number, sites=SITES)


def written(path: Path, *, lies: bool = False) -> Path:
    """Write the receipt of a run of three rounds. lies: the order of the second is another."""
    receipt = Receipt(str(path), "1")
    receipt.record_asked(RUN, path.stem, {"program": "sums", "sum_name": "ring", "min_sites": 3}, {"release": True})
    receipt.record_parties(Roster([Party(COORDINATOR, "", b"c" * 32)]))
    chain = OrderChain(RUN, SITES, Terms("sums", {}, "ring", {}, 3))
    receipt.record_joined(SITES, 20, ("age",), chain.start)
    for number in (1, 2, 3):
        given = order(number, fold=float(lies and number == 2))
        receipt.record_ordered(given, number)
        receipt.begin_step(chain.link_of(given, number).digest)
        receipt.record_left(given, number, IN_SUM)
    receipt.record_ended("completed", {})
    receipt.release()
    return path


def edited(text: bytes) -> bytes:
    return text.replace(b'"numbers": 4', b'"numbers": 5')


def without(place: int) -> Callable[[bytes], bytes]:
    def change(text: bytes) -> bytes:
        lines = text.splitlines(keepends=True)
        del lines[place]
        return b"".join(lines)

    return change


def moved(text: bytes) -> bytes:
    lines = text.splitlines(keepends=True)
    lines[4], lines[6] = lines[6], lines[4]
    return b"".join(lines)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (edited, "line 6 does not match its digest"),
        (lambda text: text.replace(b'"completed"', b'"it failed"'), "line 10 does not match its digest"),
        (without(3), "line 4 does not match its digest"),
        (moved, "line 5 does not match its digest"),
        (without(-1), "it is not closed"),
        (lambda text: text[:-20], "its last line is cut off"),
        (lambda text: text + text[text.rindex(b'{"line"') :], "line 11 does not match its digest"),
    ],
)
def test_a_receipt_that_was_changed_is_not_relied_on(
    change: Callable[[bytes], bytes], problem: str, tmp_path: Path
) -> None:
    path = written(tmp_path / "north.receipt")
    assert receipts.read(path).is_whole
    path.write_bytes(change(path.read_bytes()))
    record = receipts.read(path)
    assert not record.is_whole and problem in " ".join(record.problems)
    done = CliRunner().invoke(application("receipt"), ["receipt", str(path)])
    assert done.exit_code == 3
    assert problem in done.output


def test_only_its_owner_may_read_it_and_another_process_goes_on(tmp_path: Path) -> None:
    path = written(tmp_path / "north.receipt")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.write_bytes(path.read_bytes()[:-20])  # a process was killed as it wrote
    second = Receipt(str(path), "1")
    second.record_ordered(order(4), 4)
    lines, _ = verify_lines(path.read_bytes())
    assert [line["what"] for line in lines[-2:]] == ["restarted", "ordered"]
    assert lines[-2]["cut"] > 0
    with pytest.raises(StepRefused, match="is written by another process"):
        Receipt(str(path), "1").record_ended("completed", {})
    second.release()
    path.write_bytes(edited(path.read_bytes()))
    with pytest.raises(StepRefused, match=r"is damaged: line 6 .*; move it to"):
        Receipt(str(path), "1").record_ended("completed", {})


def test_a_receipt_that_cannot_be_written_stops_the_site(tmp_path: Path) -> None:
    with pytest.raises(StepRefused, match="cannot be written: No such file or directory; name another folder"):
        Receipt(str(tmp_path / "none" / "north.receipt"), "1").record_ended("completed", {})


def test_visits_that_begin_anew_write_each_line_once(tmp_path: Path) -> None:
    path = tmp_path / "task.receipt"
    for last in (1, 2, 3):
        receipt = Receipt(str(path), "1", repeats=True)
        receipt.record_asked(RUN, "north", {}, {})
        for number in range(1, last + 1):
            receipt.record_ordered(order(number), number)
            receipt.begin_step(b"link")
            receipt.record_left(order(number), number, IN_SUM)
        receipt.release()
    lines, _ = verify_lines(path.read_bytes())
    assert [line["what"] for line in lines] == ["asked", *["ordered", "left"] * 3]


def test_visits_that_begin_anew_sign_a_closed_receipt_once(tmp_path: Path) -> None:
    path, key = tmp_path / "task.receipt", SigningKey()
    for _ in range(2):
        receipt = Receipt(str(path), "1", repeats=True, key=key, coordinator_key=SigningKey(bytes(32)).public)
        receipt.record_asked(RUN, "north", {}, {})
        receipt.record_ended("completed", {})
    lines, _ = verify_lines(path.read_bytes())
    assert [line["what"] for line in lines] == ["asked", "ended", "signed"]
    assert receipts.read(path, {"north": key.public}).is_whole


def test_the_budget_that_was_spent_is_on_the_page(tmp_path: Path) -> None:
    receipt = Receipt(str(tmp_path / "north.receipt"), "1")
    receipt.record_asked(RUN, "north", {}, {})
    for mu in (0.0, 0.5, 0.5, 0.7):
        receipt.record_answered(mu)
    receipt.record_charged(1.5)
    receipt.record_ended("completed", {})
    lines, _ = verify_lines((tmp_path / "north.receipt").read_bytes())
    assert [line["mu"] for line in lines if line["what"] == "answered"] == [0.5, 0.7]
    page = receipts.read(tmp_path / "north.receipt").to_text()
    assert "budget spent: epsilon 1.5; mu 0.7 by all noisy statistics of this site's record" in page


def test_each_line_says_what_happened(tmp_path: Path) -> None:
    path = tmp_path / "north.receipt"
    receipt = Receipt(str(path), "1")
    receipt.record_asked(RUN, "north", {}, {})
    receipt.record_joined(SITES, 20, ("age",), b"start")
    parties = [Party(name, "", name.encode().ljust(32, b"."), name.encode().rjust(32, b".")) for name in SITES]
    receipt.record_parties(Roster(parties))
    receipt.record_ordered(order(1), 1)
    receipt.record_broken(1, "refused at once", refused=True)
    receipt.record_ordered(order(2), 2)
    sent = receipt.begin_step(b"link")
    sent.sending("east", np.zeros(3))
    receipt.record_broken(2, "a site left")
    receipt.record_logged("said")
    receipt.record_paused("it failed")
    receipt.record_resumed()
    receipt.record_ended("completed", {"stale": 2})
    lines, _ = verify_lines(path.read_bytes())
    plain = [{name: value for name, value in line.items() if name not in ("line", "at", "digest")} for line in lines]
    assert plain[1] == {"what": "joined", "sites": list(SITES), "rows": 20, "columns": ["age"], "chain": b"start".hex()}
    assert plain[2]["keys"] == {
        party.name: [key.hex() for key in (party.public_key, party.agreement_key) if key] for party in parties
    }
    assert plain[2]["parties"] == 3
    assert len(plain[2]["roster"]) == 64
    assert plain[4:] == [
        {"what": "refused", "round": 1, "reason": "refused at once", "sent": {}, "link": ""},
        plain[5],
        {"what": "broken off", "round": 2, "reason": "a site left", "sent": {"east": 3}, "link": b"link".hex()},
        {"what": "logged", "text": "said"},
        {"what": "paused", "reason": "it failed"},
        {"what": "resumed"},
        {"what": "ended", "outcome": "completed", "refused": {"stale": 2}},
    ]
    assert plain[0]["versions"] == {"fedsvm": "1", "numpy": np.__version__}
    assert all(datetime.fromisoformat(line["at"]).tzinfo is not None for line in lines)


def test_orders_that_differ_between_sites_are_named(tmp_path: Path) -> None:
    east, north = written(tmp_path / "east.receipt"), written(tmp_path / "north.receipt", lies=True)
    comparison = compare(receipts.read(east), receipts.read(north))
    assert comparison.differences == ("the orders of round 2 differ",)
    done = CliRunner().invoke(application("receipt"), ["receipt", str(east), str(north), "--json"])
    assert done.exit_code == 3
    assert not json.loads(done.output)["equal"]


def test_a_damaged_receipt_never_equals_another(tmp_path: Path) -> None:
    east, north = written(tmp_path / "east.receipt"), written(tmp_path / "north.receipt")
    assert not compare(receipts.read(east), receipts.read(north)).differences
    north.write_bytes(edited(north.read_bytes()))
    (first, *_) = compare(receipts.read(east), receipts.read(north)).differences
    assert first.startswith("the receipt of north: line 6")


def test_what_is_no_receipt_is_refused_with_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "none.receipt").write_text("{}\n")
    (tmp_path / "empty").mkdir()
    for name, sentence in (
        ("none.receipt", "is no receipt"),
        ("empty", "has no receipt; name a file"),
        ("nowhere", "there is no such file or folder."),
    ):
        path = tmp_path / name
        with pytest.raises(ScenarioError) as refused:
            receipts.select_receipts(path, None)
        assert sentence in refused.value.problems[0]


def test_a_simulation_keeps_receipts_of_sites_that_dropped_too(tmp_path: Path) -> None:
    changes = ["algorithm.landmarks=20", "federation.on_dropout=continue", "protocol.sum=masked"]
    result = simulate("quickstart", tmp_path, changes, faults=["kill:site=2,phase=train,round=3"]).result
    assert result.status == "completed", result.error
    records = {record.site: record for record in receipts.select_receipts(tmp_path, None)}
    first, dropped, third = (records[f"site-{number}"] for number in (1, 2, 3))
    assert first.is_whole and third.is_whole and "it is not closed" in dropped.problems[0]
    comparison = compare(first, third)
    assert not comparison.differences and comparison.rounds > 5 and comparison.chain
    assert not compare(first, dropped).differences
    assert len(dropped.orders) < len(first.orders)
    assert {each.step for each in first.left if each.form == "in the clear"} == {"row_count"}
    assert {each.over for each in first.left if each.step == "newton"} >= {"site-1, site-3, site-4, site-5"}
    page = render_page([first], None)
    assert "What left site-1" in page and "newton" in page


def test_a_receipt_lists_what_a_protocol_of_its_own_shows_the_coordinator(tmp_path: Path) -> None:
    changes = {"algorithm.landmarks": 20, "algorithm.masking": "committee", "compare.centralised": False}
    run("quickstart", changes=changes, out=tmp_path / "run")
    record = receipts.only(tmp_path / "run", "site-1")
    (hidden,) = (each for each in record.left if each.step == "blind_newton")
    assert hidden.row[3:] == (
        "in a protocol of its own",
        "site-1, site-2, site-3, site-4, site-5",
        "coordinator",
    )
    listed = sum(each.times * each.numbers[1] for each in record.left)
    assert listed >= record.to_peers["coordinator"] > hidden.numbers[0] > 0


def test_a_policy_is_written_as_in_its_file(tmp_path: Path) -> None:
    receipt = Receipt(str(tmp_path / "north.receipt"), "1")
    policy = {
        "min_rows": 20,
        "algorithms": {"pan-svm": {"objective_noise": {"min": 0.2}, "solver": ["interior-point"]}},
    }
    receipt.record_asked(RUN, "north", {}, policy)
    receipt.release()
    written = dict(receipts.read(tmp_path / "north.receipt").facts)["policy"]
    assert written == (
        'min_rows = 20; algorithms.pan-svm.objective_noise.min = 0.2; algorithms.pan-svm.solver = ["interior-point"]'
    )


@pytest.mark.timeout(300)
def test_receipts_across_hosts_of_a_run_with_a_refusal_a_dropped_site_and_a_resume(tmp_path: Path) -> None:
    names = (*SITES, "west")
    with hosts(tmp_path, names) as there:
        (tmp_path / "west.toml").write_text("min_rows = 1000\n")
        coordinator = there.coordinator("--set", "federation.min_sites=3")
        west = there.site("west", coordinator, "--policy", "west.toml")
        kill = ("--fault", "kill:phase=train,round=3")
        sites = {name: there.site(name, coordinator, *(kill if name == "north" else ())) for name in SITES}
        assert [west.ends(), sites["north"].ends(), coordinator.ends()] == [3, -9, 3], coordinator.said
        for name in ("east", "south"):
            sites[name].says(f"{name} waits 80 s for it to be resumed")
        again = resumed(there, coordinator)
        sites["north"] = there.site("north", coordinator)
        assert [each.ends() for each in (again, *sites.values())] == [0] * 4, [x.said for x in (again, *sites.values())]
    records = {record.site: record for record in receipts.select_receipts(tmp_path, None)}
    assert set(records) == set(names)
    assert "min_rows must be reached, and it has fewer rows" in records["west"].refused[0]
    assert records["west"].is_whole and not records["west"].left
    east, north, south = (records[name] for name in SITES)
    assert east.is_whole and south.is_whole and north.restarts == 1
    comparison = compare(east, south)
    assert not comparison.differences and comparison.rounds > 5 and comparison.chain
    assert not compare(east, north).differences
    assert [each.partition(": ")[2].partition(":")[0] for each in east.interruptions] == [
        "the run failed, and the site waited",
        "the run was resumed",
    ]
    assert "another process of the site went on" in north.to_text()
    assert any("broken off" in each or "not known" in each for each in north.unsettled)
    assert all("coordinator" in record.keys and len(record.keys) == 4 for record in (east, south))
