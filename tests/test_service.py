"""Sites as services: one run after the other, each under the site's policy, and a check before the first."""

from __future__ import annotations

import signal
import socket
from pathlib import Path

import pytest

from fedsvm.federation.hosts import certificates
from fedsvm.federation.hosts.listening_endpoint import Call, ListeningEndpoint
from fedsvm.federation.transport.deadline import Deadline
from fedsvm.federation.transport.keys import COORDINATOR, Party, Roster
from tests.hosts import NAMES, Hosts, Started, hosts

pytestmark = pytest.mark.timeout(300)

POLICY = "[algorithms.pan-svm]\n"


def free_address() -> str:
    """Return an address of this machine at which nothing listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return f"tcp://127.0.0.1:{server.getsockname()[1]}"


def serving(there: Hosts, name: str, address: str) -> Started:
    """Start a site that takes part in every run at this address that its policy allows."""
    (there.folder / f"{name}.toml").write_text(POLICY)
    return there.command(
        name,
        *("site", "--serve", "--coordinator", address, "--coordinator-key", "coordinator.key"),
        *("--key", f"{name}.key_secret", "--data", f"{name}.csv", "--policy", f"{name}.toml"),
        *("--listen", "tcp://127.0.0.1:0"),
    )


def test_sites_take_part_in_one_run_after_the_other_and_refuse_what_their_policy_forbids(tmp_path: Path) -> None:
    address = free_address()
    with hosts(tmp_path) as there:
        sites = [serving(there, name, address) for name in NAMES]
        first = there.coordinator(listen=address)
        assert first.ends() == 0, first.said
        refused = there.coordinator("--set", "algorithm.name=naive-bayes", "--out", "refused", listen=address)
        assert refused.ends() == 3, refused.said
        assert "declines: it refuses the order: by this site's policy" in " ".join(refused.said.split())
        last = there.coordinator("--set", "algorithm.C=2", "--out", "last", listen=address)
        assert last.ends() == 0, last.said
        for each in sites:
            assert each.process.poll() is None, each.said
            each.says("the run is completed")
            each.process.send_signal(signal.SIGTERM)
        assert [each.ends() for each in sites] == [130] * 3, [each.said for each in sites]
    assert (tmp_path / "deployed" / "model.npz").exists()
    assert (tmp_path / "last" / "model.npz").exists()


def test_a_site_asks_the_next_coordinator_if_one_ended_before_its_offer(tmp_path: Path) -> None:
    """Both have the same key and address, and libzmq connects again by itself."""
    with hosts(tmp_path, ("north",)) as there:
        address, keys = free_address(), certificates.read_secret(tmp_path / "coordinator.key_secret").keys
        north = certificates.read_public(tmp_path / "sites" / "north.key")
        admitted = Roster([Party(COORDINATOR, "", keys.public), Party("north", "", north)])
        site = serving(there, "north", address)
        for _ in range(2):
            calls: list[Call] = []
            with ListeningEndpoint(address, keys, admitted) as hub:
                hub.on_call = calls.append
                wait_for_call(hub, calls)
            assert calls[0].join.name == "north", site.said


def wait_for_call(hub: ListeningEndpoint, calls: list[Call]) -> None:
    """Serve until a site has asked to take part."""
    deadline = Deadline(60)
    while not calls:
        hub.serve(deadline)


def test_a_service_needs_a_policy(tmp_path: Path) -> None:
    with hosts(tmp_path, ("north",)) as there:
        address = free_address()
        north = there.command(
            "north",
            *("site", "--serve", "--coordinator", address, "--coordinator-key", "coordinator.key"),
            *("--key", "north.key_secret", "--data", "north.csv"),
        )
        assert north.ends() == 2
    assert "--serve: needs --policy" in north.said


def test_a_check_reads_the_data_and_reaches_the_coordinator(tmp_path: Path) -> None:
    with hosts(tmp_path, ("north",)) as there, socket.create_server(("127.0.0.1", 0)) as server:
        address = f"tcp://127.0.0.1:{server.getsockname()[1]}"

        def check(at: str, data: str) -> Started:
            return there.command(
                "north",
                *("site", "--check", "--coordinator", at, "--coordinator-key", "coordinator.key"),
                *("--key", "north.key_secret", "--data", data),
            )

        ready, unreachable, unread = (
            check(address, "north.csv"),
            check(free_address(), "north.csv"),
            check(address, "x"),
        )
        assert [each.ends() for each in (ready, unreachable, unread)] == [0, 3, 2]
    assert "north is ready: north.csv has 40 rows and 5 columns" in ready.said
    assert "could not be reached" in unreachable.said
