"""Fields of control messages, checked by name and type."""

from __future__ import annotations

import itertools
from collections.abc import Collection
from typing import Any

from fedsvm.federation.errors import Malformed
from fedsvm.federation.transport.wire import Message

LedgerRows = list[list[Any]]
"""The rows that `Ledger.take` returns: the four parts of a link, then the four of its traffic."""

_ROW = ((int,), (bool,), (str,), (str,), (int,), (int,), (int,), (int, type(None)))

_ROWS = frozenset(itertools.product(*_ROW))


def read_fields(message: Message, arrays: Collection[str] = (), /, **types: tuple[type, ...]) -> dict[str, Any]:
    """Return the fields of a message, which must have these names and types, and these arrays. Raises Malformed."""
    fields = message.fields
    if message.arrays.keys() != set(arrays):
        raise Malformed(f"the arrays of {message.kind} must be {sorted(arrays)}, got {sorted(message.arrays)}")
    if fields.keys() != types.keys():
        raise Malformed(f"the fields of {message.kind} must be {sorted(types)}, got {sorted(map(str, fields))}")
    for name, allowed in types.items():
        if type(fields[name]) not in allowed:
            raise Malformed(f"{name} of {message.kind} must be {_type_names(allowed)}, got {fields[name]!r:.80}")
    return fields


def check_all(kind: str, name: str, values: list[Any], allowed: tuple[type, ...]) -> None:
    for value in values:
        if type(value) not in allowed:
            raise Malformed(f"each of {name} of {kind} must be {_type_names(allowed)}, got {value!r:.80}")


def check_text(kind: str, name: str, text: str, most: int) -> None:
    if len(text) > most:
        raise Malformed(f"{name} of {kind} must have {most} characters or fewer, got {len(text)}")
    if not text.isprintable():  # it goes to terminals and logs as it is
        raise Malformed(f"{name} of {kind} must be printable, got {text!a:.80}")


def check_ledger(rows: LedgerRows) -> None:
    for row in rows:
        if type(row) is not list or tuple(map(type, row)) not in _ROWS:
            if not isinstance(row, list) or len(row) != len(_ROW):
                raise Malformed(f"a row of a ledger must have {len(_ROW)} values, got {row!r:.80}")
            value, allowed = next(pair for pair in zip(row, _ROW, strict=True) if type(pair[0]) not in pair[1])
            raise Malformed(f"a value of a ledger must be {_type_names(allowed)}, got {value!r:.80}")


def _type_names(allowed: tuple[type, ...]) -> str:
    return " or ".join("missing" if kind is type(None) else kind.__name__ for kind in allowed)
