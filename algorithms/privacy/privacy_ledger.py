"""The privacy ledger: a file to which the releases of all runs on one data set are charged.

Releases of several runs on the same rows add up, and no run knows the others. A ledger is a file of lines: the
first identifies the data, and each other is a release. A charge locks the file, adds everything up,
and appends its line if the budget suffices, so that simultaneous runs do not overspend together. A line is
on the disk before anything is released, and stays there if the run then fails.

Which data set it is, the names of source, label and columns say, and no value of any row: whoever knows all rows but
one could try the last against a hash of them. So a table that grew keeps its ledger.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import math
import os
import select
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from fedsvm.federation.errors import FederationError
from fedsvm.federation.transport.deadline import Deadline

FORMAT = "fedsvm privacy ledger 1"
PATIENCE_S = 30.0
"""Maximum time that a charge waits for those of other runs."""

_POLL_S = 0.01


@dataclass(frozen=True)
class DataIdentity:
    """The identity of a data set, without a value of any row. columns: a hash of their names."""

    source: str
    columns: str

    @classmethod
    def of(cls, source: str, label: str, columns: Sequence[str]) -> Self:
        """Return the identity of a table by the names of its source, its label and its other columns."""
        return cls(source, hashlib.sha256(json.dumps([label, *columns]).encode()).hexdigest())


@dataclass(frozen=True)
class Spent:
    """Releases, and their total by basic composition."""

    epsilon: float = 0.0
    delta: float = 0.0
    releases: int = 0

    def and_one_of(self, epsilon: float, delta: float) -> Spent:
        """Return the total with another release."""
        return Spent(self.epsilon + epsilon, self.delta + delta, self.releases + 1)


@dataclass(frozen=True)
class PrivacyLedger:
    """The ledger in a file, of one data set."""

    path: Path
    data: DataIdentity

    def spent(self) -> Spent:
        """Return what was charged so far. Raises FederationError if the ledger cannot be read, or is of other data."""
        if not self.path.exists():
            return Spent()
        with self._open_locked(os.O_RDONLY) as descriptor:
            return self._added_up(descriptor)

    def charge(self, epsilon: float, delta: float, what: str, limits: tuple[float, float]) -> Spent:
        """Write a release down, and on the disk. limits: of epsilon and of delta, on all releases together.

        Returns what all of them come to. Raises FederationError where a limit has no room for it, or as in `spent`.
        """
        with self._open_locked(os.O_RDWR | os.O_CREAT | os.O_APPEND) as descriptor:
            size = os.fstat(descriptor).st_size
            new = size == 0
            before = Spent() if new else self._added_up(descriptor)
            after = before.and_one_of(epsilon, delta)
            require_room(before, epsilon, delta, limits, where=f" of {self.path}")
            at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
            head = {"format": FORMAT, "source": self.data.source, "columns": self.data.columns}
            entry = {"at": at, "epsilon": epsilon, "delta": delta, "what": what}
            lines = [head, entry] if new else [entry]
            text = "".join(json.dumps(line) + "\n" for line in lines).encode()
            if os.write(descriptor, text) < len(text):
                os.ftruncate(descriptor, size)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.fsync(descriptor)
        return after

    @contextmanager
    def _open_locked(self, flags: int) -> Iterator[int]:
        """Open the file, locked against other runs. Only its owner may read a new one."""
        try:
            descriptor = os.open(self.path, flags, 0o600)
        except OSError as error:
            reason = f"The ledger {self.path} cannot be opened: {error.strerror}; nothing is released."
            raise FederationError(f"{reason} Set algorithm.ledger to a file that can be written.") from error
        try:
            self._lock(descriptor)
            yield descriptor
        except OSError as error:
            reason = f"The ledger {self.path} cannot be written: {error.strerror}; nothing is released."
            raise FederationError(reason) from error
        finally:
            os.close(descriptor)

    def _lock(self, descriptor: int) -> None:
        deadline = Deadline(PATIENCE_S)
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if deadline.expired:
                    raise FederationError(
                        f"The ledger {self.path} was locked by another process for {PATIENCE_S:g} s; nothing is "
                        "released. End that process, or try again."
                    ) from None
                select.select([], [], [], _POLL_S)
            else:
                return

    def _added_up(self, descriptor: int) -> Spent:
        first, *entries = self._lines(descriptor)
        if (first.get("source"), first.get("columns")) != (self.data.source, self.data.columns):
            other = " with other columns" if first.get("source") == self.data.source else ""
            raise FederationError(
                f"The ledger {self.path} is of the data set {first.get('source')!r}{other}, and not of "
                f"{self.data.source!r}; nothing is released. Set algorithm.ledger to a file of this data set's own."
            )
        spent = Spent()
        for number, entry in enumerate(entries, start=2):
            epsilon, delta = entry.get("epsilon", -1.0), entry.get("delta", -1.0)
            if not (_is_amount(epsilon) and _is_amount(delta)):
                raise self._raise_damaged(number)
            spent = spent.and_one_of(epsilon, delta)
        return spent

    def _lines(self, descriptor: int) -> list[dict[str, Any]]:
        with open(descriptor, "rb", closefd=False) as file:
            file.seek(0)
            data = file.read()
        lines = data.split(b"\n")
        if lines.pop():
            raise self._raise_damaged(len(lines) + 1)
        found = []
        for number, line in enumerate(lines, start=1):
            try:
                value = json.loads(line)
            except ValueError:
                raise self._raise_damaged(number) from None
            if not isinstance(value, dict) or (number == 1 and value.get("format") != FORMAT):
                raise self._raise_damaged(number)
            found.append(value)
        if not found:
            raise self._raise_damaged(1)
        return found

    def _raise_damaged(self, line: int) -> FederationError:
        return FederationError(
            f"The ledger {self.path} is damaged in line {line}: that is no part of a {FORMAT}; nothing is released, as "
            "nobody knows what was spent. Put it back from a copy, or set algorithm.ledger to the right file."
        )


def _is_amount(value: Any) -> bool:
    return isinstance(value, float) and 0 <= value < math.inf


def require_room(spent: Spent, epsilon: float, delta: float, limits: tuple[float, float], where: str = "") -> None:
    """Raise FederationError if another release would exceed the limits on epsilon and delta. where: named in it."""
    after = spent.and_one_of(epsilon, delta)
    if after.epsilon > limits[0] * (1 + 1e-12) or after.delta > limits[1] * (1 + 1e-12):
        raise FederationError(
            f"A release of epsilon = {epsilon:g}, delta = {delta:g} after {spent.epsilon:g} and {spent.delta:g}{where} "
            f"would exceed the budget of {limits[0]:g} and {limits[1]:g}; nothing is released. Raise it, or "
            "release less often or with a smaller epsilon."
        )
