"""The relays: bytes arrive whole, in order and when the conditions say, and faults do what they say and no more."""

from __future__ import annotations

import contextlib
import os
import random
import resource
import select
import signal
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import psutil
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fedsvm.federation.errors import LaunchError
from fedsvm.federation.relays.client import LinkEffect, Relays
from tests.conftest import ROOT, wait_until

LINUX = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="limits of other processes are Linux's")
FREE = LinkEffect()
THERE, BACK = ("a", "b"), ("b", "a")
LONG_S = 10.0


def listening() -> socket.socket:
    server = socket.create_server(("127.0.0.1", 0))
    server.settimeout(LONG_S)
    return server


def address_of(server: socket.socket) -> str:
    return f"tcp://127.0.0.1:{server.getsockname()[1]}"


def prepared(end: socket.socket) -> socket.socket:
    end.settimeout(LONG_S)
    end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return end


def dial(address: str) -> socket.socket:
    host, _, port = address.removeprefix("tcp://").rpartition(":")
    return prepared(socket.create_connection((host, int(port)), LONG_S))


def received(end: socket.socket, count: int) -> bytes:
    """The next `count` bytes, or fewer where the stream ends."""
    parts = bytearray()
    while len(parts) < count and (part := end.recv(min(1 << 16, count - len(parts)))):
        parts += part
    return bytes(parts)


def is_reset(end: socket.socket) -> bool:
    """Return whether the stream ends with a reset instead of an end."""
    try:
        return end.recv(1) == b"never"
    except ConnectionResetError:
        return True


def refuses(address: str) -> bool:
    """Return whether a new connection is reset, possibly before its opener notices that it is open."""
    try:
        with dial(address) as end:
            return is_reset(end)
    except ConnectionResetError:
        return True


@dataclass
class Link:
    """A party a that opens connections to a party b through relays."""

    relays: Relays
    server: socket.socket
    address: str
    ends: list[socket.socket] = field(default_factory=list)

    def dial(self) -> socket.socket:
        """a's end of a new connection."""
        self.ends.append(dial(self.address))
        return self.ends[-1]

    def accept(self) -> socket.socket:
        """b's end of a new connection."""
        self.ends.append(prepared(self.server.accept()[0]))
        return self.ends[-1]

    def connect(self) -> tuple[socket.socket, socket.socket]:
        """Both ends of a new connection."""
        near = self.dial()
        return near, self.accept()

    def healed(self, number: int) -> bool:
        return bool(self.relays.outcomes()[number]["healed"])


@contextlib.contextmanager
def linked(there: LinkEffect = FREE, back: LinkEffect = FREE, seed: int = 7) -> Iterator[Link]:
    with Relays(seed) as relays, listening() as server:
        address = relays.open({THERE: there, BACK: back})[THERE]
        relays.point("b", address_of(server))
        link = Link(relays, server, address)
        try:
            yield link
        finally:
            for end in link.ends:
                end.close()


@pytest.fixture
def link() -> Iterator[Link]:
    with linked() as opened:
        yield opened


@contextlib.contextmanager
def sending(end: socket.socket, data: bytes) -> Iterator[None]:
    """Meanwhile a thread sends all of this."""
    thread = threading.Thread(target=end.sendall, args=(data,))
    thread.start()
    yield
    thread.join(LONG_S)
    assert not thread.is_alive()


def one_way_ms(sender: socket.socket, receiver: socket.socket, times: int = 7, size: int = 1) -> list[float]:
    """Return the durations of messages, one at a time."""
    found = []
    for _ in range(times):
        began = time.monotonic()
        sender.sendall(bytes(size))
        assert len(received(receiver, size)) == size
        found.append((time.monotonic() - began) * 1000)
    return found


def relay_process() -> psutil.Process:
    (found,) = [child for child in psutil.Process().children() if "fedsvm.federation.relays.process" in child.cmdline()]
    return found


