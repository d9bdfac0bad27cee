"""The audit: what the colluding parties of a run reconstruct, and how coalitions fare against every sum."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from federation.arrays import FloatArray, Residues
from federation.channel.transcript import DREW, INPUT, RECEIVED, Entry, read_transcript
from federation.errors import Malformed
from federation.ledger import RoundRecord
from federation.transport.keys import COORDINATOR
from protocols.analysis.coalitions import AnalysedSum, combined, reconstruction_coefficients, view
from protocols.analysis.execution import Label, Record, labelled
from protocols.analysis.symbolic import linear_views
from protocols.arithmetic.fixed_point import FixedPoint
from protocols.sums.contract import SecureSum
from protocols.sums.registry import OWN_SUMS, SUMS

_SAME_ROW = 2.0**-15
"""Rows that differ by less in every column are one: rows of the global method lie on a grid of 2^-16."""
_SUMMED_ELSE = {"kernel_rows", "reference_kernel"}
"""Steps whose values are summed, unless the scenario has them sent as they are. Counts of rows are public."""

_ROWS_IN = {"local_landmarks", "cluster_sums"}


@dataclass(frozen=True)
class Coalition:
    """Who pools what it saw."""

    sites: tuple[str, ...]
    coordinator: bool


@dataclass
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
    exposed: set[int] = field(default_factory=set, repr=False)

    def to_fields(self) -> dict[str, Any]:
        """Plain values for result.json."""
        fields = {name: value for name, value in vars(self).items() if name != "exposed"}
        return fields | {"records_exposed": len(self.exposed)}


@dataclass(frozen=True)
class SummedRound:
    """One secure sum as the transcripts have it: its terms, what each site put in, and what the coalition saw.

    Where a site opens the sum, its input is what it put in, which is blinded.
    """

    terms: Mapping[str, Any]
    truth: Mapping[str, Residues]
    seen: Sequence[tuple[str, Entry]]
    record: RoundRecord

    def decoded(self, residues: Residues) -> FloatArray:
        """The value that residues stand for, of the shape of the sum."""
        encoding = FixedPoint.for_bound(self.terms["bound"], len(self.terms["sites"]))
        return encoding.decode(residues).reshape(self.terms["shape"])


def audit_run(
    coalition: Coalition,
    transcripts: Mapping[str, Sequence[Path]],
    rounds: Mapping[int, RoundRecord],
    rows: Mapping[str, FloatArray],
) -> list[dict[str, Any]]:
    """What the coalition reconstructs of every honest site's input to every secure sum, or was given in the clear.

    transcripts: files of each party; of honest ones they hold the truth alone. rows: each site's scaled rows (n, p).
    Raises AssertionError where algebra and numbers disagree.
    """
    findings: dict[tuple[str, str, str], Finding] = {}
    for summed in _sums(coalition, transcripts, rounds):
        reconstructed = _reconstruct(coalition, summed)
        for victim in _victims(coalition, summed):
            key = (victim, summed.terms["protocol"], summed.terms["step"])
            finding = findings.setdefault(key, Finding(*key))
            _judge(finding, summed.decoded(summed.truth[victim]), reconstructed.get(victim), rows[victim])
    for record, entry in _given(coalition, transcripts, rounds):
        finding = findings.setdefault((entry.peer, "gather", record.step), Finding(entry.peer, "gather", record.step))
        finding.rounds += 1
        finding.values += entry.array.size
        finding.recovered += entry.array.size
        finding.max_error = 0.0
    return [finding.to_fields() for finding in findings.values()]


def parts_seen(
    coalition: Coalition, transcripts: Mapping[str, Sequence[Path]], rounds: Mapping[int, RoundRecord], step: str
) -> dict[tuple[str, ...], list[FloatArray]]:
    """What the coalition has of what sites computed in `step`: the sum of the parts of some sites, round by round.

    Keys are these sites: one, where the coalition has its part alone, or all honest ones, whose sum is what is left
    when the members of the coalition take their own parts off the total.
    """
    seen: dict[tuple[str, ...], list[FloatArray]] = defaultdict(list)
    for summed in _sums(coalition, transcripts, rounds):
        if summed.record.step == step and not summed.record.aborted:
            for victim, part in _reconstruct(coalition, summed).items():
                seen[victim,].append(part)
            honest = tuple(_victims(coalition, summed))
            if coalition.coordinator and len(honest) > 1:
                rest = combined(dict.fromkeys((Label("input", site) for site in honest), 1), _inputs(summed))
                seen[honest].append(summed.decoded(rest))
    for record, entry in _given(coalition, transcripts, rounds):
        if record.step == step and not record.aborted:
            seen[entry.peer,].append(entry.array)
    return seen


def _given(
    coalition: Coalition, transcripts: Mapping[str, Sequence[Path]], rounds: Mapping[int, RoundRecord]
) -> Iterator[tuple[RoundRecord, Entry]]:
    """What honest sites sent the coordinator in the clear, of what a secure sum hides otherwise."""
    for entry in (entry for path in transcripts.get(COORDINATOR, ()) for entry in _entries(path)):
        record = rounds.get(entry.round)
        given = record is not None and record.verb == "gather" and entry.what == RECEIVED
        if record is not None and given and record.step in _SUMMED_ELSE and entry.peer not in coalition.sites:
            yield record, entry


def _inputs(summed: SummedRound) -> Record:
    return {Label("input", site): truth for site, truth in summed.truth.items()}


def _victims(coalition: Coalition, summed: SummedRound) -> list[str]:
    """Who put something in. The input of the site that opens the sum is blinded, and nobody's aim."""
    spared = {*coalition.sites, summed.terms["opened_by"]}
    return [site for site in summed.terms["sites"] if site in summed.truth and site not in spared]


