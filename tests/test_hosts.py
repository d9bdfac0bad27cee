"""Across hosts: the commands of a coordinator and of sites, each a process with keys and a file of its own."""

from __future__ import annotations

import hashlib
import json
import re
import stat
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import zmq.auth
from numpy.typing import NDArray
from sklearn.svm import SVC

from fedsvm.federation.errors import FederationError
from fedsvm.federation.hosts import certificates
from fedsvm.federation.hosts.held_data import HeldColumn, SiteData
from fedsvm.federation.hosts.listening_endpoint import Call, ListeningEndpoint
from fedsvm.federation.hosts.messages import PROTOCOL_VERSION, Begin, Join
from fedsvm.federation.hosts.outbound_endpoint import OUTBOUND_ONLY, OutboundEndpoint
from fedsvm.federation.hosts.reminders import Reminders
from fedsvm.federation.hosts.site_session import SiteLocation, SiteSession
from fedsvm.federation.site.program import Installation
from fedsvm.federation.site_messages import FinalReport
from fedsvm.federation.transport.addresses import is_tcp
from fedsvm.federation.transport.deadline import Deadline
from fedsvm.federation.transport.keys import COORDINATOR, KeyPair, Party, Roster
from fedsvm.scenarios.hosts import host_scenario
from fedsvm.scenarios.schema.errors import ScenarioError
from fedsvm.scenarios.schema.policy import template
from tests.conftest import ROOT, wait_until
from tests.guides import blocks
from tests.hosts import EXACT, NAMES, SCENARIO, Hosts, Started, hosts, same, stalled

pytestmark = pytest.mark.timeout(300)  # ten processes that load libraries, on a machine that may be busy
EXACTLY = tuple(word for each in EXACT for word in ("--set", each))


@dataclass
class Eventful:
    """A run during whose wait others try to get in; what each said, and what came of the run."""

    there: Hosts
    coordinator: Started
    stranger: Started
    misled: Started
    masked: Started
    copy: Started
    sites: list[Started]
    simulated: dict[str, NDArray[np.float64]]


@pytest.fixture(scope="module")
def eventful(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Eventful]:
    folder = tmp_path_factory.mktemp("hosts")
    with hosts(folder) as there:
        (folder / "elsewhere").mkdir()
        certificates.create(folder / "elsewhere", "west")
        certificates.create(folder / "elsewhere", "coordinator")
        north = (folder / "north.key_secret").read_text()
        (folder / "elsewhere" / "south.key_secret").write_text(north.replace("name = north", "name = south"))
        (folder / "elsewhere" / "south.key_secret").chmod(0o600)
        coordinator = there.coordinator(*EXACTLY)
        stranger = there.site("north", coordinator, key="elsewhere/west.key_secret")
        misled = there.site("north", coordinator, coordinator_key="elsewhere/coordinator.key")
        masked = there.site("south", coordinator, key="elsewhere/south.key_secret")
        for each in (stranger, misled, masked):
            each.ends()
        first = there.site("north", coordinator)
        coordinator.says("north is ready")
        copy = there.site("north", coordinator)
        copy.ends()
        write_in_another_form(folder / "south.csv", folder / "export.csv", folder / "own.toml")
        south = there.site("south", coordinator, "--data", "export.csv", "--corrections", "own.toml")
        sites = [first, there.site("east", coordinator, "--log-json"), south]
        for each in (coordinator, *sites):
            each.ends()
        yield Eventful(there, coordinator, stranger, misled, masked, copy, sites, there.simulated(*EXACTLY))


def test_killed_site_leaves_no_temporary_file(tmp_path: Path, temporary_folder: Path) -> None:
    with hosts(tmp_path) as there:
        coordinator = there.coordinator(*EXACTLY)
        site = there.site("north", coordinator)
        coordinator.says("north is ready")
        site.process.kill()
        site.ends()
        assert list(temporary_folder.iterdir()) == []


def write_in_another_form(path: Path, copy: Path, corrections: Path) -> None:
    """Write a site's file again, with other names and values, and the corrections that bring it into the old form."""
    lines = path.read_text().splitlines()
    others = [line.replace(",M", ",malignant").replace(",B", ",benign") for line in lines[1:]]
    copy.write_text("\n".join([lines[0].replace("size", "Tumour size"), *others]) + "\n")
    corrections.write_text(
        '[rename]\n"Tumour size" = "size"\n[recode.diagnosis]\nmalignant = "M"\nbenign = "B"\n', encoding="utf-8"
    )


def test_json_log_of_a_site_names_run_and_round(eventful: Eventful) -> None:
    logged = [json.loads(line) for line in eventful.sites[1].said.splitlines()]
    run = next(each["run"] for each in logged if "coordinator asks" in each["message"])
    assert (eventful.there.folder / f"east-{run}.receipt").exists()
    assert logged[-1]["message"].startswith("east: the run is completed; its receipt is ")
    assert (logged[-1]["run"], logged[-1]["round"] > 20) == (run, True)


def test_the_model_is_the_simulations_to_the_last_bit(eventful: Eventful) -> None:
    assert [each.process.returncode for each in (eventful.coordinator, *eventful.sites)] == [0] * 4, [
        each.said for each in (eventful.coordinator, *eventful.sites)
    ]
    assert same(eventful.there.model(), eventful.simulated)
    result = json.loads((eventful.there.folder / "deployed" / "result.json").read_text())
    assert result["status"] == "completed"
    assert [(site["name"], site["rows"], site["columns"]) for site in result["sites"]] == [(n, 30, 4) for n in NAMES]


def test_what_the_sites_find_of_their_own_rows_is_what_the_simulation_finds_of_all(eventful: Eventful) -> None:
    deployed, simulated = (
        json.loads((eventful.there.folder / run / "result.json").read_text()) for run in ("deployed", "simulated")
    )
    assert deployed["at_sites"] == simulated["at_sites"]
    assert deployed["metrics"]["confusion"] == simulated["metrics"]["confusion"]
    assert sum(deployed["metrics"]["confusion"].values()) == deployed["data"]["test_rows"] == 30
    assert (
        abs(deployed["metrics"]["auc"] - simulated["metrics"]["auc"]) <= deployed["at_sites"]["auc_resolution"] + 1e-12
    )


