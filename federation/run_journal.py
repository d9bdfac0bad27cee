"""The journal of a coordinator, from which a run is resumed by replay: every verb, and the value that it revealed.

A resumed run calls the algorithm's `fit` again from its start. Verbs answer from the journal until it ends, and then
are carried out; algorithms do not notice. The orders must be identical to the earlier ones, which a digest checks.

A record is on the disk before its value is used. So a sum that the algorithm saw is never requested again. A sum that
it did not see may be requested again, over the sites that are then present. An incomplete last record, for example
after a power cut, counts as never written. Earlier damage is an error, since the values of later records were revealed.
Each record of the file has this form:

    length of the msgpack content (8 bytes, little-endian) | its SHA-256 digest (32) | msgpack content
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import struct
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self

import msgpack
import numpy as np

from fedsvm.federation.control import Order
from fedsvm.federation.errors import FederationError
from fedsvm.federation.traffic_ledger import RoundRecord

_LENGTH = struct.Struct("<Q")
_CHECKSUM_BYTES = 32
_ARRAY, _TUPLE = 1, 2
_KIND = "what"
"""The first key of every record but the header."""
_AT = "at"
"""The key of the moment at which a record was written."""
_FIRST_KEY = re.compile(re.escape(msgpack.packb(_KIND)))
READING_SHOWN_EVERY_S = 1.0
VERSION = 5
"""The format version of this file and of the sites' journals."""

SKIPPED_ROUNDS = 100
"""Default number of rounds that a resumed run skips: the previous process may have begun some without a record."""


@dataclass(frozen=True)
class AttemptRecord:
    """An attempt at a round: its record, its sites, whether it was complete, and the sites that contributed."""

    record: RoundRecord
    sites: tuple[str, ...]
    complete: bool
    contributed: tuple[str, ...]


@dataclass(frozen=True)
class MembershipRecord:
    """A change of the membership."""

    round: int
    phase: str
    left: Mapping[str, str]
    joined: tuple[str, ...]


@dataclass
class VerbHistory:
    """The events of a verb, in order, and the traffic that parties reported during it."""

    events: list[AttemptRecord | MembershipRecord] = field(default_factory=list)
    ledger: list[tuple[str, list[list[Any]]]] = field(default_factory=list)

    def clear(self) -> None:
        """Forget what was recorded, for the next verb."""
        self.events.clear()
        self.ledger.clear()


@dataclass(frozen=True)
class JournaledVerb:
    """A verb in the journal. `changed`: it ended by a change of the membership, and has no value."""

    history: VerbHistory
    changed: bool
    value: Any