def _sums(
    coalition: Coalition, transcripts: Mapping[str, Sequence[Path]], rounds: Mapping[int, RoundRecord]
) -> Iterator[SummedRound]:
    truth: dict[int, dict[str, Residues]] = defaultdict(dict)
    terms: dict[int, Mapping[str, Any]] = {}
    seen: dict[int, list[tuple[str, Entry]]] = defaultdict(list)
    members = {*coalition.sites, *([COORDINATOR] if coalition.coordinator else [])}
    for party, paths in transcripts.items():
        for entry in (entry for path in paths for entry in _entries(path)):
            if entry.what == INPUT:
                truth[entry.round][party], terms[entry.round] = entry.array, entry.terms
            elif party in members:
                seen[entry.round].append((party, entry))
    for number in sorted(terms):
        yield SummedRound(terms[number], truth[number], seen[number], rounds[number])


def _entries(path: Path) -> Iterator[Entry]:
    """The entries of a transcript, as far as its writer came before it was killed."""
    with suppress(Malformed):
        yield from read_transcript(str(path))


def _reconstruct(coalition: Coalition, summed: SummedRound) -> dict[str, FloatArray]:
    """The inputs of honest sites that the round's transcripts determine, reconstructed from these."""
    sites = tuple(summed.terms["sites"])
    protocol = SUMS[summed.terms["protocol"]](**summed.terms["options"])
    deaths = {} if summed.record.aborted else {site: 1 + taken for site, taken in summed.record.missing.items()}
    symbols = linear_views(protocol, sites, deaths, summed.terms["opened_by"])
    numbers = _numbers(coalition, summed, symbols, sites)
    in_sight = view(symbols, coalition.sites, coordinator=coalition.coordinator)
    seen = [label for label in in_sight if label in numbers]
    if not seen:
        return {}
    by_victim = reconstruction_coefficients(symbols, seen, sites, _victims(coalition, summed))
    return {victim: summed.decoded(combined(coefficients, numbers)) for victim, coefficients in by_victim.items()}


