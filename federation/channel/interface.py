"""The contract of a channel: what a protocol function sees of the network, and how it fails.

`fedsvm.federation.channel.socket` implements it over an endpoint and `fedsvm.federation.channel.memory` in memory. The
same protocol function therefore runs in a site process and in a test without processes.
`fedsvm.federation.channel.channel_conformance` checks that they agree.

What can go wrong is the same on both:

    a peer dropped            PeerDropped     the round runs again without it
    a peer is late            PeerLate        the round runs again
    a wrong shape or type     ProtocolError   a protocol's code is wrong; the run ends
    the round ended           RoundAborted    another party could not continue; nothing to do here
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
"""Gives residues that are uniform over the whole modulus, by shape."""


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
        With fewer sites this party has no part in a sum.
    """

    me: str
    sites: tuple[str, ...]
    run_sites: int
    min_sites: int

    def send(self, peer: str, array: NDArray[Any]) -> None:
        """Send `array` to `peer`, without waiting until it is received.

        A site connects to a peer before it first sends to it. It raises PeerDropped if it cannot reach the peer in the
        time of the round, and RoundAborted if the round ended meanwhile. The coordinator sends over connections that
        sites made, and never raises: it notices a missing site when an answer is due.
        """

    def receive(self, peer: str, shape: Sequence[int], dtype: Any = np.uint64) -> NDArray[Any]:
        """Return the next array from `peer`.

        Parameters
        ----------
        peer : str
        shape : sequence of int
            What it must have.
        dtype : numpy dtype, default uint64
            What it must be of.

        Raises
        ------
        ProtocolError
            It has another shape or type.
        PeerDropped
            It may never come: the peer dropped, or the connection to it broke. A site cannot notice this for a peer
            that it has not sent to. The coordinator notices it for all, and gives up when any site of the round
            dropped.
        PeerLate
            It did not come in the time of the round.
        RoundAborted
            The round ended elsewhere.
        """

    def collect(self, shapes: Mapping[str, Sequence[int]], dtype: Any = np.uint64) -> dict[str, NDArray[Any]]:
        """Return the next array from each of these peers, of these shapes. Omit peers that dropped or are late.

        Each call has the whole time of a round for itself. Raises ProtocolError and RoundAborted as `receive` does.
        """

    def random(self, shape: Sequence[int]) -> Residues:
        """Return residues uniform over the whole modulus, as `uniform_residues` draws them."""

    def note_opening(self) -> None:
        """Record that the next message may let its receiver open a sum with this party's contribution."""

    def joint_seed(self) -> bytes:
        """Return a digest of the keys by which all sites of the run agree on secrets: each site draws its own."""

    def shared_secrets(self, peers: Sequence[str], purpose: str) -> list[bytes]:
        """Return for each peer 256 bits that only it and this site can derive, fresh for this round and purpose."""

    def seal(self, contents: Mapping[str, bytes], purpose: str) -> list[bytes]:
        """Seal for each peer a content that only it can open, 16 bytes longer; once per round, peer and purpose."""

    def unseal(self, sealed: Mapping[str, bytes], purpose: str) -> list[bytes]:
        """Open what each of these peers sealed for this site in this round. Raises ProtocolError for anything else."""

    def expand(self, secrets: Sequence[bytes], shape: Sequence[int], part: int = 0) -> Residues:
        """Return the keystreams of 256-bit secrets as residues. They are uniform to everyone who does not know the
        secrets.

        Parameters
        ----------
        secrets : sequence of bytes
        shape : sequence of int
            Of each keystream.
        part : int, default 0
            The part of a long vector; each part has a keystream of its own.

        Returns
        -------
        Residues of shape (secrets, *shape)
        """


class Observer(Protocol):
    """An observer of one party's channel: a transcript, or a fault that is due at a message."""

    def sending(self, peer: str, array: NDArray[Any]) -> None:
        """Observe an array before it is sent."""

    def received(self, peer: str, array: NDArray[Any]) -> None:
        """Observe an array that a protocol receives."""

    def drew(self, residues: Residues, stream: str = "") -> None:
        """Observe a random vector or a keystream; keystreams of one secret share a name."""


def uniform_residues(shape: Sequence[int]) -> Residues:
    """Return a uint64 array of `shape` from the operating system's generator; for long ones, from a cipher keyed by it.

    The system's generator takes ten times as long as the cipher.
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
        """Seal for each peer a content that only it can open; once per round, peer and purpose."""
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
