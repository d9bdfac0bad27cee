"""The runtime: every failure has a name and a place, and nothing outlives a run."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import psutil
import pytest
import zmq
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fedsvm.federation.errors import (
    DeadlineExpired,
    EndpointError,
    Fatal,
    LaunchError,
    PeerDropped,
    SiteFailed,
    SitesDropped,
)
from fedsvm.federation.federation import Federation
from fedsvm.federation.processes.launcher import LocalLauncher
from fedsvm.federation.relays.client import LinkEffect, Relays
from fedsvm.federation.site.partition import Partition
from fedsvm.federation.site.terms import Terms
from fedsvm.federation.startup import local_federation
from fedsvm.federation.transport import wire
from fedsvm.federation.transport.deadline import Deadline
from fedsvm.federation.transport.descriptors import raise_descriptor_limit
from fedsvm.federation.transport.endpoint import Endpoint
from fedsvm.federation.transport.keys import KeyPair, Party, Roster
from fedsvm.federation.transport.message_transport import Received
from fedsvm.protocols.sums.ring import RING
from tests.commands import FEDSVM
from tests.conftest import drill, site_processes, wait_until, workspaces

ANY_PORT = "tcp://127.0.0.1:*"


# What a site raises, and what happens to it, reaches the coordinator.


def test_a_site_works_ahead_between_orders_and_nobody_hears_how_that_went() -> None:
    """An order that has come in already is carried out first, so that not every round is worked ahead of."""
    with drill(3) as federation:
        wait_until(lambda: bool(federation.sum("ahead", shape=(3,), bound=1e6)[0] >= 3))
        assert federation.sum("total", shape=(3,), bound=1e3).shape == (3,)


def test_a_step_that_raises_is_shown_with_site_round_and_traceback() -> None:
    with drill(3) as federation:
        federation.sum("total", shape=(3,), bound=1e3)
        with (
            federation.phase("train"),
            pytest.raises(SiteFailed, match=r"site-2 failed in round 2 \(train, step fail\)") as caught,
        ):
            federation.sum("fail", shape=(3,), bound=1.0, site="site-2")
    assert "the drill asked for it" in str(caught.value)
    assert "raise ZeroDivisionError" in caught.value.remote_traceback


@pytest.mark.parametrize(
    ("step", "message"),
    [
        ("not_finite", "site-3 failed in round 1 .* 3 of 3 values are not finite"),
        ("wrong_shape", r"site-3 failed in round 1 .* a value of another shape than \(3,\), which was announced"),
    ],
)
def test_values_that_do_not_fit_are_refused_at_the_site(step: str, message: str) -> None:
    with drill(3) as federation, pytest.raises(SiteFailed, match=message) as caught:
        federation.sum(step, shape=(3,), bound=1.0, site="site-3")
    assert caught.value.remote_traceback == ""


@pytest.mark.parametrize("step", ["unmarked", "__init__", "find_step", "channel", "nonsense", "os.system"])
def test_only_marked_steps_can_be_named(step: str) -> None:
    with (
        drill(3) as federation,
        pytest.raises(SiteFailed, match="with the agreed settings has no step"),
    ):
        federation.run(step)


@pytest.mark.parametrize(
    ("protocol", "reports", "receiver", "got"),
    [
        ("long-to-site", "site-3", "site-3", r"uint64 \(1, 4\)"),
        ("float-to-site", "site-3", "site-3", r"float64 \(1, 3\)"),
        ("long-to-coordinator", "site-1", "coordinator", r"uint64 \(1, 4\)"),
    ],
)
def test_a_sum_that_sends_the_wrong_array_ends_the_run_at_once(
    protocol: str, reports: str, receiver: str, got: str
) -> None:
    """It is the code that is wrong: no round is run again, and nobody is told to look at cables."""
    sender = "site-1" if receiver == "coordinator" else "site-2"
    says = (
        rf"{reports} failed in round 1 \(train, step total\): the {protocol} protocol: "
        rf"{sender} sent {got} to {receiver}; it must be uint64 \(1, 3\)$"
    )
    began = time.monotonic()
    with drill(4, protocol=protocol, timeout_s=60) as federation, federation.phase("train"):
        with pytest.raises(SiteFailed, match=says) as caught:
            federation.sum("total", shape=(3,), bound=1e3)
        assert len(federation.accounts.rounds) == 1
    assert isinstance(caught.value, Fatal)
    assert time.monotonic() - began < 30


def test_a_broken_sum_of_another_package_ends_the_command_with_status_3(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken-1.0.dist-info").mkdir()
    (tmp_path / "broken-1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 1.0\n")
    (tmp_path / "broken-1.0.dist-info" / "entry_points.txt").write_text(
        "[fedsvm.sums]\nlong-to-site = tests.broken_sums:LONG_TO_SITE\n"
    )
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{os.environ['PYTHONPATH']}")
    words = ["run", "quickstart", "--set", "protocol.sum=long-to-site", "--out", str(tmp_path / "run")]
    done = subprocess.run([str(FEDSVM), *words], capture_output=True, text=True, check=False, timeout=100)
    assert done.returncode == 3
    assert "the long-to-site protocol: site-2 sent uint64 (1, 4) to site-3; it must be uint64" in done.stderr
    assert "round_timeout_s" not in done.stderr
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert result["cost"]["rounds"] == 1


def test_an_answer_that_is_malformed_ends_the_run_and_names_the_site() -> None:
    with drill(3) as federation:
        federation.sum("total", shape=(3,), bound=1e3)
        lie = wire.Message("done", b"", 1, fields={"ledger": [], "hop": "far", "waiting": "", "sent_to_coordinator": 0})
        mailbox = federation._dispatcher.mailbox
        assert isinstance(mailbox.endpoint, Endpoint)
        mailbox.endpoint._pending.append(Received("site-2", replace(lie, run=mailbox.run), True))
        with pytest.raises(SiteFailed, match=r"site-2 failed in round 2 .* malformed: hop of done must be int, got 'f"):
            federation.sum("total", shape=(3,), bound=1e3)


def test_a_site_that_is_killed_is_named_at_once() -> None:
    began = time.monotonic()
    with (
        drill(3, timeout_s=60) as federation,
        pytest.raises(SitesDropped, match=r"site-2 dropped in round 1 .*signal 9. 2 sites are left, and 3 are"),
    ):
        federation.sum("die", shape=(3,), bound=1.0, site="site-2")
    assert time.monotonic() - began < 30


def test_a_site_that_waits_to_reach_a_lost_neighbour_still_sends_its_final_report() -> None:
    with drill(4, timeout_s=60, on_dropout="abort") as federation, pytest.raises(SitesDropped, match='is "abort"'):
        federation.sum("total", shape=(3,), bound=1e3)
        federation.sum("die", shape=(3,), bound=1.0, site="site-3")
    assert set(federation.final_reports) == {"site-1", "site-2", "site-4"}


def test_a_site_that_hangs_is_told_from_those_that_wait_for_it() -> None:
    with drill(4, timeout_s=1.0) as federation:
        federation.sum("hang", shape=(3,), bound=1.0, site="site-3")
        assert federation.sites == ("site-1", "site-2", "site-4")
    (change,) = federation.membership.changes
    assert change.left == {"site-3": "it did not answer within 1 s"}


def test_a_round_whose_sites_compute_for_long_is_given_the_time() -> None:
    """Longer than a round may take and than a site is waited for; see the test above."""
    with drill(2, protocol="plain") as federation:
        federation._runner._round_timeout_s = 0.3  # from here on, since launching may take longer
        federation.run("work", work_s=30.0, seconds=3.0)
        assert federation.sites == ("site-1", "site-2")
        assert not any(record.aborted for record in federation.accounts.rounds.values())


@pytest.mark.long
def test_a_site_that_does_not_take_in_its_partition_is_named() -> None:
    def stall(launcher: LocalLauncher) -> None:
        os.kill(launcher.pids["site-2"], signal.SIGSTOP)

    says = r"site-2 dropped in round 0 \(launch, step join\): it did not answer within"
    late = pytest.raises(SitesDropped, match=says)
    with late, drill(3, timeout_s=1.0, launched=stall):
        raise AssertionError("it assembled without site-2")


def test_a_local_step_may_run_a_protocol_among_the_sites() -> None:
    with drill(4) as federation:
        federation.run("agree")
        seeds = federation.gather("agreed", shape=(1, 4))
    assert len({seed.tobytes() for seed in seeds.values()}) == 1
    assert [(d.to, d.step, d.form, d.times) for d in federation.disclosures] == [("coordinator", "agreed", "value", 1)]


def test_what_is_sent_and_revealed_is_written_down() -> None:
    with drill(3) as federation:
        for _ in range(2):
            federation.sum("echo", shape=(2,), bound=9.0, vector=np.ones(2))
        federation.disclose("coordinator", "echo", "how many there are", (), times=3)
    found = {(d.to, d.kind, d.form, d.times) for d in federation.disclosures}
    assert found == {
        ("coordinator", "sum", "sum", 2),
        ("sites", "parameter", "parameter vector", 2),
        ("coordinator", "design", "how many there are", 3),
    }


def test_a_sum_that_a_site_receives_is_a_disclosure_to_it() -> None:
    """A plain sum still shows the coordinator what the others put in."""
    with drill(3, protocol="plain") as federation:
        assert federation.sum("total", receiver="site-2", shape=(3,), bound=1e3) is None
        opened = federation.gather("received", shape=(3,))["site-2"]
    np.testing.assert_allclose(opened, [66.0, 78.0, 90.0], atol=1e-9)
    found = [(d.to, d.kind, d.form) for d in federation.disclosures if d.step == "total"]
    assert found == [
        ("site-2", "sum", "sum"),
        ("coordinator", "value", "value of every site but the one that opens the sum"),
    ]


@pytest.mark.parametrize("protocol", ["plain", "ring", "k-secure", "changing-neighbours", "masked"])
def test_a_site_receives_a_sum_though_it_never_spoke_to_the_coordinator_before(protocol: str) -> None:
    with drill(5, protocol=protocol, timeout_s=10) as federation:
        federation.sum("total", receiver="site-4", shape=(3,), bound=1e3)
        opened = federation.gather("received", shape=(3,))
    assert {site: value.any() for site, value in opened.items()} == {
        site: site == "site-4" for site in federation.sites
    }
    np.testing.assert_allclose(opened["site-4"], [130.0, 150.0, 170.0], atol=1e-9)
    assert [record.aborted for record in federation.accounts.rounds.values()] == [False, False]


def test_every_site_is_a_process_of_its_own_that_imports_nothing_heavy() -> None:
    pids: list[int] = []

    def remember(launcher: LocalLauncher, federation: Federation) -> None:
        pids.extend(launcher.pids.values())

    with drill(5, when_assembled=remember) as federation:
        assert all(psutil.pid_exists(pid) for pid in pids)
        heavy = federation.gather("modules", shape=())
    assert len(set(pids)) == 5
    assert os.getpid() not in pids
    assert {float(count) for count in heavy.values()} == {0.0}
    wait_until(lambda: not any(psutil.pid_exists(pid) for pid in pids))


# Who may speak.


@pytest.fixture
def listening() -> object:
    """An endpoint that knows one peer, and that peer's keys."""
    keys, friend = KeyPair.generate(), KeyPair.generate()
    with Endpoint("server", ANY_PORT, keys, 2) as endpoint:
        me = Party("server", endpoint.address, keys.public)
        endpoint.admit(Roster([me, Party("friend", "tcp://127.0.0.1:1", friend.public)]))
        yield endpoint, keys, friend


