"""The requirements for every channel, whatever its transport: arrays whole and in order, and one error for each
failure.

`check_channel` receives a way to run parties on a network; the tests check each of our networks.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from fedsvm.federation.channel.agreement import TAG_BYTES
from fedsvm.federation.channel.interface import Channel
from fedsvm.federation.channel.memory import SimulatedDeath
from fedsvm.federation.errors import FederationError, PeerDropped, PeerLate, ProtocolError, RoundAborted
from fedsvm.federation.transport.keys import COORDINATOR

SITES = ("site-1", "site-2", "site-3")
_LONG_S = 30.0

Party = Callable[[Channel], Any]
Network = Callable[[Mapping[str, Party], float], dict[str, Any]]
"""Runs the coordinator and the three SITES as one round over a network of its own, with this many seconds for the
round. Returns the result of each party. A party that raises SimulatedDeath ends at once and returns nothing."""


_TIMEOUT_S = 1.5
"""Seconds of a round in which a party is late; others must be able to finish in this time."""


class ChannelConformanceError(AssertionError):
    """A channel does not meet a requirement, which the message names."""


def check_channel(run: Network) -> Iterator[str]:
    """Check one property after the other, and yield a sentence for each that holds.

    Parameters
    ----------
    run : callable
        See `Network`.

    Raises
    ------
    ChannelConformanceError
        A requirement is not met.
    """
    _check_arrays(run)
    yield "arrays arrive whole and in order, between sites and with the coordinator"
    _check_wrong_arrays(run)
    yield "an array of another shape or type is a ProtocolError that names both ends and both arrays"
    _check_late_peer(run)
    yield "a late peer raises PeerLate in receive, and is omitted by collect"
    _check_dead_peer(run)
    yield "a dead peer raises PeerDropped in receive, and is omitted by collect"
    _check_randomness(run)
    yield "random draws are uniform and fresh, and no other site knows the secrets of two sites"


def _check_arrays(run: Network) -> None:
    arrays = [np.arange(6.0).reshape(2, 3), np.array(7, dtype=np.int64), np.zeros((0, 2), dtype=np.uint64)]
    arrays += [np.full(4, 255, dtype=np.uint8), np.full((1, 70_000), 2**64 - 1, dtype=np.uint64)]

    def send_all(channel: Channel, peers: tuple[str, ...]) -> None:
        for array in arrays:
            for peer in peers:
                channel.send(peer, array)

    def receive_all(channel: Channel, peer: str) -> list[Any]:
        return [channel.receive(peer, array.shape, array.dtype) for array in arrays]

    def first(channel: Channel) -> list[Any]:
        send_all(channel, ("site-2", COORDINATOR))
        return receive_all(channel, COORDINATOR)

    def coordinator(channel: Channel) -> list[Any]:
        received = receive_all(channel, "site-1")
        send_all(channel, ("site-1",))
        collected = channel.collect({"site-3": (2,), "site-2": (1,)}, np.float64)
        _require(list(collected) == ["site-3", "site-2"], "collect does not keep the order of its argument")
        _require(channel.sites == SITES, "the coordinator sees other sites than the sites do")
        return received

    def second(channel: Channel) -> list[Any]:
        received = receive_all(channel, "site-1")
        channel.send(COORDINATOR, np.ones(1))
        return received

    def third(channel: Channel) -> list[Any]:
        channel.send(COORDINATOR, np.ones(2))
        _require((channel.me, channel.sites) == ("site-3", SITES), "a channel has a wrong party or wrong sites")
        return arrays

    received = run({COORDINATOR: coordinator, "site-1": first, "site-2": second, "site-3": third}, _LONG_S)
    for party in (COORDINATOR, *SITES):
        for sent, came in zip(arrays, received[party], strict=True):
            _require(sent.dtype == came.dtype and np.array_equal(sent, came), f"{party} received another array")


def _check_wrong_arrays(run: Network) -> None:
    wrong = [np.zeros((1, 4), dtype=np.uint64), np.zeros((1, 3)), np.zeros(3, dtype=np.uint64)]

    def send_wrong(channel: Channel) -> None:
        for array in wrong:
            channel.send("site-2", array)
            channel.send(COORDINATOR, array)

    def receive_wrong(channel: Channel) -> list[Exception | None]:
        receive = [_error(lambda: channel.receive("site-1", (1, 3))) for _ in wrong[1:]]
        return [*receive, _error(lambda: channel.collect({"site-1": (1, 3)}))]

    parties = {COORDINATOR: receive_wrong, "site-1": send_wrong, "site-2": receive_wrong, "site-3": _nothing}
    results = run(parties, _LONG_S)
    for party in (COORDINATOR, "site-2"):
        for array, error in zip(wrong, results[party], strict=True):
            _require(isinstance(error, ProtocolError), f"{party} takes {array.dtype} {array.shape}, or says {error!r}")
            ends = (error.sender, error.receiver, error.expected, error.got)
            _require(
                ends == ("site-1", party, "uint64 (1, 3)", f"{array.dtype} {array.shape}"),
                f"the error at {party} says {ends}",
            )


def _check_late_peer(run: Network) -> None:
    """Check that the others continue without a site that sends nothing in time."""
    given_up = [threading.Event(), threading.Event()]

    def late(channel: Channel) -> None:
        for event in given_up:
            event.wait(_LONG_S)

    def receive(channel: Channel) -> Exception | None:
        error = _error(lambda: channel.receive("site-3", (1,)))
        given_up[0].set()
        return error

    def collect(channel: Channel) -> Any:
        collected = channel.collect(dict.fromkeys(SITES[1:], (1,)))
        given_up[1].set()
        return list(collected)

    def in_time(channel: Channel) -> None:
        channel.send(COORDINATOR, np.zeros(1, dtype=np.uint64))

    results = run({COORDINATOR: collect, "site-1": receive, "site-2": in_time, "site-3": late}, _TIMEOUT_S)
    _require(isinstance(results["site-1"], PeerLate), f"receive from a late peer gives {results['site-1']!r}")
    _require(results[COORDINATOR] == ["site-2"], f"collect with one late site of two gives {results}")


def _check_dead_peer(run: Network) -> None:
    """Check that a site's death is reported to parties that sent to it and wait for its messages."""
    word, heard = np.zeros(1, dtype=np.uint64), [threading.Event(), threading.Event()]

    def die(channel: Channel) -> None:
        channel.receive("site-1", (1,))
        channel.send("site-1", word)
        channel.send(COORDINATOR, word)
        for event in heard:
            event.wait(_LONG_S)
        raise SimulatedDeath

    def survivor(channel: Channel) -> Exception | None:
        channel.send("site-3", word)
        channel.receive("site-3", (1,))
        heard[0].set()
        return _error(lambda: channel.receive("site-3", (1,)))

    def coordinator(channel: Channel) -> Any:
        channel.receive("site-3", (1,))
        heard[1].set()
        error = _error(lambda: channel.receive("site-3", (1,)))
        return error, list(channel.collect(dict.fromkeys(SITES[1:], (1,))))

    def alive(channel: Channel) -> None:
        channel.send(COORDINATOR, word)

    parties = {COORDINATOR: coordinator, "site-1": survivor, "site-2": alive, "site-3": die}
    results = run(parties, 2 * _TIMEOUT_S)
    error, collected = results[COORDINATOR]
    _require("site-3" not in results, "a party that died returns something")
    _require(
        isinstance(results["site-1"], PeerDropped), f"a site's receive from a dead peer gives {results['site-1']!r}"
    )
    _require(isinstance(error, PeerDropped), f"the coordinator's receive from a dead peer gives {error!r}")
    _require(collected == ["site-2"], f"collect with one dead site of two gives {collected}")


