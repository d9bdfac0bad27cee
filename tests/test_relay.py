"""Relays: what goes in comes out, later or never, and what they do to ZeroMQ connections is noticed and mended."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import psutil
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from federation import wire
from federation.deadline import Deadline
from federation.endpoint import Endpoint
from federation.errors import DeadlineExpired, LaunchError
from federation.keys import KeyPair, Party, Roster
from federation.relay import Conditions, Relays
from tests.test_runtime import ANY_PORT, wait_until

THERE, BACK = ("a", "b"), ("b", "a")


@dataclass
class Pair:
    """Two ends of a connection that a opened to b through a relay, and the relays."""

    relays: Relays
    server: socket.socket
    port: int
    near: socket.socket
    far: socket.socket

    def again(self) -> socket.socket:
        """Another connection of a's to the same relay."""
        found = socket.create_connection(("127.0.0.1", self.port), timeout=10)
        found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return found


@contextlib.contextmanager
def relayed(there: Conditions | None = None, back: Conditions | None = None) -> Iterator[Pair]:
    """A connection from a to b under these conditions."""
    with Relays(1) as relays, socket.create_server(("127.0.0.1", 0)) as server:
        addresses = relays.open({THERE: there or Conditions(), BACK: back or Conditions()})
        relays.point("b", f"tcp://127.0.0.1:{server.getsockname()[1]}")
        port = int(addresses[THERE].rpartition(":")[2])
        with socket.create_connection(("127.0.0.1", port), timeout=10) as near:
            near.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            server.settimeout(10)
            far, _ = server.accept()
            with far:
                far.settimeout(10)
                far.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                yield Pair(relays, server, port, near, far)


def take(end: socket.socket, count: int) -> bytes:
    """Exactly so many bytes."""
    parts = []
    while count:
        part = end.recv(min(count, 1 << 16))
        assert part, "the connection ended"
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


def seconds_for(sender: socket.socket, receiver: socket.socket, size: int = 1) -> float:
    """From the first byte that leaves until the last that arrives; larger messages in one go."""
    began = time.monotonic()
    sender.sendall(bytes(size))
    take(receiver, size)
    return time.monotonic() - began


@pytest.fixture(scope="module")
def plain() -> Iterator[Pair]:
    with relayed() as pair:
        yield pair


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(sizes=st.lists(st.integers(1, 200_000), max_size=6), seed=st.integers(0, 2**32))
def test_bytes_arrive_unchanged_and_in_order(plain: Pair, sizes: list[int], seed: int) -> None:
    random = np.random.default_rng(seed)
    for size in sizes:
        data = random.bytes(size)
        assert passed(plain.near, plain.far, data) == data
        assert passed(plain.far, plain.near, data) == data


def passed(sender: socket.socket, receiver: socket.socket, data: bytes) -> bytes:
    """What comes out when `data` goes in, from a thread of its own since it may have to wait."""
    feeder = threading.Thread(target=sender.sendall, args=(data,))
    feeder.start()
    received = take(receiver, len(data))
    feeder.join(10)
    return received


def test_a_slow_reader_holds_the_sender_back_and_loses_nothing(plain: Pair) -> None:
    data = np.random.default_rng(0).bytes(20_000_000)
    assert passed(plain.near, plain.far, data) == data


def test_latency_is_that_of_the_direction() -> None:
    with relayed(Conditions(latency_ms=50), Conditions(latency_ms=10)) as pair:
        there = statistics.median(seconds_for(pair.near, pair.far) for _ in range(5))
        back = statistics.median(seconds_for(pair.far, pair.near) for _ in range(5))
    assert 0.050 <= there < 0.060
    assert 0.010 <= back < 0.020


def test_bandwidth_is_what_is_left_of_the_line() -> None:
    with relayed(Conditions(bandwidth_mbit=8.0)) as pair:
        feeder = threading.Thread(target=pair.near.sendall, args=(bytes(500_000),))
        began = time.monotonic()
        feeder.start()
        take(pair.far, 500_000)
        assert 0.48 <= time.monotonic() - began < 0.6
        feeder.join(10)


def test_jitter_never_reorders() -> None:
    with relayed(Conditions(latency_ms=5, jitter_ms=5)) as pair:
        for number in range(200):
            pair.near.sendall(bytes([number]))
        assert take(pair.far, 200) == bytes(range(200))


def test_what_a_partition_holds_back_goes_on_when_it_heals() -> None:
    with relayed() as pair:
        number = pair.relays.cut([THERE], reset=False, for_s=0.3)
        began = time.monotonic()
        pair.near.sendall(b"held")
        pair.far.sendall(b"free")
        assert take(pair.near, 4) == b"free"
        assert time.monotonic() - began < 0.2
        assert take(pair.far, 4) == b"held"
        assert time.monotonic() - began >= 0.3
        outcome = pair.relays.outcomes()[number]
    assert (outcome["held_bytes"], outcome["healed"]) == (4, True)


def test_a_link_is_cut_as_long_as_any_cut_lasts() -> None:
    with relayed() as pair:
        began = time.monotonic()
        pair.relays.cut([THERE], reset=False, for_s=0.1)
        pair.relays.cut([THERE, BACK], reset=False, for_s=0.4)
        assert seconds_for(pair.near, pair.far) > 0.2
        assert time.monotonic() - began >= 0.4


