"""The view that a coalition has of a whole run: every parameter it received, and every sum it knows, in order.

A secure sum hides the addends of one sum. A run asks for many sums of the same rows, and what they give away together
is for attacks to find out, which start from here: a `RunView` says of each round whose inputs the coalition knows the
sum of. The views are made from what the coordinator opened and from the transcripts of the run, by the algebra of the
protocols, and know of the honest sites' inputs no more than this.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from fedsvm.federation.arrays import FloatArray, Residues
from fedsvm.federation.channel.transcript import DREW, INPUT, RECEIVED, TranscriptEntry, read_transcript
from fedsvm.federation.disclosed_round import DisclosedRound
from fedsvm.federation.errors import Malformed
from fedsvm.federation.traffic_ledger import RoundRecord
from fedsvm.federation.transport.keys import COORDINATOR
from fedsvm.protocols.analysis.coalitions import combine_vectors, reconstruction_coefficients, view
from fedsvm.protocols.analysis.execution import Label, Record, label_vectors
from fedsvm.protocols.analysis.symbolic import linear_views
from fedsvm.protocols.arithmetic.fixed_point import FixedPoint
from fedsvm.protocols.sums.registry import SUMS
from fedsvm.protocols.sums.ring import chunk_count


@dataclass(frozen=True)
class Coalition:
    """The parties that pool what they saw in a run.

    Attributes
    ----------
    sites : tuple of str
    coordinator : bool
    """

    sites: tuple[str, ...]
    coordinator: bool

    @property
    def parties(self) -> tuple[str, ...]:
        """Its members, the coordinator last."""
        return (*self.sites, *([COORDINATOR] if self.coordinator else []))


@dataclass(frozen=True)
class RoundView:
    """The view that a coalition has of one complete round.

    Attributes
    ----------
    number : int
        Of the run's rounds, from 1.
    step : str
    parameters : mapping of str to Any
        Arrays and plain arguments, as every site was sent them.
    sums : mapping of tuple of str to FloatArray
        What sites computed in the step, added up, by the honest sites whose inputs are in it: of one alone, of all of
        them together, or both. Empty where the coalition knows none.
    heard : sequence of arrays
        What its members received from others, or drew, where the round was no sum; the coordinator's last.
    entries : mapping of party to sequence of TranscriptEntry
        The same by member, with what each of them sent.
    inputs : mapping of site to FloatArray
        What its members put into the sum, if the round was one.
    """

    number: int
    step: str
    parameters: Mapping[str, Any]
    sums: Mapping[tuple[str, ...], FloatArray]
    heard: Sequence[NDArray[Any]] = ()
    entries: Mapping[str, Sequence[TranscriptEntry]] = field(default_factory=dict)
    inputs: Mapping[str, FloatArray] = field(default_factory=dict)


@dataclass(frozen=True)
class RunView:
    """The view that a coalition has of a run: its complete rounds, in order.

    Attributes
    ----------
    coalition : Coalition
    rounds : tuple of RoundView
    """

    coalition: Coalition
    rounds: tuple[RoundView, ...]

    def of(self, step: str) -> list[RoundView]:
        """Return the rounds of one step."""
        return [each for each in self.rounds if each.step == step]


@dataclass(frozen=True)
class RecordedRound:
    """One round, as the federation and all transcripts have it.

    Attributes
    ----------
    record : RoundRecord
    shown : DisclosedRound or None
        None where it was aborted.
    terms : mapping
        Of a secure sum, how it was made; empty of other rounds.
    inputs : mapping of site to Residues
        The vector that each site put into a secure sum. A coalition knows those of its members.
    entries : mapping of party to sequence of TranscriptEntry
        What each party that wrote it down sent, received and drew.
    """

    record: RoundRecord
    shown: DisclosedRound | None
    terms: Mapping[str, Any]
    inputs: Mapping[str, Residues]
    entries: Mapping[str, Sequence[TranscriptEntry]]

    def decode(self, residues: Residues) -> FloatArray:
        """Decode residues to a value of the shape of the sum."""
        encoding = FixedPoint.for_bound(self.terms["bound"], len(self.terms["sites"]))
        return encoding.decode(residues).reshape(self.terms["shape"])

    def honest(self, coalition: Coalition) -> list[str]:
        """Return the contributing sites outside a coalition."""
        return [site for site in self.terms.get("sites", ()) if site in self.inputs and site not in coalition.sites]

    def heard_by(self, coalition: Coalition) -> tuple[NDArray[Any], ...]:
        """Return what a coalition's members received or drew, the coordinator last."""
        entries = (entry for party in coalition.parties for entry in self.entries.get(party, ()))
        return tuple(entry.array for entry in entries if entry.what in (RECEIVED, DREW))

    def total_of(self, sites: Iterable[str]) -> FloatArray:
        """Return the sum of the inputs of some sites."""
        inputs = {Label("input", site): self.inputs[site] for site in sites}
        return self.decode(combine_vectors(dict.fromkeys(inputs, 1), inputs))


