"""Who is who: CURVE key pairs, and the roster that says which key stands for which name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import zmq
from zmq.utils import z85

COORDINATOR = "coordinator"
KEY_BYTES = 32


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
    """The parties of a run, by name and by key. Who is not in it may not speak."""

    def __init__(self, parties: Iterable[Party]) -> None:
        self._by_name = {party.name: party for party in parties}
        self._names_by_key = {party.public_key: party.name for party in self if party.public_key}

    def __iter__(self) -> Iterator[Party]:
        return iter(self._by_name.values())

    def __len__(self) -> int:
        return len(self._by_name)

    def __contains__(self, name: object) -> bool:
        return name in self._by_name

    def __getitem__(self, name: str) -> Party:
        return self._by_name[name]

    def replaced(self, party: Party) -> Roster:
        """This roster with `party` in the place of the one of its name."""
        return Roster(party if known.name == party.name else known for known in self)

    def name_of(self, raw_key: bytes) -> str | None:
        """The name that a 32-byte public key stands for, or None."""
        return self._names_by_key.get(raw_key)

    def to_fields(self) -> list[list[Any]]:
        """Plain values for a message: [name, address, public key, agreement key] of each party."""
        return [list(party) for party in self]