def test_a_disconnected_party_is_reset_and_refused_until_it_heals() -> None:
    with relayed() as pair:
        number = pair.relays.cut([BACK], reset=True, for_s=0.5)
        with pytest.raises(ConnectionResetError):
            pair.near.recv(1)
        with pytest.raises(ConnectionError), pair.again() as refused:
            refused.sendall(b"x")
            refused.recv(1)
            raise ConnectionResetError  # an end of file is a refusal too
        wait_until(lambda: bool(pair.relays.outcomes()[number]["healed"]))
        with pair.again() as near:
            far, _ = pair.server.accept()
            with far:
                near.sendall(b"back")
                assert take(far, 4) == b"back"
        assert pair.relays.outcomes()[number]["resets"] >= 2


def test_delay_is_added_while_it_lasts() -> None:
    with relayed() as pair:
        number = pair.relays.delay([THERE], extra_ms=60, for_s=0.5)
        assert 0.06 <= seconds_for(pair.near, pair.far) < 0.2
        wait_until(lambda: bool(pair.relays.outcomes()[number]["healed"]))
        assert seconds_for(pair.near, pair.far) < 0.05


def test_corruption_changes_just_so_many_bytes() -> None:
    with relayed() as pair:
        number = pair.relays.corrupt([THERE], count=3)
        data = bytes(1000)
        assert passed(pair.near, pair.far, bytes(10)) == bytes(10)  # too short to be a frame
        changed = passed(pair.near, pair.far, data)
        assert sum(one != other for one, other in zip(changed, data, strict=True)) == 3
        assert passed(pair.near, pair.far, data) == data
        assert pair.relays.outcomes()[number]["corrupted_bytes"] == 3


def test_the_end_of_a_connection_is_passed_on() -> None:
    with relayed(Conditions(latency_ms=20)) as pair:
        pair.near.sendall(b"last")
        pair.near.shutdown(socket.SHUT_WR)
        assert take(pair.far, 4) == b"last"
        assert pair.far.recv(1) == b""
        pair.far.sendall(b"answer")
        assert take(pair.near, 6) == b"answer"


def test_a_party_that_was_started_again_is_reached_at_its_new_address() -> None:
    with relayed() as pair, socket.create_server(("127.0.0.1", 0)) as other:
        other.settimeout(10)
        pair.relays.point("b", f"tcp://127.0.0.1:{other.getsockname()[1]}")
        with pair.again(), other.accept()[0]:
            pass


def test_nothing_is_left_of_the_relays_when_they_are_closed_or_their_owner_dies(tmp_path: Path) -> None:
    with Relays(0) as relays:
        pid = relays._process.pid
    assert not psutil.pid_exists(pid)
    script = (
        "import time; from federation.relay import Relays; print(Relays(0)._process.pid, flush=True); time.sleep(60)"
    )
    owner = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    with owner:
        assert owner.stdout is not None
        orphan = int(owner.stdout.readline())
        owner.kill()
    wait_until(lambda: not psutil.pid_exists(orphan))


def test_relays_that_are_gone_are_named() -> None:
    with Relays(0) as relays:
        os.kill(relays._process.pid, signal.SIGKILL)
        with pytest.raises(LaunchError, match="carries the links between the parties, is gone"):
            relays.open({THERE: Conditions()})


# What it does to an endpoint.


def test_a_connection_on_which_bytes_were_changed_is_closed_and_opened_again() -> None:
    """In either direction; what was sent next comes in."""
    keys, other_keys = KeyPair.generate(), KeyPair.generate()
    with Relays(0) as relays, Endpoint("a", ANY_PORT, keys, 1) as a, Endpoint("b", ANY_PORT, other_keys, 1) as b:
        addresses = relays.open({THERE: Conditions(), BACK: Conditions()})
        relays.point("b", b.address)
        a.admit(Roster([Party("b", addresses[THERE], other_keys.public)]))
        b.admit(Roster([Party("a", addresses[BACK], keys.public)]))
        message = wire.Message("data", b"12345678", arrays={"value": np.arange(3000.0)})
        exchange(a, b, message)
        for direction in (THERE, BACK):
            relays.corrupt([direction], count=2)
            send_until_it_arrives(a, b, message)
            exchange(a, b, message)


def exchange(a: Endpoint, b: Endpoint, message: wire.Message) -> None:
    """A message there, and an answer back."""
    send_until_it_arrives(a, b, message)
    b.reply("a", message)
    with contextlib.suppress(DeadlineExpired):  # the answer's bytes may be those that are changed
        a.receive(Deadline(1))


def send_until_it_arrives(a: Endpoint, b: Endpoint, message: wire.Message) -> None:
    """Both ends have to be served, since b must answer the handshakes of new connections."""
    stop = threading.Event()

    def listen() -> None:
        while not stop.is_set():
            with contextlib.suppress(DeadlineExpired):
                arrived.append(b.receive(Deadline(0.05)))
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
    listener.join(10)
    assert arrived