@dataclass(frozen=True)
class RecordedRun:
    """A run as it was written down, from which follows what any coalition has of it.

    Attributes
    ----------
    rounds : mapping of int to RoundRecord
        All of them, aborted ones too.
    shown : sequence of DisclosedRound
        The complete ones.
    transcripts : mapping of party to sequence of Path
        Files of each party. One of a party that does not collude holds its inputs alone.
    """

    rounds: Mapping[int, RoundRecord]
    shown: Sequence[DisclosedRound]
    transcripts: Mapping[str, Sequence[Path]]
    _symbols: dict[Any, Record] = field(default_factory=dict)

    def __iter__(self) -> Iterator[RecordedRound]:
        """Yield every round in order."""
        shown = {each.number: each for each in self.shown}
        written: dict[int, list[tuple[str, TranscriptEntry]]] = defaultdict(list)
        for party, paths in self.transcripts.items():
            for entry in _entries(paths):
                written[entry.round].append((party, entry))
        for number, record in sorted(self.rounds.items()):
            inputs: dict[str, Residues] = {}
            terms: Mapping[str, Any] = {}
            entries: dict[str, list[TranscriptEntry]] = defaultdict(list)
            for party, entry in written[number]:
                if entry.what == INPUT:
                    inputs[party], terms = entry.array, entry.terms
                else:
                    entries[party].append(entry)
            yield RecordedRound(record, shown.get(number), terms, inputs, entries)

    def views(self, coalitions: Sequence[Coalition]) -> list[RunView]:
        """Return the view of each coalition on the run.

        Parameters
        ----------
        coalitions : sequence of Coalition

        Returns
        -------
        list of RunView
        """
        rounds: list[list[RoundView]] = [[] for _ in coalitions]
        for recorded in self:
            if (shown := recorded.shown) is not None:
                for seen, coalition in zip(rounds, coalitions, strict=True):
                    sums = self.sums(recorded, shown, coalition)
                    own = {site: recorded.total_of([site]) for site in coalition.sites if site in recorded.inputs}
                    round_ = RoundView(shown.number, shown.step, shown.parameters, sums, inputs=own)
                    if shown.verb == "run":
                        entries = {party: recorded.entries.get(party, ()) for party in coalition.parties}
                        round_ = replace(round_, heard=recorded.heard_by(coalition), entries=entries)
                    seen.append(round_)
        return [RunView(coalition, tuple(seen)) for coalition, seen in zip(coalitions, rounds, strict=True)]

    def sums(
        self, recorded: RecordedRound, shown: DisclosedRound, coalition: Coalition
    ) -> dict[tuple[str, ...], FloatArray]:
        """Return what a coalition knows of the inputs to a complete round: see `RoundView.sums`."""
        if shown.verb == "gather":
            values = shown.opened.items() if coalition.coordinator else ()
            return {(site,): value for site, value in values if site not in coalition.sites}
        if shown.verb == "run":
            return {}
        known: dict[tuple[str, ...], FloatArray]
        known = {(site,): value for site, value in self.reconstruct(recorded, coalition).items()}
        if shown.receiver in coalition.parties:
            honest = tuple(site for site in shown.sites if site not in coalition.sites)
            if honest == shown.sites and shown.opened is not None:
                known[honest] = shown.opened
            elif honest:
                known[honest] = recorded.total_of(honest)  # what is left when the members take off their own inputs
        return known

    def reconstruct(self, recorded: RecordedRound, coalition: Coalition) -> dict[str, FloatArray]:
        """Compute the inputs of honest sites that a coalition's view of one secure sum determines.

        Parameters
        ----------
        recorded : RecordedRound
            Of any verb, complete or aborted.
        coalition : Coalition

        Returns
        -------
        dict of site to FloatArray
        """
        victims = recorded.honest(coalition)
        if not victims:
            return {}
        terms, record = recorded.terms, recorded.record
        sites = tuple(terms["sites"])
        # on symbols a vector is one message; a site that goes missing in a sum that goes on without it sends that first
        further = max(0, chunk_count(math.prod(terms["shape"])) - 1)
        missing = {} if record.aborted else record.missing
        deaths = {site: 1 + max(0, taken - further) for site, taken in missing.items()}
        symbols = self._linear_views(terms, sites, deaths)
        numbers = _numbers(recorded, coalition, symbols, sites)
        in_sight = view(symbols, coalition.sites, coordinator=coalition.coordinator)
        seen = [label for label in in_sight if label in numbers]
        if not seen:
            return {}
        by_victim = reconstruction_coefficients(symbols, seen, sites, victims)
        return {
            site: recorded.decode(combine_vectors(coefficients, numbers)) for site, coefficients in by_victim.items()
        }

    def _linear_views(self, terms: Mapping[str, Any], sites: tuple[str, ...], deaths: Mapping[str, int]) -> Record:
        """Return the linear views, cached: they are slow to compute, and rounds of one kind share them."""
        options = tuple(sorted(terms["options"].items()))
        kind = (terms["protocol"], options, sites, tuple(sorted(deaths.items())), terms["opened_by"])
        if kind not in self._symbols:
            protocol = SUMS[terms["protocol"]](**terms["options"])
            self._symbols[kind] = linear_views(protocol, sites, deaths, terms["opened_by"])
        return self._symbols[kind]