def receive(endpoint: Endpoint, deadline: Deadline) -> Received:
    """The next valid message. Raises DeadlineExpired."""
    while (received := endpoint.received()) is None:
        endpoint.wait(deadline)
    return received


def expect_nothing(endpoint: Endpoint, reason: str) -> None:
    """Serve until something is refused for `reason`; no message may come of it."""
    deadline = Deadline(10)
    while not any(reason in refused for refused in endpoint.refused):
        assert not deadline.expired, dict(endpoint.refused)
        with pytest.raises(DeadlineExpired):
            receive(endpoint, Deadline(0.05))


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(noise=st.binary(min_size=1, max_size=300))
def test_bytes_from_a_stranger_are_refused(listening: tuple[Endpoint, KeyPair, KeyPair], noise: bytes) -> None:
    endpoint, _, _ = listening
    before = endpoint.refused.total()
    port = int(endpoint.address.rpartition(":")[2])
    with socket.create_connection(("127.0.0.1", port)) as stranger:
        with contextlib.suppress(OSError):  # it may have hung up on us already
            stranger.sendall(noise.ljust(64, b"\0"))
            stranger.shutdown(socket.SHUT_WR)
        deadline = Deadline(10)
        while endpoint.refused.total() == before:
            assert not deadline.expired
            with pytest.raises(DeadlineExpired):
                receive(endpoint, Deadline(0.02))


