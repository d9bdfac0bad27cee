"""Categories that sites have in common, agreed by a secure sum instead of by showing who holds which.

Each value a site holds goes to three slots of a table that its hash names: a one, its UTF-8 bytes, and some bytes of
the hash. In the sum of the tables a slot that holds one value only has k and k times the bytes, where k sites hold the
value: dividing by k gives it back, and the hash tells that it does. Taken out of its other slots, it leaves others
alone there. Where that ends before the table is empty, a larger one with another salt is tried.

What the coordinator learns is the union of the values, and how many sites hold each.

References
----------
M. T. Goodrich and M. Mitzenmacher, "Invertible Bloom lookup tables", Allerton 2011, section 2.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedsvm.federation.arrays import FloatArray, IntArray
from fedsvm.federation.errors import FederationError, StepRefused
from fedsvm.federation.federation import Federation
from fedsvm.federation.transport.wire import MAX_ARRAY_BYTES

MAX_VALUE_BYTES = 64
CHECK_BYTES = 8
RECORD = 1 + MAX_VALUE_BYTES + CHECK_BYTES
"""Entries of a slot: how many sites hold the value, the value, its check."""

FIRST_SLOTS = 64
MAX_SLOTS = 1 << 14
PLACES = 3
"""Slots of a value, each in a third of the table of its own."""

MAX_LOAD = 8
"""Values that a site puts into one slot at most: it bounds the entries, and a fuller table could not be read."""

MAX_VALUES = MAX_SLOTS // 4
"""Of one column; a table of so many values has loads below the bound, and all come out of it."""


@dataclass(frozen=True)
class Vocabulary:
    """The agreed values of every categorical column, in sorted order."""

    values: Mapping[str, Sequence[str]]

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the 0/1 columns they become."""
        return tuple(f"{column}={value}" for column, values in self.values.items() for value in values)

    def encode(self, numeric: FloatArray, categorical: NDArray[np.str_]) -> FloatArray:
        """Return rows (n, p + 0/1 columns) as the sites encode theirs; an unknown value is 0 in all columns."""
        columns = zip(categorical.T, self.values.values(), strict=True)
        return np.hstack([numeric, *(_equal(column, values) for column, values in columns)])


def agree(federation: Federation, columns: Mapping[int, str], seed: int) -> dict[str, list[str]]:
    """Return the union of the sites' values of some categorical columns, sorted, by column name.

    columns: their names by their number. Raises FederationError for a column with too many values to agree on.
    """
    return {name: list(values) for name, values in agree_with_holders(federation, columns, seed).items()}


def agree_with_holders(federation: Federation, columns: Mapping[int, str], seed: int) -> dict[str, dict[str, int]]:
    """Return the values as `agree` does, each with the number of sites that hold it."""
    agreed: dict[str, dict[str, int]] = {}
    slots = FIRST_SLOTS
    while len(agreed) < len(columns):
        open_columns = {number: name for number, name in columns.items() if name not in agreed}
        if slots > MAX_SLOTS:
            name = next(iter(open_columns.values()))
            raise FederationError(
                f"Column {name!r} has more categories than the {MAX_VALUES} that can be agreed on; add it to "
                "data.ignore if it is an identifier, or declare them in data.categories."
            )
        for batch in _batches(open_columns, slots):
            agreed |= _agree_on(federation, batch, slots, salt=f"{seed}:{slots}")
        slots *= 4
    return agreed


