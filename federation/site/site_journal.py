"""The journal of a site, from which a restarted process recovers its state.

A file that only its owner may read has the orders, and what their steps received and drew. A restarted process carries
out the steps again by this file, without sending anything: it computes its contributions to sums and discards them.
"""

from __future__ import annotations

import os
from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedsvm.federation.arrays import FloatArray, Residues
from fedsvm.federation.channel.agreement import SECRET_BYTES, TAG_BYTES
from fedsvm.federation.channel.interface import check_array
from fedsvm.federation.control import MissedOrders, Order
from fedsvm.federation.errors import Malformed, StepRefused
from fedsvm.federation.transport import framefile
from fedsvm.federation.transport.wire import DATA_KIND, RUN_ID_BYTES, Message

_RUN = bytes(RUN_ID_BYTES)
_RECEIVED, _DREW, _OPENED = "received", "drew", "opened"


class EndOfRecordError(Exception):
    """A step needs more than was recorded, because it was interrupted there."""


@dataclass
class JournalRecord:
    """One order, or those that were missed; what its step received and drew, and the sum that the site opened."""

    order: Message
    received: dict[str, deque[NDArray[Any]]] = field(default_factory=lambda: defaultdict(deque))
    drew: deque[Residues] = field(default_factory=deque)
    opened: FloatArray | None = None


class SiteJournal:
    """The journal of one site in one run; an observer of the channels of its steps.

    Parameters
    ----------
    path : str
        Its file. Earlier records are read, and new ones are added behind them.

    Attributes
    ----------
    earlier : list of JournalRecord
        The earlier records.
    """

    def __init__(self, path: str) -> None:
        self.earlier = _read(path)
        self._file = os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "ab", buffering=0)
        self._in_step = False

    def begin(self, order: Message) -> SiteJournal:
        """Record that a step is about to run."""
        self._in_step = True
        self._write(order)
        return self

    def record_missed(self, message: Message) -> None:
        """Record the orders that only other sites received."""
        self._write(message)

    def end_step(self) -> None:
        """Record that the step is over; the protocol that follows is not repeated."""
        self._in_step = False

    def record_opened(self, total: FloatArray) -> None:
        """Record that the site opened a sum."""
        self._note(_OPENED, "", total)

    def sending(self, peer: str, array: NDArray[Any]) -> None:
        """Ignore an array that is sent, since it is not sent again."""

    def received(self, peer: str, array: NDArray[Any]) -> None:
        """Record an array that was received."""
        if self._in_step:
            self._note(_RECEIVED, peer, array)

    def drew(self, residues: Residues, stream: str = "") -> None:
        """Record a random vector, or a keystream."""
        if self._in_step:
            self._note(_DREW, "", residues)

    def _note(self, what: str, peer: str, array: NDArray[Any]) -> None:
        self._write(Message(DATA_KIND, _RUN, fields={"what": what, "peer": peer}, arrays={"value": array}))

    def _write(self, message: Message) -> None:
        framefile.write(self._file, message)


def _read(path: str) -> list[JournalRecord]:
    """Return the records of a file, and truncate an incomplete last message."""
    records: list[JournalRecord] = []
    if not Path(path).exists():
        return records
    messages, whole_bytes = framefile.read_whole(path)
    os.truncate(path, whole_bytes)
    for message in messages:
        if message.kind in (Order.kind, MissedOrders.kind):
            records.append(JournalRecord(message))
        elif not records:
            raise Malformed("a journal that begins without an order")
        elif (what := message.fields["what"]) == _OPENED:
            records[-1].opened = message.arrays["value"]
        elif what == _DREW:
            records[-1].drew.append(message.arrays["value"])
        else:
            records[-1].received[message.fields["peer"]].append(message.arrays["value"])
    return records


class ReplayChannel:
    """The channel of a step that ran before: it returns what was recorded, and sends nothing.

    Parameters
    ----------
    me : str
        The site.
    sites : tuple of str
        Of the round.
    run_sites : int
        The number of sites that the run began with.
    record : JournalRecord
    """

    def __init__(self, me: str, sites: tuple[str, ...], run_sites: int, record: JournalRecord) -> None:
        self.me = me
        self.sites = sites
        self.run_sites = run_sites
        self.min_sites = 1
        self._record = record

    def send(self, peer: str, array: NDArray[Any]) -> None:
        """Ignore the array, which was sent before."""

    def receive(self, peer: str, shape: Sequence[int], dtype: Any = np.uint64) -> NDArray[Any]:
        """Return the next recorded array from `peer`. Raises EndOfRecordError, and ProtocolError as before."""
        if not self._record.received[peer]:
            raise EndOfRecordError
        return check_array(peer, self.me, self._record.received[peer].popleft(), shape, dtype)

    def collect(self, shapes: Mapping[str, Sequence[int]], dtype: Any = np.uint64) -> dict[str, NDArray[Any]]:
        """Return the next recorded array of each peer that has one."""
        there = [peer for peer in shapes if self._record.received[peer]]
        return {peer: self.receive(peer, shapes[peer], dtype) for peer in there}

    def random(self, shape: Sequence[int]) -> Residues:
        """Return the recorded draw. Raises EndOfRecordError."""
        if not self._record.drew:
            raise EndOfRecordError
        return self._record.drew.popleft()

    def note_opening(self) -> None:
        """Do nothing: a round of the journal counts as opened."""

    def joint_seed(self) -> bytes:
        """Return zeros, since no sum is carried out again."""
        return bytes(SECRET_BYTES)

    def shared_secrets(self, peers: Sequence[str], purpose: str) -> list[bytes]:
        """Return zeros, since what a step computed from the secrets was recorded."""
        return [bytes(SECRET_BYTES)] * len(peers)

    def seal(self, contents: Mapping[str, bytes], purpose: str) -> list[bytes]:
        """Return zeros, since the content was sealed and sent before."""
        return [bytes(len(content) + TAG_BYTES) for content in contents.values()]

    def unseal(self, sealed: Mapping[str, bytes], purpose: str) -> list[bytes]:
        """Raise StepRefused, since a restarted process has other keys."""
        raise StepRefused(
            f"a step of {self.me} opened what {', '.join(sealed)} sealed for it, which its journal does not have; "
            "start a new run"
        )

    def expand(self, secrets: Sequence[bytes], shape: Sequence[int], part: int = 0) -> Residues:
        """Return the recorded keystreams. Raises EndOfRecordError."""
        return np.stack([self.random(shape) for _ in secrets])