def dealer(
    context: zmq.Context[zmq.Socket[bytes]], server: Endpoint, server_key: bytes, keys: KeyPair
) -> zmq.Socket[bytes]:
    """A plain ZeroMQ client with CURVE keys of its own."""
    client = context.socket(zmq.DEALER)
    client.setsockopt(zmq.LINGER, 0)
    client.curve_serverkey = server_key
    client.curve_publickey, client.curve_secretkey = keys.public, keys.secret
    client.connect(server.address)
    return client


def test_a_key_that_is_not_in_the_roster_is_refused(listening: tuple[Endpoint, KeyPair, KeyPair]) -> None:
    endpoint, keys, _ = listening
    with zmq.Context() as context, dealer(context, endpoint, keys.public, KeyPair.generate()) as stranger:
        stranger.send(b"hello")
        expect_nothing(endpoint, "key not in the roster")


def test_a_peer_is_called_what_its_key_stands_for(listening: tuple[Endpoint, KeyPair, KeyPair]) -> None:
    endpoint, keys, friend = listening
    with zmq.Context() as context, dealer(context, endpoint, keys.public, friend) as client:
        client.send(wire.encode(wire.Message("data", b"12345678", fields={"from": "server"})))
        received = receive(endpoint, Deadline(10))
    assert received.peer == "friend"