def _numbers(coalition: Coalition, summed: SummedRound, symbols: Record, sites: Sequence[str]) -> Record:
    """What the coalition has in hand, labelled as the symbols are."""
    limbs, length = next(iter(summed.truth.values())).shape
    arrays: dict[tuple[str, str, str], list[Residues]] = defaultdict(list)
    for party, entry in summed.seen:
        if entry.what in (RECEIVED, DREW):
            arrays[entry.what, party, entry.peer].append(entry.array)
    numbers: Record = {}
    for (what, party, peer), found in arrays.items():
        numbers |= labelled(what, party, peer, found, (limbs, length))
    for site in coalition.sites:
        if site in summed.truth:
            numbers[Label("input", site)] = summed.truth[site]
    if not summed.record.aborted and Label("total", "") in symbols:
        numbers[Label("total", "")] = _total(summed, symbols, sites)
    return numbers


def _total(summed: SummedRound, symbols: Record, sites: Sequence[str]) -> Residues:
    """The revealed sum: of the inputs of those sites that are in it."""
    among = symbols[Label("total", "")][0]
    recipe = {Label("input", site): 1 for number, site in enumerate(sites) if among[number]}
    return combined(recipe, _inputs(summed))


def _judge(finding: Finding, truth: FloatArray, found: FloatArray | None, rows: FloatArray) -> None:
    """Compare a reconstruction with the truth, which only a simulation knows."""
    finding.rounds += 1
    finding.values += truth.size
    if found is None:
        return
    error = float(np.abs(found - truth).max(initial=0.0))
    if error > 0:
        raise AssertionError(
            f"{finding.protocol}: the algebra's recipe gives {finding.site}'s input with error {error}"
        )
    finding.recovered += truth.size
    finding.max_error = max(finding.max_error or 0.0, error)
    if finding.step in _ROWS_IN:
        finding.exposed |= _rows_shown(finding.step, found, rows)


def _rows_shown(step: str, table: FloatArray, rows: FloatArray) -> set[int]:
    """Indices of the rows that a table of centres, or of sums over clusters, shows as they are."""
    single = table[np.abs(table[:, -1] - 1.0) < _SAME_ROW]
    points = single[:, :-1] if step == "local_landmarks" else single[:, :-2]
    if not len(points):
        return set()
    apart = np.abs(rows[:, None, :] - points[None, :, :]).max(axis=2).min(axis=1)
    return set(np.flatnonzero(apart < _SAME_ROW).tolist())


# The sweep.


def standard_sums(sites: int) -> list[SecureSum]:
    """Every sum that so many sites can run, with few and with most of its options."""
    wanted = [
        *[SUMS["plain"](), SUMS["ring"]()],
        *(SUMS["k-secure"](segments=segments) for segments in sorted({2, 3, sites})),
        *(SUMS["changing-neighbours"](rings=rings) for rings in sorted({1, max(1, (sites - 1) // 2)})),
        SUMS["masked"](),
        *(SUMS[name]() for name in SUMS if name not in OWN_SUMS),
    ]
    return [protocol for protocol in wanted if protocol.min_sites <= sites]


def sweep(protocols: Sequence[SecureSum], sites: int) -> Iterator[Cell]:
    """Every coalition of every size, with and without the coordinator, against each sum over so many sites."""
    for protocol in protocols:
        analysed = AnalysedSum.of(protocol, sites)
        for size, coordinator in itertools.product(range(1, sites), (False, True)):
            coalitions = list(itertools.combinations(analysed.sites, size))
            leaks = sum(len(analysed.leaks(coalition, coordinator=coordinator)) for coalition in coalitions)
            pairs = len(coalitions) * (sites - size)
            yield Cell(described(protocol), sites, size, coordinator, pairs, leaks)


@dataclass(frozen=True)
class Cell:
    """Coalitions of one size against one sum: how many (coalition, victim) pairs there are, and how many leak."""

    sum: str
    sites: int
    size: int
    coordinator: bool
    pairs: int
    leaks: int

    @property
    def share(self) -> float:
        return self.leaks / self.pairs


def described(protocol: SecureSum) -> str:
    """The name of a sum with its options."""
    options = ", ".join(f"{name} = {value}" for name, value in protocol.options.items())
    return f"{protocol.name} ({options})" if options else protocol.name
