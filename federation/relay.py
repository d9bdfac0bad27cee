"""User-space TCP relays: latency, jitter, bandwidth and faults on the links between parties, without root.

One process relays every link. For each party and each other that it may call there is a port of its own, so that a
connection shows by the port who opened it; what is read from one end leaves at the other when the conditions of that
direction allow. A request changes conditions before it is answered, so that what is sent afterwards meets the change.

The relays carry ciphertext (CURVE is behind them) and hold no key. What strangers on this machine send to a port goes
where everything else goes, and is refused there.
"""

from __future__ import annotations

import contextlib
import heapq
import itertools
import os
import random
import resource
import select
import selectors
import signal
import socket
import struct
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, dataclass, field
from types import TracebackType
from typing import Any

from federation import pipe
from federation.deadline import Deadline
from federation.errors import LaunchError

Direction = tuple[str, str]
"""Sender and receiver."""

_ANSWER_S = 20.0
_LARGEST_READ = 1 << 16
_MOST_QUEUED_BYTES = 1 << 22
_LEAST_CORRUPTED_BYTES = 64
"""Shorter chunks are handshakes and acknowledgements; a frame worth changing is longer."""
_RESET = struct.pack("ii", 1, 0)


@dataclass(frozen=True)
class Conditions:
    """What one direction of a link does to bytes. Jitter is uniform around the latency and never reorders."""

    latency_ms: float = 0.0
    jitter_ms: float = 0.0
    bandwidth_mbit: float | None = None


