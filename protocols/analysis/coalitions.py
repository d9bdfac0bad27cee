"""The inputs that colluding parties learn from secure sums: by the protocol's algebra, and from the observed numbers.

A victim's input is determined if its unit vector is a combination of the linear forms that the coalition sees, with
coefficients modulo 2^64. The same combination of the observed numbers is then the input itself.

The sum counts as known to every coalition, since the protocol reveals it by design.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fedsvm.federation.arrays import Residues
from fedsvm.federation.channel.interface import uniform_residues
from fedsvm.federation.transport.keys import COORDINATOR
from fedsvm.protocols.analysis.execution import Label, Record, execute, site_names
from fedsvm.protocols.analysis.span import Span, are_combinations
from fedsvm.protocols.analysis.symbolic import linear_views, unit_vector
from fedsvm.protocols.arithmetic.fixed_point import add, subtract
from fedsvm.protocols.sums.secure_sum import SecureSum


def view(record: Record, coalition: Iterable[str], *, coordinator: bool) -> list[Label]:
    """Return the vectors of a record that a coalition knows: those that its members receive, draw and input, and the
    sum.

    Parameters
    ----------
    record : Record
    coalition : iterable of str
        Colluding sites.
    coordinator : bool
        Whether the coordinator is one of them.

    Returns
    -------
    list of Label
    """
    members = {*coalition, *([COORDINATOR] if coordinator else [])}
    return [label for label in record if label.what == "total" or label.party in members]


def reconstruction_coefficients(
    symbols: Record, seen: Sequence[Label], sites: Sequence[str], victims: Iterable[str]
) -> dict[str, dict[Label, int]]:
    """Return the coefficients by which the victims' inputs are combinations of the observed vectors.

    Parameters
    ----------
    symbols : Record
        The linear views of the protocol, by `linear_views`.
    seen : sequence of Label
        The vectors that the coalition knows, by `view`.
    sites : sequence of str
        All sites, in ring order.
    victims : iterable of str
        Sites whose inputs are sought.

    Returns
    -------
    dict of site to dict of Label to int
        The signed coefficients other than 0, for victims whose inputs are determined; see `combine_vectors`.
    """
    span = Span(np.vstack([symbols[label] for label in seen]))
    length = symbols[seen[0]].shape[1]
    by_victim = {}
    for victim in victims:
        residues = span.combination(unit_vector(list(sites).index(victim), length)[0])
        if residues is not None:
            signed = residues.view(np.int64).tolist()
            by_victim[victim] = {label: number for label, number in zip(seen, signed, strict=True) if number}
    return by_victim


def combine_vectors(coefficients: Mapping[Label, int], record: Record) -> Residues:
    """Return a linear combination of vectors of a record.

    Parameters
    ----------
    coefficients : mapping of Label to int
        Small signed numbers, since each takes as many additions.
    record : Record
        The vectors, with one limb or two.

    Returns
    -------
    Residues of the shape of the vectors
    """
    vectors = [record[label] for label in coefficients]
    total = np.zeros_like(vectors[0])
    for coefficient, vector in zip(coefficients.values(), vectors, strict=True):
        for _ in range(abs(coefficient)):
            total = add(total, vector) if coefficient > 0 else subtract(total, vector)
    return total


@dataclass(frozen=True)
class AnalysedSum:
    """One sum, executed on symbols and on numbers that are long enough to rule out coincidences.

    Attributes
    ----------
    protocol : SecureSum
    sites : tuple of str
        In ring order.
    symbols : Record
        Its linear views.
    numbers : Record
        The same vectors for random inputs.
    """

    protocol: SecureSum
    sites: tuple[str, ...]
    symbols: Record
    numbers: Record

    @classmethod
    def of(cls, protocol: SecureSum, count: int) -> AnalysedSum:
        """Execute a sum of random inputs.

        Parameters
        ----------
        protocol : SecureSum
        count : int
            Number of sites, at least the protocol's `min_sites`.

        Returns
        -------
        AnalysedSum
        """
        sites = site_names(count)
        symbols = linear_views(protocol, sites)
        length = len(symbols) + 64
        inputs = {site: uniform_residues((1, length)) for site in sites}
        return cls(protocol, sites, symbols, execute(protocol, inputs).record)

    def leaks(self, coalition: Sequence[str], *, coordinator: bool) -> set[str]:
        """Return the sites outside a coalition whose inputs it learns.

        Parameters
        ----------
        coalition : sequence of str
            Colluding sites.
        coordinator : bool
            Whether the coordinator is one of them.

        Returns
        -------
        set of str

        Raises
        ------
        AssertionError
            The algebra and the numbers disagree: the coefficients do not give the input, or an input is a combination
            of the observed vectors although the algebra has none.
        """
        victims = [site for site in self.sites if site not in coalition]
        seen = view(self.symbols, coalition, coordinator=coordinator)
        determined = reconstruction_coefficients(self.symbols, seen, self.sites, victims)
        for victim, coefficients in determined.items():
            if not np.array_equal(combine_vectors(coefficients, self.numbers), self.numbers[Label("input", victim)]):
                raise AssertionError(f"{self.protocol.name}: algebra and numbers disagree on {victim}")
        others = [site for site in victims if site not in determined]
        inputs = [self.numbers[Label("input", site)][0] for site in others]
        leaks = are_combinations(inputs, np.vstack([self.numbers[label] for label in seen]))
        if any(leaks):
            raise AssertionError(f"{self.protocol.name}: algebra and numbers disagree on {others[leaks.index(True)]}")
        return set(determined)


def smallest_breaking_coalition(protocol: SecureSum, count: int) -> int:
    """Return the minimum number of sites that, with the coordinator, learn another's input.

    Parameters
    ----------
    protocol : SecureSum
    count : int
        Number of sites in the sum, at least the protocol's `min_sites`.

    Returns
    -------
    int
        At most count - 1, since all others learn the last input from the sum.

    Raises
    ------
    AssertionError
        The algebra and the numbers disagree.
    """
    analysed = AnalysedSum.of(protocol, count)
    return next(
        size
        for size in range(count)
        if any(analysed.leaks(sites, coordinator=True) for sites in itertools.combinations(analysed.sites, size))
    )
