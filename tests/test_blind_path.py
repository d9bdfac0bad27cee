"""The interior point behind a committee: the same model, a true certificate, members that die, and who hears."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsvm.algorithms.optimization import blind_path
from fedsvm.algorithms.optimization.barrier import Problem
from fedsvm.algorithms.optimization.blind_path import BlindOrder
from fedsvm.algorithms.optimization.local_path import solve_pooled
from fedsvm.algorithms.optimization.path_rounds import Layout
from fedsvm.algorithms.optimization.solution import StoppingRule
from fedsvm.federation.arrays import FloatArray
from fedsvm.federation.channel.memory import SimulatedDeath
from fedsvm.federation.errors import RoundAborted, Transient
from fedsvm.federation.transport.keys import COORDINATOR
from fedsvm.protocols import blind_system
from fedsvm.protocols.blind_parameters import BlindSystem
from fedsvm.protocols.sums.ring import RING
from fedsvm.scenarios.schema import spec
from fedsvm.scenarios.schema.errors import ScenarioError
from tests.conftest import ROOT
from tests.in_process import InProcessFederation, Loss
from tests.small_runs import run
from tests.test_explanation import explained
from tests.test_interior_point import Training, game, part_of, primal, random_problem, train
from tests.test_interior_runs import kill

TOLERANCE = 1e-5


def check_training(found: Training, problem: Problem) -> None:
    """The released weights are within the tolerance of the optimum, and bounds with their noise hold."""
    assert found.weights is not None
    certificate, (alone,) = found.certificate, solve_pooled([problem], StoppingRule(TOLERANCE / 1000, 200))
    exact, rounding = primal(problem, found.weights[0, :-1], float(found.weights[0, -1])), 1e-9 * alone.objective
    assert certificate.converged
    assert certificate.lower_bound <= alone.objective + rounding
    assert exact <= certificate.objective + rounding
    assert exact <= alone.objective * (1 + TOLERANCE)


@st.composite
def badly_conditioned(draw: st.DrawFn) -> Problem:
    """Two clouds whose columns differ by up to six orders of magnitude, with C from 1e-3 to 1e4."""
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    rows, m, spread = draw(st.integers(8, 60)), draw(st.integers(1, 8)), draw(st.floats(0, 6))
    labels = np.where(np.arange(rows) % 3 == 0, -1.0, 1.0)
    features = random.normal(size=(rows, m)) + 0.5 * labels[:, None]
    features *= np.append(1.0, 10 ** random.uniform(-spread, 0, size=m - 1))
    C, intercept = 10 ** draw(st.floats(-3, 4)), draw(st.booleans())
    return Problem.of(features, labels, C, lever=math.sqrt(float((features**2).sum(axis=1).mean())) * intercept)


@settings(max_examples=5)
@given(badly_conditioned(), st.sampled_from([0.0, 0.1]))
def test_it_is_the_model_of_one_place_and_its_certificate_is_true(problem: Problem, noise: float) -> None:
    check_training(train(problem, masking="committee", noise=noise, tolerance=TOLERANCE, sites=3), problem)


@pytest.mark.long
@settings(max_examples=20)
@given(badly_conditioned(), st.sampled_from([0.0, 0.1]))
def test_any_badly_conditioned_problem(problem: Problem, noise: float) -> None:
    check_training(train(problem, masking="committee", noise=noise, tolerance=TOLERANCE, sites=3), problem)


@pytest.mark.long
def test_it_takes_few_rounds() -> None:
    problem = game(0.03, 10.0)
    found = train(problem, masking="committee", noise=0.1, sites=3)
    check_training(found, problem)
    assert found.federation.orders["blind_newton"] <= 30
    assert not found.federation.orders["newton"]


def test_each_number_that_certifies_has_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first objective is C n, which everybody knows: it is opened within the noise of two members."""
    read, opened = BlindSystem.read_sums, list[tuple[FloatArray, BlindSystem]]()

    def watched(system: BlindSystem, residues: FloatArray) -> tuple[FloatArray, FloatArray]:
        numbers, products = read(system, residues)
        opened.append((numbers, system))
        return numbers, products

    monkeypatch.setattr(BlindSystem, "read_sums", watched)
    train(random_problem(2), masking="committee", noise=0.1, sites=3)
    for _, system in opened:
        assert min(system.sums.noises[:3]) > 0
        assert min(system.sums.product_noise, system.dither, system.free_dither) > 0
    numbers, system = opened[0]
    known = system.sums.noises[0] / blind_path._NOISE
    assert 0 < abs(numbers[0] / known - 1) <= 2 * blind_path._NOISE


# Who dies, and what is used again.


class _Mortal(InProcessFederation):
    """A federation in which a site dies at one step of the protocol, the first time that it comes there."""

    victim: str | None = None

    def _attempt(self, step: str, params: Mapping[str, Any], take_part: Callable[[Any], Any] | None) -> dict[str, Any]:
        try:
            values = super()._attempt(step, params, take_part)
        except (Transient, RoundAborted):
            assert self.victim is not None
        else:
            if self.victim is None or self.victim not in self.sites:
                return values
        self.membership.change(0, "train", {str(self.victim): "it died"}, (), "a round")
        return super()._attempt(step, params, take_part)


_PHASES = [
    "draw_committee",
    "_shares_of_first",
    "_shares_of_second",
    "draw_mask",
    "mask_own",
    "mask_other",
    "open_sums_as_first",
    "open_sums_as_second",
    "_open",
    "_check_solution",
    "deal_masking",
    "deal_products",
]