class Relays:
    """Starts the relay process and tells it what to do. `seed` is of the jitter. Raises LaunchError."""

    def __init__(self, seed: int) -> None:
        self._numbers = itertools.count()
        self._stream, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", __name__, str(theirs.fileno()), str(seed)],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                start_new_session=True,
            )

    def __enter__(self) -> Relays:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def open(self, links: Mapping[Direction, Conditions]) -> dict[Direction, str]:
        """Listen for every direction; the address at which its sender reaches its receiver."""
        wanted = [[*link, asdict(conditions)] for link, conditions in links.items()]
        ports = self._ask("open", links=wanted)["ports"]
        return {link: f"tcp://127.0.0.1:{port}" for link, port in zip(links, ports, strict=True)}

    def point(self, listener: str, address: str) -> None:
        """New connections to `listener` go to this address from now on."""
        host, _, port = address.removeprefix("tcp://").rpartition(":")
        self._ask("point", listener=listener, host=host, port=int(port))

    def cut(self, links: Collection[Direction], *, reset: bool, for_s: float | None) -> int:
        """Hold bytes back on these directions, or, with `reset`, end and refuse their connections. The fault's number.

        for_s: after which it heals and what was held goes on; None: never.
        """
        return self._begin("reset" if reset else "hold", links, for_s)

    def delay(self, links: Collection[Direction], *, extra_ms: float, for_s: float | None) -> int:
        """Add to the latency of these directions. The fault's number."""
        return self._begin("delay", links, for_s, extra_s=extra_ms / 1000)

    def corrupt(self, links: Collection[Direction], *, count: int) -> int:
        """Change `count` of the next bytes on each of these directions, in chunks of 64 or more. The fault's number."""
        return self._begin("corrupt", links, None, count=count)

    def outcomes(self) -> dict[int, dict[str, Any]]:
        """Of each fault: bytes held, delayed and corrupted, connections reset, and whether it healed."""
        return dict(self._ask("outcomes")["outcomes"])

    def close(self) -> None:
        """End the process, and with it every relayed connection."""
        self._stream.close()
        try:
            self._process.wait(_ANSWER_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _begin(self, kind: str, links: Collection[Direction], for_s: float | None, **terms: float) -> int:
        number = next(self._numbers)
        self._ask("begin", number=number, kind=kind, links=[list(link) for link in links], for_s=for_s, terms=terms)
        return number

    def _ask(self, what: str, **terms: Any) -> dict[str, Any]:
        """Have something done, and wait until it is."""
        deadline = Deadline(_ANSWER_S)
        answer = None
        with contextlib.suppress(OSError):
            pipe.write(self._stream, {"do": what, **terms})
            if not select.select([self._stream], [], [], deadline.remaining_ms() / 1000)[0]:
                raise LaunchError(f"The relay process did not answer within {deadline.seconds:g} s.")
            answer = pipe.read(self._stream)
        if answer is None:
            raise LaunchError("The relay process, which carries the links between the parties, is gone.")
        if "error" in answer:
            raise LaunchError(answer["error"])
        return answer


# In the relay process.


@dataclass
class _Fault:
    """A disturbance of some directions, and what it did so far."""

    kind: str
    lines: list[_Line]
    extra_s: float = 0.0
    left: dict[int, int] = field(default_factory=dict)
    """Of a corruption: bytes still to change, by the line's place."""
    held_bytes: int = 0
    resets: int = 0
    delayed_bytes: int = 0
    corrupted_bytes: int = 0
    healed: bool = False

    def outcome(self) -> dict[str, Any]:
        """Plain values for the answer."""
        names = ("held_bytes", "resets", "delayed_bytes", "corrupted_bytes", "healed")
        return {name: getattr(self, name) for name in names}


@dataclass
class _Line:
    """One direction between two parties, shared by all connections that use it."""

    conditions: Conditions
    jitter: random.Random
    faults: list[_Fault] = field(default_factory=list)
    flows: list[_Flow] = field(default_factory=list)
    free_at: float = 0.0

    def suffers(self, kind: str) -> list[_Fault]:
        """The faults of a kind that last."""
        return [fault for fault in self.faults if fault.kind == kind]

    def arrival(self, size: int) -> float:
        """When `size` bytes that are sent now come out."""
        bandwidth = self.conditions.bandwidth_mbit
        self.free_at = max(time.monotonic(), self.free_at) + (size * 8e-6 / bandwidth if bandwidth else 0.0)
        spread = self.conditions.jitter_ms / 1000
        delays = self.suffers("delay")
        for fault in delays:
            fault.delayed_bytes += size
        extra = sum(fault.extra_s for fault in delays)
        latency = self.conditions.latency_ms / 1000 + self.jitter.uniform(-spread, spread) + extra
        return self.free_at + max(0.0, latency)

    def damaged(self, data: bytes) -> bytes:
        """`data` as corruptions leave it."""
        for fault in self.suffers("corrupt"):
            if len(data) >= _LEAST_CORRUPTED_BYTES:
                data = self._damaged_by(fault, data)
        return data

    def _damaged_by(self, fault: _Fault, data: bytes) -> bytes:
        place = fault.lines.index(self)
        changed = bytearray(data)
        start = len(data) // 2
        count = min(fault.left[place], len(data) - start)
        changed[start : start + count] = bytes(byte ^ 0xFF for byte in changed[start : start + count])
        fault.left[place] -= count
        fault.corrupted_bytes += count
        if fault.left[place] == 0:
            self.faults.remove(fault)
            fault.healed = not any(fault.left.values())
        return bytes(changed)


class _Flow:
    """One direction of one connection: bytes wait between `source` and `sink` until they are due."""

    def __init__(self, server: _Server, source: socket.socket, sink: socket.socket, line: _Line) -> None:
        self.source, self.sink, self.line = source, sink, line
        self.ended = self.finished = False
        self.ready: bytes | memoryview = b""
        self._server = server
        self._waiting: deque[tuple[float, bytes]] = deque()
        self._queued_bytes = 0
        self._latest = 0.0
        line.flows.append(self)

    @property
    def reads(self) -> bool:
        """Whether there is room for more."""
        return not self.ended and self._queued_bytes < _MOST_QUEUED_BYTES

    def read(self) -> None:
        """Take in what came; an empty chunk is the end. Raises OSError."""
        data = self.source.recv(_LARGEST_READ)
        self.ended = not data
        for fault in self.line.suffers("hold"):
            fault.held_bytes += len(data)
        self._latest = max(self._latest, self.line.arrival(len(data)))
        self._waiting.append((self._latest, self.line.damaged(data)))
        self._queued_bytes += len(data)
        self._server.at(self._latest, self.flush)

    def flush(self) -> None:
        """Pass on all that is due, unless it is held back."""
        try:
            self._flush()
        except OSError:
            self._server.drop(self)

    def _flush(self) -> None:
        while not self.finished and not self.line.suffers("hold") and self._next_is_due():
            if not self.ready:
                self.finished = True
                self.sink.shutdown(socket.SHUT_WR)
            elif sent := self._send():
                self._queued_bytes -= sent
            else:
                break
        self._server.listen(self)

    def _next_is_due(self) -> bool:
        if not self.ready and self._waiting and self._waiting[0][0] <= time.monotonic():
            _, data = self._waiting.popleft()
            self.ready = memoryview(data)
            return True
        return len(self.ready) > 0

    def _send(self) -> int:
        try:
            sent = self.sink.send(self.ready)
        except BlockingIOError:
            return 0
        self.ready = self.ready[sent:]
        return sent


class _Server:
    """Serves the coordinator's requests and carries bytes, in one thread."""

    def __init__(self, stream: socket.socket, seed: int) -> None:
        self._stream = stream
        self._seed = seed
        self._selector = selectors.DefaultSelector()
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._counter = itertools.count()
        self._lines: dict[Direction, _Line] = {}
        self._targets: dict[str, tuple[str, int]] = {}
        self._faults: dict[int, _Fault] = {}
        self._ends: dict[socket.socket, tuple[_Flow, _Flow]] = {}
        self._serving = True

    def serve(self) -> None:
        """Until the stream of requests ends."""
        self._selector.register(self._stream, selectors.EVENT_READ, lambda mask: self._obey())
        while self._serving:
            due = self._timers[0][0] - time.monotonic() if self._timers else None
            for key, mask in self._selector.select(None if due is None else max(0.0, due)):
                if key.fileobj in self._selector.get_map():
                    key.data(mask)
            while self._timers and self._timers[0][0] <= time.monotonic():
                heapq.heappop(self._timers)[2]()

    def at(self, due: float, action: Callable[[], None]) -> None:
        """Do something at a moment."""
        heapq.heappush(self._timers, (due, next(self._counter), action))

    def listen(self, flow: _Flow) -> None:
        """Wait for what the two ends of a connection can do next."""
        for end in (flow.source, flow.sink):
            if end in self._ends:
                self._listen_at(end)
        if flow.sink in self._ends and all(each.finished for each in self._ends[flow.sink]):
            self.drop(flow)

    def drop(self, flow: _Flow, *, reset: bool = False) -> None:
        """End a connection."""
        for end in (flow.source, flow.sink):
            if end in self._ends:
                for each in self._ends.pop(end):
                    if each in each.line.flows:
                        each.line.flows.remove(each)
                with contextlib.suppress(KeyError):
                    self._selector.unregister(end)
                _close(end, reset=reset)

    def _listen_at(self, end: socket.socket) -> None:
        outward, inward = self._ends[end]
        mask = (selectors.EVENT_READ if outward.reads else 0) | (selectors.EVENT_WRITE if len(inward.ready) else 0)
        if end in self._selector.get_map():
            self._selector.unregister(end)
        if mask:
            self._selector.register(end, mask, lambda ready: self._serve_end(end, ready))

    def _serve_end(self, end: socket.socket, ready: int) -> None:
        outward, inward = self._ends[end]
        if ready & selectors.EVENT_WRITE:
            inward.flush()
        if ready & selectors.EVENT_READ and end in self._ends:
            try:
                outward.read()
                self.listen(outward)
            except BlockingIOError:
                pass
            except OSError:
                self.drop(outward)

    # Requests.

    def _obey(self) -> None:
        request = pipe.read(self._stream)
        if request is None:
            self._serving = False
            return
        do: dict[str, Callable[..., dict[str, Any]]] = {
            "open": self._open,
            "point": self._point,
            "begin": self._begin,
            "outcomes": self._outcomes,
        }
        try:
            answer = do[request.pop("do")](**request)
        except OSError as error:
            answer = {"error": f"The relays cannot listen: {error.strerror}; use fewer sites, or raise ulimit -n."}
        pipe.write(self._stream, answer)

    def _open(self, links: list[list[Any]]) -> dict[str, Any]:
        for sender, receiver, conditions in links:
            jitter = random.Random(f"{self._seed} {sender} {receiver}")  # noqa: S311 - an experiment's, not a secret
            self._lines[sender, receiver] = _Line(Conditions(**conditions), jitter)
        return {"ports": [self._listener(sender, receiver) for sender, receiver, _ in links]}

    def _listener(self, opener: str, receiver: str) -> int:
        listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        listener.setblocking(False)
        self._selector.register(listener, selectors.EVENT_READ, lambda mask: self._accept(listener, opener, receiver))
        return int(listener.getsockname()[1])

    def _point(self, listener: str, host: str, port: int) -> dict[str, Any]:
        self._targets[listener] = (host, port)
        return {}

    def _begin(
        self, number: int, kind: str, links: list[list[str]], for_s: float | None, terms: dict[str, Any]
    ) -> dict[str, Any]:
        lines = [self._lines[sender, receiver] for sender, receiver in links]
        fault = _Fault(kind, lines, terms.get("extra_s", 0.0))
        fault.left = dict.fromkeys(range(len(lines)), int(terms.get("count", 0)))
        self._faults[number] = fault
        for line in lines:
            line.faults.append(fault)
        if kind == "reset":
            for flow in [flow for line in lines for flow in line.flows]:
                fault.resets += 1 if flow.source in self._ends else 0
                self.drop(flow, reset=True)
        if for_s is not None:
            self.at(time.monotonic() + for_s, lambda: self._heal(fault))
        return {}

    def _heal(self, fault: _Fault) -> None:
        fault.healed = True
        for line in fault.lines:
            line.faults.remove(fault)
            for flow in list(line.flows):
                flow.flush()

    def _outcomes(self) -> dict[str, Any]:
        return {"outcomes": [[number, fault.outcome()] for number, fault in self._faults.items()]}

    # Connections.

    def _accept(self, listener: socket.socket, opener: str, receiver: str) -> None:
        with contextlib.suppress(BlockingIOError):
            near, _ = listener.accept()
            outward, inward = self._lines[opener, receiver], self._lines[receiver, opener]
            resets = outward.suffers("reset") + inward.suffers("reset")
            far = None if resets else self._dial(receiver)
            if far is None:
                for fault in resets:
                    fault.resets += 1
                _close(near, reset=True)
                return
            self._join(near, far, outward, inward)

    def _dial(self, receiver: str) -> socket.socket | None:
        """A connection to where a party listens, or None if nobody does."""
        if receiver not in self._targets:
            return None
        far = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        far.settimeout(_ANSWER_S / 10)
        try:
            far.connect(self._targets[receiver])
        except OSError:
            far.close()
            return None
        return far

    def _join(self, near: socket.socket, far: socket.socket, outward: _Line, inward: _Line) -> None:
        for end in (near, far):
            end.setblocking(False)
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        there, back = _Flow(self, near, far, outward), _Flow(self, far, near, inward)
        self._ends[near] = (there, back)
        self._ends[far] = (back, there)
        self.listen(there)


def _close(end: socket.socket, *, reset: bool) -> None:
    if reset:
        with contextlib.suppress(OSError):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    end.close()


def main(descriptor: int, seed: int) -> None:
    """Relay for the process at the other end of socket `descriptor` until it is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with socket.socket(fileno=descriptor) as stream:
        _Server(stream, seed).serve()
    os._exit(0)  # connections need no farewell


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