def _batches(columns: Mapping[int, str], slots: int) -> Iterator[dict[int, str]]:
    """Yield the columns in batches whose tables fit one message, in the widest encoding."""
    remaining = iter(columns.items())
    count = max(1, MAX_ARRAY_BYTES // (2 * 8 * slots * RECORD))
    while batch := dict(itertools.islice(remaining, count)):
        yield batch


def _agree_on(federation: Federation, columns: Mapping[int, str], slots: int, salt: str) -> dict[str, dict[str, int]]:
    """Return the values of those columns whose tables can be read, in one sum."""
    tables = federation.sum(
        "category_tables",
        shape=(len(columns), slots, RECORD),
        bound=255.0 * MAX_LOAD * len(federation.sites),
        columns=list(columns),
        slots=slots,
        salt=salt,
    )
    found = {name: _values_in(table, slots, salt) for name, table in zip(columns.values(), tables, strict=True)}
    return {name: values for name, values in found.items() if values is not None}


def table_of(values: Sequence[str], slots: int, salt: str) -> FloatArray:
    """Return the (slots, 73) table of a site's values in the slots of their hashes. Raises StepRefused for one too
    long.

    Where a slot would be too full no value is put in, but something everywhere that no value leaves.
    """
    table = np.zeros((slots, RECORD), dtype=np.int64)
    for value in values:
        encoded = value.encode()
        if len(encoded) > MAX_VALUE_BYTES:
            raise StepRefused(
                f"a category has {len(encoded)} bytes, and at most {MAX_VALUE_BYTES} can be agreed on; "
                "declare the values of its column in data.categories",
                f"a category must have {MAX_VALUE_BYTES} bytes or fewer; declare the values of its column in "
                "data.categories",
            )
        places, check = _places(encoded, slots, salt)
        table[places] += _record(encoded, check)
    if table[:, 0].max() > MAX_LOAD:
        table[:], table[:, 0] = 0, 1
    return table.astype(np.float64)


def one_hot(codes: IntArray, categories: Sequence[str], values: Sequence[str]) -> FloatArray:
    """Return (n, len(values)) of 0 and 1 for codes (n,) of `categories`; one not among `values` is 0 in all columns."""
    return _equal(np.array(categories, dtype=np.str_)[codes], values)


def require_declared(categories: Sequence[str], values: Sequence[str]) -> None:
    """Raise StepRefused for categories that are not among `values`."""
    if unknown := set(categories) - set(values):
        raise StepRefused(
            f"categories must be among the declared ones, got {len(unknown)} others; add them to data.categories",
            "categories must be among the declared ones, got others; add them to data.categories",
        )


def _equal(text: NDArray[np.str_], values: Sequence[str]) -> FloatArray:
    return np.equal.outer(text, np.array(values, dtype=np.str_)).astype(np.float64)


def _places(encoded: bytes, slots: int, salt: str) -> tuple[list[int], bytes]:
    """Return the slots of a value, one in each part of the table, and the bytes that identify it there."""
    digest = hashlib.sha256(salt.encode() + b"\0" + encoded).digest()
    part = slots // PLACES
    drawn = (int.from_bytes(digest[8 * place : 8 * place + 8], "big") for place in range(PLACES))
    return [place * part + number % part for place, number in enumerate(drawn)], digest[-CHECK_BYTES:]


def _record(encoded: bytes, check: bytes) -> IntArray:
    """Return (73,) the numbers that a value adds to each of its slots."""
    record = b"\1" + encoded.ljust(MAX_VALUE_BYTES, b"\0") + check
    return np.frombuffer(record, dtype=np.uint8).astype(np.int64)


def _values_in(table: FloatArray, slots: int, salt: str) -> dict[str, int] | None:
    """Return the values of a summed table with their sites, or None if they cannot all be separated."""
    left = np.rint(table).astype(np.int64)
    values: dict[str, int] = {}
    waiting = np.flatnonzero(left[:, 0]).tolist()
    while waiting:
        slot = waiting.pop()
        encoded = _alone_in(left[slot], slot, slots, salt)
        if encoded is not None:
            values[encoded.decode()] = int(left[slot, 0])
            places, check = _places(encoded, slots, salt)
            left[places] -= left[slot, 0] * _record(encoded, check)
            waiting += places
    return dict(sorted(values.items())) if not left.any() else None


def _alone_in(record: IntArray, slot: int, slots: int, salt: str) -> bytes | None:
    """Return the value of a slot if it holds only one."""
    if record[0] <= 0 or (record < 0).any() or (record % record[0]).any() or record.max() > 255 * record[0]:
        return None
    letters = bytes((record[1:] // record[0]).astype(np.uint8))
    encoded, check = letters[:MAX_VALUE_BYTES].rstrip(b"\0"), letters[MAX_VALUE_BYTES:]
    places, expected = _places(encoded, slots, salt)
    return encoded if slot in places and check == expected else None
