"""The authentication of connections: CURVE on every socket, and the answer to each handshake (ZAP, RFC 27).

With keys, the roster maps a key to its party, and the handshake refuses every other key. Without keys (`ipc`, or tcp
without encryption) a party is identified by the name that it claims, if the roster has the name.
"""

from __future__ import annotations

from collections.abc import Sequence

import zmq

from fedsvm.federation.transport.keys import KeyPair, Party, Roster
from fedsvm.federation.transport.poller import drain

_ZAP_ADDRESS = "inproc://zeromq.zap.01"
_ZAP_FRAMES = 7
"""Frames of a ZAP request about a CURVE handshake: version, number, domain, address, identity, mechanism, key."""
REFUSED = "key not in the roster"


class Authenticator:
    """Secures the sockets of one party, and identifies its peers by their keys.

    Parameters
    ----------
    name : str
        The name of this party.
    keys : KeyPair or None
        Its key pair; None without encryption.

    Attributes
    ----------
    roster : Roster
        Exactly these parties may connect.
    """

    def __init__(self, name: str, keys: KeyPair | None) -> None:
        self.roster = Roster([])
        self._name = name
        self._keys = keys

    @property
    def encrypted(self) -> bool:
        return self._keys is not None

    @property
    def routing_id(self) -> bytes:
        """The routing id of this party. It is empty with CURVE: the key identifies it, and an id could shut another
        peer out."""
        return b"" if self._keys is not None else self._name.encode()

    def listen(self, context: zmq.Context[zmq.Socket[bytes]]) -> zmq.Socket[bytes] | None:
        """Open the socket on which libzmq asks for every handshake whether the key is admitted; None without keys.

        Call `serve` whenever it is readable.
        """
        if self._keys is None:
            return None
        zap = context.socket(zmq.ROUTER)  # a REP socket would be unusable if Ctrl-C came before its answer
        zap.setsockopt(zmq.LINGER, 0)
        zap.bind(_ZAP_ADDRESS)
        return zap

    def serve(self, zap: zmq.Socket[bytes]) -> None:
        """Answer the requests that wait on the socket of `listen`."""
        for frames in drain(zap):
            sender, question = [frame.bytes for frame in frames[:2]], [frame.bytes for frame in frames[2:]]
            if len(question) == _ZAP_FRAMES:  # otherwise Ctrl-C came while it was read
                zap.send_multipart([*sender, *self.answer(question)])

    def answer(self, frames: Sequence[bytes]) -> list[bytes]:
        """Return the answer to one ZAP request."""
        version, request, _, _, _, mechanism, key = frames
        name = self.roster.name_of(key) if mechanism == b"CURVE" else None
        verdict = (b"400", REFUSED.encode(), b"") if name is None else (b"200", b"OK", name.encode())
        return [version, request, *verdict, b""]

    def secure_listener(self, router: zmq.Socket[bytes]) -> None:
        """Prepare a socket that others connect to."""
        if self._keys is not None:
            router.setsockopt(zmq.CURVE_SERVER, 1)
            router.setsockopt(zmq.CURVE_PUBLICKEY, self._keys.public)
            router.setsockopt(zmq.CURVE_SECRETKEY, self._keys.secret)

    def secure_dialler(self, dealer: zmq.Socket[bytes], peer: Party) -> None:
        """Prepare a socket that connects to `peer`."""
        if self._keys is not None:
            dealer.setsockopt(zmq.CURVE_PUBLICKEY, self._keys.public)
            dealer.setsockopt(zmq.CURVE_SECRETKEY, self._keys.secret)
            dealer.setsockopt(zmq.CURVE_SERVERKEY, peer.public_key or b"")
        else:
            dealer.setsockopt(zmq.ROUTING_ID, self.routing_id)

    def sender(self, routing_id: bytes, frame: zmq.Frame) -> str | None:
        """Return the sender of a message on the listening socket, or None if the roster does not contain it."""
        if self._keys is None:
            claimed = routing_id.decode("utf-8", "replace")
            return claimed if claimed in self.roster else None
        return str(frame.get("User-Id"))
