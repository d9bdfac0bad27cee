"""The chain of orders: equal orders give equal links, other orders give others, and missed ones come in full."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fedsvm.federation.channel.agreement import round_keys
from fedsvm.federation.control import MissedOrders, Order, SumTerms
from fedsvm.federation.errors import Malformed, OrderRefused
from fedsvm.federation.site.chain import LINK_BYTES, OrderChain
from fedsvm.federation.site.terms import Terms
from fedsvm.federation.transport.wire import MAX_LINK_BYTES, Message

RUN = b"12345678"
SITES = ("a", "b", "c")
TERMS = Terms("shop", {"C": 1.0}, "ring", {}, 3)
SUM = SumTerms((3,), 10.0, {}, "coordinator")
FIRST = Order("prepare", "prepare", None, {"fold": -1}, {"scale": np.arange(3.0)}, sites=SITES)
SECOND = Order("cuts", "ring", SUM, {"factor": 2.0}, {"w": np.ones(3)}, sites=SITES, after=1)


def _chain(terms: Terms = TERMS, run: bytes = RUN, sites: tuple[str, ...] = SITES) -> OrderChain:
    return OrderChain(run, sites, terms)


def test_equal_orders_give_equal_links_whatever_way_they_came() -> None:
    one, other = _chain(), _chain()
    for number, order in ((1, FIRST), (2, SECOND)):
        over_the_wire = Order.from_message(order.to_message(RUN, number), SITES)
        assert one.begin(order, number) == other.begin(over_the_wire, number)
    assert one.head == other.head
    assert [(link.round, link.step) for link in one] == [(1, "prepare")], "nobody said that round 2 is complete"


def _array(order: Order, **arrays: Any) -> Order:
    return replace(order, arrays={**order.arrays, **arrays})


@pytest.mark.parametrize(
    "changed",
    [
        lambda order: replace(order, step="other"),
        lambda order: replace(order, protocol="k-secure"),
        lambda order: replace(order, sites=("a", "b")),
        lambda order: replace(order, parameters={"factor": 2.0000000000000004}),
        lambda order: replace(order, parameters={"factor": 2}),
        lambda order: replace(order, terms=replace(SUM, receiver="a")),
        lambda order: replace(order, terms=replace(SUM, bound=11.0)),
        lambda order: _array(order, w=np.array([1.0, 1.0, 1.0 + 2**-52])),
        lambda order: _array(order, w=np.ones((3, 1))),
        lambda order: _array(order, w=np.ones(3).view(np.int64)),
        lambda order: _array(order, v=np.ones(3)),
    ],
)
def test_whatever_an_order_says_changes_the_link(changed: Callable[[Order], Order]) -> None:
    one, other = _chain(), _chain()
    assert one.begin(FIRST, 1) == other.begin(FIRST, 1)
    assert one.begin(SECOND, 2) != other.begin(changed(SECOND), 2)


@pytest.mark.parametrize(
    "other",
    [
        _chain(replace(TERMS, settings={"C": 2.0})),
        _chain(replace(TERMS, min_sites=2)),
        _chain(run=b"87654321"),
        _chain(sites=("a", "b", "c", "d")),
    ],
)
def test_other_terms_sites_or_runs_give_other_links(other: OrderChain) -> None:
    assert _chain().head != other.head
    assert _chain().begin(FIRST, 1) != other.begin(FIRST, 1)


def test_an_order_differs_by_its_round_and_by_all_orders_before_it() -> None:
    assert _chain().begin(FIRST, 1) != _chain().begin(FIRST, 2)
    one, other = _chain(), _chain()
    one.begin(FIRST, 1)
    other.begin(_array(FIRST, scale=np.ones(3)), 1)
    assert one.begin(SECOND, 2) != other.begin(SECOND, 2)


def test_a_round_that_was_aborted_leaves_nothing_behind() -> None:
    undisturbed, disturbed = _chain(), _chain()
    for chain in (undisturbed, disturbed):
        chain.begin(FIRST, 1)
    disturbed.begin(SECOND, 2)
    again = replace(SECOND, sites=("a", "b"))
    assert disturbed.begin(again, 3) == undisturbed.begin(again, 3)
    assert disturbed.head == undisturbed.head


@pytest.mark.parametrize("after", [0, 3, 7, -1])
def test_an_order_must_follow_the_last_complete_round_or_the_last_one_here(after: int) -> None:
    chain = _chain()
    chain.begin(FIRST, 1)
    chain.begin(SECOND, 2)
    head, last = chain.head, chain.last
    with pytest.raises(OrderRefused, match=f"must follow round 1 or 2, the last one complete here, got round {after}"):
        chain.begin(replace(SECOND, after=after), 9)
    assert (chain.head, chain.last) == (head, last)


def test_who_missed_orders_computes_the_links_from_the_orders() -> None:
    there, late = _chain(), _chain()
    third = replace(FIRST, step="third", after=2)
    for number, order in ((1, FIRST), (2, SECOND)):
        there.begin(order, number)
    late.begin(FIRST, 1)
    late.miss([(1, FIRST), (2, SECOND)])
    assert late.last is None
    assert late.begin(third, 3) == there.begin(third, 3)
    assert [link.step for link in late] == ["prepare", "cuts"]
    restarted = _chain()
    restarted.miss([(1, FIRST)])
    restarted.miss([(2, SECOND)])
    assert restarted.begin(third, 3) == there.begin(third, 4 - 1)


def test_who_missed_orders_is_told_no_other_than_it_received() -> None:
    lie = _array(FIRST, scale=np.ones(3))
    chain = _chain()
    chain.begin(FIRST, 1)
    with pytest.raises(OrderRefused, match="the missed order of round 1 differs"):
        chain.miss([(1, lie), (2, SECOND)])
    chain.begin(SECOND, 2)
    with pytest.raises(OrderRefused, match="the missed order of round 1 differs"):
        chain.miss([(1, lie), (2, SECOND)])
    with pytest.raises(OrderRefused, match="the missed order of round 1 differs"):
        chain.miss([(1, replace(FIRST, sites=("a", "b")))])


def test_who_missed_orders_is_told_all_of_them() -> None:
    with pytest.raises(OrderRefused, match="the order of round 2 must follow round 0"):
        _chain().miss([(2, SECOND)])
    chain = _chain()
    chain.begin(FIRST, 1)
    with pytest.raises(OrderRefused, match="must follow round 0 or 1"):
        chain.begin(replace(SECOND, after=5), 6)


def test_only_the_order_of_a_complete_round_may_be_taken_alone() -> None:
    chain = _chain()
    chain.miss([(1, FIRST)])
    assert chain.has(replace(FIRST, sites=("a",), phase="late"))
    assert not chain.has(_array(FIRST, scale=np.ones(3)))
    assert not chain.has(SECOND)


def test_missed_orders_go_over_the_network() -> None:
    missed = MissedOrders(((1, FIRST), (2, SECOND)))
    read = MissedOrders.from_message(missed.to_message(RUN, 9), SITES)
    assert [(number, order.digest, order.sites, order.after) for number, order in read.orders] == [
        (1, FIRST.digest, SITES, 0),
        (2, SECOND.digest, SITES, 1),
    ]
    assert MissedOrders.from_message(MissedOrders(()).to_message(RUN, 0)) == MissedOrders(())


def _damaged(**arrays: Any) -> Message:
    message = MissedOrders(((1, FIRST), (2, SECOND))).to_message(RUN, 9)
    return Message("missed", RUN, 9, arrays={**message.arrays, **arrays})


@pytest.mark.parametrize(
    "message",
    [
        MissedOrders(((2, SECOND), (1, FIRST))).to_message(RUN, 9),
        MissedOrders(((1, FIRST), (1, FIRST))).to_message(RUN, 9),
        Message("missed", b"87654321", 9, arrays=MissedOrders(((1, FIRST),)).to_message(RUN, 9).arrays),
        Message("missed", RUN, 9),
        _damaged(lengths=np.array([1])),
        _damaged(lengths=np.array([-1, 3])),
        _damaged(lengths=np.array([1 << 62, 1 << 62])),
        _damaged(lengths=np.array([[3]])),
        _damaged(frames=np.zeros(8, dtype=np.uint8)),
        _damaged(frames=np.zeros(8)),
        _damaged(more=np.zeros(8)),
    ],
)
def test_missed_orders_that_are_no_rising_orders_of_this_run_are_malformed(message: Message) -> None:
    with pytest.raises(Malformed):
        MissedOrders.from_message(message, SITES)


def test_sites_with_other_links_share_no_keys() -> None:
    one, other = _chain(), _chain()
    link, another = one.begin(FIRST, 1).digest, other.begin(_array(FIRST, scale=np.ones(3)), 1).digest
    assert len(link) == LINK_BYTES == MAX_LINK_BYTES
    assert round_keys(b"k" * 32, 1, link) != round_keys(b"k" * 32, 1, another)