@pytest.mark.parametrize("phase", _PHASES)
@pytest.mark.parametrize("ordered", [1, 3])
def test_a_member_that_dies_is_replaced_and_nothing_random_is_used_twice(
    phase: str, ordered: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The round is run again by the sites that are left, from the same points and with fresh randomness."""
    problem, real = random_problem(3), getattr(blind_system, phase)
    federations: list[_Mortal] = []

    class Watched(_Mortal):
        def __init__(self, *arguments: Any, **named: Any) -> None:
            super().__init__(*arguments, **named)
            federations.append(self)

    def deadly(channel: Any, *arguments: Any) -> Any:
        federation = federations[0]
        if federation.victim is None and federation.orders["blind_newton"] == ordered:
            federation.victim = channel.me
            raise SimulatedDeath
        return real(channel, *arguments)

    monkeypatch.setattr(blind_system, phase, deadly)
    found = train(problem, masking="committee", noise=0.1, sites=5, federation=Watched)
    (federation,) = federations
    assert federation.victim is not None
    assert federation.victim not in federation.sites
    held = np.arange(len(problem.labels)) % 5 != int(federation.victim.removeprefix("site-")) - 1
    check_training(found, part_of(problem, held))
    assert max(Counter(_drawn(federation)).values()) == 1
    assert max(Counter(_sent(federation)).values()) == 1


def _drawn(federation: InProcessFederation) -> list[bytes]:
    networks = [network for step, network in federation.networks if step == "blind_newton"]
    return [each.tobytes() for network in networks for arrays in network.drawn.values() for each in arrays]


def _sent(federation: InProcessFederation) -> list[bytes]:
    """Return every message of shares between two sites or to the coordinator, of all attempts."""
    networks = [network for step, network in federation.networks if step == "blind_newton"]
    told = [m for network in networks for m in network.sent if m.array.dtype == np.uint64 and m.sender != COORDINATOR]
    return [m.array.tobytes() for m in told if len(m.array) == 1 and m.array.size > 4]


@pytest.mark.parametrize("site", ["site-1", "site-3"])
def test_a_site_that_comes_back_is_told_the_path_and_the_next_step(site: str) -> None:
    problem = random_problem(3)
    losses = {("blind_newton", 4): Loss((site,), restarted=True)}
    found = train(problem, masking="committee", noise=0.1, sites=4, losses=losses)
    check_training(found, problem)
    assert found.federation.orders["share_path"] == 2


def test_a_round_costs_what_the_page_of_benchmarks_says() -> None:
    table = (ROOT / "docs" / "benchmarks.md").read_text().partition("## A round behind a committee")[2]
    for sites, m in itertools.product((5, 20), (100, 180, 300)):
        layout, one = Layout(m + 1, m), np.ones(1)
        order = BlindOrder(
            1, np.zeros(1, dtype=np.int64), one, one, one, np.ones((1, 5)), 1, np.ones((1, 3)), np.ones((1, 2))
        )
        masked = RING.cost(sites, (layout.length,), 1.0)
        blind = blind_system.blind_systems_cost(RING, sites, order.systems([layout]))
        cells = [sites, m, *(n for each in (masked, blind) for n in (each.payload_bytes, each.messages, each.hops))]
        assert f"| {' | '.join(f'{cell:,}' for cell in cells)} |" in table


# Over real processes.

BOARDS = [
    "data.source=tic-tac-toe",
    "data.positive=positive",
    "data.scale=none",
    "algorithm.landmarks=40",
    "algorithm.masking=committee",
    "algorithm.step_noise=0.1",
    "algorithm.tolerance=1e-4",
    "compare.centralised=false",
]


def test_two_members_recover_all_rows_and_the_summary_says_so(tmp_path: Path) -> None:
    """Of three sites, every two are members in every round."""
    colluding = 'collusion={sites=["site-2","site-3"],coordinator=true}'
    result = run(tmp_path / "run", [*BOARDS, "federation.sites=3", colluding], []).result
    assert result["error"] is None
    (audit,) = result["audit"]
    assert audit["recovered"] == audit["rows"] > 200
    assert not audit["false_claims"]
    stated = result["secrecy"]["whole_run"]
    assert stated.startswith("the coordinator and two of the three committee members can recover every row")


def test_a_site_is_told_what_the_step_opens() -> None:
    page = explained("committee")
    assert "blind_newton" not in page.kept
    assert any(each.startswith("In the step blind_newton the sites exchange messages") for each in page.beside)


@pytest.mark.long
def test_the_coordinator_with_one_site_has_no_system(tmp_path: Path) -> None:
    colluding = 'collusion={sites=["site-2"],coordinator=true}'
    result = run(tmp_path / "run", [*BOARDS, "federation.sites=3", colluding], []).result
    (audit,) = result["audit"]
    assert audit["recovered"] < audit["rows"]
    by_attack = {attack["attack"]: attack["recovered"] for attack in audit["attacks"]}
    assert not by_attack.get("Newton systems")
    assert "Newton steps" in by_attack


@pytest.mark.long
def test_sites_that_are_restarted_are_told_the_next_step(tmp_path: Path) -> None:
    faults = [kill(1, "train", 9), kill(3, "train", 9)]
    result = run(tmp_path / "run", [*BOARDS, "protocol.sum=masked"], faults).result
    assert result["error"] is None
    assert result["model"]["gap"] <= 1e-4
    assert len(result["model"]["sites"]) == 5


@pytest.mark.parametrize(
    ("name", "change", "says"),
    [
        ("hybrid-better", "algorithm.masking=committee", 'masking: "committee" needs variant = "joint" and solver'),
        ("committee", "algorithm.solver=auto", 'masking: "committee" needs solver = "interior-point"'),
    ],
)
def test_algorithms_and_solvers_without_a_committee_say_so(name: str, change: str, says: str) -> None:
    with pytest.raises(ScenarioError, match=says):
        spec.read(name, overrides=[change])
