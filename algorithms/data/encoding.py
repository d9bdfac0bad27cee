"""Categories that sites have in common, agreed by a secure sum instead of by showing who holds which.

Each value a site holds goes to the slot of a table that its hash names: a one, its UTF-8 bytes, and some bytes of
the hash. In the sum of the tables a slot holds k and k times the bytes, where k sites hold the value, so dividing by k
gives it back. Where two values share a slot the hash does not fit; then a larger table with another salt is tried.

What the coordinator learns is the union of the values, and how many sites hold each.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from federation.arrays import FloatArray, IntArray
from federation.errors import FederationError, StepRefused
from federation.federation import Federation

MAX_VALUE_BYTES = 64
CHECK_BYTES = 8
RECORD = 1 + MAX_VALUE_BYTES + CHECK_BYTES
"""Entries of a slot: how many sites hold the value, the value, its check."""

FIRST_SLOTS = 64
MAX_SLOTS = 1 << 14


@dataclass(frozen=True)
class Vocabulary:
    """The agreed values of every categorical column, in sorted order."""

    values: Mapping[str, Sequence[str]]

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the 0/1 columns they become."""
        return tuple(f"{column}={value}" for column, values in self.values.items() for value in values)

    def encode(self, numeric: FloatArray, categorical: NDArray[np.str_]) -> FloatArray:
        """Rows (n, p + 0/1 columns) as the sites encode theirs; an unknown value is 0 in all columns."""
        columns = zip(categorical.T, self.values.values(), strict=True)
        return np.hstack([numeric, *(_equal(column, values) for column, values in columns)])


def agree(federation: Federation, columns: Mapping[int, str], seed: int) -> dict[str, list[str]]:
    """The union of the sites' values of some categorical columns, sorted, by column name.

    columns: their names by their number. Raises FederationError for a column with too many values to agree on.
    """
    agreed: dict[str, list[str]] = {}
    slots = FIRST_SLOTS
    while len(agreed) < len(columns):
        open_columns = {number: name for number, name in columns.items() if name not in agreed}
        if slots > MAX_SLOTS:
            name = next(iter(open_columns.values()))
            raise FederationError(
                f"Column {name!r} has too many categories to agree on; declare them in data.categories."
            )
        agreed |= _agree_on(federation, open_columns, slots, salt=f"{seed}:{slots}")
        slots *= 4
    return agreed


def _agree_on(federation: Federation, columns: Mapping[int, str], slots: int, salt: str) -> dict[str, list[str]]:
    """The values of those columns whose values have a slot each, in one sum."""
    tables = federation.sum(
        "category_tables",
        shape=(len(columns), slots, RECORD),
        bound=255.0 * len(federation.sites),
        columns=list(columns),
        slots=slots,
        salt=salt,
    )
    found = {name: _values_in(table, slots, salt) for name, table in zip(columns.values(), tables, strict=True)}
    return {name: values for name, values in found.items() if values is not None}


def table_of(values: Sequence[str], slots: int, salt: str) -> FloatArray:
    """(slots, 73): a site's values in the slots their hashes name. Raises StepRefused for one too long."""
    table = np.zeros((slots, RECORD))
    for value in values:
        encoded = value.encode()
        if len(encoded) > MAX_VALUE_BYTES:
            raise StepRefused(
                f"a category has {len(encoded)} bytes, and at most {MAX_VALUE_BYTES} can be agreed on; "
                "declare the values of its column in data.categories"
            )
        slot, check = _place(encoded, slots, salt)
        record = b"\1" + encoded.ljust(MAX_VALUE_BYTES, b"\0") + check
        table[slot] += np.frombuffer(record, dtype=np.uint8)
    return table


def one_hot(codes: IntArray, categories: Sequence[str], values: Sequence[str]) -> FloatArray:
    """(n, len(values)) of 0 and 1 for codes (n,) of `categories`; one not among `values` is 0 in all columns."""
    return _equal(np.array(categories, dtype=np.str_)[codes], values)


def require_declared(categories: Sequence[str], values: Sequence[str]) -> None:
    """Raise StepRefused for categories that are not among `values`."""
    if unknown := set(categories) - set(values):
        raise StepRefused(
            f"categories must be among the declared ones, got {len(unknown)} others; add them to data.categories"
        )


def _equal(text: NDArray[np.str_], values: Sequence[str]) -> FloatArray:
    return np.equal.outer(text, np.array(values, dtype=np.str_)).astype(np.float64)


def _place(encoded: bytes, slots: int, salt: str) -> tuple[int, bytes]:
    """The slot of a value, and the bytes that recognise it there."""
    digest = hashlib.sha256(salt.encode() + b"\0" + encoded).digest()
    return int.from_bytes(digest[:8], "big") % slots, digest[-CHECK_BYTES:]


def _values_in(table: FloatArray, slots: int, salt: str) -> list[str] | None:
    """The values of a summed table, or None if two share a slot."""
    counts = np.rint(table[:, 0]).astype(np.int64)
    values = []
    for slot in np.flatnonzero(counts).tolist():
        letters = np.rint(table[slot, 1:]).astype(np.int64) // counts[slot]
        record = bytes(letters.astype(np.uint8))
        encoded, check = record[:MAX_VALUE_BYTES].rstrip(b"\0"), record[MAX_VALUE_BYTES:]
        if _place(encoded, slots, salt) != (slot, check):
            return None
        values.append(encoded.decode())
    return sorted(values)
