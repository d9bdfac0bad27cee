"""Signed orders: a coordinator cannot deny an order that a site's receipt has with its signature.

The signature is of the run, of all facts that a receipt has of the order, and of the round's link in the chain of
orders. The link covers all orders before, so one signature a round is enough. Of two signed orders of one round in one
run, a coordinator that follows the protocol never signed both.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from fedsvm.federation.control import Order, SumTerms
from fedsvm.federation.site.chain import OrderChain
from fedsvm.federation.site.terms import Terms
from fedsvm.federation.transport.keys import COORDINATOR
from fedsvm.federation.transport.signing import ORDER, SigningKey

_MAX_LISTED = 64
"""Of more parties a line has the number and a digest, or the receipts of a large run would be mostly names."""


class OrderSigner:
    """The coordinator's signatures of its orders, with the chain that they are bound to.

    Parameters
    ----------
    key : SigningKey
        The coordinator's.
    run : bytes
        The run's 8 random bytes.
    sites : tuple of str
        All sites of the run, in ring order.
    terms : Terms
        The agreed terms.
    """

    def __init__(self, key: SigningKey, run: bytes, sites: tuple[str, ...], terms: Terms) -> None:
        self._key = key
        self._run = run
        self._chain = OrderChain(run, sites, terms)

    def sign_order(self, order: Order, number: int) -> Order:
        """Return the order of a round with its signature."""
        link = self._chain.begin(order, number).digest
        content = order_content(self._run.hex(), order_facts(order, number), link.hex())
        return replace(order, signature=self._key.sign(ORDER, content))

    def add_complete(self, number: int, order: Order) -> None:
        """Add a complete round to the chain."""
        self._chain.miss([(number, order)])


def order_facts(order: Order, number: int) -> dict[str, Any]:
    """Return the facts of an order that a receipt has, in plain values."""
    size = None if order.terms is None else math.prod(order.terms.shape)
    return {
        "round": number,
        "phase": order.phase,
        "step": order.step,
        "verb": order.verb,
        "protocol": order.protocol,
        "numbers": size,
        "sites": list_or_digest(order.sites),
        "opened_by": _opened_by(order),
        "order": order_digest(order, number).hex(),
    }


def order_content(run: str, facts: Mapping[str, Any], link: str) -> bytes:
    """Return the content that a coordinator signs, from the run, the facts of an order and its link, in hexadecimal."""
    return json.dumps([run, facts, link], sort_keys=True).encode()


def order_digest(order: Order, number: int) -> bytes:
    """Return a digest of all that an order of a round says: the same at every site that had the same order."""
    plain = json.dumps([number, order.phase, order.phase_round, list(order.sites)])
    return hashlib.sha256(plain.encode() + b"\0" + order.digest).digest()


def list_or_digest(names: Sequence[str]) -> list[str]:
    """Return the names; of more than 64 their number and a digest."""
    if len(names) <= _MAX_LISTED:
        return list(names)
    digest = hashlib.sha256("\n".join(names).encode()).hexdigest()
    return [f"{len(names)} names with the SHA-256 digest {digest}"]


def _opened_by(order: Order) -> str:
    if order.terms is None:
        return ""
    return order.terms.receiver if isinstance(order.terms, SumTerms) else COORDINATOR
