"""Strangers who connect and say nothing, as many as they like: a run goes on, or says what it lacks."""

from __future__ import annotations

import contextlib
import resource
import socket
import subprocess
import sys
import warnings
from collections.abc import Iterator

import pytest
import zmq

from fedsvm.federation.errors import DeadlineExpired, EndpointError
from fedsvm.federation.transport.auth import Authenticator
from fedsvm.federation.transport.deadline import Deadline
from fedsvm.federation.transport.descriptors import descriptors_explained
from fedsvm.federation.transport.endpoint import Endpoint
from fedsvm.federation.transport.keys import KeyPair, Party, Roster
from fedsvm.federation.transport.poller import Poller
from tests.conftest import long_but_for, wait_until

SOFT_LIMIT = 1024  # what most systems allow a process unless it asks for more

STRANGERS = """
import os, resource, select, socket, sys
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
port, count = int(sys.argv[1]), int(sys.argv[2])
idle, connected = {}, set()
ready = select.poll()
ready.register(0, select.POLLIN)

def connect():
    stranger = socket.socket()
    stranger.setblocking(False)
    stranger.connect_ex(("127.0.0.1", port))
    idle[stranger.fileno()] = stranger
    ready.register(stranger, select.POLLOUT)

def gone(descriptor):
    try:
        return not idle[descriptor].recv(4096)  # what comes is the other end's greeting
    except BlockingIOError:
        return False
    except OSError:
        return True

for _ in range(count):
    connect()
said = False
while True:
    for descriptor, event in ready.poll():
        if descriptor == 0:
            os._exit(0)
        if event == select.POLLOUT:
            connected.add(descriptor)
            ready.modify(descriptor, select.POLLIN)
        elif gone(descriptor):  # then another takes its place
            ready.unregister(descriptor)
            connected.discard(descriptor)
            idle.pop(descriptor).close()
            connect()
    if len(connected) >= count and not said:
        said = True
        print(count, flush=True)
"""
"""Connects to a port and says nothing, so many times at once; where one is hung up on, it connects again."""

RUN = """
import resource, sys
from tests.conftest import drill
from tests.test_dropouts import is_total_of, total
whom, soft, hard = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])

def wait_for_a_crowd(party):
    if party.name == whom:
        print(party.address.rpartition(":")[2], flush=True)
        sys.stdin.readline()

resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
try:
    with drill(5, protocol="masked", timeout_s=60, on_listening=wait_for_a_crowd) as federation:
        for _ in range(3):
            assert is_total_of(total(federation), federation.membership.all_sites)
        print("completed", len(federation.sites))
except Exception as error:
    print(type(error).__name__, error)
"""
"""A federation in a process of its own, with limits, to one of whose ports strangers connect as soon as it listens."""

HARD_LIMIT = resource.getrlimit(resource.RLIMIT_NOFILE)[1]


def crowd_size() -> int:
    """2,000, or what the machine allows one process to hold."""
    possible = 2000 if HARD_LIMIT == resource.RLIM_INFINITY else min(2000, HARD_LIMIT - 500)
    if possible < 2000:
        warnings.warn(f"{possible} strangers in place of 2,000: of open files it allows {HARD_LIMIT}", stacklevel=2)
    return possible