def _numbers(recorded: RecordedRound, coalition: Coalition, symbols: Record, sites: Sequence[str]) -> Record:
    """Return the vectors that a coalition holds of a secure sum, labeled like the symbols."""
    limbs, length = next(iter(recorded.inputs.values())).shape
    arrays: dict[tuple[str, str, str], list[Residues]] = defaultdict(list)
    for party in coalition.parties:
        for entry in recorded.entries.get(party, ()):
            if entry.what in (RECEIVED, DREW):
                arrays[entry.what, party, entry.peer].append(entry.array)
    numbers: Record = {}
    for (what, party, peer), vectors in arrays.items():
        numbers |= label_vectors(what, party, peer, vectors, (limbs, length))
    for site in coalition.sites:
        if site in recorded.inputs:
            numbers[Label("input", site)] = recorded.inputs[site]
    if not recorded.record.aborted and Label("total", "") in symbols:
        among = symbols[Label("total", "")][0]
        inputs = {Label("input", site): recorded.inputs[site] for number, site in enumerate(sites) if among[number]}
        numbers[Label("total", "")] = combine_vectors(dict.fromkeys(inputs, 1), inputs)
    return numbers


def _entries(paths: Iterable[Path]) -> Iterator[TranscriptEntry]:
    """Yield the entries of a party's transcripts, up to where it was killed."""
    for path in paths:
        with suppress(Malformed):
            yield from read_transcript(str(path))
