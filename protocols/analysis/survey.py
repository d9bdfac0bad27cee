"""The success of coalitions of every size against every secure sum."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from fedsvm.protocols.analysis.coalitions import AnalysedSum
from fedsvm.protocols.sums.registry import SUMS
from fedsvm.protocols.sums.secure_sum import SecureSum


@dataclass(frozen=True)
class CoalitionCount:
    """Coalitions of one size against one sum: how many (coalition, victim) pairs there are, and how many leak."""

    sum: str
    sites: int
    size: int
    coordinator: bool
    pairs: int
    leaks: int

    @property
    def share(self) -> float:
        """The share of pairs that leak."""
        return self.leaks / self.pairs


def standard_sums(sites: int) -> list[SecureSum]:
    """Return every sum that this number of sites can run, with small and large options."""
    variants: dict[str, list[dict[str, int]]] = {
        "k-secure": [{"segments": segments} for segments in sorted({2, 3, sites})],
        "changing-neighbours": [{"rings": rings} for rings in sorted({1, max(1, (sites - 1) // 2)})],
    }
    wanted = [make(**options) for name, make in SUMS.items() for options in variants.get(name, [{}])]
    return [protocol for protocol in wanted if protocol.min_sites <= sites]


def survey(protocols: Sequence[SecureSum], sites: int) -> Iterator[CoalitionCount]:
    """Yield the result of every coalition of every size, with and without the coordinator, against each sum."""
    for protocol in protocols:
        analysed = AnalysedSum.of(protocol, sites)
        for size, coordinator in itertools.product(range(1, sites), (False, True)):
            coalitions = list(itertools.combinations(analysed.sites, size))
            leaks = sum(len(analysed.leaks(coalition, coordinator=coordinator)) for coalition in coalitions)
            pairs = len(coalitions) * (sites - size)
            yield CoalitionCount(protocol.described, sites, size, coordinator, pairs, leaks)