def run_in_a_crowd(whom: str, count: int, soft: int, hard: int) -> str:
    """Return the result of a run after this number of strangers connected to a party."""
    run_words = [sys.executable, "-c", RUN, whom, str(soft), str(hard)]
    with subprocess.Popen(run_words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as run:
        assert run.stdin is not None
        assert run.stdout is not None
        crowd_words = [sys.executable, "-c", STRANGERS, run.stdout.readline().strip(), str(count)]
        with subprocess.Popen(crowd_words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as crowd:
            assert crowd.stdout is not None
            assert crowd.stdout.readline() == f"{count}\n"
            said, _ = run.communicate("\n", timeout=120)
            assert crowd.poll() is None
            crowd.communicate(timeout=30)
    return said


@pytest.mark.parametrize("whom", long_but_for(["coordinator", "site-2"], "coordinator"))
def test_idle_strangers_do_not_stop_a_run_from_its_start_on(whom: str) -> None:
    """They are there before the sites, or before the sites are introduced, and come again when they are hung up on."""
    assert run_in_a_crowd(whom, crowd_size(), SOFT_LIMIT, HARD_LIMIT) == "completed 5\n"


def test_more_strangers_than_descriptors_end_a_run_with_what_to_change() -> None:
    """On a busy machine they may all have been hung up on before the run needs a descriptor; then it completes."""
    tries = (run_in_a_crowd("coordinator", 600, 300, 300) for _ in range(4))
    assert next((said for said in tries if said != "completed 5\n"), "") == (
        "EndpointError coordinator has no file descriptor left, of 300 that its process may have: raise the limit "
        "(ulimit -n), and check which other programs connect to its port.\n"
    )


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    with Endpoint("server", "tcp://127.0.0.1:*", KeyPair.generate(), 2) as listening:
        yield listening


def connected_to(endpoint: Endpoint) -> socket.socket:
    return socket.create_connection(("127.0.0.1", int(endpoint.address.rpartition(":")[2])), timeout=10)


def test_strangers_that_come_and_go_while_nobody_looks_stop_nothing(endpoint: Endpoint) -> None:
    """Far more than libzmq keeps events of by itself; with those full it would serve no connection, for good."""
    for _ in range(2500):
        with connected_to(endpoint) as stranger:
            stranger.sendall(bytes(64))
    with connected_to(endpoint) as late:
        assert late.recv(1) == b"\xff"  # a greeting
    wait_until(lambda: served(endpoint) >= 2500)


def served(endpoint: Endpoint) -> int:
    with contextlib.suppress(DeadlineExpired):
        endpoint.wait(Deadline(0.05))
    return endpoint.refused.total()


def test_a_stranger_that_says_nothing_is_hung_up_on_within_seconds(endpoint: Endpoint) -> None:
    with connected_to(endpoint) as stranger:
        heard = b""
        while chunk := stranger.recv(64):
            heard += chunk
        assert heard.startswith(b"\xff")
    wait_until(lambda: served(endpoint) == 1)


def test_errors_that_are_not_for_lack_of_descriptors_stay_what_they_are() -> None:
    with pytest.raises(FileNotFoundError), descriptors_explained("server"):
        open("/no/such/file").close()  # noqa: PTH123
    with pytest.raises(EndpointError, match=r"ulimit -n"), descriptors_explained("server"):
        raise OSError(24, "Too many open files")


def test_a_peer_that_sends_ever_more_does_not_keep_a_party_from_its_deadline() -> None:
    """Each message that is read is replaced by another, so that the socket never becomes empty."""
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    poller = Poller(context)
    receiver, sender = poller.open(zmq.PULL), context.socket(zmq.PUSH)
    read: list[bytes] = []

    def take() -> None:
        read.append(receiver.recv())
        sender.send(b"more")

    try:
        receiver.bind("inproc://flood")
        sender.connect("inproc://flood")
        poller.add(receiver, take)
        sender.send(b"first")
        for served in range(1, 4):
            before = len(read)
            poller.serve(0)
            assert len(read) > before, f"call {served} read nothing"
    finally:
        poller.close()
        context.destroy(linger=0)


def test_a_question_that_ctrl_c_interrupted_leaves_later_ones_answered() -> None:
    """The questions are those of libzmq about handshakes. The first is read and not answered."""
    keys, context = KeyPair.generate(), zmq.Context[zmq.Socket[bytes]]()
    authenticator = Authenticator("coordinator", keys)
    authenticator.roster = Roster([Party("site-1", "", keys.public)])
    question = [b"1.0", b"7", b"", b"127.0.0.1", b"", b"CURVE", keys.public]
    try:
        zap = authenticator.listen(context)
        assert zap is not None
        for interrupted in (True, False):
            libzmq = context.socket(zmq.REQ)
            libzmq.connect("inproc://zeromq.zap.01")
            libzmq.send_multipart(question)
            if interrupted:
                zap.recv_multipart()
            else:
                authenticator.serve(zap)
                assert libzmq.recv_multipart(zmq.NOBLOCK) == [b"1.0", b"7", b"200", b"OK", b"site-1", b""]
    finally:
        context.destroy(linger=0)
