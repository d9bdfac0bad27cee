"""Rounds of a committee that come again, over real sockets: what a coordinator gains from them, and what sites refuse.

Sites with a policy repeat no sum over other members once the coordinator may have opened it (`max_repeats`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fedsvm.algorithms import SITE_MODULE
from fedsvm.algorithms.data.partition import site_partition
from fedsvm.algorithms.optimization.blind_path import BlindOrder, _numbers_of
from fedsvm.algorithms.optimization.committee import solve_with_committee
from fedsvm.algorithms.optimization.path_rounds import Layout
from fedsvm.federation.arrays import FloatArray
from fedsvm.federation.errors import PeerDropped, SiteFailed
from fedsvm.federation.federation import Federation
from fedsvm.federation.membership import DropoutPolicy
from fedsvm.federation.processes.launcher_cache import spare_launcher
from fedsvm.federation.site.rules import SiteRules
from fedsvm.federation.startup import Deployment, SiteSetup, start_federation
from fedsvm.protocols import blind_system
from fedsvm.protocols.side_by_side import side_by_side
from tests.test_agreed_steps import COLUMNS, RING, measured, terms
from tests.test_committee_lies import round_of
from tests.test_malice import pretend_to_lose

NAMES = tuple(f"site-{number}" for number in range(1, 6))
ROWS = {name: np.random.default_rng(place).normal(size=(20, COLUMNS)) for place, name in enumerate(NAMES)}
LABELS = {name: np.where(np.arange(20) < 8 + place, 1.0, -1.0) for place, name in enumerate(NAMES)}
PAN = terms("pan-svm", masking="committee", kernel="linear", features="identity", objective_noise=0.0)
LAYOUT = Layout(COLUMNS + 1, COLUMNS)
VICTIM = "site-5"
ONCE = SiteRules(max_repeats=0)
SAID = r"repeated over other sites at most 0 times .max_repeats."


@contextmanager
def five(rules: SiteRules) -> Iterator[Federation]:
    """Five sites, of which three may go on, that have begun to train behind a committee."""

    def setup(site: str) -> SiteSetup:
        held = site_partition(ROWS[site], LABELS[site], names=[f"x{j}" for j in range(COLUMNS)])
        return SiteSetup(lambda path: held.write(str(path)), {"seed": 1}, rules=rules)

    deployment = Deployment(NAMES, replace(PAN, min_sites=3), RING, setup, 20.0, DropoutPolicy(3))
    with spare_launcher(SITE_MODULE) as launcher, start_federation(launcher, deployment) as federation:
        federation.assemble()
        measured(federation)
        federation.run("begin_path", prior=np.zeros(COLUMNS), price=1.0, lever=1.0, masking="committee")
        federation.run("share_path", holders=list(NAMES))
        yield federation


def opened(federation: Federation, **told: Any) -> FloatArray:
    """Run a round to its end, and return the numbers that the coordinator opens."""
    order = {**round_of(), "noises": np.full((1, 3), 1e-9), **told}
    systems = BlindOrder(**order).systems([LAYOUT])
    return np.asarray(solve_with_committee(federation, "blind_newton", systems, _numbers_of, **order)[0])


def loss_and_rows(numbers: FloatArray) -> FloatArray:
    """Return the objective, and the rows of each class."""
    return np.concatenate([numbers[2:3] * 2.0**12, np.rint(numbers[6:8] * 60)])


def abort_once(victim: str, seen: list[FloatArray], patch: pytest.MonkeyPatch) -> None:
    """Have the coordinator end its next round as soon as it has opened the numbers, and claim that a site left."""
    solve, channels = blind_system._solve, list[Any]()

    def watched(channel: Any, *told: Any) -> Any:
        channels[:] = [channel]
        return side_by_side(channel, *told)

    def opened_and_ended(system: Any, committee: Any) -> Any:
        if seen:
            return (yield from solve(system, committee))
        steps, given, shares = solve(system, committee), None, list[Any]()
        while len(shares) < 2:
            given = yield steps.send(given)
            shares.append(given)
        total = system.numbers.reduce(sum(system.numbers.unpack(each, (1, system.opened)) for each in shares))
        numbers, _ = system.read_sums(total[:, :, system.triangle :])
        seen.append(np.concatenate([np.zeros(2), numbers]))
        channels[0].left_out[victim] = "a lie"
        raise PeerDropped("a lie")

    patch.setattr(blind_system, "side_by_side", watched)
    patch.setattr(blind_system, "_solve", opened_and_ended)


def test_a_round_that_is_ended_with_open_numbers_shows_a_site_unless_its_policy_says_no(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The coordinator ends a round once it has the numbers, and orders it again over fewer sites."""
    for rules in (SiteRules(), ONCE):
        seen: list[FloatArray] = []
        with five(rules) as federation, monkeypatch.context() as patch:
            abort_once(VICTIM, seen, patch)
            if rules is ONCE:
                with pytest.raises(SiteFailed, match=SAID):
                    opened(federation)
                continue
            after = loss_and_rows(opened(federation))
            difference = loss_and_rows(seen[0]) - after
        of_victim = [20, (LABELS[VICTIM] > 0).sum(), (LABELS[VICTIM] < 0).sum()]
        np.testing.assert_allclose(difference, of_victim, rtol=0, atol=1e-6)


def test_a_round_without_open_numbers_comes_again_over_fewer_sites_by_any_policy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A site died before the members opened anything."""
    forward = type(RING).forward

    def lost(protocol: Any, channel: Any, *told: Any) -> None:
        forward(protocol, channel, *told)
        if VICTIM in channel.sites:
            channel.left_out[VICTIM] = "it died"
            raise PeerDropped("it died")

    with five(ONCE) as federation, monkeypatch.context() as patch:
        patch.setattr(type(RING), "forward", lost)
        assert loss_and_rows(opened(federation)) == pytest.approx([80, 38, 42])
        assert VICTIM not in federation.sites


def test_rounds_that_go_on_over_fewer_sites_show_the_rows_of_each_class(monkeypatch: pytest.MonkeyPatch) -> None:
    """No policy but min_sites stops this: training goes on over the sites that are left."""
    with five(ONCE) as federation:
        before = loss_and_rows(opened(federation))
        pretend_to_lose(federation, VICTIM)
        after = loss_and_rows(opened(federation, iteration=2, still=np.ones(1)))
    np.testing.assert_allclose(before - after, [20, 12, 8], rtol=0, atol=1e-6)
