"""The signatures in a receipt: which orders the coordinator signed, and whether the site signed the whole."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from fedsvm.federation.site import receipt
from fedsvm.federation.site.order_facts import facts_text, next_link, order_digest
from fedsvm.federation.site.receipt import Line
from fedsvm.federation.site.signed import order_content
from fedsvm.federation.transport.keys import COORDINATOR
from fedsvm.federation.transport.signing import ORDER, RECEIPT, is_signed

_ENDS = (receipt.LEFT, receipt.BROKEN, receipt.REFUSED)


def chained_lines(lines: Sequence[Line]) -> Iterator[Line]:
    """Yield the lines without those of steps that the site took afterwards by itself, which are not in the chain.

    Such a step shows nobody a value, and its number may be that of a round that was aborted.
    """
    site = _last_asked(lines)["site"]
    outside: int | None = None
    for line in lines:
        if line["what"] == receipt.ORDERED:
            outside = line["order"]["round"] if _is_taken_afterwards(line["order"], site) else None
            if outside is not None:
                continue
        elif line["what"] in _ENDS and line["round"] == outside:
            outside = None
            continue
        yield line


def _is_taken_afterwards(order: Line, site: str) -> bool:
    """Return whether an order is outside the chain, by the rule of the site itself (`SitePolicy.is_missed`)."""
    return order["verb"] == "run" and order["sites"] == [site] and not order["phase_round"]


def ordered_lines(lines: Sequence[Line]) -> dict[int, Line]:
    """Return the lines of orders by round, without those of steps that the site took afterwards by itself."""
    return {line["order"]["round"]: line for line in chained_lines(lines) if line["what"] == receipt.ORDERED}


def order_digests(lines: Sequence[Line]) -> dict[int, str]:
    """Return the digest of each order by round, of orders that the site missed too, in hexadecimal."""
    missed = {number: digest for number, (_, digest) in _orders_missed(lines).items()}
    return missed | {number: _digest_of(line) for number, line in ordered_lines(lines).items()}


def signed_orders(lines: Sequence[Line]) -> dict[int, Line]:
    """Return the orders that a valid signature of the coordinator covers, by round.

    A signature covers its order, and all orders that this one builds on.
    """
    key, run = bytes.fromhex(_last_asked(lines)["signing"]["coordinator"]), bytes.fromhex(lines[0]["run"])
    ordered, links = ordered_lines(lines), computed_links(lines)
    before = {number: after for number, (after, _) in _orders_missed(lines).items()}
    before |= {number: line["order"]["after"] for number, line in ordered.items()}
    covered: set[int] = set()
    for number in sorted(links, reverse=True):
        if number in ordered and number not in covered:
            content = order_content(run, links[number])
            if is_signed(key, bytes.fromhex(ordered[number]["signature"]), ORDER, content):
                covered.update(_ancestors(number, before))
    return {number: line for number, line in ordered.items() if number in covered}


def _ancestors(number: int, before: Mapping[int, int]) -> Iterator[int]:
    """Yield a round and all rounds that its order builds on."""
    while number in before:
        yield number
        number = min(before[number], number - 1)


def computed_links(lines: Sequence[Line]) -> dict[int, bytes]:
    """Return the links of rounds, computed from the first link and from the orders in the lines."""
    joined = [line for line in lines if line["what"] == receipt.JOINED]
    links = {0: bytes.fromhex(joined[-1]["chain"])} if joined else {}
    orders = _orders_missed(lines)
    orders |= {number: (line["order"]["after"], _digest_of(line)) for number, line in ordered_lines(lines).items()}
    for number, (after, digest) in sorted(orders.items()):
        if after < number and after in links:
            links[number] = next_link(links[after], bytes.fromhex(digest))
    return links


def _orders_missed(lines: Sequence[Line]) -> dict[int, tuple[int, str]]:
    """Return of each order that the site missed the round before it and its digest, by round."""
    listed = (line["orders"].items() for line in lines if line["what"] == receipt.MISSED)
    return {int(number): (after, digest) for orders in listed for number, (after, digest) in orders}


def _digest_of(line: Line) -> str:
    return order_digest(facts_text(line["order"])).hex()


def wrong(lines: Sequence[Line]) -> Iterator[str]:
    """Yield what is wrong with signatures, in clauses: of orders that were carried out, and of the receipt."""
    signing = _last_asked(lines)["signing"]
    if signing["coordinator"] and (uncovered := list(_find_uncovered(lines))):
        numbers = list(dict.fromkeys(str(line["round"]) for line in uncovered))
        orders = f"order of round {numbers[0]}" if len(numbers) == 1 else f"orders of rounds {', '.join(numbers)}"
        yield f"line {uncovered[0]['line']}: no signature of the coordinator covers the {orders}"
    yield from _find_other_links(lines)
    last = lines[-1]
    if last["what"] == receipt.SIGNED:
        content = receipt.head_content(lines[0]["run"], lines[0]["site"], lines[-2]["digest"])
        if not is_signed(bytes.fromhex(signing["site"]), bytes.fromhex(last["signature"]), RECEIPT, content):
            yield f"line {last['line']}: the signature is not that of the site"
    elif last["what"] in receipt.CLOSING and signing["site"]:
        yield "the signature of the site is missing"


def _find_uncovered(lines: Sequence[Line]) -> Iterator[Line]:
    """Yield the lines of orders that were carried out, or begun, and that no signature covers."""
    signed, ordered = signed_orders(lines), dict[int, Line]()
    for line in chained_lines(lines):
        if line["what"] == receipt.ORDERED:
            ordered[line["order"]["round"]] = line
        elif line["what"] == receipt.LEFT or (
            line["what"] == receipt.BROKEN and (line["round"] in ordered or line["sent"])
        ):
            given = ordered.get(line["round"])
            if given is None or signed.get(line["round"]) is not given:
                yield line


def _find_other_links(lines: Sequence[Line]) -> Iterator[str]:
    """Yield the first line whose link is not that of its order and of all orders before, in a clause."""
    links = {number: link.hex() for number, link in computed_links(lines).items()}
    for line in chained_lines(lines):
        if line["what"] in _ENDS and line["link"] and line["link"] != links.get(line["round"], line["link"]):
            yield f"line {line['line']}: its link is not that of the orders of round {line['round']} and before"
            return


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
