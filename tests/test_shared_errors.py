"""Errors of a site: the full sentence stays there, and others read neither a value nor the number of a row."""

from __future__ import annotations

import json
import logging
import re
from pathlib import Path

import pytest

from fedsvm.federation.channel.agreement import KeyAgreement
from fedsvm.federation.control import Order
from fedsvm.federation.errors import StepRefused
from fedsvm.federation.site.assignment import Assignment
from fedsvm.federation.site.faults import OwnFaults
from fedsvm.federation.site.program import Installation
from fedsvm.federation.site.rules import SiteRules
from fedsvm.federation.site.site import Site
from fedsvm.federation.site_messages import StepFailure
from fedsvm.federation.transport.endpoint import Endpoint
from fedsvm.federation.transport.keys import KeyPair
from fedsvm.federation.transport.wire import Message
from fedsvm.scenarios.hosts import host_scenario
from fedsvm.scenarios.hosts.site_data import hold
from fedsvm.scenarios.run.offered_terms import terms_of
from tests.hosts import SCENARIO, hosts
from tests.test_orders import ORDER, POLICY

ROWS = 60
SECRET = "Mrs Meyer 14.2"


def table(cell: str = "", column: int = 0, header: str = "size,depth,ward,diagnosis") -> str:
    rows = [[f"{n}.5", f"{n % 7}", "abc"[n % 3], "BM"[n % 2]] for n in range(ROWS)]
    if cell:
        rows[7][column] = cell
    return "\n".join([header, *map(",".join, rows)]) + "\n"


CASES = {
    "a cell that is no number": (table(SECRET), {}, "column 'size' has cells that are no numbers"),
    "an infinite number": (table("inf"), {}, "column 'size' has an infinite value"),
    "an unknown label": (table(SECRET, 3), {}, "a label is none of the declared classes"),
    "a label in other letters": (table("m", 3), {}, "column 'diagnosis' has labels that differ in capitals"),
    "a gap": (table(" ", 0).replace(" ,", ",", 1), {}, "column 'size' has rows without a value"),
    "a row without a label": (table(" ", 3).replace(", \n", ",\n"), {}, "column 'diagnosis' has rows without a value"),
    "a line with too many cells": (table(f"a,{SECRET}", 2), {}, "data.source: the file of the site cannot be used"),
    "no line of names": (table(header=f"{SECRET},1,a,M"), {}, "the file of the site has no column 'diagnosis'"),
    "a weight below zero": (
        table("-4.125", 1),
        {"data.weight": "depth"},
        "column 'depth' must hold numbers from 0, some above it",
    ),
    "names of people": (
        re.sub(r",[abc],", lambda found: f",{SECRET} {found.start()},", table()),
        {},
        "column 'ward' looks like an identifier",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_others_read_the_column_and_the_kind_of_problem_and_no_value(case: str, tmp_path: Path) -> None:
    content, changes, kind = CASES[case]
    file = tmp_path / "north.csv"
    file.write_text(content)
    (tmp_path / "hospitals.toml").write_text(SCENARIO)
    overrides = [f"{key}={value}" for key, value in changes.items()]
    terms = terms_of(host_scenario.read(tmp_path / "hospitals.toml", overrides, ["north", "south", "west"]))
    with pytest.raises(StepRefused) as caught:
        hold("north", str(file), terms)
    shared = caught.value.shared
    assert kind in shared
    assert shared.endswith("see the site's own output")
    assert not re.search(r"Meyer|north\.csv|4\.125|\brows? \d|line \d|'m'", shared)
    assert str(caught.value) != shared


def test_a_refusal_by_min_rows_names_no_number_of_rows() -> None:
    with pytest.raises(StepRefused, match="500 rows or more, and has 190") as caught:
        SiteRules(min_rows=500).check_held(190, [])
    assert "min_rows" in caught.value.shared
    assert not re.search(r"\d", caught.value.shared)


@pytest.mark.parametrize("shares", [True, False])
def test_what_a_step_raises_is_sent_from_one_machine_only(
    shares: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    keys, run, printed, sent = KeyPair.generate(), bytes(8), list[str](), list[Message]()

    def convert(order: Order, number: int) -> str:
        return str(float(SECRET))

    with Endpoint("a", "tcp://127.0.0.1:*", keys, 2) as endpoint, caplog.at_level(logging.ERROR):
        assignment = Assignment(
            *("a", run, "", 2, True, "tcp://127.0.0.1:1", keys.public, "drill", "", POLICY), shares_errors=shares
        )
        faults, agreement = OwnFaults([], lambda fields: None), KeyAgreement(run)
        site = Site(assignment, Installation({}, {}), endpoint, agreement, faults, printed.append)
        monkeypatch.setattr(site, "_run_round", convert)
        monkeypatch.setattr(endpoint, "reply", lambda peer, message: sent.append(message))
        site._carry_out(ORDER.to_message(run, 1))
    answer = StepFailure.from_message(sent[-1])
    assert SECRET in printed[-1]
    assert (SECRET in answer.reason) == (SECRET in answer.traceback) == shares
    assert shares or (answer.reason == "a step raised ValueError; see the site's own output" and SECRET in caplog.text)


def test_a_malformed_cell_stays_at_the_site_that_has_it(tmp_path: Path) -> None:
    with hosts(tmp_path) as there:
        file = tmp_path / "north.csv"
        lines = file.read_text().splitlines()
        lines[8] = SECRET + lines[8][lines[8].index(",") :]
        file.write_text("\n".join(lines))
        coordinator = there.coordinator(wait="20s")  # for north, which might mend its file, and for others
        north = there.site("north", coordinator)
        assert (north.ends(), coordinator.ends()) == (3, 3)
    assert SECRET in " ".join(north.said.split())
    (receipt,) = tmp_path.glob("north-*.receipt")
    folder = tmp_path / "deployed"
    assert "column 'size' has cells that are no numbers" in json.loads((folder / "result.json").read_text())["error"]
    others = [
        coordinator.said,
        *(path.read_text() for path in (receipt, *folder.glob("*.json"), *folder.glob("*.html"))),
    ]
    assert not any("Meyer" in text for text in others)
