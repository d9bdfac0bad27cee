"""The transcript of a party: everything that it sends, receives, draws and contributes, in every round.

Colluding parties record everything. In a simulation that audits them, honest sites record only their inputs. A
reconstruction is compared with these inputs, which the coalition never sees.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from fedsvm.federation.arrays import Residues
from fedsvm.federation.transport import framefile
from fedsvm.federation.transport.wire import DATA_KIND, RUN_ID_BYTES, Message

SENT, RECEIVED, DREW, INPUT = "sent", "received", "drew", "input"
_RUN = bytes(RUN_ID_BYTES)


@dataclass(frozen=True)
class TranscriptEntry:
    """One line of a transcript: `place` counts the entries of a kind with one peer in a round, from 0."""

    what: str
    round: int
    peer: str
    place: int
    array: NDArray[Any]
    terms: dict[str, Any]


class Transcript:
    """The transcript of one party.

    Parameters
    ----------
    path : str
        A new file, which only its owner may read.
    colludes : bool
        Whether everything is recorded, not only the input.
    """

    def __init__(self, path: str, *, colludes: bool) -> None:
        self._file = framefile.create(path)
        self._colludes = colludes
        self._round = 0
        self._counts: Counter[tuple[str, str]] = Counter()

    def begin_round(self, round_number: int) -> Transcript:
        """Assign the following entries to this round."""
        self._round = round_number
        self._counts.clear()
        return self

    def put_in(self, residues: Residues, terms: dict[str, Any]) -> None:
        """Record the encoded input to a secure sum, and its terms: step, protocol, options, sites, bound, shape,
        opened_by."""
        self._write(INPUT, "", residues, terms)

    def sending(self, peer: str, array: NDArray[Any]) -> None:
        """Record an array that is sent."""
        self._observe(SENT, peer, array)

    def received(self, peer: str, array: NDArray[Any]) -> None:
        """Record an array that was received."""
        self._observe(RECEIVED, peer, array)

    def drew(self, residues: Residues, stream: str = "") -> None:
        """Record a random vector, or a keystream with its name in place of a peer."""
        self._observe(DREW, stream, residues)

    def _observe(self, what: str, peer: str, array: NDArray[Any]) -> None:
        if self._colludes:
            self._write(what, peer, array, {})

    def _write(self, what: str, peer: str, array: NDArray[Any], terms: dict[str, Any]) -> None:
        fields = {"what": what, "peer": peer, "place": self._counts[what, peer], "terms": terms}
        self._counts[what, peer] += 1
        framefile.write(self._file, Message(DATA_KIND, _RUN, self._round, fields=fields, arrays={"value": array}))
        self._file.flush()


def read_transcript(path: str) -> Iterator[TranscriptEntry]:
    """Yield the entries of a transcript. Raises Malformed if it is damaged, as after a writer that was killed."""
    for message in framefile.read(path):
        fields = message.fields
        array = message.arrays["value"]
        yield TranscriptEntry(fields["what"], message.round, fields["peer"], fields["place"], array, fields["terms"])
