"""The chain of a site's orders: one digest for each complete round, over its whole order and all orders before it.

A round's link is the digest of the link before it and of the facts of its order: the round's number, the sites that
take part, the step, the sum and a digest of every argument (`order_facts`). The first link is a digest of the run, its
sites and its terms. Two sites have equal links if they received equal orders, and unequal ones otherwise. Masks and
messages between sites are bound to the link of their round (`channel.socket`), so sites that received different orders
open no sum together.

An order names the complete round that it follows (`Order.after`). So the site learns whether its own last round is
complete; if not, the chain continues without that round. A site that missed rounds receives their orders in full, and
computes the links itself.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import msgpack

from fedsvm.federation.control import Order
from fedsvm.federation.errors import OrderRefused
from fedsvm.federation.site.order_facts import DIGEST_BYTES, next_link, order_digest, order_facts
from fedsvm.federation.site.terms import Terms

LINK_BYTES = DIGEST_BYTES


@dataclass(frozen=True, slots=True)
class ChainRound:
    """A round in the chain.

    Parameters
    ----------
    round : int
        Its number.
    step : str
        Its step.
    content : bytes
        The digest of its order's content (`Order.digest`).
    digest : bytes
        The link: a digest of the facts of the order, and of the link before it.
    """

    round: int
    step: str
    content: bytes
    digest: bytes


class OrderChain:
    """The orders of the complete rounds of a run, as one site received them.

    Parameters
    ----------
    run : bytes
        The run's 8 random bytes.
    sites : tuple of str
        All sites of the run, in ring order.
    terms : Terms
        The agreed terms.

    Attributes
    ----------
    last : ChainRound or None
        The last round that the site took part in, until a later order shows whether it is complete.
    """

    def __init__(self, run: bytes, sites: tuple[str, ...], terms: Terms) -> None:
        named = msgpack.packb((run, list(sites), terms.content))
        self._start = hashlib.blake2b(named, digest_size=LINK_BYTES).digest()
        self._links: dict[int, ChainRound] = {}
        self._head = ChainRound(0, "", b"", self._start)
        self.last: ChainRound | None = None

    @property
    def head(self) -> bytes:
        """The digest of the last complete round; before the first, that of the terms."""
        return self._head.digest

    @property
    def start(self) -> bytes:
        """The digest of the run, its sites and its terms."""
        return self._start

    def __iter__(self) -> Iterator[ChainRound]:
        """Yield the complete rounds, in their order."""
        return iter(self._links.values())

    def has(self, order: Order) -> bool:
        """Return whether a complete round had this order, whichever sites took part."""
        return any(link.content == order.digest for link in self._links.values())

    def link_of(self, order: Order, number: int) -> ChainRound:
        """Return the link that a round would have; the chain is unchanged.

        Parameters
        ----------
        order : Order
        number : int
            The round.

        Raises
        ------
        OrderRefused
            The order does not follow the last complete round.
        """
        if self.last is not None and order.after == self.last.round:
            return _next(self.last, order, number)
        if order.after == self._head.round:
            return _next(self._head, order, number)
        raise OrderRefused(self._out_of_chain(order.after, number))

    def begin(self, order: Order, number: int) -> ChainRound:
        """Begin a round that this site takes part in, and return its link. Raises as `link_of`, without a change."""
        link = self.link_of(order, number)
        self.enter(order, link)
        return link

    def enter(self, order: Order, link: ChainRound) -> None:
        """Begin a round whose link `link_of` returned."""
        if self.last is not None and order.after == self.last.round:
            self._add(self.last)
        self.last = link

    def miss(
        self, orders: Sequence[tuple[int, Order]], check: Callable[[Order, ChainRound], None] = lambda order, link: None
    ) -> None:
        """Add the orders of complete rounds that this site may have missed, and compare those that it has.

        Parameters
        ----------
        orders : sequence of (int, Order)
            Each round's number and its order in full.
        check : callable, optional
            Called with each order and its link, before the order is added. It may raise OrderRefused.

        Raises
        ------
        OrderRefused
            An order is not the one that this site received in that round, or does not follow the chain.
        """
        for number, order in orders:
            known = self._links.get(number)
            if known is None and order.after != self._head.round:
                raise OrderRefused(self._out_of_chain(order.after, number))
            before = self._head if known is None else self._links.get(order.after, ChainRound(0, "", b"", self._start))
            link = _next(before, order, number)
            check(order, link)
            own = self.last if self.last is not None and self.last.round == number else known
            if own is not None and own != link:
                raise OrderRefused(f"the missed order of round {number} differs from the one that this site received")
            if known is None:
                self._add(link)

    def _add(self, link: ChainRound) -> None:
        """Add a complete round; the site's own last round is complete too, or aborted."""
        self._links[link.round] = link
        self._head = link
        if self.last is not None and self.last.round <= link.round:
            self.last = None

    def _out_of_chain(self, after: int, number: int) -> str:
        known = f"round {self._head.round}" if self.last is None else f"round {self._head.round} or {self.last.round}"
        return f"the order of round {number} must follow {known}, the last one complete here, got round {after}"


def _next(before: ChainRound, order: Order, number: int) -> ChainRound:
    link = next_link(before.digest, order_digest(order_facts(order, number)))
    return ChainRound(number, order.step, order.digest, link)
