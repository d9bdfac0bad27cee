"""The values that leave a site unmasked or that a protocol reveals: to whom, from which step, how often."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from fedsvm.federation.control import Order, SumTerms

Kind = Literal["sum", "value", "parameter", "difference", "single-row", "row-difference", "design"]
"""A secure sum, a site's own value, an array that the coordinator sends to the sites, what two sums give away by their
difference, what in a sum is of a single row alone, what two sums over rows differ by where that is a single row, and
whatever else a protocol or an algorithm shows by design."""


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
        Of the array.
    times : int, default 0
        How often.
    detail : str, default ""
        Of a parameter, its name; otherwise what is shown, in a sentence, where the kind does not say it all.
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
    """All that was disclosed in a run, in the order in which it first happened."""

    def __init__(self) -> None:
        self._entries: dict[tuple[str, str, Kind, str, tuple[int, ...]], Disclosure] = {}
        self._summed: dict[tuple[str, str, bytes], set[frozenset[str]]] = defaultdict(set)

    @property
    def entries(self) -> list[Disclosure]:
        """Each once, with how often it happened."""
        return list(self._entries.values())

    def add(self, to: str, step: str, kind: Kind, shape: Sequence[int], times: int = 1, detail: str = "") -> None:
        """Write down something that a party learns."""
        new = Disclosure(to, step, kind, tuple(shape), detail=detail)
        key = (to, step, kind, detail, tuple(shape))
        self._entries.setdefault(key, new).times += times

    def record_parameters(self, order: Order) -> None:
        """Write down the arrays that an order shows the sites."""
        for name, array in order.arrays.items():
            self.add("sites", order.step, "parameter", array.shape, detail=name)

    def record_difference_leakage(
        self, order: Order, terms: SumTerms, contributed: frozenset[str], all_sites: Sequence[str]
    ) -> None:
        """Write down what a sum gives its receiver together with an earlier one of the same step and parameters.

        By subtraction they show the sum over the sites that are in one of the two only.
        """
        earlier = self._summed[terms.receiver, order.step, order.arguments_digest]
        for others in earlier if contributed not in earlier else ():
            named = ", ".join(site for site in all_sites if site in others ^ contributed)
            detail = f"the difference of two sums, which is that of {named}"
            self.add(terms.receiver, order.step, "difference", terms.shape, detail=detail)
        earlier.add(contributed)
