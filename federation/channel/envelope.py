"""Messages between sites through the coordinator, which forwards them sealed and cannot read them.

Every two sites share a secret by X25519 (`agreement`). HKDF derives from it a key for each direction, with which
ChaCha20-Poly1305 (RFC 8439) seals messages. The nonce counts the messages of a direction, so it is never used twice.
Sender, receiver and round are authenticated too. The coordinator sees the length, sender, receiver and time of a
message.

An envelope is a message of its own kind with the fields `sender` and `receiver`, and one array of bytes:

    nonce (12) | sealed frame of the message | tag (16)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from fedsvm.federation.channel.agreement import KeyAgreement
from fedsvm.federation.errors import Malformed
from fedsvm.federation.transport import wire
from fedsvm.federation.transport.wire import ENVELOPE_KIND, Message

NONCE_BYTES, TAG_BYTES = 12, 16
_SEALED = "sealed"


class Sealer:
    """One site's envelopes.

    Parameters
    ----------
    me : str
        The site.
    agreement : KeyAgreement
        Its key pair of this run.
    public_key_of : callable
        Returns the public key of another site, given its name; None if it has none.
    """

    def __init__(self, me: str, agreement: KeyAgreement, public_key_of: Callable[[str], bytes | None]) -> None:
        self._me = me
        self._agreement = agreement
        self._public_key_of = public_key_of
        self._sent: Counter[bytes] = Counter()

    def seal(self, receiver: str, message: Message) -> Message:
        """Return an envelope for `receiver` that contains a message. Raises Malformed if the receiver has no key."""
        secret = self._secret(receiver, self._me, receiver)
        nonce = self._sent[secret].to_bytes(NONCE_BYTES, "little")
        self._sent[secret] += 1
        sealed = ChaCha20Poly1305(secret).encrypt(nonce, message.frame, _bound_data(self._me, receiver, message.round))
        array = np.frombuffer(nonce + sealed, dtype=np.uint8)
        fields = {"sender": self._me, "receiver": receiver}
        return Message(ENVELOPE_KIND, message.run, message.round, fields=fields, arrays={_SEALED: array})

    def open(self, envelope: Message) -> tuple[str, Message]:
        """Return the sender of an envelope and its message. Raises Malformed if it was not sealed for this site."""
        sender, receiver = ends_of(envelope)
        array = envelope.arrays[_SEALED]
        if receiver != self._me:
            raise Malformed(f"an envelope for {receiver}")
        nonce, sealed = array[:NONCE_BYTES].tobytes(), array[NONCE_BYTES:].tobytes()
        secret = self._secret(sender, sender, self._me)
        try:
            frame = ChaCha20Poly1305(secret).decrypt(nonce, sealed, _bound_data(sender, self._me, envelope.round))
        except InvalidTag:
            raise Malformed(f"an envelope that {sender} did not seal") from None
        message = wire.decode(frame)
        if (message.run, message.round) != (envelope.run, envelope.round):
            raise Malformed("an envelope that contains a message of another round")
        return sender, message

    def _secret(self, peer: str, sender: str, receiver: str) -> bytes:
        public = self._public_key_of(peer)
        if public is None:
            raise Malformed(f"an envelope between {sender} and {receiver}, who share no key")
        try:
            return self._agreement.secret(public, f"fedsvm envelope from {sender} to {receiver}")
        except ValueError as error:
            raise Malformed(
                f"an envelope between {sender} and {receiver} whose key makes their secret public"
            ) from error


def ends_of(envelope: Message) -> tuple[str, str]:
    """Return sender and receiver of an envelope. Raises Malformed for any other message."""
    fields, arrays = envelope.fields, envelope.arrays
    known = fields.keys() == {"sender", "receiver"} and all(type(value) is str for value in fields.values())
    sealed = arrays.get(_SEALED)
    is_bytes = len(arrays) == 1 and sealed is not None and sealed.dtype == np.uint8 and sealed.ndim == 1
    if not known or not is_bytes or len(arrays[_SEALED]) < NONCE_BYTES + TAG_BYTES:
        raise Malformed("an envelope must have a sender, a receiver and sealed bytes")
    return fields["sender"], fields["receiver"]


def _bound_data(sender: str, receiver: str, round_number: int) -> bytes:
    """Return the additional data that is authenticated with the content."""
    return f"{sender} {receiver} {round_number}".encode()