def test_a_party_that_refused_a_key_before_it_had_a_roster_is_reached_with_the_next_roster(
    listening: tuple[Endpoint, KeyPair, KeyPair],
) -> None:
    """So it is with a site that is started again, at the same address and with the same keys."""
    server, server_keys, _ = listening
    keys, message = KeyPair.generate(), wire.Message("data", b"12345678")
    with Endpoint("late", ANY_PORT, keys, 2) as late:
        known = Roster([Party("server", server.address, server_keys.public), Party("late", late.address, keys.public)])
        late.admit(known)
        late.connect("server")
        while not late._diallers["server"].rejected:
            for endpoint in (server, late):
                with contextlib.suppress(DeadlineExpired):
                    endpoint.wait(Deadline(0.05))
        server.admit(known)
        late.admit(known)
        arrived: list[Received] = []
        listener = threading.Thread(target=lambda: arrived.append(receive(server, Deadline(20))))
        listener.start()
        late.send("server", message, Deadline(20))
        listener.join()
    assert [each.peer for each in arrived] == ["late"]


def test_what_came_when_a_read_was_interrupted_is_taken_in(
    listening: tuple[Endpoint, KeyPair, KeyPair], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C between the two halves of a message: it is lost, and no other is, nor taken for one half of it."""
    endpoint, keys, friend = listening

    def interrupted(opened: zmq.Socket[bytes], refused: Counter[str]) -> None:
        raise KeyboardInterrupt

    with zmq.Context() as context, dealer(context, endpoint, keys.public, friend) as client:
        with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
            patched.setattr("fedsvm.federation.transport.endpoint.only_frame", interrupted)
            for run in (b"cut-off!", b"1st-run!", b"2nd-run!"):
                client.send(wire.encode(wire.Message("data", run)))
            receive(endpoint, Deadline(10))
        assert [receive(endpoint, Deadline(10)).message.run for _ in range(2)] == [b"1st-run!", b"2nd-run!"]
    assert not endpoint.refused


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(frames=st.lists(st.binary(max_size=100), min_size=1, max_size=3))
def test_malformed_frames_of_an_admitted_peer_are_refused(
    listening: tuple[Endpoint, KeyPair, KeyPair], frames: list[bytes]
) -> None:
    endpoint, keys, friend = listening
    with zmq.Context() as context, dealer(context, endpoint, keys.public, friend) as client:
        client.send_multipart(frames)
        client.send(wire.encode(wire.Message("data", b"12345678")))
        assert receive(endpoint, Deadline(10)).message.run == b"12345678"
    assert any("malformed" in reason for reason in endpoint.refused)


def test_a_site_that_is_bothered_by_strangers_carries_on() -> None:
    def bother(launcher: LocalLauncher, federation: Federation) -> None:
        for party in federation._dispatcher.mailbox.endpoint.roster:
            port = int(party.address.rpartition(":")[2])
            with socket.create_connection(("127.0.0.1", port)) as stranger:
                stranger.sendall(secrets.token_bytes(200))

    with drill(3, when_assembled=bother) as federation:
        assert federation.sum("total", shape=(3,), bound=1e3).shape == (3,)
    for final_report in federation.final_reports.values():
        assert sum(final_report.refused.values()) == 1


# Sockets that cannot be had.


def test_a_port_in_use_is_named() -> None:
    with Endpoint("first", ANY_PORT, None, 1) as first, pytest.raises(EndpointError, match="the port is in use"):
        Endpoint("second", first.address, None, 1)


def test_a_peer_that_is_not_there_is_named_with_its_address() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{free.getsockname()[1]}"
    with Endpoint("me", ANY_PORT, None, 1) as endpoint:
        endpoint.admit(Roster([Party("peer", address, None)]))
        with pytest.raises(PeerDropped, match=f"me cannot reach peer at {address}: nobody listens there"):
            endpoint.send("peer", wire.Message("data", b"12345678"), Deadline(1.0))


def test_a_peer_whose_key_is_not_the_one_we_expect_is_named() -> None:
    keys, mine = KeyPair.generate(), KeyPair.generate()
    server = Endpoint("server", ANY_PORT, keys, 1)
    with server, Endpoint("me", ANY_PORT, mine, 1) as endpoint:
        endpoint.admit(Roster([Party("server", server.address, KeyPair.generate().public)]))
        with pytest.raises(PeerDropped, match=r"me cannot reach server at tcp://.*: (the handshake failed|it closed)"):
            endpoint.send("server", wire.Message("data", b"12345678"), Deadline(1.0))


def test_too_many_open_files_are_refused_in_words() -> None:
    with pytest.raises(EndpointError, match="raise the hard limit"):
        raise_descriptor_limit(10**9)


def test_no_folder_for_temporary_files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Every folder that Python would try is out of reach for the server, which runs in one that is gone."""
    script = (
        "import os, sys, tempfile, tests.site_process as s; from fedsvm.federation.processes.forkserver import main\n"
        "tempfile._candidate_tempdir_list = lambda: ['/proc/no-such-folder']\n"
        "main(s.Installation({}, {}), int(sys.argv[1]))"
    )
    module = tmp_path / "no_folder_site_process.py"
    module.write_text(script)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{os.environ['PYTHONPATH']}")
    with LocalLauncher("no_folder_site_process") as launcher, pytest.raises(LaunchError, match="set TMPDIR"):
        launcher.prepare()


# Connections that break.


def test_a_connection_on_which_bytes_were_changed_is_closed_and_opened_again() -> None:
    """In either direction; what was sent next comes in."""
    keys, other_keys = KeyPair.generate(), KeyPair.generate()
    with Relays(0) as relays, Endpoint("a", ANY_PORT, keys, 1) as a, Endpoint("b", ANY_PORT, other_keys, 1) as b:
        there, back = ("a", "b"), ("b", "a")
        addresses = relays.open({there: LinkEffect(), back: LinkEffect()})
        relays.point("b", b.address)
        a.admit(Roster([Party("b", addresses[there], other_keys.public)]))
        b.admit(Roster([Party("a", addresses[back], keys.public)]))
        message = wire.Message("data", b"12345678", arrays={"value": np.arange(3000.0)})
        exchange(a, b, message)
        for direction in (there, back):
            relays.disturb("corrupt", [direction], bytes=2)
            send_until_it_arrives(a, b, message)
            exchange(a, b, message)


def exchange(a: Endpoint, b: Endpoint, message: wire.Message) -> None:
    """A message there, and an answer back: again, where the bytes of either were changed and the connection is gone."""
    deadline = Deadline(30)
    while not deadline.expired:
        send_until_it_arrives(a, b, message)
        with contextlib.suppress(DeadlineExpired, PeerDropped):
            b.reply("a", message)
            receive(a, Deadline(1))
            return
    raise AssertionError("no answer came")


def send_until_it_arrives(a: Endpoint, b: Endpoint, message: wire.Message) -> None:
    """Both ends have to be served, since b must answer the handshakes of new connections."""
    stop = threading.Event()

    def listen() -> None:
        while not stop.is_set():
            with contextlib.suppress(DeadlineExpired):
                arrived.append(receive(b, Deadline(0.05)))
                stop.set()

    arrived: list[object] = []
    listener = threading.Thread(target=listen)
    listener.start()
    deadline = Deadline(10)
    while not stop.is_set():
        assert not deadline.expired
        a.send("b", message, deadline)
        with contextlib.suppress(DeadlineExpired):
            a.wait(Deadline(0.2))
    listener.join(60)
    assert arrived


# Nothing outlives a run.

SCRIPT = """
import sys
from tests.conftest import drill
with drill(3, timeout_s=60) as federation:
    print("up", flush=True)
    if sys.argv[1] == "succeed":
        federation.sum("total", shape=(3,), bound=1e3)
    else:
        federation.sum("hang", shape=(3,), bound=1.0, site="site-2")
"""


@contextlib.contextmanager
def coordinator(how: str) -> Iterator[subprocess.Popen[str]]:
    """A coordinator in a process of its own, with three sites up."""
    command = [sys.executable, "-c", SCRIPT, how]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        yield process
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("end", ["success", "SIGINT", "SIGTERM", "SIGKILL", "server SIGKILL"])
def test_nothing_outlives_a_run(end: str, temporary_folder: Path) -> None:
    with coordinator("succeed" if end == "success" else "hang") as process:
        if end != "success":
            assert len(site_processes(temporary_folder)) == 4
            assert len(workspaces(temporary_folder)) == 1
        if end == "server SIGKILL":
            (server,) = [child.pid for child in psutil.Process(process.pid).children()]
            os.kill(server, signal.SIGKILL)
        elif end != "success":
            process.send_signal(signal.Signals[end])
        process.wait(60)
    wait_until(lambda: not site_processes(temporary_folder))
    wait_until(lambda: not workspaces(temporary_folder))
    assert list(temporary_folder.iterdir()) == []


def test_a_partition_is_gone_as_soon_as_its_site_has_read_it(temporary_folder: Path) -> None:
    with drill(3, another_follows=False) as federation:
        (workspace,) = workspaces(temporary_folder)
        assert workspace.stat().st_mode & 0o777 == 0o700
        assert list(workspace.glob("*.partition")) == []
        federation.sum("total", shape=(3,), bound=1e3)
    assert not workspaces(temporary_folder)


def test_sockets_of_ipc_are_gone_when_a_site_was_killed(temporary_folder: Path) -> None:
    with pytest.raises(SitesDropped), drill(3, transport="ipc", encrypted=False) as federation:
        (workspace,) = workspaces(temporary_folder)
        assert len(list(workspace.glob("*.sock"))) == 4
        federation.sum("die", shape=(3,), bound=1.0, site="site-1")
    assert not workspaces(temporary_folder)


def test_a_server_that_nobody_needs_ends_while_it_loads_and_leaves_nothing_once_it_has(temporary_folder: Path) -> None:
    with LocalLauncher("tests.site_process") as launcher:
        pass
    assert launcher._server.process.returncode == -signal.SIGTERM
    with LocalLauncher("tests.site_process") as launcher:
        assert select.select([launcher], [], [], 30)[0]
        assert len(workspaces(temporary_folder)) == 1
    assert launcher._server.process.returncode == 0
    assert list(temporary_folder.iterdir()) == []


@pytest.mark.parametrize(
    ("busy", "status"),
    [
        pytest.param("lambda: time.sleep(60)", 0, id="within a call"),
        pytest.param("Gone", 0, id="where Python prints exceptions and goes on"),
        pytest.param("wait_deaf", -signal.SIGKILL, id="within a call that no signal ends"),
    ],
)
def test_a_server_that_is_busy_for_long_when_nobody_needs_it_leaves_nothing_either(
    busy: str,
    status: int,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    temporary_folder: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    script = (
        "import signal, sys, time; from fedsvm.federation.processes.forkserver import main\n"
        "from fedsvm.federation.site.program import Installation\n"
        "class Gone:\n"
        "    def __del__(self):\n"
        "        time.sleep(60)\n"
        "def wait_deaf():\n"
        "    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})\n"
        "    open(sys.argv[0] + '.deaf', 'w')\n"
        "    time.sleep(60)\n"
        f"main(Installation({{}}, {{}}, warm_up={busy}), int(sys.argv[1]))"
    )
    (tmp_path / "busy_site_process.py").write_text(script)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{os.environ['PYTHONPATH']}")
    with LocalLauncher("busy_site_process") as launcher:
        assert select.select([launcher], [], [], 30)[0]
        assert len(workspaces(temporary_folder)) == 1
        wait_until(lambda: status == 0 or (tmp_path / "busy_site_process.py.deaf").exists())
        monkeypatch.setattr("fedsvm.federation.processes.child.EXIT_GRACE_S", 5.0 if status == 0 else 0.2)
    assert launcher._server.process.returncode == status
    assert not workspaces(temporary_folder)
    assert capfd.readouterr().err == ""


def test_terms_may_promise_a_whole_epsilon_and_wrong_ones_are_refused_in_a_sentence() -> None:
    partitions = {f"site-{number}": Partition({"rows": np.full((2, 3), float(number))}) for number in range(1, 4)}
    terms = Terms("drill", {}, RING.name, dict(RING.options), 3, epsilon=1)
    with local_federation(
        "tests.site_process", "drill", partitions, RING, settings={"seed": 1}, terms=terms
    ) as federation:
        np.testing.assert_array_equal(federation.sum("total", shape=(3,), bound=1e3), np.full(3, 12.0))
    wrong = replace(terms, settings=[("C", 1.0)])  # type: ignore[arg-type]
    with (
        pytest.raises(LaunchError, match=r"settings of the terms must be dict, got"),
        local_federation("tests.site_process", "drill", partitions, RING, settings={"seed": 1}, terms=wrong),
    ):
        raise AssertionError("sites took part on terms that nobody can read")


# One server for several federations.


def server_of_a_sum() -> int:
    """The process that the sites of a small federation were forked from, which summed as it should."""
    partitions = {f"site-{number}": Partition({"rows": np.full((2, 3), float(number))}) for number in range(1, 4)}
    with local_federation("tests.site_process", "drill", partitions, RING, settings={"seed": 1}) as federation:
        np.testing.assert_array_equal(federation.sum("total", shape=(3,), bound=1e3), np.full(3, 12.0))
        (server,) = {psutil.Process(pid).ppid() for pid in federation.pids.values()}
    return int(server)


def test_federations_that_follow_each_other_have_one_server_which_ends_by_itself(temporary_folder: Path) -> None:
    server = server_of_a_sum()
    assert site_processes(temporary_folder) == {server}
    assert {server_of_a_sum() for _ in range(3)} == {server}
    wait_until(lambda: not site_processes(temporary_folder))
    assert workspaces(temporary_folder) == []
    assert server_of_a_sum() != server


def test_a_server_is_not_used_again_elsewhere_or_when_a_federation_failed(
    temporary_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = server_of_a_sum()
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    other = server_of_a_sum()
    assert other != server
    assert site_processes(temporary_folder) == set()
    partitions = {f"site-{number}": Partition({"rows": np.ones((2, 3))}) for number in range(1, 4)}
    with (
        pytest.raises(SiteFailed),
        local_federation("tests.site_process", "drill", partitions, RING, settings={"seed": 1}) as federation,
    ):
        federation.sum("fail", shape=(3,), bound=1.0, site="site-2")
    assert not psutil.pid_exists(other)
    assert server_of_a_sum() != other


def test_a_server_that_was_killed_while_it_rested_is_replaced(temporary_folder: Path) -> None:
    server = server_of_a_sum()
    os.kill(server, signal.SIGKILL)
    assert server_of_a_sum() != server
