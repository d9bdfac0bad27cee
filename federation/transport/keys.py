"""The identity of parties: CURVE key pairs, and the roster that assigns keys to names."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from numpy.typing import NDArray

COORDINATOR = "coordinator"
KEY_BYTES = 32
SIGNATURE_BYTES = 64
_NO_KEY = bytes(KEY_BYTES)
_NO_KEYS = (_NO_KEY, b"")
"""The two forms of a missing key in a column: zeros, or an empty column."""
_FEW = 16
"""Maximum number of known parties that are looked up one by one: at its first roster, a site knows two."""


@dataclass(frozen=True)
class KeyPair:
    """A CURVE key pair, 32 bytes each. The secret key is never printed."""

    public: bytes
    secret: bytes = field(repr=False)

    @classmethod
    def generate(cls) -> KeyPair:
        """Generate a pair with the operating system's generator."""
        secret = X25519PrivateKey.generate()
        return cls(secret.public_key().public_bytes_raw(), secret.private_bytes_raw())


class Party(NamedTuple):
    """One member of a federation.

    Attributes
    ----------
    name : str
    address : str
        The address on which it listens.
    public_key : bytes or None
        Its public key for sockets; None without encryption.
    agreement_key : bytes or None
        Its public key for secrets shared with other sites; None for the coordinator, and if no protocol needs any.
    voucher : bytes or None
        Its signature of both keys, see `voucher_content`; None without a signing key.
    """

    name: str
    address: str
    public_key: bytes | None
    agreement_key: bytes | None = None
    voucher: bytes | None = None


