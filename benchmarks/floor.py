"""The cost of sockets alone: processes that forward bytes, with ZeroMQ and CURVE, and do nothing with them.

A round is the least that any round of a federation is: the coordinator says a word to every site (the star), a vector
goes round the ring of sites and from the first of them to the coordinator, and every site says a word back. Long
vectors go round in chunks, so that the hops of one overlap with those of the next.
"""

from __future__ import annotations

import multiprocessing
import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection

import zmq

CHUNK_BYTES = 1 << 19
_WORD = bytes(32)
_WAIT_MS = 30_000


class _Party:
    """Sockets with one key: inboxes that all others may send to, and one for each of those that this party sends to."""

    def __init__(self, sockets: int = 16) -> None:
        self.context = zmq.Context()
        self.context.set(zmq.MAX_SOCKETS, sockets)
        self.public, self._secret = zmq.curve_keypair()

    def inbox(self) -> tuple[zmq.Socket[bytes], str]:
        opened = self._socket(zmq.PULL)
        opened.curve_server = True
        return opened, f"tcp://127.0.0.1:{opened.bind_to_random_port('tcp://127.0.0.1')}"

    def dial(self, address: str, key: bytes) -> zmq.Socket[bytes]:
        outbox = self._socket(zmq.PUSH)
        outbox.curve_serverkey = key
        outbox.connect(address)
        return outbox

    def _socket(self, kind: int) -> zmq.Socket[bytes]:
        opened = self.context.socket(kind)
        opened.linger = 0
        opened.sndhwm = opened.rcvhwm = 0
        opened.curve_publickey, opened.curve_secretkey = self.public, self._secret
        return opened


def _taken(inbox: zmq.Socket[bytes]) -> bytes:
    if not inbox.poll(_WAIT_MS):
        raise TimeoutError(f"nothing came within {_WAIT_MS / 1000:g} s: a party of the floor has ended")
    return inbox.recv()


def _site(pipe: Connection, first: bool) -> None:
    party = _Party()
    (words, for_words), (vectors, for_vectors) = party.inbox(), party.inbox()
    pipe.send((for_words, for_vectors, party.public))
    successor, coordinator = (party.dial(*each) for each in pipe.recv())
    while True:
        lengths = [int(each) for each in _taken(words).split()]
        for length in lengths if first else ():
            successor.send(bytes(length))
        for _ in lengths:
            (coordinator if first else successor).send(_taken(vectors))
        coordinator.send(_WORD)


@contextmanager
def bare_ring(sites: int) -> Iterator[_Ring]:
    """Start a ring of processes, all of which end with the context."""
    fork = multiprocessing.get_context("fork")
    pipes = [fork.Pipe() for _ in range(sites)]
    processes = [
        fork.Process(target=_site, args=(theirs, number == 0), daemon=True) for number, (_, theirs) in enumerate(pipes)
    ]
    for process in processes:
        process.start()
    coordinator = _Party(sites + 16)
    try:
        answers, address = coordinator.inbox()
        parties = [ours.recv() for ours, _ in pipes]
        for (ours, _), (_, successor, key) in zip(pipes, [*parties[1:], parties[0]], strict=True):
            ours.send(((successor, key), (address, coordinator.public)))
        yield _Ring(answers, [coordinator.dial(listens, key) for listens, _, key in parties])
    finally:
        for process in processes:
            process.kill()
        for process in processes:
            process.join()
        coordinator.context.destroy(linger=0)


class _Ring:
    def __init__(self, answers: zmq.Socket[bytes], sites: Sequence[zmq.Socket[bytes]]) -> None:
        self._answers, self._sites = answers, sites

    def round(self, numbers: int) -> float:
        """Return the seconds of one round of a vector of `numbers` numbers of 8 bytes."""
        whole, rest = divmod(8 * numbers, CHUNK_BYTES)
        lengths = [CHUNK_BYTES] * whole + [rest] * (rest > 0)
        began = time.perf_counter()
        for site in self._sites:
            site.send(b" ".join(b"%d" % length for length in lengths))
        for _ in range(len(self._sites) + len(lengths)):
            _taken(self._answers)
        return time.perf_counter() - began


def median_round_s(sites: int, numbers: Sequence[int], rounds: int) -> list[float]:
    """Return the median seconds of a round for each length, after one that opens the connections."""
    with bare_ring(sites) as ring:
        ring.round(1)
        return [statistics.median(ring.round(each) for _ in range(rounds)) for each in numbers]
