"""Noisy answers that a site keeps, so that no question is answered twice with different noise.

The same question gets the kept, identical answer, so noise does not average out. Any other question gets fresh noise
and is charged: the mu of all answers is the root of the sum of squares over all questions in the record, for any
version of the data. A kept answer reveals that the data did not change.

A record is a file of lines of JSON that only its owner may read. Its first line has a key; without it no line reveals
the question or the rows. Without a file the record lasts as long as the process.
"""

from __future__ import annotations

import fcntl
import hmac
import json
import math
import os
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import IO, Any

import numpy as np

from fedsvm.federation.arrays import FloatArray
from fedsvm.federation.errors import OrderRefused
from fedsvm.federation.site.partition import Partition

FORMAT = "fedsvm answers 1"
_KEY_BYTES = 32
_DIGEST = "sha256"


class AnswerRecord:
    """The noisy answers of one site.

    Parameters
    ----------
    path : str, default ""
        The file; empty to keep answers in memory only.
    max_mu : float, optional
        Maximum mu of all answers together; None for no limit.
    """

    def __init__(self, path: str = "", max_mu: float | None = None) -> None:
        self._path, self._max_mu = path, max_mu
        self._key, self._kept = os.urandom(_KEY_BYTES), dict[str, tuple[float, FloatArray]]()

    def answer(
        self, question: Mapping[str, Any], partition: Partition, mu: float, draw: Callable[[], FloatArray]
    ) -> FloatArray:
        """Return the answer to a question about a partition: the kept one, or a new one, which is charged and kept.

        Parameters
        ----------
        question : mapping
            Everything except the rows that the answer depends on, in plain values.
        partition : Partition
            The rows.
        mu : float
            The mu of a new answer.
        draw : callable
            Returns a new answer.

        Raises
        ------
        OrderRefused
            The budget has no room for a new answer, or the record cannot be read or written.
        """
        if not self._path:
            return self._answer(question, partition, mu, draw, lambda line: None)
        try:
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        except OSError as error:
            raise OrderRefused(f"the record {self._path} of its policy cannot be opened: {error.strerror}") from error
        with os.fdopen(descriptor, "r+", encoding="utf-8") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            self._read(file)
            return self._answer(question, partition, mu, draw, lambda line: _write(file, line))

    def _answer(
        self,
        question: Mapping[str, Any],
        partition: Partition,
        mu: float,
        draw: Callable[[], FloatArray],
        keep: Callable[[Mapping[str, Any]], None],
    ) -> FloatArray:
        asked = self._digest(question, partition)
        if asked not in self._kept:
            self._check_room(mu)
            found = draw()
            day = datetime.now().astimezone().isoformat(timespec="seconds")
            keep({"question": asked, "date": day, "mu": mu, "answer": [value.hex() for value in found.tolist()]})
            self._kept[asked] = mu, found
        return self._kept[asked][1]

    @property
    def spent_mu(self) -> float:
        """The mu of all answers together."""
        return 0.0 if not self._kept else math.sqrt(sum(mu**2 for mu, _ in self._kept.values()))

    def _check_room(self, mu: float) -> None:
        if self._max_mu is not None and math.hypot(self.spent_mu, mu) > self._max_mu * (1 + 1e-9):
            raise OrderRefused(
                f"by this site's policy all noisy answers together may spend mu {self._max_mu:g}; {self.spent_mu:.3g} "
                f"is spent, and this one asks for {mu:.3g}"
            )

    def _digest(self, question: Mapping[str, Any], partition: Partition) -> str:
        """Return the keyed digest of a question and of all rows."""
        mac = hmac.new(self._key, json.dumps(question, sort_keys=True).encode(), _DIGEST)
        mac.update(json.dumps(partition.values, sort_keys=True, default=list).encode())
        for name, array in sorted(partition.arrays.items()):
            mac.update(f"\n{name} {array.dtype.str} {array.shape}\n".encode())
            mac.update(np.ascontiguousarray(array).tobytes())
        return mac.hexdigest()

    def _read(self, file: IO[str]) -> None:
        """Read all lines of the record, or begin it. Raises OrderRefused for a foreign line."""
        lines = file.read().split("\n")
        if lines.pop():
            raise self._raise_damaged(len(lines) + 1)
        if not lines:
            _write(file, {"format": FORMAT, "key": self._key.hex()})
            return
        kept: dict[str, tuple[float, FloatArray]] = {}
        for number, line in enumerate(lines, start=1):
            try:
                entry = json.loads(line)
                if number == 1:
                    self._key = bytes.fromhex(entry["key"])
                    readable = entry["format"] == FORMAT and len(self._key) == _KEY_BYTES
                else:
                    values = np.array([float.fromhex(value) for value in entry["answer"]])
                    kept[str(entry["question"])] = float(entry["mu"]), values
                    readable = 0 <= float(entry["mu"]) < math.inf
            except (ValueError, KeyError, TypeError, AttributeError, OverflowError):
                readable = False
            if not readable:
                raise self._raise_damaged(number)
        self._kept = kept

    def _raise_damaged(self, line: int) -> OrderRefused:
        return OrderRefused(
            f"the record {self._path} of its policy is damaged in line {line}, so the spent mu is unknown; restore it "
            "from a copy"
        )


def _write(file: IO[str], line: Mapping[str, Any]) -> None:
    """Append a line, and wait until it is on the disk."""
    file.write(f"{json.dumps(line)}\n")
    file.flush()
    os.fsync(file.fileno())