class Roster:
    """The parties of a run, by name and by key. No other party may connect.

    It stores columns of bytes, as in a message, and creates a `Party` on access. As objects, a thousand parties would
    take half a megabyte at each of a thousand sites.

    Parameters
    ----------
    parties : iterable of Party
        The parties; of two with the same name the last counts.

    Raises
    ------
    ValueError
        A key does not have 32 bytes, or is all zeros, which represents a missing key.
    """

    def __init__(self, parties: Iterable[Party]) -> None:
        listed = list({party.name: party for party in parties}.values())
        self._names = _column(party.name for party in listed)
        self._addresses = _column(party.address for party in listed)
        self._public_keys = _keys([party.public_key for party in listed])
        self._agreement_keys = _keys([party.agreement_key for party in listed])
        vouchers = [party.voucher for party in listed]
        self._vouchers = b"".join(each or bytes(SIGNATURE_BYTES) for each in vouchers) if any(vouchers) else b""

    @classmethod
    def from_columns(
        cls, names: str, addresses: str, public_keys: bytes, agreement_keys: bytes, vouchers: bytes
    ) -> Self:
        """Return a roster from the result of `to_columns`. Names must differ, and all columns must have as many
        parties."""
        roster = cls([])
        roster._names, roster._addresses = _column([names]), _column([addresses])
        roster._public_keys, roster._agreement_keys, roster._vouchers = public_keys, agreement_keys, vouchers
        return roster

    def to_columns(self) -> tuple[str, str, bytes, bytes, bytes]:
        """Return names and addresses, one line per party, and both keys and the voucher of each, concatenated. A
        missing key is zeros; a column without any key is empty."""
        addresses = self._addresses[1:-1].decode()
        return self.names_column, addresses, self._public_keys, self._agreement_keys, self._vouchers

    def __iter__(self) -> Iterator[Party]:
        lines = zip(self.names, self._addresses[1:-1].decode().split("\n"), strict=True) if len(self) else ()
        for place, (name, address) in enumerate(lines):
            yield self._party(place, name, address)

    def __len__(self) -> int:
        return self._names.count(b"\n") - 1

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self._place(name) is not None

    def __getitem__(self, name: str) -> Party:
        if (place := self._place(name)) is None:
            raise KeyError(name)
        return self._party(place, name, _line(self._addresses, place, len(self)))

    @property
    def names(self) -> Sequence[str]:
        """The names of the parties, in order."""
        return self.names_column.split("\n") if len(self) else []

    @property
    def names_column(self) -> str:
        """The names of the parties, in order, one a line."""
        return self._names[1:-1].decode()

    @property
    def agreement_digest(self) -> bytes:
        """A digest of the parties' names and their keys for shared secrets, independent of the order of parties."""
        keys = (self._agreement_keys[place * KEY_BYTES :][:KEY_BYTES] for place in range(len(self)))
        pairs = sorted(zip(self.names, keys, strict=True))
        return hashlib.sha256(b"".join(name.encode() + b"\0" + key for name, key in pairs)).digest()

    @property
    def shares_keys(self) -> bool:
        """Return whether two parties share a key, or one party uses the same key twice."""
        both = self._public_keys, self._agreement_keys
        columns = [np.frombuffer(keys, dtype="<u8").reshape(-1, KEY_BYTES // 8) for keys in both]
        begins = np.concatenate([words[:, 0] for words in columns])
        if not _repeats(begins[begins != 0]) and not any(words[words[:, 0] == 0].any() for words in columns):
            return False  # almost always: comparing a quarter of each key takes a site less memory
        keys = np.frombuffer(b"".join(both), dtype=f"S{KEY_BYTES}")
        return _repeats(keys[keys != b""])

    def others_keys(self, known: Roster) -> Iterator[str]:
        """Yield the parties of a known roster whose keys differ in this one. They must be in it."""
        places = dict(zip(self.names, range(len(self)), strict=True)) if len(known) > _FEW else None
        for party in known:
            now = self[party.name] if places is None else self._party(places[party.name], party.name, party.address)
            if (now.public_key, now.agreement_key) != (party.public_key, party.agreement_key):
                yield party.name

    def replace(self, party: Party) -> Roster:
        """Return this roster with `party` in place of the party of its name."""
        return Roster(party if known.name == party.name else known for known in self)

    def name_of(self, raw_key: bytes) -> str | None:
        """Return the name of a 32-byte public key, or None."""
        if len(raw_key) != KEY_BYTES or raw_key == _NO_KEY:
            return None
        start = self._public_keys.find(raw_key)
        while start % KEY_BYTES:  # a match across two keys is skipped; -1, for no match, is skipped too
            if start < 0:
                return None
            start = self._public_keys.find(raw_key, start + 1)
        return _line(self._names, start // KEY_BYTES, len(self))

    def _place(self, name: str) -> int | None:
        """Return the position of the party of this name."""
        start = self._names.find(b"\n%s\n" % name.encode()) if "\n" not in name else -1
        return self._names.count(b"\n", 0, start) if start >= 0 else None

    def _party(self, place: int, name: str, address: str) -> Party:
        keys = slice(place * KEY_BYTES, (place + 1) * KEY_BYTES)
        public_key, agreement_key = self._public_keys[keys], self._agreement_keys[keys]
        voucher = self._vouchers[place * SIGNATURE_BYTES : (place + 1) * SIGNATURE_BYTES]
        return Party(
            name,
            address,
            None if public_key in _NO_KEYS else public_key,
            None if agreement_key in _NO_KEYS else agreement_key,
            voucher if any(voucher) else None,
        )


def voucher_content(run: bytes, party: Party, terms: bytes) -> bytes:
    """Return the content that a party signs to declare both keys as its own in a run on these terms."""
    keys = b"".join(map(_pack, (party.public_key, party.agreement_key)))
    return b"\0".join((run.hex().encode(), party.name.encode(), keys.hex().encode(), terms))


def _column(lines: Iterable[str]) -> bytes:
    """Return the lines, each between two line ends, so that a search finds whole lines."""
    return b"".join([b"\n", *(line.encode() + b"\n" for line in lines)])


def _line(column: bytes, place: int, lines: int) -> str:
    """Return one line of a column. The search begins at its position if all lines had the same length."""
    start = column.rfind(b"\n", 0, 1 + (len(column) - 1) * place // lines)
    before = column.count(b"\n", 0, start)
    while before < place:
        start, before = column.index(b"\n", start + 1), before + 1
    while before > place:
        start, before = column.rindex(b"\n", 0, start), before - 1
    return column[start + 1 : column.index(b"\n", start + 1)].decode()


def _keys(keys: Sequence[bytes | None]) -> bytes:
    return b"".join(map(_pack, keys)) if any(key is not None for key in keys) else b""


def _repeats(values: NDArray[Any]) -> bool:
    """Return whether a value occurs twice. Sorts the values; np.unique would load four megabytes of numpy at every
    site."""
    values.sort()
    return bool((values[1:] == values[:-1]).any())


def _pack(key: bytes | None) -> bytes:
    if key is None:
        return _NO_KEY
    if len(key) != KEY_BYTES or key == _NO_KEY:
        raise ValueError(f"a key must be {KEY_BYTES} bytes, and not all of them zero, got {len(key)}")
    return key
