"""Channels: one conformance check, a line for each, over real sockets and in memory."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CTR
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from fedsvm.federation.channel.agreement import KeyAgreement, keystream, keystreams, round_keys, seal, unseal
from fedsvm.federation.channel.channel_conformance import SITES, ChannelConformanceError, Network, Party, check_channel
from fedsvm.federation.channel.mailbox import Mailbox
from fedsvm.federation.channel.memory import InMemoryNetwork, MemoryChannel, SimulatedDeath
from fedsvm.federation.channel.socket import SocketChannel
from fedsvm.federation.errors import DeadlineExpired
from fedsvm.federation.transport.deadline import Deadline
from fedsvm.federation.transport.endpoint import Endpoint
from fedsvm.federation.transport.keys import COORDINATOR, KeyPair, Roster
from fedsvm.federation.transport.keys import Party as Member
from fedsvm.federation.transport.wire import Message

RUN = bytes(8)
ALL = (COORDINATOR, *SITES)


def in_memory(parties: Mapping[str, Party], timeout_s: float) -> dict[str, Any]:
    """In threads, over queues."""
    return InMemoryNetwork(SITES, timeout_s=timeout_s).run(parties)


@given(run=st.binary(min_size=8, max_size=8), number=st.integers(1, 2**53), content=st.binary(max_size=64))
def test_what_two_sites_share_is_of_one_round_one_purpose_and_one_direction(
    run: bytes, number: int, content: bytes
) -> None:
    one, other, third = KeyAgreement(run), KeyAgreement(run), KeyAgreement(run)
    pair = one.pair_key("a", "b", other.public, "purpose")
    assert pair == other.pair_key("b", "a", one.public, "purpose")
    assert pair not in (
        one.pair_key("a", "b", other.public, "another"),
        one.pair_key("a", "c", third.public, "purpose"),
    )
    keys, next_keys = round_keys(pair, number), round_keys(pair, number + 1)
    assert len({keys[:32], keys[32:], next_keys[:32], next_keys[32:]}) == 4
    sealed = seal(keys, content, by_lower=True)
    assert unseal(keys, sealed, by_lower=True) == content
    for wrong, by_lower in ((keys, False), (next_keys, True)):
        with pytest.raises(InvalidTag):
            unseal(wrong, sealed, by_lower=by_lower)


@given(st.lists(st.binary(min_size=32, max_size=32), min_size=1, max_size=4), st.integers(0, 9), st.integers(0, 5))
def test_keystreams_are_those_of_aes_in_counter_mode(secrets: list[bytes], length: int, part: int) -> None:
    rows = keystreams(secrets, (2, length), part)
    for secret, row in zip(secrets, rows, strict=True):
        start = part.to_bytes(12, "little") + (2).to_bytes(4, "big")  # the first block of GCM is of its tag
        stream = Cipher(AES(secret), CTR(start)).encryptor().update(bytes(16 * length))
        assert row.tobytes() == stream == keystream(secret, (2, length), part).tobytes()


class SocketNetwork:
    """Parties in threads, each with an endpoint of its own on encrypted sockets; one that dies closes it."""

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._all_listen = threading.Barrier(len(ALL))
        self._all_finished = threading.Event()
        self._unfinished = set(ALL)
        self._keys = {name: KeyPair.generate() for name in ALL}
        self._agreements = {name: KeyAgreement(RUN) for name in SITES}
        self._members: dict[str, Member] = {}

    def run(self, parties: Mapping[str, Party]) -> dict[str, Any]:
        """Return the result of each party that did not die."""
        with ThreadPoolExecutor(len(ALL)) as pool:
            futures = {name: pool.submit(self._live, name, parties[name]) for name in ALL}
        results = {name: future.result() for name, future in futures.items()}
        return {name: result[0] for name, result in results.items() if result}

    def _live(self, name: str, party: Party) -> list[Any]:
        """Return the result of a party in a list; an empty one if it died."""
        with Endpoint(name, "tcp://127.0.0.1:*", self._keys[name], len(ALL)) as endpoint:
            agreement = self._agreements.get(name)
            public = agreement.public if agreement is not None else None
            self._members[name] = Member(name, endpoint.address, self._keys[name].public, public)
            self._all_listen.wait(60)
            endpoint.admit(Roster(self._members[member] for member in ALL))
            mailbox = Mailbox(endpoint, RUN)
            begin_round(mailbox)

            def notice() -> None:
                assert mailbox.next_control() is None

            channel = SocketChannel(
                mailbox, SITES, len(SITES), 1, Deadline(self._timeout_s), notice, agreement=agreement
            )
            try:
                results = [party(channel)]
            except SimulatedDeath:
                results = []
            finally:
                self._unfinished.discard(name)
                if not self._unfinished:
                    self._all_finished.set()
            if results:
                self._serve(endpoint)
            return results

    def _serve(self, endpoint: Endpoint) -> None:
        """Until all others have finished too."""
        deadline = Deadline(60)
        while not self._all_finished.is_set():
            assert not deadline.expired
            with suppress(DeadlineExpired):
                endpoint.wait(Deadline(0.05))
            while endpoint.received() is not None:
                pass


def begin_round(mailbox: Mailbox) -> None:
    """As with an order: the coordinator opens a connection to every site, and each waits until it has heard."""
    deadline = Deadline(20)
    mailbox.enter(1)
    if mailbox.endpoint.name == COORDINATOR:
        for site in SITES:
            mailbox.endpoint.send(site, Message("order", RUN, 1), deadline)
        return
    while mailbox.next_control() is None:
        mailbox.wait(deadline)


def over_sockets(parties: Mapping[str, Party], timeout_s: float) -> dict[str, Any]:
    """In threads, over encrypted sockets."""
    return SocketNetwork(timeout_s).run(parties)


@pytest.mark.parametrize("network", [over_sockets, in_memory])
def test_a_channel_keeps_the_contract(network: Network) -> None:
    assert len(list(check_channel(network))) == 5


def test_parties_end_when_who_runs_them_is_interrupted() -> None:
    main = threading.main_thread().ident
    assert main is not None

    def press(channel: MemoryChannel) -> None:
        signal.pthread_kill(main, signal.SIGINT)
        wait_for_peer(channel)

    def wait_for_peer(channel: MemoryChannel) -> None:
        channel.receive(COORDINATOR, (1,))

    with pytest.raises(KeyboardInterrupt):
        InMemoryNetwork(SITES, timeout_s=1e6).run({SITES[0]: press, SITES[1]: wait_for_peer})


class Careless(InMemoryNetwork):
    """A network whose channels take arrays of any type for what is due."""

    def _channel(self, name: str) -> MemoryChannel:
        return CarelessChannel(self, name)


class CarelessChannel(MemoryChannel):
    def receive(self, peer: str, shape: Sequence[int], dtype: Any = np.uint64) -> NDArray[Any]:
        return self._network._get(peer, self.me, time.monotonic() + 5).array.astype(dtype)


def test_a_channel_that_takes_any_type_is_found_out() -> None:
    with pytest.raises(ChannelConformanceError, match=r"takes uint64 \(1, 4\), or says None"):
        list(check_channel(lambda parties, timeout_s: Careless(SITES, timeout_s=timeout_s).run(parties)))


@given(run=st.binary(min_size=8, max_size=8), purpose=st.text(max_size=40))
def test_secrets_are_those_of_hkdf(run: bytes, purpose: str) -> None:
    one, other = KeyAgreement(run), KeyAgreement(run)
    agreed = one._private.exchange(X25519PublicKey.from_public_bytes(other.public))
    expected = HKDF(SHA256(), 32, salt=run, info=purpose.encode()).derive(agreed)
    assert one.secret(other.public, purpose) == other.secret(one.public, purpose) == expected