def _check_randomness(run: Network) -> None:
    def draw(channel: Channel) -> dict[str, Any]:
        others = [site for site in SITES if site != channel.me]
        contents = {peer: f"{channel.me} to {peer}".encode() for peer in others}
        for peer, sealed in zip(others, channel.seal(contents, "one"), strict=True):
            channel.send(peer, np.frombuffer(sealed, dtype=np.uint8))
        length = len(contents[others[0]]) + TAG_BYTES
        came = {peer: channel.receive(peer, (length,), np.uint8).tobytes() for peer in others}
        first, second = others
        return {
            "opened": dict(zip(others, channel.unseal(came, "one"), strict=True)),
            "swapped": _error(lambda: channel.unseal({first: came[second]}, "one")),
            "random": [channel.random((2, 500)) for _ in range(2)],
            "secrets": dict(zip(others, channel.shared_secrets(others, "one"), strict=True)),
            "others": channel.shared_secrets(others, "another"),
            "expanded": [*channel.expand([bytes(32)] * 2, (1, 3)), *channel.expand([bytes(32)], (1, 3))],
            "part": channel.expand([bytes(32)], (1, 3), 1)[0],
        }

    results = run({COORDINATOR: _nothing, **dict.fromkeys(SITES, draw)}, _LONG_S)
    drawn = [array for site in SITES for array in results[site]["random"]]
    _require(all(array.shape == (2, 500) and array.dtype == np.uint64 for array in drawn), "residues of another shape")
    _require(len({array.tobytes() for array in drawn}) == len(drawn), "two draws are the same")
    ones = np.unpackbits(np.concatenate(drawn).view(np.uint8)).mean()
    _require(abs(ones - 0.5) < 0.01, f"the share of ones in the drawn bits is {ones:.3f}")
    shared = {site: results[site]["secrets"] for site in SITES}
    _require(all(shared[a][b] == shared[b][a] for a in SITES for b in shared[a]), "two sites share no secret")
    everything = {secret for site in SITES for secret in shared[site].values()}
    _require(len(everything) == 3, "two pairs of sites have the same secret")
    _require(everything.isdisjoint(results["site-1"]["others"]), "a secret is the same for two purposes")
    expanded = [array for site in SITES for array in results[site]["expanded"]]
    _require(len({array.tobytes() for array in expanded}) == 1, "two parties expand one secret to different keystreams")
    parts = {results[site]["part"].tobytes() for site in SITES}
    _require(len(parts) == 1 and parts != {expanded[0].tobytes()}, "two parts have one keystream")
    for site in SITES:
        for peer, content in results[site]["opened"].items():
            _require(content == f"{peer} to {site}".encode(), f"{site} does not open what {peer} sealed for it")
        _require(
            isinstance(results[site]["swapped"], ProtocolError),
            f"{site} accepts content that was sealed for another site",
        )


def _nothing(channel: Channel) -> None:
    """Do nothing: this party has no part in the protocol."""


def _error(action: Callable[[], object]) -> Exception | None:
    try:
        action()
    except (FederationError, RoundAborted) as error:
        return error
    return None


def _require(kept: bool, what: str) -> None:
    if not kept:
        raise ChannelConformanceError(what)
