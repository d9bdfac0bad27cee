"""What colluding parties learn of the inputs of secure sums: from the protocol's algebra, and from what was seen.

Sums are linear, so a coalition's knowledge is a set of linear forms over the unknown inputs and masks. The forms are
not written down by hand: the protocol itself is rehearsed on symbols, a unit vector for every input and every random
vector, and what a party receives is then the coefficients of what it would receive. A victim's input is determined if
its unit vector is a combination of the forms that the coalition sees, with coefficients modulo 2^64, and the same
combination of the numbers that were really seen gives the input itself.

The sum counts as known to every coalition: it is what the protocol is there to reveal.
"""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from federation.arrays import Residues
from federation.channel.memory import InMemoryNetwork, MemoryChannel
from federation.channel.socket import uniform_residues
from federation.transport.keys import COORDINATOR
from protocols.arithmetic.fixed_point import add, subtract
from protocols.sums.contract import SecureSum

_SIGN_BIT = 1 << 63


class Label(NamedTuple):
    """A vector in a round: what it is, whose, from whom, and its place among those of the same kind.

    `what` is "received", "drew", "input" or "total".
    """

    what: str
    party: str
    peer: str = ""
    place: int = 0


Record = dict[Label, Residues]
"""All vectors of a round, each of shape (limbs, d)."""


# Rehearsals, on symbols and on numbers.


@dataclass
class SymbolicNetwork(InMemoryNetwork):
    """A rehearsal in which every random vector of the inputs' shape is the unit vector of an unknown of its own."""

    unknowns: int = 0
    shape: tuple[int, int] = (1, 0)
    _of_secret: dict[bytes, int] = field(default_factory=dict)

    def unit(self, secret: bytes | None = None) -> Residues:
        """The unit vector of a new unknown, or of the one that this secret stands for."""
        with self._news:
            number = self._of_secret.get(secret, self.unknowns) if secret is not None else self.unknowns
            self.unknowns = max(self.unknowns, number + 1)
            if secret is not None:
                self._of_secret[secret] = number
        return unit_vector(number, self.shape[1])

    def _channel(self, name: str) -> MemoryChannel:
        return _SymbolicChannel(self, name)


class _SymbolicChannel(MemoryChannel):
    _rehearsal: SymbolicNetwork

    def random(self, shape: Sequence[int]) -> Residues:
        """A new unknown, where a vector is drawn; secrets stay what they are."""
        vector = tuple(shape) == self._rehearsal.shape
        return self._drawn(self._rehearsal.unit() if vector else uniform_residues(shape))

    def expand(self, secret: bytes, shape: Sequence[int]) -> Residues:
        """The unknown that the secret stands for."""
        return self._drawn(self._rehearsal.unit(secret))


def unit_vector(number: int, length: int) -> Residues:
    """(1, length): 1 at `number`."""
    vector = np.zeros((1, length), dtype=np.uint64)
    vector[0, number] = 1
    return vector


def linear_views(
    protocol: SecureSum, sites: tuple[str, ...], deaths: Mapping[str, int] = MappingProxyType({})
) -> Record:
    """The linear linear_views of one sum over `sites`; the first unknowns are their inputs, in this order.

    deaths: sites that died, and before which of their messages.
    """
    count = len(sites)
    length = count * (count + 3)  # no protocol draws more than n vectors a site
    rehearsal = SymbolicNetwork(sites, deaths=deaths, unknowns=count, shape=(1, length))
    inputs = {site: unit_vector(number, length) for number, site in enumerate(sites)}
    return rehearse(protocol, rehearsal, inputs)


def rehearse(protocol: SecureSum, rehearsal: InMemoryNetwork, inputs: Mapping[str, Residues]) -> Record:
    """The record of one sum of `inputs` by site, all of one shape."""
    shape = next(iter(inputs.values())).shape
    parts: dict[str, Callable[[MemoryChannel], Residues | None]] = {
        site: functools.partial(_contribute, protocol, vector) for site, vector in inputs.items()
    }
    parts[COORDINATOR] = lambda channel: protocol.reveal_residues(channel, (shape[0], shape[1]))
    total = rehearsal.play(parts)[COORDINATOR]
    record = {Label("input", site): vector for site, vector in inputs.items()}
    if total is not None:
        record[Label("total", "")] = total
    received: dict[tuple[str, str], list[Residues]] = defaultdict(list)
    for message in rehearsal.sent:
        received[message.receiver, message.sender].append(message.array)
    for (receiver, sender), arrays in received.items():
        record |= labelled("received", receiver, sender, arrays, shape)
    for party, drawn in rehearsal.drawn.items():
        record |= labelled("drew", party, "", drawn, shape)
    return record


def labelled(what: str, party: str, peer: str, arrays: Iterable[Residues], shape: Sequence[int]) -> Record:
    """The vectors of this shape among `arrays`; those that went in chunks are put together again."""
    found: list[Residues] = []
    parts: list[Residues] = []
    for array in arrays:
        if array.dtype != np.uint64 or array.ndim != 2 or array.shape[0] != shape[0]:
            continue
        parts.append(array)
        columns = sum(part.shape[1] for part in parts)
        if columns == shape[1]:
            found.append(np.concatenate(parts, axis=1))
        if columns >= shape[1]:
            parts = []
    return {Label(what, party, peer, place): vector for place, vector in enumerate(found)}


def _contribute(protocol: SecureSum, vector: Residues, channel: MemoryChannel) -> None:
    protocol.contribute_residues(channel, vector)


# Linear algebra modulo 2^64.


