"""The audit of a run: what the colluding parties reconstruct of the others' inputs to secure sums."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from algorithms.contract import Algorithm, Coalition, Reconstruction
from federation.arrays import FloatArray, Residues
from federation.channel.transcript import DREW, INPUT, RECEIVED, Entry, read_transcript
from federation.errors import Malformed
from federation.ledger import RoundRecord
from federation.transport.keys import COORDINATOR
from protocols.analysis.coalitions import combined, reconstruction_coefficients, view
from protocols.analysis.execution import Label, Record, labelled
from protocols.analysis.symbolic import linear_views
from protocols.arithmetic.fixed_point import FixedPoint
from protocols.sums.registry import SUMS

_SAME_ROW = 2.0**-15
"""Rows that differ by less in every column are one: rows may lie on a grid of 2^-16."""


@dataclass(frozen=True)
class Finding:
    """What the coalition learnt of one victim's inputs to one step, over all rounds.

    values: numbers that the victim put in; recovered: those that were reconstructed; max_error: of these, None if there
    are none; records_exposed: rows of the victim among them.
    """

    site: str
    protocol: str
    step: str
    rounds: int = 0
    values: int = 0
    recovered: int = 0
    max_error: float | None = None
    records_exposed: int = 0


@dataclass(frozen=True)
class CollusionReport:
    """What colluding parties learnt of the others: of each victim's inputs, by attacks, and in sentences."""

    coalition: tuple[str, ...]
    coordinator: bool
    victims: tuple[Finding, ...]
    reconstructions: tuple[Reconstruction, ...]
    remarks: tuple[str, ...]


@dataclass
class _Tally:
    """What is known of a victim's inputs to one step so far. exposed: indices of its rows."""

    rounds: int = 0
    values: int = 0
    recovered: int = 0
    max_error: float | None = None
    exposed: set[int] = field(default_factory=set)


@dataclass(frozen=True)
class SummedRound:
    """One secure sum as the transcripts have it: its terms, what each site put in, and what the coalition saw."""

    terms: Mapping[str, Any]
    truth: Mapping[str, Residues]
    seen: Sequence[tuple[str, Entry]]
    record: RoundRecord

    def decoded(self, residues: Residues) -> FloatArray:
        """The value that residues stand for, of the shape of the sum."""
        encoding = FixedPoint.for_bound(self.terms["bound"], len(self.terms["sites"]))
        return encoding.decode(residues).reshape(self.terms["shape"])