class Journal:
    """The journal of one run.

    Parameters
    ----------
    path : Path
        Its file; earlier records are read, and new ones are appended.
    tell : callable, optional
        Receives a sentence for the user, once a second while the records are read.

    Attributes
    ----------
    header : mapping
        The values that `begin` recorded; empty before.
    earlier : list of dict
        The records of verbs and draws that the file had when it was opened.
    returned : dict
        For each site that was restarted and has taken part since: the data by which another process admits it.
    skipped_to : int
        Rounds up to this one are not used again; 0 if none were skipped.
    idle_s : float
        Seconds between its last record and its opening; 0 if it was empty.
    history : VerbHistory
        Events of the current verb.

    Raises
    ------
    FederationError
        Another process writes the file, it cannot be opened, or it is damaged before its last record.
    """

    def __init__(self, path: Path, tell: Callable[[str], None] = lambda sentence: None) -> None:
        self._path = path
        try:
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise FederationError(f"{path} is written by another process; a run has one coordinator.") from None
        except OSError as error:
            raise FederationError(f"The journal {path} cannot be opened: {error.strerror}.") from error
        try:
            records = self._read(tell)
            if records and records[0].get("version") != VERSION:
                raise FederationError(
                    f"{path} was written by another version of fedsvm; resume with that one, or start a new run."
                )
        except BaseException:
            os.close(self._file)
            raise
        self.header: Mapping[str, Any] = records[0] if records else {}
        self.idle_s = max(0.0, time.time() - records[-1].get(_AT, time.time())) if records else 0.0
        self.earlier: list[dict[str, Any]] = []
        self.returned: dict[str, Any] = {}
        self.skipped_to = 0
        for record in records[1:]:
            if record[_KIND] == "skipped":
                self.skipped_to = record["round"]
            else:
                self.earlier.append(record)
                self.returned |= record.get("returned", {})
        self._returning: dict[str, Any] = {}
        self._replayed = 0
        self._is_to_go_live = bool(records)
        self.history = VerbHistory()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        os.close(self._file)

    @property
    def replays(self) -> bool:
        """True if verbs are still answered from the journal."""
        return self._replayed < len(self.earlier)

    @property
    def last_round(self) -> int:
        """The number of the last round in the journal; 0 for none."""
        return max((each["record"]["round"] for each in self._attempts()), default=0)

    def last_round_of(self, site: str) -> int:
        """Return the number of the last complete round that a site took part in; 0 for none."""
        complete = (each for each in self._attempts() if each["complete"] and site in each["contributed"])
        return max((each["record"]["round"] for each in complete), default=0)

    @property
    def seconds(self) -> float:
        """Return the duration of the journal's rounds in seconds."""
        return float(sum(each["record"]["seconds"] for each in self._attempts()))

    @property
    def dropped(self) -> set[str]:
        """Sites that did not take part in the last recorded round."""
        out: set[str] = set()
        for record in self.earlier:
            for event in record.get("events", ()):
                if "left" in event:
                    out = (out | set(event["left"])) - set(event["joined"])
        return out

    @property
    def awaited(self) -> tuple[str, ...]:
        """Sites that were started again and that no verb has admitted yet."""
        return tuple(self._returning)

    def goes_live(self) -> bool:
        """Return whether a resumed run reaches its first new action now."""
        is_first, self._is_to_go_live = self._is_to_go_live and not self.replays, False
        return is_first

    def begin(self, header: Mapping[str, Any]) -> None:
        """Record the values with which the run begins, in an empty journal."""
        self.header = {"version": VERSION, **header}
        self._append(dict(self.header))

    def replay(self, order: Order) -> JournaledVerb | None:
        """Return the verb of an order, or None at the end of the journal. Raises FederationError for another order."""
        record = self._next("verb", lambda: digest_of(order), f"step {order.step}")
        if record is None:
            return None
        events: list[AttemptRecord | MembershipRecord] = [
            MembershipRecord(each["round"], each["phase"], each["left"], tuple(each["joined"]))
            if "left" in each
            else AttemptRecord(
                RoundRecord(**each["record"]),
                tuple(each["sites"]),
                each["complete"],
                tuple(each["contributed"]),
            )
            for each in record["events"]
        ]
        history = VerbHistory(events, [(who, rows) for who, rows in record["ledger"]])
        return JournaledVerb(history, record["changed"], record["value"])

    def write(self, order: Order, value: Any, *, changed: bool) -> None:
        """Write the outcome of an order and its history to the disk. Raises FederationError."""
        events = [asdict(event) for event in self.history.events]
        ledger = [[who, rows] for who, rows in self.history.ledger]
        self.history.clear()
        record = {_KIND: "verb", "digest": digest_of(order), "events": events, "ledger": ledger}
        joined = {site for event in events for site in event.get("joined", ())}
        returned = {site: self._returning.pop(site) for site in joined & self._returning.keys()}
        self._append({**record, "returned": returned, "changed": changed, "value": value})

    def journaled_random(self, purpose: str, draw: Callable[[], Any]) -> Any:
        """Return the coordinator's earlier draw, or draw and record it at the end of the journal."""
        record = self._next("drawn", purpose.encode, f"the random draw for {purpose}")
        if record is not None:
            return record["value"]
        value = draw()
        self._append({_KIND: "drawn", "digest": purpose.encode(), "value": value})
        return value

    def skip_rounds(self, count: int) -> None:
        """Record that this many rounds are skipped, because sites may know of them."""
        self.skipped_to = max(self.last_round, self.skipped_to) + count
        self._append({_KIND: "skipped", "round": self.skipped_to})

    def expect_return(self, site: str, value: Any) -> None:
        """Store what another process needs to readmit a restarted site.

        It is written with the verb in which the site joins. Without this record the process is not readmitted, because
        in a resumed run the algorithm would not learn that the site is new.
        """
        self._returning[site] = value

    def _next(self, what: str, digest: Callable[[], bytes], subject: str) -> dict[str, Any] | None:
        if not self.replays:
            return None
        record = self.earlier[self._replayed]
        if record[_KIND] != what or record["digest"] != digest():
            raise FederationError(
                f"The run differs from its journal {self._path}: {subject} has other parameters now. Resume it with "
                "the same version of fedsvm and its libraries, on the same kind of processor, with the same data."
            )
        self._replayed += 1
        return record

    def _attempts(self) -> list[dict[str, Any]]:
        return [event for each in self.earlier for event in each.get("events", ()) if "record" in event]

    def _append(self, record: dict[str, Any]) -> None:
        try:
            content = msgpack.packb(_mark_tuples({**record, _AT: time.time()}), default=_pack)
        except TypeError as error:
            raise FederationError(f"The run cannot have a journal: {error}; run it without one.") from error
        framed = memoryview(_LENGTH.pack(len(content)) + hashlib.sha256(content).digest() + content)
        try:
            while framed:
                framed = framed[os.write(self._file, framed) :]
            os.fsync(self._file)
        except OSError as error:
            raise FederationError(f"The journal {self._path} cannot be written: {error.strerror}.") from error

    def _read(self, tell: Callable[[str], None]) -> list[dict[str, Any]]:
        """Return all whole records, and cut off a torn last one. Raises FederationError for damage before it."""
        content, place, records = memoryview(self._path.read_bytes()), 0, []
        progress = _ReadingProgress(len(content), tell)
        while (end := _end_of(content, place)) is not None:
            body = content[place + _LENGTH.size + _CHECKSUM_BYTES : end]
            records.append(msgpack.unpackb(body, ext_hook=_unpack, strict_map_key=False))
            place = end
            progress.show(place)
        if _has_record_behind(content, place, progress):
            raise FederationError(
                f"The journal {self._path} is damaged after its record {len(records)}, and later records follow. The "
                "values in them were revealed and must not be requested again. Restore a copy, or start a new run."
            )
        os.ftruncate(self._file, place)
        return records


