"""The comparison of two sites' receipts of one run: whether both had the same orders."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from fedsvm.scenarios.oversight.receipts import HEAD, NOT_CLOSED, SiteReceipt, fingerprint
from fedsvm.scenarios.report.template import render


@dataclass(frozen=True)
class Comparison:
    """The comparison of two receipts of one run.

    Parameters
    ----------
    sites : tuple of str
        The two sites.
    rounds : int
        Number of rounds that both receipts have.
    chain : str
        Link of the last round that both have: a digest of its order and of all orders before it.
    differences : tuple of str
        Differences that must not be, in sentences.
    notes : tuple of str
        Differences that may be, such as rounds that continued without a site that dropped.
    """

    sites: tuple[str, str]
    rounds: int
    chain: str
    differences: tuple[str, ...]
    notes: tuple[str, ...]

    def to_fields(self) -> dict[str, Any]:
        """Return plain values."""
        return {"equal": not self.differences, **asdict(self)}

    def to_text(self) -> str:
        """Return the comparison in sentences."""
        first, second = self.sites
        if self.differences:
            lines = [f"{first} and {second} differ:", *(f"- {each}" for each in self.differences)]
        else:
            lines = [f"{first} and {second} had the same orders in {self.rounds} rounds (chain {self.chain})"]
        return "\n".join([*lines, *(f"- note: {each}" for each in self.notes)]) + "\n"


def compare(first: SiteReceipt, second: SiteReceipt) -> Comparison:
    """Return how the receipts of two sites differ."""
    common = sorted(first.orders.keys() & second.orders.keys(), key=int)
    linked = sorted(first.links.keys() & second.links.keys(), key=int)
    chain = first.links[linked[-1]] if linked else ""
    differences = _differences(first, second, common)
    return Comparison((first.site, second.site), len(common), chain, tuple(differences), tuple(_notes(first, second)))


def _differences(first: SiteReceipt, second: SiteReceipt, common: Sequence[str]) -> Iterator[str]:
    for record in (first, second):
        yield from (f"the receipt of {record.site}: {problem}" for problem in record.problems if problem != NOT_CLOSED)
    if first.run != second.run:
        yield f"the runs are {first.run} and {second.run}; compare receipts of one run"
        return
    for name in sorted(first.terms.keys() | second.terms.keys()):
        if first.terms.get(name) != second.terms.get(name):
            yield f"the terms differ in {name}"
    if first.signing["coordinator"] != second.signing["coordinator"]:
        yield f"the coordinator has another signing-key at {first.site} than at {second.site}"
    for party in sorted(first.keys.keys() & second.keys.keys()):
        if first.keys[party] != second.keys[party]:
            yield f"{party} has other keys at {first.site} than at {second.site}"
    for number in common:
        if first.orders[number] != second.orders[number]:
            yield f"the orders of round {number} differ{_proof(first, second, number)}"
        elif number in first.links.keys() & second.links.keys() and first.links[number] != second.links[number]:
            yield f"the chains of orders differ at round {number}{_proof(first, second, number)}"


def _proof(first: SiteReceipt, second: SiteReceipt, number: str) -> str:
    """Return a clause that says who signed the two orders of a round."""
    signed = [record for record in (first, second) if number in record.signed]
    lines = " and ".join(f"line {record.signed[number]} of {record.site}" for record in signed)
    key = first.signing["coordinator"]
    if len(signed) == 2 and key == second.signing["coordinator"]:
        return f": {lines} have the coordinator's signature (key {fingerprint([key])}), which proves that it gave both"
    if first.signing["coordinator"] or second.signing["coordinator"]:
        return f": {lines or 'neither'} has the coordinator's signature, which proves nothing"
    return ""


def _one_sided(record: SiteReceipt, other: SiteReceipt) -> Iterator[str]:
    """Yield rounds that name both sites and that the other lacks, before its last one, or has as missed."""
    last = max(map(int, other.orders), default=0)
    for number in record.with_site(other.site):
        if number not in other.orders and int(number) < last:
            yield f"round {number} was ordered of {other.site} too, and only {record.site} has it"
        elif number in other.orders and number not in other.members:
            yield f"round {number} was ordered of {other.site} too, and the receipt of {other.site} has it as missed"


def _notes(first: SiteReceipt, second: SiteReceipt) -> Iterator[str]:
    for record, other in ((first, second), (second, first)):
        yield from _one_sided(record, other)
        if alone := len(record.orders.keys() - other.orders.keys()):
            yield f"{alone} {'round is' if alone == 1 else 'rounds are'} in the receipt of {record.site} alone"
        if NOT_CLOSED in record.problems:
            yield f"the receipt of {record.site}: {NOT_CLOSED}"
        for role, compared in record.compared.items():
            yield f"the key of the {role} in the receipt of {record.site}: {compared}"


def render_page(records: Sequence[SiteReceipt], comparison: Comparison | None) -> str:
    """Return receipts, and their comparison if there is one, as an HTML page."""
    title = f"What left {', '.join(record.site for record in records)}"
    return render("receipt.html.j2", title, records=records, comparison=comparison, head=HEAD)
