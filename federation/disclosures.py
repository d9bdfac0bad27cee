"""The values that leave a site unmasked or that a protocol reveals: to whom, from which step, how often."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from fedsvm.federation.control import Order, SumTerms

Kind = Literal["sum", "value", "parameter", "difference", "single-row", "row-difference", "design"]
"""The kinds of disclosures: a secure sum, a site's own value, an array that the coordinator sends to the sites, the
difference of two sums over different sites, a part of a sum that contains a single row, the difference of two sums if
it is a single row, and other values that a protocol or an algorithm reveals by design."""


@dataclass
class Disclosure:
    """Something that a party learns.

    Parameters
    ----------
    to : str
        A party, or "sites" for all of them.
    step : str
        The step, or the protocol, that it comes from.
    kind : str
        See `Kind`.
    shape : tuple of int
        The shape of the array.
    times : int, default 0
        The number of times that it was disclosed.
    detail : str, default ""
        For a parameter, its name; otherwise the disclosure in a sentence, if the kind alone does not explain it.
    """

    to: str
    step: str
    kind: Kind
    shape: tuple[int, ...]
    times: int = 0
    detail: str = ""

    @property
    def form(self) -> str:
        """Return in words what is disclosed."""
        if self.kind == "parameter":
            return f"parameter {self.detail}"
        return self.detail or self.kind


class Disclosures:
    """The disclosures of a run, in the order in which they first happened."""

    def __init__(self) -> None:
        self._entries: dict[tuple[str, str, Kind, str, tuple[int, ...]], Disclosure] = {}
        self._summed: dict[tuple[str, str, bytes], set[frozenset[str]]] = defaultdict(set)

    @property
    def entries(self) -> list[Disclosure]:
        """Each disclosure once, with its number of times."""
        return list(self._entries.values())

    def add(self, to: str, step: str, kind: Kind, shape: Sequence[int], times: int = 1, detail: str = "") -> None:
        """Record something that a party learns."""
        new = Disclosure(to, step, kind, tuple(shape), detail=detail)
        key = (to, step, kind, detail, tuple(shape))
        self._entries.setdefault(key, new).times += times

    def record_parameters(self, order: Order) -> None:
        """Record the arrays that an order reveals to the sites."""
        for name, array in order.arrays.items():
            self.add("sites", order.step, "parameter", array.shape, detail=name)

    def record_difference_leakage(
        self, order: Order, terms: SumTerms, contributed: frozenset[str], all_sites: Sequence[str]
    ) -> None:
        """Record what a sum reveals to its receiver together with an earlier one of the same step and parameters.

        Their difference is the sum over the sites that are in only one of the two.
        """
        earlier = self._summed[terms.receiver, order.step, order.arguments_digest]
        for others in earlier if contributed not in earlier else ():
            named = ", ".join(site for site in all_sites if site in others ^ contributed)
            detail = f"the difference of two sums, which is that of {named}"
            self.add(terms.receiver, order.step, "difference", terms.shape, detail=detail)
        earlier.add(contributed)
