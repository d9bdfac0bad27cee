"""A coordinator that lies: it gives some sites other orders than the rest, over real sockets."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import copy
from typing import Any

import pytest

from fedsvm.federation import rounds
from fedsvm.federation.arrays import Residues
from fedsvm.federation.control import ControlMessage, Order
from fedsvm.federation.round import Round
from fedsvm.federation.site.chain import OrderChain
from fedsvm.federation.site.signed import OrderSigner
from fedsvm.federation.site.terms import Terms
from fedsvm.federation.transport.deadline import Deadline
from fedsvm.federation.transport.signing import SigningKey
from fedsvm.protocols.sums.secure_sum import SecureSum

Lie = Callable[[str, Order], Order]
"""Returns what a site is told in place of an order, given its name."""


@contextmanager
def telling(lie: Lie) -> Iterator[None]:
    """A context in which coordinators of this process tell each site what `lie` makes of an order."""

    class LyingRound(Round):
        def send(self, message: ControlMessage, deadline: Deadline, to: tuple[str, ...] | None = None) -> None:
            for site in self.sites if to is None else to:
                super().send(lie(site, message) if isinstance(message, Order) else message, deadline, (site,))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rounds, "Round", LyingRound)
        yield


@contextmanager
def forking(victim: str, lie: Callable[[Order], Order]) -> Iterator[None]:
    """A context in which coordinators of this process keep two chains of orders, and sign each order on its own.

    One is for the victim, which is told what `lie` makes of each order; the other is for all other sites. Each site
    therefore finds all signatures valid.
    """
    begin, sign, add = OrderSigner.__init__, OrderSigner.sign_order, OrderSigner.add_complete
    for_victim: dict[bytes, Order] = {}

    def begin_both(signer: Any, key: SigningKey, run: bytes, sites: tuple[str, ...], terms: Terms) -> None:
        begin(signer, key, run, sites, terms)
        signer.other = copy(signer)
        signer.other._chain = OrderChain(run, sites, terms)

    def sign_both(signer: Any, order: Order, number: int) -> Order:
        signed = sign(signer, order, number)
        for_victim[signed.signature] = sign(signer.other, lie(order), number)
        return signed

    def add_both(signer: Any, number: int, order: Order) -> None:
        add(signer, number, order)
        add(signer.other, number, lie(order))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(OrderSigner, "__init__", begin_both)
        patch.setattr(OrderSigner, "sign_order", sign_both)
        patch.setattr(OrderSigner, "add_complete", add_both)
        with telling(lambda site, order: for_victim[order.signature] if site == victim else order):
            yield


class Opened(BaseException):
    """A sum that the coordinator opened, in residues. No site of this process takes it for its own failure."""

    def __init__(self, residues: Residues) -> None:
        super().__init__("a sum was opened")
        self.residues = residues


@contextmanager
def opening(sums: int = 1) -> Iterator[None]:
    """A context in which coordinators of this process raise Opened with the last of so many sums."""
    decode, opened = SecureSum.decode, list[Residues]()

    def watched(protocol: SecureSum, residues: Residues, *told: Any) -> Any:
        opened.append(residues)
        if len(opened) == sums:
            raise Opened(residues)
        return decode(protocol, residues, *told)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SecureSum, "decode", watched)
        yield