class Span:
    """All combinations of some vectors with coefficients modulo 2^64.

    Rows are reduced by the entry with the fewest factors of 2, by which every other in its column can be divided.
    """

    def __init__(self, rows: NDArray[np.uint64]) -> None:
        count, self._width = rows.shape
        work = np.hstack([rows, np.eye(count, dtype=np.uint64)])
        self._pivots: list[_Pivot] = []
        while (place := _least_even(work[:, : self._width])) is not None:
            pivot = _Pivot.of(work[place[0]], place[1])
            work = np.delete(work, place[0], axis=0)
            work = work - (work[:, pivot.column] >> pivot.shift)[:, None] * pivot.row
            self._pivots.append(pivot)
        self._count = count

    def combination(self, target: NDArray[np.uint64]) -> NDArray[np.uint64] | None:
        """Coefficients whose combination of the rows is `target`, or None if there is none."""
        rest = np.concatenate([target, np.zeros(self._count, dtype=np.uint64)])
        for pivot in self._pivots:
            rest = rest - (rest[pivot.column] >> pivot.shift) * pivot.row
        return None if rest[: self._width].any() else np.negative(rest[self._width :])


@dataclass(frozen=True)
class _Pivot:
    """A row whose entry in `column` is 2^shift, and how it is made of the original rows."""

    row: NDArray[np.uint64]
    column: int
    shift: np.uint64

    @classmethod
    def of(cls, row: NDArray[np.uint64], column: int) -> _Pivot:
        """The row, scaled so that its entry is a power of 2."""
        entry = int(row[column])
        shift = (entry & -entry).bit_length() - 1
        return cls(row * np.uint64(pow(entry >> shift, -1, 1 << 64)), column, np.uint64(shift))


def _least_even(rows: NDArray[np.uint64]) -> tuple[int, int] | None:
    """Where the entry with the fewest factors of 2 is; None if all are 0."""
    lowest_bits = rows & (~rows + np.uint64(1))
    if not lowest_bits.any():
        return None
    row, column = np.unravel_index(np.argmin(lowest_bits - np.uint64(1)), rows.shape)
    return int(row), int(column)


def combined(coefficients: Mapping[Label, int], record: Record) -> Residues:
    """The combination of vectors of a record; coefficients are signed and small."""
    vectors = [record[label] for label in coefficients]
    total = np.zeros_like(vectors[0])
    for coefficient, vector in zip(coefficients.values(), vectors, strict=True):
        for _ in range(abs(coefficient)):
            total = add(total, vector) if coefficient > 0 else subtract(total, vector)
    return total


# The attack.


def view(record: Record, coalition: Iterable[str], *, coordinator: bool) -> list[Label]:
    """What of a record the coalition knows: all its members receive, draw and put in, and the sum."""
    members = {*coalition, *([COORDINATOR] if coordinator else [])}
    return [label for label in record if label.what == "total" or label.party in members]


def reconstruction_coefficients(
    symbols: Record, seen: Sequence[Label], sites: Sequence[str], victims: Iterable[str]
) -> dict[str, dict[Label, int]]:
    """How to compute the victims' inputs from what is seen: coefficients by label, for those that are determined."""
    span = Span(np.vstack([symbols[label] for label in seen]))
    length = symbols[seen[0]].shape[1]
    found = {}
    for victim in victims:
        coefficients = span.combination(unit_vector(list(sites).index(victim), length)[0])
        if coefficients is not None:
            signed = {label: _signed(int(c)) for label, c in zip(seen, coefficients, strict=True)}
            found[victim] = {label: c for label, c in signed.items() if c}
    return found


def is_found(truth: NDArray[np.uint64], numbers: NDArray[np.uint64]) -> bool:
    """Whether a vector is a combination of others (k, d), looking at columns enough to rule out a coincidence.

    False where there are too few, and for a vector of zeros, which is a combination of any.
    """
    enough = len(numbers) + 64
    if len(truth) < enough or not truth.any():
        return False
    telling = np.flatnonzero(truth)[:enough]
    others = np.linspace(0, len(truth) - 1, enough).astype(np.int64)
    columns = np.union1d(telling, others)
    return Span(numbers[:, columns]).combination(truth[columns]) is not None


def _signed(residue: int) -> int:
    return residue - (1 << 64) if residue >= _SIGN_BIT else residue


# Rehearsals to attack.


@dataclass(frozen=True)
class Rehearsed:
    """One sum rehearsed twice, on symbols and on numbers that are long enough to tell a coincidence from a leak."""

    protocol: SecureSum
    sites: tuple[str, ...]
    symbols: Record
    numbers: Record

    @classmethod
    def of(cls, protocol: SecureSum, count: int) -> Rehearsed:
        """A sum over `count` sites of random inputs."""
        sites = tuple(f"site-{number + 1}" for number in range(count))
        symbols = linear_views(protocol, sites)
        length = len(symbols) + 64
        inputs = {site: uniform_residues((1, length)) for site in sites}
        return cls(protocol, sites, symbols, rehearse(protocol, InMemoryNetwork(sites), inputs))

    def leaks(self, coalition: Sequence[str], *, coordinator: bool) -> set[str]:
        """The victims whose inputs the coalition learns. Raises AssertionError if algebra and numbers disagree."""
        victims = [site for site in self.sites if site not in coalition]
        seen = view(self.symbols, coalition, coordinator=coordinator)
        determined = reconstruction_coefficients(self.symbols, seen, self.sites, victims)
        numbers = np.vstack([self.numbers[label] for label in seen])
        for victim in victims:
            truth = self.numbers[Label("input", victim)]
            if victim in determined:
                agree = np.array_equal(combined(determined[victim], self.numbers), truth)
            else:
                agree = not is_found(truth[0], numbers)
            if not agree:
                raise AssertionError(f"{self.protocol.name}: algebra and numbers disagree on {victim}")
        return set(determined)
