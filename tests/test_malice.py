"""A coordinator that lies, with real site processes: it is refused, or gains what is asserted here.

Orders that differ between sites are in `test_unequal_orders`, steps and arguments beyond the terms in
`test_agreed_steps`.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedsvm.federation.admission import Admission
from fedsvm.federation.control import MissedOrders
from fedsvm.federation.errors import OrderRefused, SiteFailed
from fedsvm.federation.federation import Federation
from fedsvm.federation.site.rules import SiteRules
from fedsvm.protocols.sums.registry import SUMS
from tests.conftest import drill
from tests.test_agreed_steps import COLUMNS, encoded, sites, terms
from tests.test_dropouts import total, total_of
from tests.test_unequal_orders import BOUND, UNBOUND

VICTIM = "site-5"


def pretend_to_lose(federation: Federation, site: str) -> None:
    """Go on as if a site had left."""
    federation._runner.change_membership({site: "a lie"}, ())


@pytest.mark.parametrize("protocol", ["ring", "masked"])
def test_a_sum_that_comes_again_over_fewer_sites_shows_who_is_missing(protocol: str) -> None:
    """This still succeeds at sites without a policy."""
    with drill(5, protocol=protocol) as federation:
        of_all = total(federation)
        pretend_to_lose(federation, VICTIM)
        assert np.allclose(of_all - total(federation), total_of([VICTIM]), rtol=0, atol=1e-9)


@pytest.mark.parametrize("protocol", ["ring", "masked"])
def test_a_site_repeats_no_sum_over_fewer_sites_if_its_policy_says_so(protocol: str) -> None:
    with drill(5, protocol=protocol, rules=SiteRules(max_repeats=0)) as federation:
        total(federation)
        pretend_to_lose(federation, VICTIM)
        said = r"repeated over other sites at most 0 times .max_repeats., and step 'total' would be repeated"
        with pytest.raises(SiteFailed, match=said):
            total(federation)


def test_a_sum_that_broke_off_before_anything_was_opened_comes_again_over_fewer_sites() -> None:
    with drill(5, rules=SiteRules(max_repeats=0)) as federation:
        found = federation.sum("die", shape=(3,), bound=1.0, site="site-2")
    assert not found.any()
    assert "site-2" not in federation.sites


def test_a_site_repeats_as_often_as_its_policy_says() -> None:
    with drill(6, rules=SiteRules(max_repeats=1)) as federation:
        total(federation)
        pretend_to_lose(federation, "site-6")
        total(federation)
        pretend_to_lose(federation, VICTIM)
        with pytest.raises(SiteFailed, match="over other sites at most 1 times"):
            total(federation)


def test_a_masked_sum_that_two_parts_of_the_sites_could_open_is_refused() -> None:
    rules = SiteRules(colluders=1)
    said = "1 of 5 sites may collude with the coordinator, and the sum withstands 0"
    with pytest.raises(SiteFailed, match=said), drill(5, protocol="masked", rules=rules) as federation:
        total(federation)
    with drill(3, protocol="ring", rules=rules) as federation:
        assert np.allclose(total(federation), total_of(federation.sites), rtol=0, atol=1e-9)


def told_again(monkeypatch: pytest.MonkeyPatch, module: str, receipts: Path | None = None) -> np.ndarray:
    """Restart a site that is then told other orders than it missed, and return a later sum.

    receipts: sites that keep them know the coordinator's key for signatures.
    """
    honest = Admission._missed_orders

    def lying(admission: Admission) -> Iterator[MissedOrders]:
        for missed in honest(admission):
            (number, first), *rest = missed.orders
            yield MissedOrders(((number, replace(first, parameters={"factor": 3.0})), *rest))

    with drill(5, rejoin=True, module=module, receipts=receipts) as federation:
        total(federation)
        monkeypatch.setattr(Admission, "_missed_orders", lying)
        os.kill(federation.pids[VICTIM], signal.SIGKILL)
        for _ in range(2):  # the first may be over before the site is missed
            total(federation)
        return total(federation)


def test_a_restarted_site_that_is_told_other_orders_opens_no_sum(monkeypatch: pytest.MonkeyPatch) -> None:
    assert np.allclose(told_again(monkeypatch, UNBOUND), total_of(f"site-{n}" for n in range(1, 6)), rtol=0, atol=1e-9)
    with pytest.raises(SiteFailed, match="received different orders") as caught:
        told_again(monkeypatch, BOUND)
    assert VICTIM in str(caught.value)


def test_missed_orders_need_the_coordinators_signature(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(SiteFailed, match="it must have the coordinator's signature"):
        told_again(monkeypatch, BOUND, tmp_path)


def test_a_site_that_restarts_finds_the_orders_that_it_missed_signed(tmp_path: Path) -> None:
    with drill(5, rejoin=True, receipts=tmp_path) as federation:
        total(federation)
        os.kill(federation.pids[VICTIM], signal.SIGKILL)
        for _ in range(3):
            found = total(federation)
    assert np.allclose(found, total_of(f"site-{n}" for n in range(1, 6)), rtol=0, atol=1e-9)
    assert '"what": "missed"' in (tmp_path / f"{VICTIM}.receipt").read_text()


@pytest.mark.parametrize(
    ("threshold", "sites", "withstood"),
    [
        (0.66, 3, 0),
        (0.66, 5, 2),
        (1, 5, 4),
        (0.52, 50, 1),
        (0.52, 51, 2),
        (0.52, 200, 0),
        (0.66, 200, 5),
        (0.8, 52, 14),
    ],
)
def test_a_masked_sum_withstands_few_colluders_wherever_they_are(threshold: float, sites: int, withstood: int) -> None:
    """Above 51 sites 31 of a neighborhood must remain at least."""
    withstands = SUMS["masked"](threshold=threshold).withstands
    assert withstands(sites) == withstood
    SiteRules(colluders=withstood).check_colluders(withstands(sites), sites)
    with pytest.raises(OrderRefused, match=f"{withstood + 1} of {sites} sites may .* the sum withstands {withstood};"):
        SiteRules(colluders=withstood + 1).check_colluders(withstands(sites), sites)


def test_a_scale_of_its_choice_tells_whether_a_record_is_there() -> None:
    """This still succeeds: on a scale where other rows are far away, the sum of squared lengths shows a single row."""
    agreed = terms("pan-svm", kernel="rbf", gamma=0.25, landmarks=1)

    def seen(candidate: np.ndarray) -> float:
        with sites(agreed, SiteRules()) as federation:
            encoded(federation)
            federation.gather("row_count", shape=())
            federation.sum("column_sums", shape=(COLUMNS,), bound=np.inf)
            federation.sum("column_squares", shape=(COLUMNS,), bound=np.inf, mean=np.zeros(COLUMNS))
            federation.run("rescale", offset=np.zeros(COLUMNS), scale=np.full(COLUMNS, 1e-4))
            federation.run("agree_secret")
            federation.run("cluster", quotas=[1, 0, 0], min_cluster_size=3)
            federation.sum("local_landmarks", shape=(1, COLUMNS + 1), bound=np.inf, quotas=[1, 0, 0])
            federation.sum("records_exposed", shape=(), bound=1.0)
            kernel: dict[str, Any] = {"kernel": "rbf", "gamma": 0.25, "degree": 3, "coef0": 0.0}
            landmarks = candidate[None] / 1e-4
            federation.run("receive_map", features="landmarks", landmarks=landmarks, map=np.eye(1), **kernel)
            return float(federation.sum("squared_norms", shape=(2,), bound=np.inf)[0])

    of_a_site = np.random.default_rng(3).normal(size=(20, COLUMNS))[0]
    assert seen(of_a_site) == pytest.approx(1.0, abs=1e-6)
    assert seen(of_a_site + 0.5) == pytest.approx(0.0, abs=1e-6)
