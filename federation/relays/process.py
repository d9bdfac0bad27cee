"""The relay process: one event loop that carries the bytes of all links. See `client` for its use.

The port of a connection identifies its opener, and so its two directed links: outward bytes obey the link to the
listener, bytes back obey the opposite one (`relayed_connection`).

The relays carry ciphertext and hold no key. Strangers on this machine may connect: the listener refuses what they send,
and the waiting bytes of one connection are bounded.
"""

from __future__ import annotations

import errno
import os
import random
import resource
import selectors
import signal
import socket
import sys
import time
from collections.abc import Callable
from typing import Any

from fedsvm.federation.errors import LaunchError
from fedsvm.federation.faults.fault_kind import LinkFault, link_fault
from fedsvm.federation.processes import pipe
from fedsvm.federation.relays.client import DirectedLink, LinkEffect
from fedsvm.federation.relays.event_loop import EventLoop
from fedsvm.federation.relays.relayed_connection import RelayedConnection, RelayedLink, close_socket

_LISTENER_REST_S = 0.05
_BACKLOG = 128
_ADVICE = {
    errno.EMFILE: "raise the hard limit of open files (ulimit -Hn) or run fewer sites",
    errno.ENFILE: "raise the system's limit of open files (fs.file-max) or run fewer sites",
    errno.EADDRINUSE: "no port is free; extend net.ipv4.ip_local_port_range or run fewer sites",
}


class _Server:
    """Serves the requests of the client, and accepts connections."""

    def __init__(self, stream: socket.socket) -> None:
        self._stream = stream
        self._loop = EventLoop()
        self._links: dict[DirectedLink, RelayedLink] = {}
        self._targets: dict[str, tuple[str, int]] = {}
        self._faults: list[LinkFault] = []

    def serve(self) -> None:
        """Serve requests until their stream ends."""
        self._loop.watch(self._stream, selectors.EVENT_READ, self._obey)
        self._loop.run()

    # Requests.

    def _obey(self, events: int) -> None:
        request = pipe.read(self._stream)
        if request is None:
            self._loop.running = False
            return
        try:
            pipe.write(self._stream, self._answer(**request))
        except OSError:
            self._loop.running = False

    def _answer(self, do: str, **terms: Any) -> dict[str, Any]:
        requests: dict[str, Callable[..., dict[str, Any]]] = {
            "open": self._open,
            "point": self._point,
            "disturb": self._disturb,
            "outcomes": self._outcomes,
        }
        try:
            return requests[do](**terms)
        except LaunchError as error:
            return {"error": str(error)}

    def _open(self, seed: int, links: list[list[Any]]) -> dict[str, Any]:
        for sender, receiver, conditions in links:
            for link in ((sender, receiver), (receiver, sender)):
                jitter = random.Random(f"{seed} {link}")  # noqa: S311 - an experiment's, not a secret
                self._links.setdefault(link, RelayedLink(jitter))
            self._links[sender, receiver].conditions = LinkEffect(**conditions)
        return {"ports": [self._listen(sender, receiver) for sender, receiver, _ in links]}

    def _point(self, listener: str, host: str, port: int) -> dict[str, Any]:
        self._targets[listener] = (host, port)
        return {}

    def _disturb(self, kind: str, links: list[list[str]], for_s: float | None, terms: dict[str, Any]) -> dict[str, Any]:
        disturbed = [self._find_link(sender, receiver) for sender, receiver in links]
        if (fault_type := link_fault(kind)) is None:
            raise LaunchError(f"No fault on links is called {kind}; its module must be one of federation/faults/kinds.")
        fault = fault_type(**terms)
        fault.begin(disturbed)
        self._faults.append(fault)
        for link in disturbed:
            link.faults.append(fault)
        if fault.holds:
            _hold(fault, disturbed)
        if fault.resets_connections:
            _reset(fault, disturbed)
        if for_s is not None:
            self._loop.at(time.monotonic() + for_s, lambda: _heal(fault, disturbed))
        return {"number": len(self._faults) - 1}

    def _outcomes(self) -> dict[str, Any]:
        return {"outcomes": [[number, fault.outcome()] for number, fault in enumerate(self._faults)]}

    def _find_link(self, sender: str, receiver: str) -> RelayedLink:
        link = self._links.get((sender, receiver))
        if link is None:
            raise LaunchError(f"No relay carries messages from {sender} to {receiver}; open that link first.")
        return link

    # Connections.

    def _listen(self, opener: str, listener: str) -> int:
        try:
            server = socket.create_server(("127.0.0.1", 0), backlog=_BACKLOG)
        except OSError as error:
            advice = _ADVICE.get(error.errno or 0, "check that 127.0.0.1 is up")
            raise LaunchError(f"The relays cannot listen for {opener}: {error.strerror}; {advice}.") from error
        server.setblocking(False)
        self._await_connections(server, opener, listener)
        return int(server.getsockname()[1])

    def _await_connections(self, server: socket.socket, opener: str, listener: str) -> None:
        self._loop.watch(server, selectors.EVENT_READ, lambda events: self._accept(server, opener, listener))

    def _accept(self, server: socket.socket, opener: str, listener: str) -> None:
        try:
            near, _ = server.accept()
        except OSError:
            # The opener gave up, or no descriptor is free: then the listener would be ready again and again.
            self._loop.forget(server)
            again = time.monotonic() + _LISTENER_REST_S
            self._loop.at(again, lambda: self._await_connections(server, opener, listener))
            return
        links = self._links[opener, listener], self._links[listener, opener]
        resets = {fault for link in links for fault in link.faults if fault.resets_connections}
        for fault in resets:
            fault.resets += 1
        if resets or not self._join(near, links, listener):
            close_socket(near, reset=True)

    def _join(self, near: socket.socket, links: tuple[RelayedLink, RelayedLink], listener: str) -> bool:
        """Continue a connection to the listener; False if no descriptor is free for it."""
        try:
            connection = RelayedConnection(self._loop, near, links, lambda far: self._dial(far, listener))
        except OSError:
            return False
        connection.proceed()
        return True

    def _dial(self, far: socket.socket, listener: str) -> None:
        """Begin to connect to the current address of a party. Raises OSError."""
        if listener not in self._targets:
            raise ConnectionRefusedError
        status = far.connect_ex(self._targets[listener])
        if status not in (0, errno.EINPROGRESS):
            raise OSError(status, os.strerror(status))


def _hold(fault: LinkFault, links: list[RelayedLink]) -> None:
    """Count the waiting bytes as held, and stop waiting for sockets that could send them."""
    fault.held_bytes += sum(flow.waiting_bytes() for link in links for flow in link.flows)
    for connection in _connections(links):
        connection.proceed()


def _reset(fault: LinkFault, links: list[RelayedLink]) -> None:
    for connection in _connections(links):
        connection.close(reset=True)
        fault.resets += 1


def _heal(fault: LinkFault, links: list[RelayedLink]) -> None:
    fault.healed = True
    for link in links:
        link.faults.remove(fault)
        if fault.holds and not link.is_held:
            link.retime()
    for connection in _connections(links):
        connection.proceed()


def _connections(links: list[RelayedLink]) -> list[RelayedConnection]:
    """Return the connections that use any of these links, each once."""
    return list(dict.fromkeys(connection for link in links for connection in link.flows.values()))


def main(descriptor: int) -> None:
    """Relay for the process at the other end of socket `descriptor` until it is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with socket.socket(fileno=descriptor) as stream:
        _Server(stream).serve()


if __name__ == "__main__":
    main(int(sys.argv[1]))