def test_completed_run_is_not_resumed_and_keeps_its_results(eventful: Eventful) -> None:
    folder = eventful.there.folder / "deployed"
    kept = {path: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    again = resumed(eventful.there, eventful.coordinator, "--wait", "1s")
    assert again.ends() == 2
    assert "deployed is completed; nothing is left to resume." in again.said
    assert {path: path.read_bytes() for path in folder.iterdir() if path.is_file()} == kept


def test_protocols_carry_what_they_carry_in_the_simulation_and_the_kernel_counts_what_is_predicted(
    eventful: Eventful,
) -> None:
    ledgers = [
        pq.read_table(eventful.there.folder / run / "ledger.parquet").to_pylist() for run in ("deployed", "simulated")
    ]
    deployed, simulated = (
        sum(row["payload_bytes"] for row in ledger if row["protocol"] != "control") for ledger in ledgers
    )
    assert deployed == simulated
    wire = [sum(row[key] for row in ledgers[0]) for key in ("wire_bytes", "predicted_wire_bytes")]
    assert wire[0] == wire[1]


def test_a_key_that_is_not_admitted_is_refused_at_both_ends(eventful: Eventful) -> None:
    assert eventful.stranger.process.returncode == 3
    assert "does not admit the key of west; send its public key, west.key" in eventful.stranger.said
    assert "refused a connection whose key is not in the folder of sites" in eventful.coordinator.said


def test_a_coordinator_with_another_key_is_not_believed(eventful: Eventful) -> None:
    assert eventful.misled.process.returncode == 3
    assert "has another key than north expects of the coordinator" in eventful.misled.said


def test_a_site_under_anothers_name_is_turned_away(eventful: Eventful) -> None:
    assert eventful.masked.process.returncode == 3
    assert "its key was made for south, and the coordinator admits it as north" in eventful.masked.said
    assert "north was turned away: its key was made for south" in eventful.coordinator.said


def test_a_copied_certificate_in_use_twice_is_turned_away(eventful: Eventful) -> None:
    assert eventful.copy.process.returncode == 3
    assert "another process with the same key is connected as north already" in eventful.copy.said
    assert "north was turned away: another process with the same key is connected as north" in eventful.coordinator.said


def test_who_is_not_let_in_is_told_nothing_of_the_run(eventful: Eventful) -> None:
    for each in (eventful.stranger, eventful.misled, eventful.masked, eventful.copy):
        assert "coordinator asks" not in each.said
    assert all("coordinator asks: " in each.said for each in eventful.sites)


def test_an_operator_reads_the_settings_that_are_no_defaults(eventful: Eventful) -> None:
    asked = next(line for line in eventful.sites[0].said.splitlines() if "coordinator asks: " in line)
    assert "defaults otherwise" in asked, asked
    assert "rank_tolerance" not in asked


@pytest.mark.parametrize(
    ("address", "is_one"),
    [
        ("tcp://north.example:7101", True),
        ("tcp://[fe80::1]:7101", True),
        ("tcp://fe80::1:7101", False),
        ("ipc:///tmp/of-another", False),
        ("inproc://zap", False),
        ("tcp://north.example:99999", False),
        ("tcp://eth0;north.example:7101", False),
        ("north.example:7101", False),
        ("", False),
    ],
)
def test_what_can_be_an_address_of_another_host(address: str, is_one: bool) -> None:
    assert is_tcp(address) == is_one


def test_a_site_that_says_no_address_of_a_host_is_turned_away_before_others_hear_of_it(tmp_path: Path) -> None:
    with hosts(tmp_path) as there:
        listens = there.coordinator().said.partition("listens at ")[2].partition(" ")[0]
        coordinator = Party(COORDINATOR, listens, certificates.read_public(tmp_path / "coordinator.key"))
        keys = certificates.read_secret(tmp_path / "north.key_secret").keys
        deadline = Deadline(20)
        with OutboundEndpoint("north", OUTBOUND_ONLY, keys, coordinator) as spoke:
            spoke.send_control(
                Join(PROTOCOL_VERSION, version("fedsvm"), "north", "ipc:///run/of-another.sock").to_message(), deadline
            )
            while (received := spoke.received()) is None:
                spoke.wait(deadline)
        assert (
            "its address for other sites must be like tcp://north.example:7101, got 'ipc:///run/of-another.sock'"
            in str(received.message.fields)
        )


def test_site_of_another_protocol_is_turned_away_and_one_of_another_version_is_not(tmp_path: Path) -> None:
    with hosts(tmp_path) as there:
        listens = there.coordinator().said.partition("listens at ")[2].partition(" ")[0]
        coordinator = Party(COORDINATOR, listens, certificates.read_public(tmp_path / "coordinator.key"))
        answers = {}
        for protocol in (1, PROTOCOL_VERSION):
            keys, deadline = certificates.read_secret(tmp_path / "north.key_secret").keys, Deadline(20)
            with OutboundEndpoint("north", OUTBOUND_ONLY, keys, coordinator) as spoke:
                spoke.send_control(Join(protocol, "9.9.9", "north", "tcp://127.0.0.1:7101").to_message(), deadline)
                while (received := spoke.received()) is None:
                    spoke.wait(deadline)
                answers[protocol] = received.message
        refused, offered = answers.values()
        assert "it has fedsvm 9.9.9, which uses protocol 1, and the coordinator" in str(refused.fields)
        assert offered.kind == "offer"


def test_the_last_words_of_a_site_that_left_are_taken_in(tmp_path: Path) -> None:
    """libzmq tells of the end of a connection beside what came by it, and which is read first is chance."""
    keys, deadline = {name: KeyPair.generate() for name in (COORDINATOR, "north")}, Deadline(20)
    admitted = Roster([Party(name, "", pair.public) for name, pair in keys.items()])
    calls: list[Call] = []
    with ListeningEndpoint("tcp://127.0.0.1:*", keys[COORDINATOR], admitted) as hub:
        hub.on_call = calls.append
        place = Party(COORDINATOR, hub.address, keys[COORDINATOR].public)
        with OutboundEndpoint("north", OUTBOUND_ONLY, keys["north"], place) as spoke:
            while not spoke.orders.established:
                spoke._serve(20)
                hub._serve(20)
            spoke.send_control(Join(PROTOCOL_VERSION, "1", "north", "").to_message(), deadline)
            while not calls:
                hub.serve(deadline)
            hub.invite(calls[0])
            spoke.send_control(FinalReport([], 1.0, None, {}).to_message(bytes(8), 3), deadline)
        monitor = hub._poller._monitors[hub._router]
        assert monitor.poll(20_000)
        hub._poller._readers[monitor]()
        assert not hub.is_connected("north")
        received = hub.received()
        assert received is not None and received.message.kind == FinalReport.kind
        hub.measure(3, whole=True)
        counts = [each[-2:] for each in hub.ledger.take() if each[-1] is not None]
    predicted, measured = map(sum, zip(*counts, strict=True))
    assert predicted == measured > 0


@pytest.mark.parametrize(
    "begin",
    [
        Begin(["east", "south"], ["size"]),
        Begin(["north", "north"], ["size"]),
        Begin(["north", "east"], ["size", "age"]),
        Begin(["north", "east"], []),
        Begin(["north", 3], ["size"]),  # type: ignore[list-item]
    ],
)
def test_a_site_does_not_begin_what_it_is_no_part_of(begin: Begin, tmp_path: Path) -> None:
    certificates.create(tmp_path, "north")
    place = SiteLocation(certificates.read_secret(tmp_path / "north.key_secret"), "tcp://127.0.0.1:1", bytes(32))
    held = SiteData(3, (HeldColumn("size", False),), lambda order: pytest.fail("it must not come to that"))
    session = SiteSession(place, Installation({}, {}), "1", lambda terms: held, lambda sentence: None)
    with pytest.raises(FederationError, match="The coordinator begins a run"):
        session._check_begin(begin, held)


@pytest.mark.long
def test_a_wait_that_expires_ends_with_a_sentence_at_both_ends(tmp_path: Path) -> None:
    with hosts(tmp_path) as there:
        coordinator = there.coordinator(wait="12s")
        north = there.site("north", coordinator)
        assert coordinator.ends() == 3
        assert north.ends() == 3
    sentence = "fter 12s 1 of 3 sites were ready (north), and 3 are needed: east, south did not come."
    assert sentence in coordinator.said
    assert sentence in north.said


@pytest.mark.long
@pytest.mark.skipif(not Path("/proc/net/if_inet6").exists(), reason="this machine has no IPv6")
def test_run_over_ipv6_addresses_alone_completes(tmp_path: Path) -> None:
    with hosts(tmp_path) as there:
        coordinator = there.coordinator(*EXACTLY, listen="tcp://[::1]:0")
        assert "listens at tcp://[::1]:" in coordinator.said
        sites = [there.site(name, coordinator, "--listen", "tcp://[::1]:0") for name in NAMES]
        assert [each.ends() for each in (coordinator, *sites)] == [0] * 4, [x.said for x in (coordinator, *sites)]
        assert same(there.model(), there.simulated(*EXACTLY))


def test_files_that_a_site_cannot_use_are_named_before_it_joins(tmp_path: Path) -> None:
    (tmp_path / "north.toml").write_text('max_mu = 2.0\nanswers = "none/north.answers"\n')
    with hosts(tmp_path) as there:
        files = ("--coordinator-key", "coordinator.key", "--key", "north.key_secret", "--policy", "north.toml")
        site = there.command("north", "site", "--coordinator", "tcp://127.0.0.1:9", *files, "--data", "nrth.csv")
        assert site.ends() == 2
        assert "--data: there is no file 'nrth.csv' in" in site.said
        assert "--policy: answers: none/north.answers cannot be written; allow it, or name another file." in site.said


@pytest.mark.parametrize("words", [(), ("--advertise", "tcp://[::]:7101")])
def test_address_that_stands_for_all_is_no_address_for_other_sites(words: tuple[str, ...], tmp_path: Path) -> None:
    with hosts(tmp_path) as there:
        files = ("--coordinator-key", "coordinator.key", "--key", "north.key_secret", "--data", "north.csv")
        listens = ("--coordinator", "tcp://127.0.0.1:9", "--listen", "tcp://0.0.0.0:7101", *words)
        site = there.command("north", "site", *listens, *files)
        assert site.ends() == 2
        assert "--advertise: must be an address that other sites can connect to" in site.said


def test_name_that_does_not_resolve_is_named_at_the_site_that_needs_it(tmp_path: Path) -> None:
    with hosts(tmp_path) as there:
        files = ("--coordinator-key", "coordinator.key", "--key", "north.key_secret", "--data", "north.csv")
        site = there.command("north", "site", "--coordinator", "tcp://nowhere.invalid:7100", *files, "--wait", "1s")
        assert site.ends() == 3
        assert "at tcp://nowhere.invalid:7100 within 1 s, since this machine cannot resolve the name" in site.said


@pytest.mark.long
def test_a_coordinator_that_is_killed_is_resumed_and_sites_that_waited_go_on(tmp_path: Path) -> None:
    with hosts(tmp_path) as there:
        coordinator = there.coordinator(*EXACTLY, "--set", "algorithm.tolerance=1e-8")
        stalls = ("--fault", "stall:phase=train,round=6,for_s=3")
        sites = [there.site(name, coordinator, *(stalls if name == "north" else ())) for name in NAMES]
        coordinator.says("train after")
        journal = tmp_path / "deployed" / "journal" / "coordinator.journal"
        wait_until(lambda: stalled(sites[NAMES.index("north")]), 60)
        before = journal.stat().st_size
        coordinator.process.kill()
        coordinator.ends()
        assert journal.stat().st_size == before > 0
        again = resumed(there, coordinator)
        assert [each.ends() for each in (again, *sites)] == [0] * 4, [each.said for each in (again, *sites)]
        assert "east, north, south are back; the run continues after" in again.said
        assert same(there.model(), there.simulated(*EXACTLY, "--set", "algorithm.tolerance=1e-8"))


@pytest.mark.long
def test_committee_goes_on_with_a_coordinator_that_was_killed(tmp_path: Path) -> None:
    """The round that broke off is run again, between sites that listen at addresses of their own."""
    # the noise of a committee's openings can end training at a gap above 1e-6
    words = ("--set", "algorithm.masking=committee", "--set", "algorithm.tolerance=1e-4")
    with hosts(tmp_path) as there:
        coordinator = there.coordinator(*words)
        stalls = ("--fault", "stall:phase=train,round=6,for_s=3")
        sites = [there.site(name, coordinator, *(stalls if name == "north" else ())) for name in NAMES]
        wait_until(lambda: stalled(sites[NAMES.index("north")]), 60)
        coordinator.process.kill()
        coordinator.ends()
        again = resumed(there, coordinator)
        assert [each.ends() for each in (again, *sites)] == [0] * 4, [each.said for each in (again, *sites)]
        found, exact = there.model(), there.simulated("--set", "algorithm.tolerance=1e-8")
    result = json.loads((tmp_path / "deployed" / "result.json").read_text())
    assert result["model"]["gap"] <= 1e-4
    assert result["model"]["sites"] == list(NAMES)
    furthest = (2 * result["model"]["objective"]) ** 0.5 * (1e-4**0.5 + 1e-8**0.5)
    assert np.linalg.norm(found["w"] - exact["w"]) <= furthest, "1/2 |w|^2 makes the objective strongly convex"


@pytest.mark.long
def test_a_site_that_ended_is_waited_for_and_takes_part_again(tmp_path: Path) -> None:
    with hosts(tmp_path) as there:
        words = ("--set", "algorithm.tolerance=1e-8", "--rejoin", "60s")
        coordinator = there.coordinator(*EXACTLY, *words)
        kill = ("--fault", "kill:phase=train,round=6")
        sites = [there.site(name, coordinator, *(kill if name == "north" else ())) for name in NAMES]
        assert sites[NAMES.index("north")].ends() == -9
        coordinator.says("north ended, or cannot be reached; the run waits for it")
        again = there.site("north", coordinator)
        assert [each.ends() for each in (coordinator, again)] == [0, 0], coordinator.said
        assert "north is back" in coordinator.said
    result = json.loads((tmp_path / "deployed" / "result.json").read_text())
    assert result["model"]["sites"] == list(NAMES)
    assert result["model"]["converged"]
    assert sum(result["at_sites"]["confusion"].values()) == 30


def test_what_a_site_waits_for_is_said_again_and_again() -> None:
    said: list[str] = []
    with Reminders(said.append, silence_s=0.02) as reminders:
        reminders.activity = lambda: "waits for the others"
        wait_until(lambda: said.count("waits for the others") > 2)
    ended = len(said)
    assert not reminders.is_alive
    assert len(said) == ended


def test_output_that_nobody_reads_does_not_keep_a_site_from_ending() -> None:
    is_shown, is_read = threading.Event(), threading.Event()

    def block(sentence: str) -> None:
        is_shown.set()
        is_read.wait(120)

    began = time.monotonic()
    with Reminders(block, silence_s=0.01):
        assert is_shown.wait(60)
    is_read.set()
    assert time.monotonic() - began < 60


def resumed(there: Hosts, coordinator: Started, *words: str) -> Started:
    """Start a coordinator that goes on with the run of one that ended, at the same address."""
    address = coordinator.said.partition("listens at ")[2].partition(" ")[0]
    words = ("--listen", address, "--key", "coordinator.key_secret", "--wait", "60s", *words)
    return there.command("coordinator", "coordinate", "--resume", "deployed", *words)


def test_a_run_that_failed_since_a_site_dropped_is_resumed_with_it_started_again(tmp_path: Path) -> None:
    with hosts(tmp_path) as there:
        slow = ("--set", "algorithm.tolerance=1e-8", "--set", "algorithm.masking=congruence")
        coordinator = there.coordinator(*slow)
        kill = ("--fault", "kill:phase=train,round=6")
        sites = {name: there.site(name, coordinator, *(kill if name == "north" else ())) for name in NAMES}
        assert (sites["north"].ends(), coordinator.ends()) == (-9, 3)
        assert "2 sites are left, and 3 are needed" in coordinator.said
        for name in ("east", "south"):
            sites[name].says(f"{name} waits 80 s for it to be resumed")
        again = resumed(there, coordinator)
        sites["north"] = there.site("north", coordinator)
        assert [each.ends() for each in (again, *sites.values())] == [0] * 4, [x.said for x in (again, *sites.values())]
        assert all("the run is completed" in each.said for each in sites.values())
    result = json.loads((tmp_path / "deployed" / "result.json").read_text())
    assert result["model"]["sites"] == list(NAMES)
    assert result["model"]["converged"]


@pytest.mark.long
@pytest.mark.parametrize(("masking", "tolerance"), [("congruence", "1e-8"), ("committee", "1e-6")])
def test_a_run_is_resumed_with_all_sites_started_again(masking: str, tolerance: str, tmp_path: Path) -> None:
    words = ("--set", f"algorithm.masking={masking}", "--set", f"algorithm.tolerance={tolerance}")
    with hosts(tmp_path) as there:
        coordinator = there.coordinator(*words, "--set", "protocol.sum=masked")
        sites = [there.site(name, coordinator) for name in NAMES]
        coordinator.says("train after")
        for each in (coordinator, *sites):
            each.process.kill()
            each.ends()
        again = resumed(there, coordinator)
        sites = [there.site(name, coordinator) for name in NAMES]
        assert [each.ends() for each in (again, *sites)] == [0] * 4, [x.said for x in (again, *sites)]
    model = json.loads((tmp_path / "deployed" / "result.json").read_text())["model"]
    assert model["gap"] <= 1e-5, model["gap"]  # noise behind a committee, never halved, may stop it above the tolerance


@pytest.mark.long
def test_run_is_resumed_again_with_a_site_that_was_started_again_before(tmp_path: Path) -> None:
    with hosts(tmp_path) as there:
        words = ("--set", "algorithm.tolerance=1e-8", "--set", "protocol.sum=masked", "--rejoin", "60s")
        coordinator = there.coordinator(*EXACTLY, *words)
        kill, stall = ("--fault", "kill:phase=train,round=4"), ("--fault", "stall:phase=train,round=8,for_s=3")
        faults = {"north": kill, "south": stall}
        sites = {name: there.site(name, coordinator, *faults.get(name, ())) for name in NAMES}
        assert sites["north"].ends() == -9
        coordinator.says("north ended, or cannot be reached; the run waits for it")
        sites["north"] = there.site("north", coordinator)
        wait_until(lambda: stalled(sites["south"]), 60)
        coordinator.process.kill()
        coordinator.ends()
        again = resumed(there, coordinator)
        assert [each.ends() for each in (again, *sites.values())] == [0] * 4, [x.said for x in (again, *sites.values())]
    result = json.loads((tmp_path / "deployed" / "result.json").read_text())
    assert result["model"]["sites"] == list(NAMES)
    assert result["model"]["converged"]


@pytest.mark.long
def test_run_is_resumed_twice_with_sites_that_were_started_again_before_the_first(tmp_path: Path) -> None:
    with hosts(tmp_path) as there:
        coordinator = there.coordinator(*EXACTLY, "--set", "algorithm.tolerance=1e-8", "--set", "protocol.sum=masked")
        stall, later = (("--fault", f"stall:phase=train,round={number},for_s=3") for number in (6, 9))
        sites = [there.site(name, coordinator, *(stall if name == "south" else ())) for name in NAMES]
        wait_until(lambda: stalled(sites[-1]), 60)
        for each in (coordinator, *sites):
            each.process.kill()
            each.ends()
        first = resumed(there, coordinator)
        sites = [there.site(name, coordinator, *(later if name == "south" else ())) for name in NAMES]
        wait_until(lambda: stalled(sites[-1]), 60)
        first.process.kill()
        first.ends()
        second = resumed(there, coordinator)
        assert [each.ends() for each in (second, *sites)] == [0] * 4, [each.said for each in (second, *sites)]
    assert json.loads((tmp_path / "deployed" / "result.json").read_text())["model"]["converged"]


@pytest.mark.long
def test_sites_end_when_a_run_is_not_resumed_since_others_refuse_new_keys(tmp_path: Path) -> None:
    with hosts(tmp_path) as there:
        coordinator = there.coordinator("--set", "algorithm.tolerance=1e-8", "--set", "protocol.sum=masked")
        kill = ("--fault", "kill:phase=train,round=6")
        sites = {name: there.site(name, coordinator, *(kill if name == "north" else ())) for name in NAMES}
        assert (sites["north"].ends(), coordinator.ends()) == (-9, 3)
        again = resumed(there, coordinator)
        sites["north"] = there.site("north", coordinator)
        assert [each.ends() for each in (again, *sites.values())] == [3] * 4
    for each in (again, *sites.values()):
        said = " ".join(each.said.split())
        assert "north started again with new keys, which east, south refuse: the run was begun without" in said
        assert "start it again at every site, and resume once more." in said


@pytest.mark.long
def test_run_that_lacks_a_site_is_resumed_later_by_those_that_waited(tmp_path: Path) -> None:
    with hosts(tmp_path) as there:
        slow = ("--set", "algorithm.tolerance=1e-8", "--set", "algorithm.masking=congruence")
        coordinator = there.coordinator(*slow)
        kill = ("--fault", "kill:phase=train,round=6")
        sites = {name: there.site(name, coordinator, *(kill if name == "north" else ())) for name in NAMES}
        assert (sites["north"].ends(), coordinator.ends()) == (-9, 3)
        sites["south"].process.kill()
        failed = (tmp_path / "deployed" / "result.json").read_bytes()
        too_early = resumed(there, coordinator, "--wait", "8s")
        new = there.site("north", coordinator)
        assert [each.ends() for each in (too_early, new)] == [3, 3]
        assert (tmp_path / "deployed" / "result.json").read_bytes() == failed
        lacks = "After 8s south had not come back"
        assert lacks in " ".join(new.said.split())
        sites["east"].says(lacks)
        again = resumed(there, coordinator)
        every = [again, sites["east"], *(there.site(name, coordinator) for name in ("north", "south"))]
        assert [each.ends() for each in every] == [0] * 4, [each.said for each in every]


@pytest.mark.long
def test_sites_end_as_the_run_does_when_its_coordinator_is_interrupted(tmp_path: Path) -> None:
    with hosts(tmp_path) as there:
        coordinator = there.coordinator("--set", "algorithm.tolerance=1e-8")
        stalls = ("--fault", "stall:phase=train,round=6,for_s=3")
        sites = [there.site(name, coordinator, *(stalls if name == "north" else ())) for name in NAMES]
        wait_until(lambda: stalled(sites[NAMES.index("north")]), 60)
        coordinator.process.terminate()
        assert coordinator.ends() == 130
        command = "fedsvm coordinate --resume deployed --listen tcp://"
        assert f"To resume the run, start them again, and run: {command}" in coordinator.said
        assert [each.ends() for each in sites] == [3] * 3
        assert all("left, since the run failed: its coordinator was interrupted." in each.said for each in sites)
        again = resumed(there, coordinator)
        sites = [there.site(name, coordinator) for name in NAMES]
        assert [each.ends() for each in (again, *sites)] == [0] * 4, [each.said for each in (again, *sites)]


def test_a_coordinator_that_is_not_there_is_waited_for_and_then_missed(tmp_path: Path) -> None:
    with hosts(tmp_path) as there:
        site = there.command(
            "north",
            *("site", "--coordinator", "tcp://127.0.0.1:9", "--coordinator-key", "coordinator.key"),
            *("--key", "north.key_secret", "--data", "north.csv", "--wait", "1s"),
        )
        assert site.ends() == 3
    assert "north could not reach the coordinator at tcp://127.0.0.1:9 within 1 s; see whether it runs" in site.said


def test_whose_columns_differ_from_those_of_most_sites_is_turned_away_though_it_came_first(tmp_path: Path) -> None:
    with hosts(tmp_path) as there:
        path = tmp_path / "south.csv"
        right = path.read_text()
        path.write_text(right.replace("depth,age,", "Deep,age,").replace("size,", "depht,"))
        coordinator = there.coordinator()
        south = there.site("south", coordinator)
        coordinator.says("south is ready")
        others = [there.site("north", coordinator)]
        coordinator.says("columns of south, north differ so far; decided when all are there")
        others.append(there.site("east", coordinator))
        assert south.ends() == 3
        path.write_text(right)
        again = there.site("south", coordinator)
        assert [each.ends() for each in (coordinator, again, *others)] == [0] * 4, coordinator.said
    turned_away = (
        "its columns differ from those of other sites: it has 'depht', and 2 of 3 sites (north, east) have 'depth'; "
        "has 'Deep', which no other has; lacks 'size', which 2 of 3 sites (north, east) have. Fix the file, or add "
        "them to data.ignore."
    )
    assert turned_away in south.said
    assert f"south was turned away: {turned_away}" in coordinator.said


def test_of_two_sites_whose_columns_differ_both_are_told(tmp_path: Path) -> None:
    with hosts(tmp_path, ("north", "south")) as there:
        path = tmp_path / "south.csv"
        path.write_text(path.read_text().replace("age,", "ages,"))
        coordinator = there.coordinator("--set", "protocol.sum=masked", "--set", "federation.min_sites=2")
        north, south = (there.site(name, coordinator) for name in ("north", "south"))
        assert (north.ends(), south.ends()) == (3, 3)
    assert "its columns differ from those of other sites: it has 'age', and south has 'ages'." in north.said
    assert "its columns differ from those of other sites: it has 'ages', and north has 'age'." in south.said


@pytest.mark.long
def test_a_wait_that_expires_names_the_columns_that_differ(tmp_path: Path) -> None:
    with hosts(tmp_path) as there:
        path = tmp_path / "south.csv"
        path.write_text(path.read_text().replace("age,", "ages,"))
        coordinator = there.coordinator(wait="20s")
        sites = [there.site(name, coordinator) for name in ("north", "south")]
        assert [each.ends() for each in (coordinator, *sites)] == [3] * 3
    assert "fter 20s 0 of 3 sites were ready (none), and 3 are needed: " in coordinator.said
    for clause in (
        "north has other columns (has 'age', and south has 'ages')",
        "east did not come. Fix their files or start",
    ):
        assert clause in coordinator.said


@pytest.mark.long
@pytest.mark.timeout(300)
def test_classes_that_the_scenario_names_are_told_apart_where_no_site_has_all(tmp_path: Path) -> None:
    """The model is the simulation's to the last bit, and so is what sites count."""
    random = np.random.default_rng(5)
    with hosts(tmp_path) as there:
        for place, name in enumerate(NAMES):
            kinds = [kind for number, kind in enumerate("xyz") if number != place]
            rows = [(kind, random.normal(size=2) + 2.0 * "xyz".index(kind)) for kind in kinds for _ in range(20)]
            lines = ["a,b,kind", *(f"{a!r},{b!r},{kind}" for kind, (a, b) in ((k, v.tolist()) for k, v in rows))]
            (tmp_path / f"{name}.csv").write_text("\n".join(lines) + "\n")
        for file in ("hospitals.toml", "simulated.toml"):
            text = (tmp_path / file).read_text().replace('positive = "M"\n', "").replace('"diagnosis"', '"kind"')
            (tmp_path / file).write_text(text.replace('["B", "M"]', '["x", "y", "z"]'))
        words = [word for change in EXACT for word in ("--set", f"{change}")]
        coordinator = there.coordinator(*words)
        begun = [there.site(name, coordinator) for name in NAMES]
        assert [each.ends() for each in (coordinator, *begun)] == [0] * 4, [x.said for x in (coordinator, *begun)]
        assert same(there.model(), there.simulated(*words))
    deployed, simulated = (
        json.loads((tmp_path / each / "result.json").read_text()) for each in ("deployed", "simulated")
    )
    assert deployed["at_sites"] == simulated["at_sites"]
    assert sum(map(sum, deployed["at_sites"]["confusion_matrix"])) == 30
    assert deployed["metrics"]["confusion_matrix"] == simulated["metrics"]["confusion_matrix"]


@pytest.mark.long
@pytest.mark.timeout(300)
def test_records_are_compared_encrypted_across_hosts_too(tmp_path: Path) -> None:
    """By pp-svm, which no site alone can score rows by."""
    words = ["algorithm.name=pp-svm", "algorithm.kernel=linear", "data.test_fraction=0.0", 'data.ignore=["ward"]']
    sets = [word for change in words for word in ("--set", change)]
    with pytest.raises(
        ScenarioError, match=r"data\.test_fraction: must be 0; a site alone cannot score rows by pp-svm"
    ):
        (tmp_path / "hospitals.toml").write_text(SCENARIO)
        host_scenario.read(tmp_path / "hospitals.toml", words[:1], NAMES)
    with hosts(tmp_path) as there:
        coordinator = there.coordinator(*sets)
        begun = [there.site(name, coordinator) for name in NAMES]
        assert [each.ends() for each in (coordinator, *begun)] == [0] * 4, [x.said for x in (coordinator, *begun)]
        assert same(there.model(), there.simulated(*sets))


def test_an_algorithm_that_tells_two_classes_apart_is_refused_more(tmp_path: Path) -> None:
    path = tmp_path / "classes.toml"
    path.write_text('[data]\nlabel = "kind"\nclasses = ["x", "y", "z"]\n[algorithm]\nname = "svm-admm"\n')
    with pytest.raises(ScenarioError, match=r"data\.classes: svm-admm tells two apart"):
        host_scenario.read(path, [], NAMES)


COLUMNS = """\
[data]
partition = "vertical"
label = "diagnosis"
positive = "M"
classes = ["B", "M"]
label_site = "south"
identifier = "patient"
test_fraction = 0.25

[algorithm]
name = "dpp-svm"
kernel = "rbf"
gamma = 0.2
C = 2.0

[protocol]
sum = "ring"
"""


def write_columns(folder: Path) -> dict[str, tuple[float, ...]]:
    """A column of measurements at each site, labels at one, in orders of their own and of most patients each.

    The measurements and the label of the patients that all have.
    """
    random, known = np.random.default_rng(3), {}
    for number in range(90):
        sign = 1.0 if random.random() < 0.5 else -1.0
        known[f"P{number:03d}"] = (*(random.normal(size=3) + 0.9 * sign).tolist(), sign)
    in_all = set(known)
    for place, (name, column) in enumerate({"east": "size", "north": "depth", "south": "age,diagnosis"}.items()):
        here = random.permutation(sorted(known))[:80].tolist()
        in_all &= set(here)
        labels = {who: f",{'M' if known[who][3] > 0 else 'B'}" if name == "south" else "" for who in here}
        lines = [f"patient,{column}", *(f"{who},{known[who][place]!r}{labels[who]}" for who in here)]
        (folder / f"{name}.csv").write_text("\n".join(lines) + "\n")
    (folder / "hospitals.toml").write_text(COLUMNS)
    return {who: known[who] for who in sorted(in_all)}


def check_columns(folder: Path, joined: dict[str, tuple[float, ...]]) -> None:
    """The model is LIBSVM's on the joined table, whose held-out rows follow from identifiers alone."""
    result = json.loads((folder / "deployed" / "result.json").read_text())
    with np.load(folder / "deployed" / "model.npz") as found:
        b = float(found["b"])
    lots = [int.from_bytes(hashlib.sha256(f"0 {who}".encode()).digest()[:8], "big") / 2**64 for who in joined]
    table, held_out = np.array(list(joined.values())), np.array(lots) < 0.25
    train, test = table[~held_out], table[held_out]
    mean, deviation = train[:, :3].mean(axis=0), train[:, :3].std(axis=0)
    pooled = SVC(C=2.0, kernel="rbf", gamma=0.2, tol=1e-8).fit((train[:, :3] - mean) / deviation, train[:, 3])
    right = pooled.predict((test[:, :3] - mean) / deviation) == test[:, 3]
    assert result["alignment"]["records"] == len(joined)
    assert b == pytest.approx(pooled.intercept_[0], abs=1e-2)
    assert result["metrics"]["accuracy"] == pytest.approx(right.mean())
    assert result["data"]["test_rows"] == len(test)
    for name in NAMES:
        assert (folder / f"{name}.npz").is_file(), "each site keeps its part of the model"


def test_sites_that_hold_columns_train_on_the_records_that_all_of_them_have(tmp_path: Path) -> None:
    with hosts(tmp_path) as there:
        joined = write_columns(tmp_path)
        coordinator = there.coordinator()
        begun = [there.site(name, coordinator) for name in NAMES]
        assert [each.ends() for each in (coordinator, *begun)] == [0] * 4, [x.said for x in (coordinator, *begun)]
    check_columns(tmp_path, joined)


@pytest.mark.long
def test_sites_that_hold_columns_test_three_classes_in_folds(tmp_path: Path) -> None:
    kinds = np.array(["x", "y", "z"])
    with hosts(tmp_path) as there:
        joined = write_columns(tmp_path)
        known = {who: kinds[(0 if a + b > 0 else 1) if c > -0.5 else 2] for who, (a, b, c, _) in joined.items()}
        lines = (tmp_path / "south.csv").read_text().splitlines()
        split = [line.split(",") for line in lines[1:]]
        labelled = [f"{who},{age},{known.get(who, 'x')}" for who, age, _ in split]
        (tmp_path / "south.csv").write_text("\n".join([lines[0], *labelled, ""]))
        scenario = COLUMNS.replace('positive = "M"\n', "").replace('["B", "M"]', '["x", "y", "z"]')
        (tmp_path / "hospitals.toml").write_text(scenario.replace("test_fraction = 0.25", "folds = 3"))
        coordinator = there.coordinator()
        begun = [there.site(name, coordinator) for name in NAMES]
        assert [each.ends() for each in (coordinator, *begun)] == [0] * 4, [x.said for x in (coordinator, *begun)]
    result = json.loads((tmp_path / "deployed" / "result.json").read_text())
    digests = [hashlib.sha256(f"0 0 {who}".encode()).digest() for who in joined]
    folds = np.array([int.from_bytes(digest[:8], "big") % 3 for digest in digests])
    table, labels = np.array([each[:3] for each in joined.values()]), np.array([known[who] for who in joined])
    right = []
    for fold in range(3):
        train, test = folds != fold, folds == fold
        rows = (table - table[train].mean(axis=0)) / table[train].std(axis=0)
        each = [
            SVC(C=2.0, kernel="rbf", gamma=0.2, tol=1e-8).fit(rows[train], np.where(labels[train] == kind, 1, -1))
            for kind in kinds
        ]
        called = kinds[np.argmax([svc.decision_function(rows[test]) for svc in each], axis=0)]
        right.append((called == labels[test]).mean())
    assert result["metrics"]["accuracy"] == pytest.approx(np.mean(right))


@pytest.mark.long
def test_sites_that_hold_columns_go_on_with_a_coordinator_that_was_killed(tmp_path: Path) -> None:
    with hosts(tmp_path) as there:
        joined = write_columns(tmp_path)
        coordinator = there.coordinator("--set", "protocol.routing=via-coordinator")
        stalls = ("--fault", "stall:phase=setup,round=4,for_s=3")
        sites = [there.site(name, coordinator, *(stalls if name == "north" else ())) for name in NAMES]
        wait_until(lambda: stalled(sites[NAMES.index("north")]), 60)
        coordinator.process.kill()
        coordinator.ends()
        again = resumed(there, coordinator)
        assert [each.ends() for each in (again, *sites)] == [0] * 4, [each.said for each in (again, *sites)]
    check_columns(tmp_path, joined)


def test_a_site_that_declines_ends_the_run_and_the_sentence_names_the_way_out(tmp_path: Path) -> None:
    with hosts(tmp_path) as there:
        (tmp_path / "north.toml").write_text("min_rows = 1000\n")
        coordinator = there.coordinator("--set", "protocol.sum=masked")
        north = there.site("north", coordinator, "--policy", "north.toml")
        assert [north.ends(), coordinator.ends()] == [3, 3]
    said = " ".join(coordinator.said.split())
    assert "orth declines: it refuses the order: by this site's policy" in said
    assert "or with --set federation.min_sites=2 (with two sites, each learns the other's part" in said


@pytest.mark.long
def test_a_site_makes_the_folder_of_its_receipts_and_declines_without_a_receipt(tmp_path: Path) -> None:
    with hosts(tmp_path) as there:
        coordinator = there.coordinator("--set", "protocol.sum=masked")
        south = there.site("south", coordinator, "--receipts", "mine/receipts")
        south.says("is ready")
        north = there.site("north", coordinator, "--receipts", "/proc")
        assert [each.ends() for each in (north, coordinator, south)] == [3, 3, 3]
    assert "its receipt /proc/north-" in north.said and "name another folder" in north.said
    assert "orth declines: its receipt cannot be written: " in coordinator.said
    assert "; see the site's own output" in coordinator.said
    assert len(list((tmp_path / "mine" / "receipts").glob("south-*.receipt"))) == 1


@pytest.mark.long
def test_a_run_that_is_told_how_few_sites_are_enough_goes_on_without_one_that_declines(tmp_path: Path) -> None:
    with hosts(tmp_path) as there:
        (tmp_path / "north.toml").write_text("min_rows = 1000\n")
        coordinator = there.coordinator("--set", "protocol.sum=masked", "--set", "federation.min_sites=2")
        north = there.site("north", coordinator, "--policy", "north.toml")
        others = [there.site(name, coordinator) for name in NAMES if name != "north"]
        assert [each.ends() for each in (north, coordinator, *others)] == [3, 0, 0, 0], coordinator.said
    assert "the run begins without north" in coordinator.said


@pytest.mark.parametrize(
    ("admitted", "changes", "least"), [(5, (), 3), (2, (), 2), (5, ("federation.min_sites=2",), 2)]
)
def test_three_sites_are_needed_across_hosts_unless_fewer_are_invited_or_allowed(
    admitted: int, changes: tuple[str, ...], least: int, tmp_path: Path
) -> None:
    (tmp_path / "hospitals.toml").write_text(SCENARIO)
    names = [f"north-{number}" for number in range(admitted)]
    chosen = host_scenario.read(tmp_path / "hospitals.toml", [*changes, "protocol.sum=plain"], names)
    assert chosen.min_sites == least


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ("data.split=columns:[[a],[b],[c]]", "data.split: across hosts each site brings columns of its own"),
        ("data.overlap=0.5", "data.overlap: across hosts each site's own file has its records"),
        ("data.label_site=west", "data.label_site: there is no site 'west'"),
        ("algorithm.name=pan-svm", "data.partition: pan-svm needs"),
    ],
)
def test_what_sites_that_hold_columns_cannot_do_is_refused(change: str, sentence: str, tmp_path: Path) -> None:
    path = tmp_path / "columns.toml"
    path.write_text(COLUMNS)
    with pytest.raises(ScenarioError, match=re.escape(sentence)):
        host_scenario.read(path, [change], NAMES)


