"""The contract of a channel: what a protocol function sees of the network, and how it fails.

`fedsvm.federation.channel.socket` implements it over an endpoint and `fedsvm.federation.channel.memory` in memory. The
same protocol function therefore runs in a site process and in a test without processes.
`fedsvm.federation.channel.channel_conformance` checks that they agree.

Both raise the same errors:

    a peer dropped            PeerDropped     the round runs again without it
    a peer is late            PeerLate        the round runs again
    a wrong shape or type     ProtocolError   a protocol's code is wrong; the run ends
    the round ended           RoundAborted    another party could not continue; this party leaves the round
"""

from __future__ import annotations

import abc
import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from cryptography.exceptions import InvalidTag
from numpy.typing import NDArray

from fedsvm.federation.arrays import Residues
from fedsvm.federation.channel.agreement import SECRET_BYTES, keystream, seal, unseal
from fedsvm.federation.errors import ProtocolError

_MAX_SYSTEM_WORDS = 1 << 13

Draw = Callable[[Sequence[int]], Residues]
"""Returns residues that are uniform over the whole modulus, given their shape."""


class Channel(Protocol):
    """One party's view of one round.

    Attributes
    ----------
    me : str
        This party.
    sites : tuple of str
        The sites of the round in ring order, the same at every party.
    run_sites : int
        The number of sites that the run began with, the same at every party.
    min_sites : int
        The minimum number of sites of a sum in which this party takes part.
    """

    me: str
    sites: tuple[str, ...]
    run_sites: int
    min_sites: int

    def send(self, peer: str, array: NDArray[Any]) -> None:
        """Send `array` to `peer`, without waiting until it is received.

        A site connects to a peer before it first sends to it. It raises PeerDropped if it cannot reach the peer before
        the round's deadline, and RoundAborted if the round ended meanwhile. The coordinator sends over connections that
        sites opened, and never raises: it detects a missing site when an answer is due.
        """

    def receive(self, peer: str, shape: Sequence[int], dtype: Any = np.uint64) -> NDArray[Any]:
        """Return the next array from `peer`.

        Parameters
        ----------
        peer : str
            The sender.
        shape : sequence of int
            The required shape.
        dtype : numpy dtype, default uint64
            The required type.

        Raises
        ------
        ProtocolError
            The array has another shape or type.
        PeerDropped
            The array may never arrive: the peer dropped, or the connection to it broke. A site cannot detect this for a
            peer to which it has not sent. The coordinator detects it for all, and raises when any site of the round
            dropped.
        PeerLate
            The array did not arrive before the round's deadline.
        RoundAborted
            The round ended elsewhere.
        """

    def collect(self, shapes: Mapping[str, Sequence[int]], dtype: Any = np.uint64) -> dict[str, NDArray[Any]]:
        """Return the next array from each of these peers, of these shapes. Omit peers that dropped or are late.

        Each call may take the whole time of a round. Raises ProtocolError and RoundAborted as `receive` does.
        """

    def random(self, shape: Sequence[int]) -> Residues:
        """Return residues uniform over the whole modulus, as `uniform_residues` draws them."""

    def note_opening(self) -> None:
        """Record that the next message may let its receiver open a sum with this party's contribution."""

    def joint_seed(self) -> bytes:
        """Return a digest of all sites' public keys for secrets; every site of the run contributed a random key."""

    def shared_secrets(self, peers: Sequence[str], purpose: str) -> list[bytes]:
        """Return for each peer 256 bits that only it and this site can derive, fresh for this round and purpose."""

    def seal(self, contents: Mapping[str, bytes], purpose: str) -> list[bytes]:
        """Seal a content for each peer, so that only it can open it; at most once per round, peer and purpose.

        A sealed content is 16 bytes longer.
        """

    def unseal(self, sealed: Mapping[str, bytes], purpose: str) -> list[bytes]:
        """Open what each of these peers sealed for this site in this round. Raises ProtocolError for anything else."""

    def expand(self, secrets: Sequence[bytes], shape: Sequence[int], part: int = 0) -> Residues:
        """Return the keystreams of 256-bit secrets as residues. They are uniform to everyone who does not know the
        secrets.

        Parameters
        ----------
        secrets : sequence of bytes
            The secrets, of 32 bytes each.
        shape : sequence of int
            The shape of each keystream.
        part : int, default 0
            The part of a long vector; each part has a separate keystream.

        Returns
        -------
        Residues of shape (secrets, *shape)
        """