class _ReadingProgress:
    """The progress of reading a journal, as a sentence each second."""

    def __init__(self, total: int, tell: Callable[[str], None]) -> None:
        self._total = total
        self._tell = tell
        self._due = time.monotonic() + READING_SHOWN_EVERY_S

    def show(self, place: int) -> None:
        """Report how many bytes have been read, if a report is due."""
        if (now := time.monotonic()) >= self._due:
            self._due = now + READING_SHOWN_EVERY_S
            self._tell(f"reading the journal: {place / 1e6:.0f} of {self._total / 1e6:.0f} MB")


def _end_of(content: memoryview, place: int) -> int | None:
    """Return the end of the record that begins at `place`, or None if it is incomplete."""
    start = place + _LENGTH.size + _CHECKSUM_BYTES
    if start > len(content):
        return None
    end = start + int(_LENGTH.unpack_from(content, place)[0])
    checksum = content[place + _LENGTH.size : start]
    return end if end <= len(content) and hashlib.sha256(content[start:end]).digest() == checksum else None


def _has_record_behind(content: memoryview, place: int, progress: _ReadingProgress) -> bool:
    """Return whether a whole record begins anywhere after `place`; every record but the first is a map of `_KIND`."""
    for key in _FIRST_KEY.finditer(content, place + _LENGTH.size + _CHECKSUM_BYTES + 1):
        progress.show(key.start())
        if _end_of(content, key.start() - 1 - _CHECKSUM_BYTES - _LENGTH.size) is not None:
            return True
    return False


def digest_of(order: Order) -> bytes:
    """Return a digest that distinguishes an order from every other order of an algorithm."""
    message = order.to_message(bytes(8), 0)
    arrays = [[name, array.dtype.str, list(array.shape), array.tobytes()] for name, array in message.arrays.items()]
    return hashlib.sha256(msgpack.packb([message.fields, arrays], default=_pack)).digest()


def _mark_tuples(value: Any) -> Any:
    """Return the value with tuples marked, which msgpack would turn into lists."""
    if isinstance(value, tuple):
        return msgpack.ExtType(_TUPLE, msgpack.packb([_mark_tuples(each) for each in value], default=_pack))
    if isinstance(value, list):
        return [_mark_tuples(each) for each in value]
    return {name: _mark_tuples(each) for name, each in value.items()} if isinstance(value, dict) else value


def _pack(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        packed = msgpack.packb([value.dtype.str, list(value.shape), np.ascontiguousarray(value).tobytes()])
        return msgpack.ExtType(_ARRAY, packed)
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"a journal cannot store a value of type {type(value).__name__}")


def _unpack(code: int, data: bytes) -> Any:
    if code == _TUPLE:
        return tuple(msgpack.unpackb(data, ext_hook=_unpack, strict_map_key=False))
    dtype, shape, content = msgpack.unpackb(data)
    return np.frombuffer(bytearray(content), dtype=np.dtype(dtype)).reshape(shape)