@dataclass(frozen=True)
class RunAudit:
    """What a coalition has of a run.

    Parameters
    ----------
    coalition : Coalition
    transcripts : mapping of str to sequence of Path
        Files of each party; of honest ones they hold the truth alone.
    rounds : mapping of int to RoundRecord
    algorithm : Algorithm
        Says what in a sum may be a single row.
    shown : tuple of str
        Steps whose values the settings had sent in the clear.
    """

    coalition: Coalition
    transcripts: Mapping[str, Sequence[Path]]
    rounds: Mapping[int, RoundRecord]
    algorithm: Algorithm[Any, Any, Any]
    shown: tuple[str, ...]

    def findings(self, rows: Mapping[str, FloatArray]) -> list[Finding]:
        """What the coalition reconstructs of every honest site's input to every sum, or was given in the clear.

        rows: each site's scaled rows (n, p). Raises AssertionError where algebra and numbers disagree.
        """
        tallies: dict[tuple[str, str, str], _Tally] = defaultdict(_Tally)
        for summed in self._sums():
            reconstructed = self._reconstruct(summed)
            for victim in self._victims(summed):
                tally = tallies[victim, summed.terms["protocol"], summed.terms["step"]]
                truth = summed.decoded(summed.truth[victim])
                self._judge(tally, summed, truth, reconstructed.get(victim), rows[victim])
        for record, entry in self._given():
            tally = tallies[entry.peer, "gather", record.step]
            tally.rounds += 1
            tally.values += entry.array.size
            tally.recovered += entry.array.size
            tally.max_error = 0.0
        return [
            Finding(*key, tally.rounds, tally.values, tally.recovered, tally.max_error, len(tally.exposed))
            for key, tally in tallies.items()
        ]

    def inputs_seen(self, step: str) -> Mapping[tuple[str, ...], list[FloatArray]]:
        """Of what sites computed in `step`: the sum of the inputs of some sites, round by round, by these sites.

        One, where the coalition has its input alone, or all honest ones, whose sum is what is left when the members of
        the coalition take their own inputs off the total.
        """
        seen: dict[tuple[str, ...], list[FloatArray]] = defaultdict(list)
        for summed in self._sums():
            if summed.record.step == step and not summed.record.aborted:
                for victim, part in self._reconstruct(summed).items():
                    seen[victim,].append(part)
                honest = tuple(self._victims(summed))
                if self.coalition.coordinator and len(honest) > 1:
                    rest = combined(dict.fromkeys((Label("input", site) for site in honest), 1), _inputs(summed))
                    seen[honest].append(summed.decoded(rest))
        for record, entry in self._given():
            if record.step == step and not record.aborted:
                seen[entry.peer,].append(entry.array)
        return seen

    def _sums(self) -> Iterator[SummedRound]:
        truth: dict[int, dict[str, Residues]] = defaultdict(dict)
        terms: dict[int, Mapping[str, Any]] = {}
        seen: dict[int, list[tuple[str, Entry]]] = defaultdict(list)
        members = {*self.coalition.sites, *([COORDINATOR] if self.coalition.coordinator else [])}
        for party, paths in self.transcripts.items():
            for entry in (entry for path in paths for entry in _entries(path)):
                if entry.what == INPUT:
                    truth[entry.round][party], terms[entry.round] = entry.array, entry.terms
                elif party in members:
                    seen[entry.round].append((party, entry))
        for number in sorted(terms):
            yield SummedRound(terms[number], truth[number], seen[number], self.rounds[number])

    def _given(self) -> Iterator[tuple[RoundRecord, Entry]]:
        """What honest sites sent the coordinator in the clear, of what a secure sum hides otherwise."""
        for entry in (entry for path in self.transcripts.get(COORDINATOR, ()) for entry in _entries(path)):
            record = self.rounds.get(entry.round)
            if record is None or record.verb != "gather" or entry.what != RECEIVED:
                continue
            if record.step in self.shown and entry.peer not in self.coalition.sites:
                yield record, entry

    def _victims(self, summed: SummedRound) -> list[str]:
        """The honest sites that put something in."""
        return [site for site in summed.terms["sites"] if site in summed.truth and site not in self.coalition.sites]

    def _reconstruct(self, summed: SummedRound) -> dict[str, FloatArray]:
        """The inputs of honest sites that the round's transcripts determine, reconstructed from these."""
        sites = tuple(summed.terms["sites"])
        protocol = SUMS[summed.terms["protocol"]](**summed.terms["options"])
        deaths = {} if summed.record.aborted else {site: 1 + taken for site, taken in summed.record.missing.items()}
        symbols = linear_views(protocol, sites, deaths, summed.terms["opened_by"])
        numbers = self._numbers(summed, symbols, sites)
        in_sight = view(symbols, self.coalition.sites, coordinator=self.coalition.coordinator)
        seen = [label for label in in_sight if label in numbers]
        if not seen:
            return {}
        by_victim = reconstruction_coefficients(symbols, seen, sites, self._victims(summed))
        return {victim: summed.decoded(combined(coefficients, numbers)) for victim, coefficients in by_victim.items()}

    def _numbers(self, summed: SummedRound, symbols: Record, sites: Sequence[str]) -> Record:
        """What the coalition has in hand, labelled as the symbols are."""
        limbs, length = next(iter(summed.truth.values())).shape
        arrays: dict[tuple[str, str, str], list[Residues]] = defaultdict(list)
        for party, entry in summed.seen:
            if entry.what in (RECEIVED, DREW):
                arrays[entry.what, party, entry.peer].append(entry.array)
        numbers: Record = {}
        for (what, party, peer), vectors in arrays.items():
            numbers |= labelled(what, party, peer, vectors, (limbs, length))
        for site in self.coalition.sites:
            if site in summed.truth:
                numbers[Label("input", site)] = summed.truth[site]
        if not summed.record.aborted and Label("total", "") in symbols:
            among = symbols[Label("total", "")][0]
            contributors = {Label("input", site): 1 for number, site in enumerate(sites) if among[number]}
            numbers[Label("total", "")] = combined(contributors, _inputs(summed))
        return numbers

    def _judge(
        self,
        tally: _Tally,
        summed: SummedRound,
        truth: FloatArray,
        reconstructed: FloatArray | None,
        rows: FloatArray,
    ) -> None:
        """Compare a reconstruction with the truth, which only a simulation knows."""
        tally.rounds += 1
        tally.values += truth.size
        if reconstructed is None:
            return
        error = float(np.abs(reconstructed - truth).max(initial=0.0))
        if error > 0:
            raise AssertionError(f"{summed.terms['protocol']}: the algebra gives an input with error {error}")
        tally.recovered += truth.size
        tally.max_error = max(tally.max_error or 0.0, error)
        points = self.algorithm.sensitive_rows(summed.terms["step"], reconstructed)
        if points is not None and len(points):
            apart = np.abs(rows[:, None, :] - points[None, :, :]).max(axis=2).min(axis=1)
            tally.exposed |= set(np.flatnonzero(apart < _SAME_ROW).tolist())


def _inputs(summed: SummedRound) -> Record:
    return {Label("input", site): truth for site, truth in summed.truth.items()}


def _entries(path: Path) -> Iterator[Entry]:
    """The entries of a transcript, as far as its writer came before it was killed."""
    with suppress(Malformed):
        yield from read_transcript(str(path))