def test_the_guides_scenario_of_columns_is_one(tmp_path: Path) -> None:
    (text,) = (each.text for each in blocks(ROOT / "docs" / "three-hospitals.md") if each.title == "columns.toml")
    path = tmp_path / "columns.toml"
    path.write_text(text)
    chosen = host_scenario.read(path, [], NAMES)
    assert (chosen.data.label_site, chosen.data.align, chosen.federation.site_names) == (
        "south",
        "identifier",
        list(NAMES),
    )


def test_the_guides_policy_is_the_template() -> None:
    (shown,) = (each.text for each in blocks(ROOT / "docs" / "three-hospitals.md") if each.title == "north.toml")
    assert shown.strip() == template("pan-svm", "north").strip()


def test_the_guides_scenario_is_one_that_the_policy_template_allows(tmp_path: Path) -> None:
    (text,) = (each.text for each in blocks(ROOT / "docs" / "three-hospitals.md") if each.title == "hospitals.toml")
    with hosts(tmp_path) as there:
        noisy = text.replace("[algorithm]\n", "[algorithm]\nobjective_noise = 0.2\n")  # its default outside of tests
        (tmp_path / "hospitals.toml").write_text(noisy)
        (tmp_path / "policy.toml").write_text(template("pan-svm", "north"))
        coordinator = there.coordinator()
        begun = [there.site(name, coordinator, "--policy", "policy.toml") for name in NAMES]
        assert [each.ends() for each in (coordinator, *begun)] == [0] * 4, [x.said for x in (coordinator, *begun)]


