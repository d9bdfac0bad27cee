"""Who is who: CURVE key pairs, and the roster that says which key stands for which name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Self

import numpy as np
import zmq
from zmq.utils import z85

COORDINATOR = "coordinator"
KEY_BYTES = 32
_NO_KEY = bytes(KEY_BYTES)


@dataclass(frozen=True)
class KeyPair:
    """A CURVE key pair, 32 bytes each. The secret half lives in memory only and never prints."""

    public: bytes
    secret: bytes = field(repr=False)

    @classmethod
    def generate(cls) -> KeyPair:
        """A fresh pair from the operating system's generator."""
        public, secret = (z85.decode(half) for half in zmq.curve_keypair())
        return cls(public, secret)


class Party(NamedTuple):
    """One member of a federation.

    Its name, where it listens, its public key for sockets (None without encryption), and the one with which sites
    agree on secrets (None for the coordinator, and where no protocol needs any).
    """

    name: str
    address: str
    public_key: bytes | None
    agreement_key: bytes | None = None


class Roster:
    """The parties of a run, by name and by key. Who is not in it may not speak.

    Every site holds one, so that it is kept in columns, as it travels, and a party is made when it is asked for. As
    objects a thousand parties would be half a megabyte at each of a thousand sites.

    Parameters
    ----------
    parties : iterable of Party
        Of two of the same name the last counts.

    Raises
    ------
    ValueError
        For a key that is not of 32 bytes, or is all zeros, which stands for none.
    """

    def __init__(self, parties: Iterable[Party]) -> None:
        listed = list({party.name: party for party in parties}.values())
        self._names = [party.name for party in listed]
        self._addresses = [party.address for party in listed]
        self._public_keys = b"".join(_packed(party.public_key) for party in listed)
        self._agreement_keys = b"".join(_packed(party.agreement_key) for party in listed)

    @classmethod
    def from_columns(
        cls, names: Sequence[str], addresses: Sequence[str], public_keys: bytes, agreement_keys: bytes
    ) -> Self:
        """What `to_columns` gave. The names must differ."""
        roster = cls([])
        roster._names, roster._addresses = list(names), list(addresses)
        roster._public_keys, roster._agreement_keys = public_keys, agreement_keys
        return roster

    def to_columns(self) -> tuple[Sequence[str], Sequence[str], bytes, bytes]:
        """Names, addresses, and both keys of each party, one behind the other, zeros for one that is missing."""
        return self._names, self._addresses, self._public_keys, self._agreement_keys

    def __iter__(self) -> Iterator[Party]:
        return map(self._party, range(len(self._names)))

    def __len__(self) -> int:
        return len(self._names)

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __getitem__(self, name: str) -> Party:
        try:
            return self._party(self._names.index(name))
        except ValueError:
            raise KeyError(name) from None

    @property
    def names(self) -> Sequence[str]:
        """Of the parties, in order."""
        return self._names

    @property
    def shares_keys(self) -> bool:
        """Whether a key of one party is another's as well, or its other one."""
        keys = np.frombuffer(self._public_keys + self._agreement_keys, dtype=f"S{KEY_BYTES}")
        present = np.sort(keys[keys != b""])  # np.unique would have every site load four megabytes of numpy
        return bool((present[1:] == present[:-1]).any())

    def others_keys(self, known: Roster) -> Iterator[str]:
        """The parties of a known roster whose keys, or one of them, are others in this one. They must be in it."""
        places = dict(zip(self._names, range(len(self._names)), strict=True))
        for party in known:
            now = self._party(places[party.name])
            if (now.public_key, now.agreement_key) != (party.public_key, party.agreement_key):
                yield party.name

    def replaced(self, party: Party) -> Roster:
        """This roster with `party` in the place of the one of its name."""
        return Roster(party if known.name == party.name else known for known in self)

    def name_of(self, raw_key: bytes) -> str | None:
        """The name that a 32-byte public key stands for, or None."""
        if len(raw_key) != KEY_BYTES or raw_key == _NO_KEY:
            return None
        start = self._public_keys.find(raw_key)
        while start % KEY_BYTES:  # the end of one key and the begin of the next; -1 is none of these
            if start < 0:
                return None
            start = self._public_keys.find(raw_key, start + 1)
        return self._names[start // KEY_BYTES]

    def _party(self, place: int) -> Party:
        keys = slice(place * KEY_BYTES, (place + 1) * KEY_BYTES)
        public_key, agreement_key = self._public_keys[keys], self._agreement_keys[keys]
        return Party(
            self._names[place],
            self._addresses[place],
            None if public_key == _NO_KEY else public_key,
            None if agreement_key == _NO_KEY else agreement_key,
        )


def _packed(key: bytes | None) -> bytes:
    if key is None:
        return _NO_KEY
    if len(key) != KEY_BYTES or key == _NO_KEY:
        raise ValueError(f"a key must be {KEY_BYTES} bytes, and not all of them zero, got {len(key)}")
    return key
