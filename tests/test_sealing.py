"""Seals of sites that speak through a hub or a coordinator: fresh keys, bound rounds and senders, refused forgeries."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from fedsvm.federation.channel.agreement import KeyAgreement
from fedsvm.federation.channel.envelope import NONCE_BYTES, Sealer, ends_of
from fedsvm.federation.errors import Malformed
from fedsvm.federation.offline.sealing import HEAD_BYTES, NUMBER_BYTES, Answers, Draws, Requests, Vault, derive_key
from fedsvm.federation.transport.keys import KEY_BYTES, KeyPair
from fedsvm.federation.transport.wire import DATA_KIND, ENVELOPE_KIND, Message

RUN, OTHER_RUN = b"this run", b"last run"
SITES = ("north", "south", "west")
ROUND = 7
ARRAY = np.arange(4, dtype=np.uint64)


# Sites and a hub.


@given(st.binary(min_size=32, max_size=32), st.integers(0, 2**53), st.integers(1, 20))
def test_draws_of_a_round_repeat_and_those_of_two_rounds_differ(secret: bytes, number: int, length: int) -> None:
    def drawn(secret: bytes, number: int) -> list[list[int]]:
        draw = Draws(secret).of_round(number)
        return [draw((length,)).tolist() for _ in range(2)]

    first, second = drawn(secret, number)
    assert first != second
    assert drawn(secret, number) == [first, second]
    for other in (drawn(secret, number + 1), drawn(derive_key(secret, "another"), number)):
        assert not {tuple(first), tuple(second)} & {tuple(vector) for vector in other}


def test_purposes_derive_different_secrets() -> None:
    secrets = {derive_key(secret, purpose) for secret in (bytes(32), b"x" * 32) for purpose in ("a", "b")}
    assert {len(secret) for secret in secrets} == {32}
    assert len(secrets) == 4


def hub_and_site() -> tuple[Answers, Requests, KeyPair]:
    """A hub, one of its sites, and the keys of that site."""
    hub, site = KeyPair.generate(), KeyPair.generate()
    return Answers(hub), Requests(site, hub.public), site


def test_every_request_and_its_answer_have_keys_of_their_own() -> None:
    """Contents are zeros: what is sealed, less its tag, is the keystream itself."""
    answers, requests, site = hub_and_site()
    content, streams = bytes(48), set()
    for _ in range(3):
        request, open_answer = requests.seal(content)
        sender, opened, seal_answer = answers.open(request)
        answer = seal_answer(content)
        assert (sender, opened, open_answer(answer)) == (site.public, content, content)
        assert len(request) == HEAD_BYTES + len(content) + 16
        streams |= {request[HEAD_BYTES:-16], answer[:-16]}
    assert len(streams) == 6


def test_requests_are_numbered_at_random() -> None:
    _, requests, site = hub_and_site()
    heads = [requests.seal(b"")[0][:HEAD_BYTES] for _ in range(3)]
    assert {head[:KEY_BYTES] for head in heads} == {site.public}
    assert len({head[KEY_BYTES:] for head in heads}) == 3
    assert NUMBER_BYTES == 16


def test_answers_open_their_own_request_alone() -> None:
    answers, requests, _ = hub_and_site()
    (first, open_first), (_, open_second) = requests.seal(b"one"), requests.seal(b"two")
    answer = answers.open(first)[2](b"yes")
    assert open_first(answer) == b"yes"
    for opening, sealed in ((open_second, answer), (open_first, first[HEAD_BYTES:])):
        with pytest.raises(Malformed, match="named sender did not seal"):
            opening(sealed)


def test_forged_requests_are_refused() -> None:
    answers, requests, _ = hub_and_site()
    request, _ = requests.seal(b"content")
    for place in range(len(request)):
        forged = bytearray(request)
        forged[place] ^= 1
        with pytest.raises(Malformed):
            answers.open(bytes(forged))
    for length in (0, HEAD_BYTES, HEAD_BYTES + 15):
        with pytest.raises(Malformed, match="cut short"):
            answers.open(request[:length])
    with pytest.raises(Malformed, match="an invalid key"):
        answers.open(bytes(KEY_BYTES) + request[KEY_BYTES:])
    with pytest.raises(Malformed, match="named sender did not seal"):
        answers.open(KeyPair.generate().public + request[KEY_BYTES:])


def test_requests_for_another_hub_are_refused() -> None:
    _, requests, _ = hub_and_site()
    with pytest.raises(Malformed, match="named sender did not seal"):
        hub_and_site()[0].open(requests.seal(b"content")[0])


def test_vault_binds_each_piece_to_its_place_and_draws_a_nonce_for_it() -> None:
    vault, content = Vault(bytes(32)), bytes(40)
    pieces = [vault.seal(content, "place") for _ in range(3)]
    assert len({piece[:NONCE_BYTES] for piece in pieces}) == len({piece[NONCE_BYTES:] for piece in pieces}) == 3
    assert [vault.open(piece, "place") for piece in pieces] == [content] * 3
    attempts = ((vault, pieces[0], "elsewhere"), (Vault(b"x" * 32), pieces[0], "place"), (vault, b"", "place"))
    for opening, sealed, place in attempts:
        with pytest.raises(Malformed, match="not sealed with this key for this place"):
            opening.open(sealed, place)


# Envelopes between sites.


def sealers() -> dict[str, Sealer]:
    """The sealer of every site; all know the public keys of all."""
    agreements = {site: KeyAgreement(RUN) for site in SITES}

    def public_key_of(peer: str) -> bytes | None:
        return agreements[peer].public if peer in agreements else None

    return {site: Sealer(site, agreement, public_key_of) for site, agreement in agreements.items()}


def message(round_number: int = ROUND, run: bytes = RUN) -> Message:
    """An array of a protocol."""
    return Message(DATA_KIND, run, round_number, arrays={"value": ARRAY})


def changed(envelope: Message, **fields: str) -> Message:
    """The same sealed bytes from, or for, another site."""
    return Message(ENVELOPE_KIND, envelope.run, envelope.round, fields=envelope.fields | fields, arrays=envelope.arrays)


def sealed_bytes(envelope: Message) -> bytes:
    """The array of an envelope."""
    (array,) = envelope.arrays.values()
    return array.tobytes()


def test_envelopes_open_at_their_receiver_and_never_repeat_a_nonce() -> None:
    by_site = sealers()
    envelopes = [by_site["north"].seal("south", message()) for _ in range(3)]
    nonces = [sealed_bytes(envelope)[:NONCE_BYTES] for envelope in envelopes]
    assert nonces == [number.to_bytes(NONCE_BYTES, "little") for number in range(3)]
    for envelope in envelopes:
        sender, opened = by_site["south"].open(envelope)
        assert (sender, opened.round, opened.run) == ("north", ROUND, RUN)
        np.testing.assert_array_equal(opened.arrays["value"], ARRAY)


def test_every_direction_between_sites_has_a_key_of_its_own() -> None:
    """Equal messages under equal nonces: only different keys make what is sealed differ."""
    by_site = sealers()
    pairs = list(itertools.permutations(SITES, 2))
    sealed = {sealed_bytes(by_site[sender].seal(receiver, message()))[:-16] for sender, receiver in pairs}
    assert len(sealed) == len(pairs)


def test_envelopes_authenticate_sender_receiver_and_round() -> None:
    by_site = sealers()
    envelope = by_site["north"].seal("south", message())
    next_round = Message(ENVELOPE_KIND, RUN, ROUND + 1, fields=envelope.fields, arrays=envelope.arrays)
    for forged in (next_round, changed(envelope, sender="west")):
        with pytest.raises(Malformed, match="did not seal"):
            by_site["south"].open(forged)
    with pytest.raises(Malformed, match="an envelope for south"):
        by_site["west"].open(envelope)
    with pytest.raises(Malformed, match="did not seal"):
        by_site["west"].open(changed(envelope, receiver="west"))
    with pytest.raises(Malformed, match="share no key"):
        by_site["south"].open(changed(envelope, sender="stranger"))


@pytest.mark.parametrize("inner", [message(ROUND + 1), message(run=OTHER_RUN)], ids=["round", "run"])
def test_messages_of_another_round_or_run_are_refused_though_a_site_sealed_them(inner: Message) -> None:
    north, south = KeyAgreement(RUN), KeyAgreement(RUN)
    secret, nonce = north.secret(south.public, "fedsvm envelope from north to south"), bytes(NONCE_BYTES)
    opener = Sealer("south", south, lambda peer: north.public)

    def sealed(within: Message) -> Message:
        content = ChaCha20Poly1305(secret).encrypt(nonce, within.frame, f"north south {ROUND}".encode())
        arrays = {"sealed": np.frombuffer(nonce + content, dtype=np.uint8)}
        return Message(ENVELOPE_KIND, RUN, ROUND, fields={"sender": "north", "receiver": "south"}, arrays=arrays)

    assert opener.open(sealed(message()))[0] == "north"
    with pytest.raises(Malformed, match="contains a message of another round"):
        opener.open(sealed(inner))


@pytest.mark.parametrize(
    ("fields", "arrays"),
    [
        ({"sender": "north"}, {"sealed": np.zeros(28, dtype=np.uint8)}),
        ({"sender": "north", "receiver": 1}, {"sealed": np.zeros(28, dtype=np.uint8)}),
        ({"sender": "north", "receiver": "south", "more": "x"}, {"sealed": np.zeros(28, dtype=np.uint8)}),
        ({"sender": "north", "receiver": "south"}, {}),
        ({"sender": "north", "receiver": "south"}, {"other": np.zeros(28, dtype=np.uint8)}),
        ({"sender": "north", "receiver": "south"}, {"sealed": np.zeros(28)}),
        ({"sender": "north", "receiver": "south"}, {"sealed": np.zeros((28, 1), dtype=np.uint8)}),
        ({"sender": "north", "receiver": "south"}, {"sealed": np.zeros(27, dtype=np.uint8)}),
        ({"sender": "north", "receiver": "south"}, dict.fromkeys(("sealed", "more"), np.zeros(28, dtype=np.uint8))),
    ],
)
def test_messages_that_are_no_envelopes_are_refused(fields: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> None:
    with pytest.raises(Malformed, match=r"^an envelope must have a sender, a receiver and sealed bytes$"):
        ends_of(Message(ENVELOPE_KIND, RUN, ROUND, fields=fields, arrays=arrays))


def test_the_shortest_envelope_has_a_nonce_and_a_tag() -> None:
    fields = {"sender": "north", "receiver": "south"}
    shortest = Message(ENVELOPE_KIND, RUN, ROUND, fields=fields, arrays={"sealed": np.zeros(28, dtype=np.uint8)})
    assert ends_of(shortest) == ("north", "south")


def test_keys_that_all_would_know_seal_nothing() -> None:
    sealer = Sealer("north", KeyAgreement(RUN), lambda peer: bytes(KEY_BYTES))
    with pytest.raises(Malformed, match="whose key makes their secret public"):
        sealer.seal("south", message())