def is_gone(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True


# Bytes.


def test_bytes_pass_both_ways_unchanged(link: Link) -> None:
    near, far = link.connect()
    for sender, receiver, message in [(near, far, b"question"), (far, near, b"answer"), (near, far, bytes(range(256)))]:
        sender.sendall(message)
        assert received(receiver, len(message)) == message


def test_megabytes_pass_both_ways_at_once() -> None:
    data, other = random.Random(1).randbytes(12 << 20), random.Random(2).randbytes(3 << 20)
    with linked(LinkEffect(latency_ms=3), LinkEffect(latency_ms=1)) as link:
        near, far = link.connect()
        with sending(near, data), sending(far, other):
            assert received(far, len(data)) == data
            assert received(near, len(other)) == other


def test_a_receiver_that_does_not_read_stops_the_sender_and_loses_nothing(link: Link) -> None:
    near, far = link.connect()
    near.setblocking(False)
    sent, data = 0, random.Random(3).randbytes(1 << 16)
    while select.select([], [near], [], 0.3)[1]:
        sent += near.send(data)
        assert sent < 48 << 20, "nothing stops the sender"
    assert relay_process().memory_info().rss < 64 << 20
    near.close()
    assert len(received(far, sent + 1)) == sent


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(sizes=st.lists(st.integers(1, 200_000), max_size=8), seed=st.integers(0, 1000))
def test_any_chunks_arrive_unchanged_and_in_order(jittery: Link, sizes: list[int], seed: int) -> None:
    chunks = [random.Random(seed + place).randbytes(size) for place, size in enumerate(sizes)]
    near, far = jittery.connect()
    with near, far:
        with sending(far, b"".join(reversed(chunks))):
            for chunk in chunks:
                with sending(near, chunk):
                    assert received(far, len(chunk)) == chunk
            near.shutdown(socket.SHUT_WR)
            assert received(near, sum(sizes)) == b"".join(reversed(chunks))
        assert far.recv(1) == b""


@pytest.fixture
def jittery() -> Iterator[Link]:
    with linked(LinkEffect(latency_ms=1, jitter_ms=2, bandwidth_mbit=2000), LinkEffect(jitter_ms=2)) as opened:
        yield opened


def test_the_end_of_one_direction_leaves_the_other_open() -> None:
    with linked(LinkEffect(latency_ms=30)) as link:
        near, far = link.connect()
        near.sendall(b"last words")
        began = time.monotonic()
        near.shutdown(socket.SHUT_WR)
        assert received(far, 100) == b"last words"
        assert time.monotonic() - began >= 0.029
        far.sendall(b"and yet")
        assert received(near, 7) == b"and yet"
        far.close()
        assert near.recv(1) == b""


def test_a_reset_at_one_end_resets_the_other(link: Link) -> None:
    near, far = link.connect()
    near.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    near.close()
    assert is_reset(far)


def test_connections_that_end_at_both_ends_at_once_do_no_harm(link: Link) -> None:
    pairs = [link.connect() for _ in range(40)]
    process = relay_process()
    process.suspend()
    for near, far in pairs:
        for end in (near, far):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            end.close()
    process.resume()
    near, far = link.connect()
    assert max(one_way_ms(near, far)) < 1000


# Conditions.


def test_latency_is_what_was_asked_for() -> None:
    with linked(LinkEffect(latency_ms=50)) as link:
        taken = one_way_ms(*link.connect())
    assert min(taken) >= 50
    assert min(taken) < 90


def test_latency_is_not_rounded_to_milliseconds() -> None:
    with linked(LinkEffect(latency_ms=20.2)) as link:
        taken = one_way_ms(*link.connect(), times=15)
    assert 20.2 <= min(taken) < 40


def test_the_two_directions_have_conditions_of_their_own() -> None:
    with linked(LinkEffect(latency_ms=5), LinkEffect(latency_ms=40)) as link:
        near, far = link.connect()
        assert 5 <= min(one_way_ms(near, far)) < 25
        assert 40 <= min(one_way_ms(far, near)) < 60


def test_a_way_back_that_was_not_opened_is_free_of_conditions() -> None:
    with Relays(1) as relays, listening() as server:
        relays.point("b", address_of(server))
        with dial(relays.open({THERE: LinkEffect(latency_ms=20)})[THERE]) as near, prepared(server.accept()[0]) as far:
            assert min(one_way_ms(near, far)) >= 20
            assert min(one_way_ms(far, near)) < 10


def test_bandwidth_limits_what_all_connections_of_a_link_share() -> None:
    data = bytes(500_000)
    with linked(LinkEffect(bandwidth_mbit=20)) as link:
        (near, far), (other_near, other_far) = link.connect(), link.connect()
        began = time.monotonic()
        with sending(near, data), sending(other_near, data):
            assert received(far, len(data)) + received(other_far, len(data)) == 2 * data
        taken = time.monotonic() - began
    assert 0.8 < taken / (2 * len(data) * 8e-6 / 20) < 2.5


def test_jitter_varies_the_latency_and_never_reorders() -> None:
    with linked(LinkEffect(latency_ms=10, jitter_ms=10)) as link:
        near, far = link.connect()
        taken = one_way_ms(near, far, times=20)
        for number in range(200):
            near.sendall(bytes([number]))
            select.select([], [], [], 0.0002)
        assert received(far, 200) == bytes(range(200))
    assert max(taken) - min(taken) > 5
    assert min(taken) < 10


def test_the_same_seed_gives_the_same_jitter() -> None:
    """A busy machine adds to what is drawn, and never takes away: of several looks the least is what was drawn."""
    links: list[tuple[int, list[list[float]]]] = [(1, []), (1, []), (2, [])]
    for _ in range(4):
        for seed, looks in links:
            with linked(LinkEffect(latency_ms=20, jitter_ms=20), seed=seed) as link:
                looks.append(one_way_ms(*link.connect(), times=12))
        first, second, other = ([min(times) for times in zip(*looks, strict=True)] for _, looks in links)
        same, different = (
            statistics.median(abs(a - b) for a, b in zip(first, again, strict=True)) for again in (second, other)
        )
        if same < different / 3:
            return
    raise AssertionError(f"the same seed differs by {same:.1f} ms, another by {different:.1f}")


# Faults.


def test_a_silent_cut_holds_one_direction_until_it_heals(link: Link) -> None:
    near, far = link.connect()
    began = time.monotonic()
    number = link.relays.disturb("partition", [THERE], for_s=1.0)
    near.sendall(b"held")
    far.sendall(b"not held")
    assert received(near, 8) == b"not held"
    assert time.monotonic() - began < 0.9
    assert received(far, 4) == b"held"
    assert time.monotonic() - began >= 0.99
    assert link.relays.outcomes()[number] == {
        "held_bytes": 4,
        "resets": 0,
        "delayed_bytes": 0,
        "corrupted_bytes": 0,
        "healed": True,
    }


def test_what_a_cut_held_goes_on_in_order_with_the_latency() -> None:
    data = random.Random(4).randbytes(9 << 20)
    with linked(LinkEffect(latency_ms=60)) as link:
        near, far = link.connect()
        near.sendall(b"on its way")
        began = time.monotonic()
        link.relays.disturb("partition", [THERE], for_s=0.2)
        with sending(near, data):
            assert received(far, 10) == b"on its way"
            assert time.monotonic() - began >= 0.259
            assert received(far, len(data)) == data


def test_a_cut_without_end_holds_for_ever(link: Link) -> None:
    near, far = link.connect()
    number = link.relays.disturb("partition", [THERE, BACK], for_s=None)
    near.sendall(bytes(1000))
    far.sendall(bytes(500))
    wait_until(lambda: link.relays.outcomes()[number]["held_bytes"] == 1500)
    assert not link.healed(number)
    assert not select.select([near, far], [], [], 0)[0]


def test_a_link_is_cut_as_long_as_any_cut_lasts(link: Link) -> None:
    near, far = link.connect()
    short = link.relays.disturb("partition", [THERE], for_s=0.05)
    began = time.monotonic()
    link.relays.disturb("partition", [THERE], for_s=0.3)
    near.sendall(b"x")
    wait_until(lambda: link.healed(short))
    assert received(far, 1) == b"x"
    assert time.monotonic() - began >= 0.29


@pytest.mark.parametrize("direction", [THERE, BACK])
def test_a_new_connection_is_held_by_a_cut_of_either_direction(link: Link, direction: tuple[str, str]) -> None:
    began = time.monotonic()
    link.relays.disturb("partition", [direction], for_s=0.2)
    near = link.dial()
    near.sendall(b"hello")
    far = link.accept()
    assert time.monotonic() - began >= 0.19
    assert received(far, 5) == b"hello"


def test_a_reset_cut_resets_and_refuses_until_it_heals(link: Link) -> None:
    near, far = link.connect()
    number = link.relays.disturb("disconnect", [BACK], for_s=0.3)
    assert is_reset(near)
    assert is_reset(far)
    assert refuses(link.address)
    assert link.relays.outcomes()[number]["resets"] == 2
    wait_until(lambda: link.healed(number))
    assert max(one_way_ms(*link.connect())) < 1000


def test_a_delay_adds_to_the_latency_while_it_lasts() -> None:
    with linked(LinkEffect(latency_ms=10)) as link:
        near, far = link.connect()
        number = link.relays.disturb("delay", [THERE], for_s=0.2, delay_ms=50)
        assert 60 <= one_way_ms(near, far, times=1, size=30)[0] < 1000
        wait_until(lambda: link.healed(number))
        assert min(one_way_ms(near, far)) < 50
        assert link.relays.outcomes()[number]["delayed_bytes"] == 30


def test_a_corruption_changes_exactly_so_many_bytes_of_long_chunks(link: Link) -> None:
    near, far = link.connect()
    number = link.relays.disturb("corrupt", [THERE, BACK], bytes=40)
    changed = []
    for size in (63, 64, 64, 64, 1000):
        near.sendall(bytes(size))
        changed.append([place for place, byte in enumerate(received(far, size)) if byte == 0xFF])
    assert [len(places) for places in changed] == [0, 32, 8, 0, 0]
    assert all(place >= 32 for places in changed for place in places)
    assert not link.healed(number)
    far.sendall(bytes(5000))
    assert sum(byte == 0xFF for byte in received(near, 5000)) == 40
    assert link.relays.outcomes()[number]["corrupted_bytes"] == 80
    assert link.healed(number)


def test_new_connections_go_where_the_listener_is_now(link: Link) -> None:
    near, far = link.connect()
    with listening() as again:
        link.relays.point("b", address_of(again))
        with link.dial(), prepared(again.accept()[0]) as elsewhere:
            elsewhere.sendall(b"new")
            assert received(link.ends[-1], 3) == b"new"
    assert max(one_way_ms(near, far)) < 1000


def test_a_connection_to_a_listener_that_is_not_there_is_reset(link: Link) -> None:
    link.server.close()
    assert refuses(link.address)
    with Relays(1) as relays:
        assert refuses(relays.open({THERE: FREE})[THERE])


# The process.


def test_close_leaves_no_process(link: Link) -> None:
    near, far = link.connect()
    pid = relay_process().pid
    link.relays.close()
    link.relays.close()
    assert not psutil.pid_exists(pid)
    for end in (near, far):
        with contextlib.suppress(ConnectionResetError):
            assert end.recv(1) == b""


def test_the_process_ends_with_that_of_its_handle() -> None:
    code = (
        "import psutil; from fedsvm.federation.relays.client import Relays; relays = Relays(1); relays.outcomes(); "
        "print(psutil.Process().children()[0].pid, flush=True); input()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT
    ) as owner:
        assert owner.stdout is not None
        pid = int(owner.stdout.readline())
        assert not is_gone(pid)
        owner.kill()
    wait_until(lambda: is_gone(pid))


def test_the_process_imports_nothing_heavy() -> None:
    code = "import sys, fedsvm.federation.relays.process; print(*{name.partition('.')[0] for name in sys.modules})"
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT).stdout
    assert "msgpack" in printed.split()
    assert not {"numpy", "zmq", "cryptography", "scipy"} & set(printed.split())


