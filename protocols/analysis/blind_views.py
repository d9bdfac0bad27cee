"""The views of parties on a blind system (`blind_system`): the solution, the sums opened with it, or the whole system.

They are computed from transcripts, following the protocol. Sites see the solution if they receive it, the coordinator
sees the sums opened with it, and any two members of the committee see the system itself. A round may have several
systems.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedsvm.federation.arrays import FloatArray, Residues
from fedsvm.federation.channel.agreement import keystreams
from fedsvm.federation.channel.transcript import DREW, RECEIVED, SENT, TranscriptEntry
from fedsvm.federation.transport.keys import COORDINATOR
from fedsvm.protocols.arithmetic.residue_numbers import symmetric, transpose
from fedsvm.protocols.blind_parameters import FRACTION_BITS, MASK_BITS, BlindSystem, bundles_of
from fedsvm.protocols.committee import Committee
from fedsvm.protocols.common_seed import SHAPE

Entries = Mapping[str, Sequence[TranscriptEntry]]


def received_solutions(entries: Sequence[TranscriptEntry], systems: Sequence[BlindSystem]) -> list[FloatArray]:
    """Return the solutions (size, problems) of each system, as a site receives them."""
    messages = zip(_solution_bundles(entries), bundles_of(systems), strict=True)
    return [each for array, bundle in messages for each in np.split(array, len(bundle))]


def _solution_bundles(entries: Sequence[TranscriptEntry]) -> list[FloatArray]:
    floats = [each for each in entries if each.array.dtype == np.float64 and each.what in (SENT, RECEIVED)]
    received = [each for each in floats if each.what == RECEIVED and each.peer != COORDINATOR]
    sent = [each for each in floats if each.what == SENT]
    if sent and len(received) == len([each for each in floats if each.what == RECEIVED]):  # the first member
        return [each.array for each in sent if each.peer == sent[0].peer]
    return [each.array for each in received]


def opened_sums(
    entries: Sequence[TranscriptEntry], systems: Sequence[BlindSystem]
) -> list[tuple[FloatArray, FloatArray]]:
    """Return the numbers (count,) and the inner products (g, g) that a coordinator opens with each system.

    entries: of a coordinator that does not learn the solutions, so that it receives two shares of each bundle last.
    """
    bundles = bundles_of(systems)
    received = [each.array for each in entries if each.what == RECEIVED][-2 * len(bundles) :]
    found = []
    for bundle, *shares in zip(bundles, received[::2], received[1::2], strict=True):
        for system, *own in zip(bundle, *shares, strict=True):
            first, second = (system.numbers.unpack(share[None, :], (1, system.opened)) for share in own)
            opened = system.numbers.reduce(first + second)
            found.append(system.read_sums(opened[:, :, system.triangle :]))
    return found


def find_committee(entries: Entries, systems: Sequence[BlindSystem]) -> Committee | None:
    """Return the committee, as one of its first two members knows it; None if the parties have neither."""
    seeds = (3 * len(bundles_of(systems)[-1]), SHAPE[1])
    for site, lines in entries.items():
        floats = [each for each in lines if each.array.dtype == np.float64 and each.what == RECEIVED]
        dealt = [each.peer for each in lines if each.what == RECEIVED and each.array.shape == seeds]
        shares = any(each.array.dtype == np.float64 and each.what == SENT for each in lines)
        if site == COORDINATOR or not shares or not floats or not dealt:
            continue
        others = [each.peer for each in floats if each.peer != COORDINATOR]
        is_second = len(others) < len(floats)
        return Committee(others[0], site, dealt[-1]) if is_second else Committee(site, others[0], dealt[-1])
    return None


def systems_of_pair(entries: Entries, systems: Sequence[BlindSystem]) -> list[FloatArray] | None:
    """Return the extended matrices of each system, which any two members of the committee have together.

    Parameters
    ----------
    entries : mapping of party to sequence of TranscriptEntry
        The entries of the parties that pool their views.
    systems : sequence of BlindSystem

    Returns
    -------
    list of FloatArray of shape (d + K, d + K), or None
        None if fewer than two members are among the parties. The right-hand sides have the noise that the pair does
        not know.
    """
    members = find_committee(entries, systems)
    if members is None:
        return None
    pair = _Pair(entries, members, systems)
    found = {
        (True, True, False): pair.of_first_and_second,
        (True, True, True): pair.of_first_and_second,
        (True, False, True): pair.of_first_and_dealer,
        (False, True, True): pair.of_second_and_dealer,
    }.get((members.first in entries, members.second in entries, members.dealer in entries))
    return None if found is None else [found(place) for place in range(len(systems))]


@dataclass(frozen=True)
class _Pair:
    """Two members that pool their views, and the systems that they compute from these."""

    entries: Entries
    members: Committee
    systems: Sequence[BlindSystem]

    def of_first_and_second(self, place: int) -> FloatArray:
        """Return the sum of both shares."""
        system, members = self.systems[place], self.members
        told = self._between(COORDINATOR, members.second)
        blinded = [each for each in told if each.dtype == np.uint64][-1]  # a masked sum sends others before
        blind = next(each for each in self._draw(members.second) if each.shape == blinded.shape)
        ends = np.cumsum([each.numbers.words((1, each.entries)) for each in self.systems])
        words = np.split((blinded - blind)[:, :-1], ends[:-1], axis=1)[place]
        return self._decode(
            place, self._of_first(place) + system.matrix(system.numbers.unpack(words, (1, system.entries)))
        )

    def of_first_and_dealer(self, place: int) -> FloatArray:
        """Return R + T, where T is the dealer's V plus T - V."""
        theirs = self._symmetric(self.members.second, self.members.first, place, 0)
        return self._decode(place, self._of_first(place) + theirs + self._deal(place, self.members.second, 0))

    def of_second_and_dealer(self, place: int) -> FloatArray:
        """Take the first member's mask from U, its masked share from the second V, and undo the mask."""
        system, numbers, members = self.systems[place], self.systems[place].numbers, self.members
        square = (system.extended, system.extended)
        hidden = numbers.unpack(self._tail(members.first, members.second, 6, place)[0], square)
        seeds = self._dealer_seeds(place)[0]
        mask = numbers.reduce(hidden + numbers.uniform(keystreams, seeds[0], square))
        of_dealer = self._tail(members.dealer, members.second, 6, place)
        twice = symmetric(numbers.unpack(of_dealer[1], (1, system.triangle)), system.extended)
        product = numbers.unpack(of_dealer[2], square)
        cross = numbers.product(product, transpose(hidden))
        turned = numbers.product(numbers.product(hidden, self._deal(place, members.second, 0)), transpose(hidden))
        own = numbers.reduce(twice + cross + transpose(cross) + turned)
        theirs = self._symmetric(members.first, members.second, place, 1) + self._deal(place, members.first, 1)
        masked = np.ldexp(numbers.decode(numbers.reduce(own + theirs)), -FRACTION_BITS - 2 * MASK_BITS)
        undone = np.linalg.inv(np.ldexp(numbers.decode(mask), -MASK_BITS))
        return np.asarray(undone @ masked @ undone.T) * system.scale

    def _of_first(self, place: int) -> FloatArray:
        """Return R, with the penalty."""
        system, first = self.systems[place], self.members.first
        shape = (len(self.systems), SHAPE[1])
        own = next(each for each in self._draw(first) if each.shape == shape and not self._is_shown(first, each))
        after = {self.members.second: 5, self.members.dealer: 5}
        senders = dict.fromkeys(each.peer for each in self.entries[first] if each.what == RECEIVED)
        seeds = [own]
        for sender in senders:
            if sender != COORDINATOR:
                seeds.append(self._between(sender, first)[-1 - after.get(sender, 0) * len(bundles_of(self.systems))])
        uniform = [system.numbers.uniform(keystreams, each[place], (1, system.entries)) for each in seeds]
        return system.add_penalty(system.matrix(system.numbers.reduce(np.sum(uniform, axis=0))))

    def _is_shown(self, site: str, drawn: Residues) -> bool:
        """Return whether a site sent what it drew in a table of all sites, as it does to draw the committee."""
        tables = [each.array for each in self.entries[site] if each.what == SENT and each.array.shape[1:] == SHAPE[1:]]
        return any((table == drawn[0]).all(axis=1).any() for table in tables)

    def _symmetric(self, sender: str, receiver: str, place: int, number: int) -> FloatArray:
        system, count = self.systems[place], 5 if receiver == self.members.first else 6
        words = self._tail(sender, receiver, count, place)[number]
        return symmetric(system.numbers.unpack(words, (1, system.triangle)), system.extended)

    def _deal(self, place: int, other: str, mask: int) -> FloatArray:
        """Return V of one of the two masks, which `other` received from the dealer."""
        system = self.systems[place]
        return system.numbers.uniform_symmetric(keystreams, self._dealer_seeds(place)[mask][3], system.extended)

    def _dealer_seeds(self, place: int) -> list[Residues]:
        """Return the seeds (4, 4) of both masks. For a bundle, the dealer drew those of all first masks before the
        others."""
        drawn = [each for each in self._draw(self.members.dealer) if each.shape == (4, SHAPE[1])]
        drawn = drawn[-2 * len(self.systems) :]
        _, first, count = self._bundle_of(place)
        return [drawn[first + place], drawn[first + count + place]]

    def _tail(self, sender: str, receiver: str, count: int, place: int) -> list[NDArray[Any]]:
        """Return a system's part of the last messages between two members: `count` for each bundle."""
        number, first, of_bundle = self._bundle_of(place)
        sent = self._between(sender, receiver)[-count * len(bundles_of(self.systems)) :]
        messages = sent[number * count : (number + 1) * count]
        return [np.split(each, of_bundle)[place - first] for each in messages]

    def _bundle_of(self, place: int) -> tuple[int, int, int]:
        """Return the number of a system's bundle, the place of the bundle's first system, and the bundle's size."""
        first = 0
        for number, bundle in enumerate(bundles_of(self.systems)):
            if place < first + len(bundle):
                return number, first, len(bundle)
            first += len(bundle)
        raise IndexError(place)

    def _between(self, sender: str, receiver: str) -> list[NDArray[Any]]:
        if receiver in self.entries:
            lines = self.entries[receiver]
            return [each.array for each in lines if each.what == RECEIVED and each.peer == sender]
        return [each.array for each in self.entries[sender] if each.what == SENT and each.peer == receiver]

    def _draw(self, site: str) -> list[NDArray[Any]]:
        return [each.array for each in self.entries[site] if each.what == DREW and not each.peer]

    def _decode(self, place: int, residues: FloatArray) -> FloatArray:
        system = self.systems[place]
        return np.ldexp(system.numbers.decode(system.numbers.reduce(residues)), -FRACTION_BITS) * system.scale