class Observer(Protocol):
    """An observer of one party's channel, such as a transcript, or a fault that starts at a message."""

    def sending(self, peer: str, array: NDArray[Any]) -> None:
        """Observe an array before it is sent."""

    def received(self, peer: str, array: NDArray[Any]) -> None:
        """Observe an array that a protocol receives."""

    def drew(self, residues: Residues, stream: str = "") -> None:
        """Observe a random vector or a keystream; keystreams of one secret share a name."""


def uniform_residues(shape: Sequence[int]) -> Residues:
    """Return a uint64 array of `shape` from the operating system's generator.

    Long arrays come from a cipher with a key from that generator, which is ten times as fast.
    """
    words = math.prod(shape)
    if words > _MAX_SYSTEM_WORDS:
        return keystream(os.urandom(SECRET_BYTES), shape)
    return np.frombuffer(os.urandom(8 * words), dtype=np.uint64).reshape(shape)


def check_array(
    sender: str, receiver: str, array: NDArray[Any] | None, shape: Sequence[int], dtype: Any
) -> NDArray[Any]:
    """Return the array if it has this shape and type. Raises ProtocolError."""
    if array is None or array.shape != tuple(shape) or array.dtype != np.dtype(dtype):
        got = "no array" if array is None else f"{array.dtype} {array.shape}"
        raise ProtocolError(sender, receiver, f"{np.dtype(dtype)} {tuple(shape)}", got)
    return array


class KeyedChannel(abc.ABC):
    """The part of a channel that uses the keys its party shares with each other party in a round, see `round_keys`.

    Attributes
    ----------
    me : str
        This party.
    has_opened : bool
        Whether a sum with this party's contribution may be open; see `Channel.note_opening`.
    """

    me: str
    has_opened = False

    def note_opening(self) -> None:
        """Record that the next message may let its receiver open a sum with this party's contribution."""
        self.has_opened = True

    @abc.abstractmethod
    def _keys_of(self, peers: Iterable[str], purpose: str) -> list[bytes]:
        """Return the keys shared with each of some peers. Raises StepRefused for a peer without keys."""

    def shared_secrets(self, peers: Sequence[str], purpose: str) -> list[bytes]:
        """Return for each peer 256 bits that only it and this site can derive, fresh for this round and purpose."""
        return [keys[:SECRET_BYTES] for keys in self._keys_of(peers, purpose)]

    def seal(self, contents: Mapping[str, bytes], purpose: str) -> list[bytes]:
        """Seal a content for each peer, so that only it can open it; at most once per round, peer and purpose."""
        keys = self._keys_of(contents, purpose)
        return [seal(own, contents[peer], by_lower=self.me < peer) for peer, own in zip(contents, keys, strict=True)]

    def unseal(self, sealed: Mapping[str, bytes], purpose: str) -> list[bytes]:
        """Open what each of these peers sealed for this site in this round. Raises ProtocolError for anything else."""
        contents: list[bytes] = []
        try:
            for peer, own in zip(sealed, self._keys_of(sealed, purpose), strict=True):
                contents.append(unseal(own, sealed[peer], by_lower=peer < self.me))
        except InvalidTag:
            sender = list(sealed)[len(contents)]
            expected = f"what it sealed for {self.me} after the same orders"
            raise ProtocolError(sender, self.me, expected, "bytes that it did not") from None
        return contents
