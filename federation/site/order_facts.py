"""The facts of an order: the part of it that receipts show, in one canonical text.

A round's link in the chain of orders is a digest of this text and of the link before (`chain`). So all links can be
computed from the texts of a run, which its receipts have.
"""

from __future__ import annotations

import functools
import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from json.encoder import encode_basestring_ascii as json_text
from typing import Any

from fedsvm.federation.control import Order, SumTerms
from fedsvm.federation.transport.keys import COORDINATOR

DIGEST_BYTES = 32

_MAX_LISTED = 64
"""Maximum number of parties that a line names. Beyond that, it has their number and a digest, because the receipts of a
large run would be mostly names."""


def order_facts(order: Order, number: int) -> str:
    """Return the facts of a round's order, as canonical JSON. Its "order" is a digest of the step and its arguments."""
    if (known := order.facts_in.get(number)) is None:
        terms, opened_by = order.terms, ""
        if terms is not None:
            opened_by = terms.receiver if isinstance(terms, SumTerms) else COORDINATOR
        known = order.facts_in[number] = (
            f'{{"after": {order.after}, "numbers": {"null" if terms is None else math.prod(terms.shape)}, '
            f'"opened_by": {json_text(opened_by)}, "order": "{order.digest.hex()}", "phase": {json_text(order.phase)}, '
            f'"phase_round": {order.phase_round}, "protocol": {json_text(order.protocol)}, "round": {number}, '
            f'"sites": {_names(order.sites)}, "step": {json_text(order.step)}, "verb": "{order.verb}"}}'
        )
    return known


def facts_text(facts: Mapping[str, Any]) -> str:
    """Return facts as canonical JSON: with sorted names, as `order_facts` writes them."""
    return _ENCODER.encode(facts)


def order_digest(facts: str) -> bytes:
    """Return the digest of an order, given its facts: the same at every site that had the same order."""
    return hashlib.blake2b(facts.encode(), digest_size=DIGEST_BYTES).digest()


def next_link(before: bytes, order: bytes) -> bytes:
    """Return the link of a round, given the link of the round that it follows and the digest of its order."""
    return hashlib.blake2b(before + order, digest_size=DIGEST_BYTES).digest()


def list_or_digest(names: Sequence[str]) -> list[str]:
    """Return the names; of more than 64 their number and a digest."""
    if len(names) <= _MAX_LISTED:
        return list(names)
    digest = hashlib.sha256("\n".join(names).encode()).hexdigest()
    return [f"{len(names)} names with the SHA-256 digest {digest}"]


_ENCODER = json.JSONEncoder(sort_keys=True)


@functools.lru_cache(maxsize=4)
def _names(sites: tuple[str, ...]) -> str:
    return json.dumps(list_or_digest(sites))