def test_what_sites_that_hold_columns_must_be_told_is_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "columns.toml"
    silent = COLUMNS.replace('positive = "M"\nclasses = ["B", "M"]\n', "")
    path.write_text(silent.replace('identifier = "patient"', 'align = "identifier"'))
    with pytest.raises(ScenarioError) as caught:
        host_scenario.read(path, [], NAMES)
    assert [problem.split(":")[0] for problem in caught.value.problems] == ["data.classes", "data.identifier"]


def test_certificates_are_in_zeromqs_format_and_the_secret_half_is_its_owners(tmp_path: Path) -> None:
    public, secret = certificates.create(tmp_path, "north")
    shown, none = zmq.auth.load_certificate(public)
    same_shown, hidden = zmq.auth.load_certificate(secret)
    assert shown == same_shown and none is None and hidden
    assert stat.S_IMODE(secret.stat().st_mode) == 0o600
    assert certificates.read_secret(secret).name == "north"
    zmq.auth.create_certificates(tmp_path, "theirs")
    (tmp_path / "theirs.key_secret").chmod(0o600)
    assert (
        certificates.read_public(tmp_path / "theirs.key")
        == certificates.read_secret(tmp_path / "theirs.key_secret").keys.public
    )


@pytest.mark.parametrize(
    ("prepare", "sentence"),
    [
        (lambda folder: None, "has no public key"),
        (lambda folder: certificates.create(folder, "north"), "is a secret key, which only its owner may have"),
        (lambda folder: (folder / "north.key").write_text("public-key = nonsense\n"), "is not a ZeroMQ certificate"),
        (
            lambda folder: certificates.create(folder, "north")[1].rename(folder / "north.key"),
            "north.key has a secret key, which only its owner may have",
        ),
    ],
)
def test_a_folder_of_keys_that_cannot_be_is_refused(prepare: object, sentence: str, tmp_path: Path) -> None:
    assert callable(prepare)
    prepare(tmp_path)
    with pytest.raises(FederationError, match=sentence):
        certificates.read_admitted(tmp_path)


def test_two_names_of_one_key_are_refused(tmp_path: Path) -> None:
    public, secret = certificates.create(tmp_path, "north")
    secret.unlink()
    (tmp_path / "south.key").write_text(public.read_text())
    with pytest.raises(FederationError, match="north and south have the same key"):
        certificates.read_admitted(tmp_path)


def test_a_secret_key_that_others_can_read_is_refused(tmp_path: Path) -> None:
    _, secret = certificates.create(tmp_path, "north")
    secret.chmod(0o644)
    with pytest.raises(FederationError, match="must be readable by its owner only"):
        certificates.read_secret(secret)
