"""The client of user-space TCP relays: latency, jitter, bandwidth and faults on links between parties.

One process (`fedsvm.federation.relays.process`) relays all links, without root. It has a port for every opener and
listener. A request takes effect before it is answered, so the caller's next action is subject to the change.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from fedsvm.federation.errors import LaunchError
from fedsvm.federation.processes import pipe
from fedsvm.federation.processes.child import Child

DirectedLink = tuple[str, str]
"""Sender and receiver."""

_PROCESS = "fedsvm.federation.relays.process"
_ANSWER_S = 20.0
_LINKS_AT_ONCE = 1000
"""Links opened by one request. The kernel takes longer to find a free port if few are left, so thousands of links must
not share one deadline."""


@dataclass(frozen=True)
class LinkEffect:
    """The effect of a directed link on bytes.

    Parameters
    ----------
    latency_ms : float, default 0.0
        The delay of all bytes, in milliseconds.
    jitter_ms : float, default 0.0
        The latency varies uniformly by plus or minus this many milliseconds. Bytes of a connection keep their order.
    bandwidth_mbit : float or None, default None
        The bandwidth that all connections of the link share, in 10^6 bits per second; None: no limit.
    """

    latency_ms: float = 0.0
    jitter_ms: float = 0.0
    bandwidth_mbit: float | None = None


class Relays:
    """Starts the relay process and sends it requests.

    Parameters
    ----------
    seed : int
        The seed of the jitter.

    Raises
    ------
    LaunchError
        Every method except `close` raises it if the process ended, is silent, or fails.
    """

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._child = Child(_PROCESS)
        self._stream = self._child.stream
        self._stream.settimeout(_ANSWER_S)

    def __enter__(self) -> Relays:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def open(self, links: Mapping[DirectedLink, LinkEffect]) -> dict[DirectedLink, str]:
        """Listen for the sender of every link, and return the address at which it reaches the receiver.

        The opposite direction of a link has no conditions unless it is also given.
        """
        wanted = [[*link, asdict(conditions)] for link, conditions in links.items()]
        ports: list[int] = []
        for start in range(0, len(wanted), _LINKS_AT_ONCE):
            part = wanted[start : start + _LINKS_AT_ONCE]
            ports += self._ask("open", seed=self._seed, links=part)["ports"]
        return {link: f"tcp://127.0.0.1:{port}" for link, port in zip(links, ports, strict=True)}

    def point(self, listener: str, address: str) -> None:
        """Route new connections to `listener` to this address, tcp://HOST:PORT, from now on."""
        host, _, port = address.removeprefix("tcp://").rpartition(":")
        self._ask("point", listener=listener, host=host, port=int(port))

    def disturb(self, kind: str, links: Collection[DirectedLink], for_s: float | None = None, **terms: Any) -> int:
        """Begin a fault of this kind on these links, and return its number.

        for_s: seconds after which it ends; None: never. terms: values of the kind's own keys.
        """
        answer = self._ask("disturb", kind=kind, links=[list(link) for link in links], for_s=for_s, terms=terms)
        return int(answer["number"])

    def outcomes(self) -> dict[int, dict[str, Any]]:
        """Return the effects of each fault so far: bytes held, delayed and corrupted, connections reset, and whether it
        is over."""
        return dict(self._ask("outcomes")["outcomes"])

    def close(self) -> None:
        """End the process, and with it every relayed connection."""
        self._child.close()

    def _ask(self, do: str, **terms: Any) -> dict[str, Any]:
        """Request an action and wait until it is done. Raises LaunchError."""
        try:
            pipe.write(self._stream, {"do": do, **terms})
            answer = pipe.read(self._stream)
        except TimeoutError:
            self._stream.close()  # a late answer would be mistaken for the answer to another request
            raise LaunchError(
                f"The relay process did not answer within {_ANSWER_S:g} s; is the machine overloaded?"
            ) from None
        except OSError:
            answer = None
        if answer is None:
            raise LaunchError(self._how_it_ended())
        if "error" in answer:
            raise LaunchError(answer["error"])
        return answer

    def _how_it_ended(self) -> str:
        status = self._child.status()
        if status is None:
            return "The relay process closed its stream to this process."
        return f"The relay process ended with status {status}."
