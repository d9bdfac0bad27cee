"""The signatures in a receipt: which orders the coordinator signed, and whether the site signed the whole."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from fedsvm.federation.site import receipt
from fedsvm.federation.site.receipt import Line
from fedsvm.federation.site.signed import order_content
from fedsvm.federation.transport.keys import COORDINATOR
from fedsvm.federation.transport.signing import ORDER, RECEIPT, is_signed

_NO_FACTS = ("line", "at", "what", "signature", "digest")
"""The entries of an order's line that its signature does not cover."""


def links_of(lines: Sequence[Line]) -> dict[str, str]:
    """Return the links of rounds that began, complete or not."""
    return {str(line["round"]): line["link"] for line in lines if line.get("link")}


def signed_orders(lines: Sequence[Line]) -> dict[str, Line]:
    """Return the orders with a valid signature of the coordinator, by round."""
    found, links = {}, links_of(lines)
    key = bytes.fromhex(_last_asked(lines)["signing"]["coordinator"])
    for line in lines:
        if line["what"] == receipt.ORDERED and (link := links.get(str(line["round"]))):
            facts = {name: value for name, value in line.items() if name not in _NO_FACTS}
            content = order_content(lines[0]["run"], facts, link)
            if is_signed(key, bytes.fromhex(line["signature"]), ORDER, content):
                found[str(line["round"])] = line
    return found


def wrong(lines: Sequence[Line]) -> Iterator[str]:
    """Yield what is wrong with signatures, in clauses: of orders that were carried out, and of the receipt."""
    signing = _last_asked(lines)["signing"]
    signed = signed_orders(lines) if signing["coordinator"] else {}
    for line in lines if signing["coordinator"] else ():
        if line["what"] == receipt.LEFT and line["form"] != receipt.NO_VALUE and str(line["round"]) not in signed:
            yield f"line {line['line']}: the order of round {line['round']} is not signed by the coordinator"
            break
    last = lines[-1]
    if last["what"] == receipt.SIGNED:
        content = receipt.head_content(lines[0]["run"], lines[0]["site"], lines[-2]["digest"])
        if not is_signed(bytes.fromhex(signing["site"]), bytes.fromhex(last["signature"]), RECEIPT, content):
            yield f"line {last['line']}: the signature is not that of the site"
    elif last["what"] in receipt.CLOSING and signing["site"]:
        yield "the signature of the site is missing"


def of_other_keys(lines: Sequence[Line], known: Mapping[str, bytes]) -> Iterator[str]:
    """Yield the parties whose key for signatures is not the known one, in clauses."""
    asked = _last_asked(lines)
    for party, key in ((COORDINATOR, asked["signing"]["coordinator"]), (asked["site"], asked["signing"]["site"])):
        if party in known and known[party].hex() != key:
            yield f"the signing-key of {party} is not that of {party}.key"


def compared_keys(lines: Sequence[Line], known: Mapping[str, bytes] | None) -> dict[str, str]:
    """Return a clause on the key of "coordinator" and of "site": whether a given key was compared with it.

    known: the given keys, by party; None if none were asked for.
    """
    asked = _last_asked(lines)
    parties = {"coordinator": COORDINATOR, "site": asked["site"]}
    found = {}
    for role, party in parties.items() if known is not None else ():
        if party not in (known or {}):
            found[role] = f"not compared, since the folder of --keys has no {party}.key"
        else:
            is_same = (known or {})[party].hex() == asked["signing"][role]
            found[role] = f"{'the' if is_same else 'not the'} key in {party}.key"
    return found


def _last_asked(lines: Sequence[Line]) -> Line:
    return next(line for line in reversed(lines) if line["what"] == receipt.ASKED)
