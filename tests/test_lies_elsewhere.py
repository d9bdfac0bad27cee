"""Lies that all sites are told alike, each with a valid signature, across hosts and in visits.

`test_agreed_steps` and `test_lies` have many more in simulations. A site of either way carries out orders by the same
code; these tests show that it does so with the terms and the keys that it has there.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedsvm.algorithms.data.partition import site_partition
from fedsvm.federation.control import Order, SumTerms
from fedsvm.federation.errors import FederationError
from fedsvm.federation.site.signed import OrderSigner
from tests.conftest import long_but_for
from tests.hosts import NAMES, hosts
from tests.test_forked_orders import write_columns
from tests.test_offline_sites import SITES as VISITORS
from tests.test_offline_sites import Store

LIES: Mapping[str, tuple[Callable[[Order], Order], str]] = {
    "a step that the run does not take": (
        lambda order: replace(order, step="deal_groups" if order.step == "column_sums" else "reference_kernel"),
        "no step '(deal_groups|reference_kernel)'",
    ),
    "an argument that the step does not declare": (
        lambda order: replace(order, parameters={**order.parameters, "rows": 1}),
        "declares no argument 'rows'|unexpected keyword argument 'rows'",
    ),
    "another sum": (lambda order: replace(order, protocol="plain"), r"the sum must be masked .*, got plain"),
    "another bound": (lambda order: of_sum(order, bound=1.0), "must have the bound"),
    "a sum that nobody of the run opens": (
        lambda order: of_sum(order, receiver="mallory"),
        "a sum must be opened by the coordinator or a site in it, got mallory",
    ),
    "an order without a signature": (lambda order: order, "must have the coordinator's signature"),
}
UNSIGNED = "an order without a signature"
LIAR = """\
import sys
from tests.test_lies_elsewhere import told_to_all

lie = sys.argv[1]
del sys.argv[:4]
from fedsvm.__main__ import main
from fedsvm.algorithms.mapped_site import MappedAlgorithm

MappedAlgorithm.statistics_privacy = 0.0
with told_to_all(lie):
    main()
"""


def of_sum(order: Order, **changed: Any) -> Order:
    """Return an order with other terms of its sum."""
    assert isinstance(order.terms, SumTerms)
    return replace(order, terms=replace(order.terms, **changed))


@contextmanager
def told_to_all(lie: str) -> Iterator[None]:
    """A context in which a coordinator of this process makes a lie of each sum, and signs it."""
    sign, (change, _) = OrderSigner.sign_order, LIES[lie]

    def sign_lie(signer: OrderSigner, order: Order, number: int) -> Order:
        if not isinstance(order.terms, SumTerms):
            return sign(signer, order, number)
        signed = sign(signer, change(order), number)
        return replace(signed, signature=b"") if lie == UNSIGNED else signed

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(OrderSigner, "sign_order", sign_lie)
        yield


@pytest.mark.parametrize("lie", LIES)
def test_sites_in_visits_refuse_a_lie(lie: str, tmp_path: Path) -> None:
    store = Store(tmp_path)
    labels = np.where(np.arange(40) % 2 > 0, 1.0, -1.0)
    generator = np.random.default_rng(5)
    parts = {
        site: site_partition(
            generator.normal(size=(40, 2)), labels if site == "clinic" else None, names=[f"{site}-a", f"{site}-b"]
        )
        for site in VISITORS
    }
    with told_to_all(lie), pytest.raises(FederationError, match=LIES[lie][1]):
        store.advance()
        for _ in range(5):
            for site in VISITORS:
                store.visit(site, parts[site])


@pytest.mark.parametrize("lie", long_but_for(LIES))
def test_sites_at_hosts_refuse_a_lie(lie: str, tmp_path: Path) -> None:
    with hosts(tmp_path) as there:
        for seed, name in enumerate(NAMES):
            write_columns(tmp_path / f"{name}.csv", 20, seed)
        (tmp_path / "liar.py").write_text(LIAR)
        there.within["coordinator"] = (sys.executable, "liar.py", lie)
        liar = there.coordinator("--set", "protocol.sum=masked")
        sites = [there.site(name, liar) for name in NAMES]
        assert liar.ends() == 3, liar.said
        said = [" ".join(site.said.split()) for site in sites if site.ends() == 3]
    assert said
    assert any(re.search(LIES[lie][1], text) for text in said), said