def test_an_interrupt_is_not_for_the_relays(link: Link) -> None:
    os.kill(relay_process().pid, signal.SIGINT)
    assert max(one_way_ms(*link.connect())) < 1000


def test_a_process_that_is_gone_is_named_with_its_status(link: Link) -> None:
    relay_process().kill()
    for _ in range(2):
        with pytest.raises(LaunchError, match=r"^The relay process ended with status -9\.$"):
            link.relays.point("b", "tcp://127.0.0.1:1")


def test_a_fault_on_a_link_that_is_not_there_is_refused(link: Link) -> None:
    with pytest.raises(LaunchError, match=r"^No relay carries messages from a to c; open that link first\.$"):
        link.relays.disturb("partition", [THERE, ("a", "c")], for_s=None)
    assert link.relays.outcomes() == {}


@LINUX
def test_too_many_open_files_are_answered_with_what_to_change(link: Link) -> None:
    near, far = link.connect()
    limit_files(16)
    refused = pytest.raises(LaunchError, match=r"Too many open files; raise the hard limit .* or run fewer sites\.$")
    with refused:
        link.relays.open({(f"site-{number}", "b"): FREE for number in range(20)})
    assert max(one_way_ms(near, far)) < 1000


@LINUX
def test_more_connections_than_files_do_no_harm(link: Link) -> None:
    near, far = link.connect()
    process = relay_process()
    before = process.num_fds()
    limit_files(24)
    with contextlib.ExitStack() as strangers:
        for _ in range(40):
            with contextlib.suppress(ConnectionResetError):
                strangers.enter_context(dial(link.address))
        assert max(one_way_ms(near, far)) < 1000
    wait_until(lambda: turned_away(link.server) == 0 and process.num_fds() == before)
    link.dial().sendall(b"friend")
    while received(link.accept(), 6) != b"friend":
        link.ends.pop().close()


def limit_files(count: int) -> None:
    """Let the relay process open so many files; it is up, since it answered."""
    resource.prlimit(relay_process().pid, resource.RLIMIT_NOFILE, (count, count))


def turned_away(server: socket.socket) -> int:
    """Close the connections that waited here, and return their number."""
    count = 0
    while select.select([server], [], [], 0)[0]:
        server.accept()[0].close()
        count += 1
    return count
