"""A coordinator that tells one site other orders across hosts and in visits, each with a valid signature.

For every sum, and for both ways of messages, what it opens is noise, or the run ends and a site names two.
`test_unequal_orders` has the same in simulations.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fedsvm.algorithms.data.partition import site_partition
from fedsvm.federation.arrays import Residues
from fedsvm.federation.control import Order
from fedsvm.federation.errors import FederationError
from fedsvm.protocols.sums.registry import OWN_SUMS
from tests.conftest import long_but_for
from tests.hosts import NAMES, hosts
from tests.lying_coordinator import Opened, forking, opening
from tests.test_additive_shares import CHI_SQUARE, chi_square
from tests.test_offline_sites import SITES as VISITORS
from tests.test_offline_sites import Store

OF_THREE: dict[str, dict[str, float]] = {
    "ring": {},
    "k-secure": {"segments": 3},
    "changing-neighbours": {"rings": 1},
    "masked": {"threshold": 0.6},
    "additive-shares": {"helpers": 2},
}
NOISE = "additive-shares"
"""The sum in which sites send each other nothing, so that none finds the difference."""

VICTIM = "north"
RECORDS = 4096
COLUMNS = 100
LIAR = """\
import sys
import numpy as np
from tests.lying_coordinator import Opened, forking, opening
from tests.test_forked_orders import told_another_mean

del sys.argv[:3]
from fedsvm.__main__ import main
from fedsvm.algorithms.mapped_site import MappedAlgorithm

MappedAlgorithm.statistics_privacy = 0.0
with forking("north", told_another_mean), opening(2):
    try:
        main()
    except Opened as opened:
        np.save("opened.npy", opened.residues)
        sys.exit(9)
"""


def write_columns(path: Path, rows: int, seed: int) -> None:
    """Write rows of so many columns that a sum of them has bytes enough for a test of uniformity."""
    values = np.random.default_rng(seed).normal(size=(rows, COLUMNS))
    names = ",".join(f"c{number}" for number in range(COLUMNS))
    lines = [f"{','.join(map(repr, row))},{'MB'[number % 2]}" for number, row in enumerate(values.tolist())]
    path.write_text("\n".join([f"{names},diagnosis", *lines]) + "\n")


def assert_noise_or_two_named(sum_name: str, opened: Residues | None, said: Sequence[str]) -> None:
    """said: what sites say of a run that they ended."""
    if sum_name == NOISE:
        assert opened is not None, said
        assert chi_square(opened) < CHI_SQUARE
        return
    assert opened is None
    assert said
    for text in said:
        named = {site for site in (*NAMES, *VISITORS) if site in text}
        assert VICTIM in named
        assert len(named) == 2, text


def told_another_mean(order: Order) -> Order:
    """Return the order with another point, around which the victim sums its squares."""
    if order.step != "column_squares":
        return order
    return replace(order, arrays={**order.arrays, "mean": order.arrays["mean"] + 1.0})


@pytest.mark.parametrize(
    "way",
    long_but_for(itertools.product(OF_THREE, ("direct", "via-coordinator")), ("masked", "direct")),
    ids="-".join,
)
def test_across_hosts_two_chains_of_orders_open_noise_or_end_the_run(way: tuple[str, str], tmp_path: Path) -> None:
    sum_name, routing = way
    chosen = [f"protocol.sum={sum_name}", f"protocol.routing={routing}"]
    chosen += [f"protocol.{name}={value}" for name, value in OF_THREE[sum_name].items()]
    with hosts(tmp_path) as there:
        for seed, name in enumerate(NAMES):
            write_columns(tmp_path / f"{name}.csv", 20, seed)
        (tmp_path / "liar.py").write_text(LIAR)
        there.within["coordinator"] = (sys.executable, "liar.py")
        liar = there.coordinator(*(word for option in chosen for word in ("--set", option)))
        sites = {name: there.site(name, liar) for name in NAMES}
        assert liar.ends() == (9 if sum_name == NOISE else 3), liar.said
        said = [each.said for each in sites.values() if sum_name == NOISE or each.ends() == 3]
    path = tmp_path / "opened.npy"
    opened = np.load(path) if path.exists() else None
    named = [text.rpartition(" ended the run: ")[2] for text in said if " ended the run: " in text]
    assert_noise_or_two_named(sum_name, opened, named)


def told_another_scale(order: Order) -> Order:
    """Return the order with another scale of the victim's columns."""
    if order.step != "prepare_fold":
        return order
    return replace(order, parameters={**order.parameters, "scale": "minmax"})


@pytest.mark.parametrize("sum_name", OF_THREE)
def test_in_visits_two_chains_of_orders_open_noise_or_end_the_run(sum_name: str, tmp_path: Path) -> None:
    store = Store(tmp_path, protocol=OWN_SUMS[sum_name](**OF_THREE[sum_name]))
    generator = np.random.default_rng(5)
    labels = np.where(np.arange(RECORDS) % 2 > 0, 1.0, -1.0)
    parts = {
        site: site_partition(
            generator.normal(size=(RECORDS, 2)), labels if site == "clinic" else None, names=[f"{site}-a", f"{site}-b"]
        )
        for site in VISITORS
    }
    opened, said = None, list[str]()
    with forking(VICTIM, told_another_scale), opening(1):
        try:
            store.advance()
            for _ in range(9):
                for site in VISITORS:
                    store.visit(site, parts[site])
        except Opened as caught:
            opened = caught.residues
        except FederationError as caught:
            said.append(str(caught))
    assert_noise_or_two_named(sum_name, opened, said)
