"""ADMM among neighbors of a ring: the printed iteration, a certified model, and a policy that refuses the exchange."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedsvm.algorithms.data.partition import site_partition
from fedsvm.algorithms.features.identity import IdentityMap
from fedsvm.algorithms.optimization import libsvm
from fedsvm.algorithms.optimization.barrier import Problem
from fedsvm.algorithms.optimization.local_path import solve_pooled
from fedsvm.algorithms.optimization.solution import StoppingRule
from fedsvm.algorithms.svm_admm import AdmmSite
from fedsvm.federation.arrays import FloatArray
from tests.commands import fedsvm
from tests.in_process import InProcessFederation
from tests.tasks import NAMES, table
from tests.test_runs import run

PARTS = [table(rows, seed=rows) for rows in (20, 25, 30, 22)]
C, ETA = 0.7, 0.4


def federation() -> InProcessFederation:
    """Four sites with rows in their columns, which are the features."""
    sites = {}
    for number, part in enumerate(PARTS):
        site = AdmmSite(f"site-{number}", site_partition(part.rows, part.labels, names=NAMES), {"seed": 0})
        site.mapped.place(IdentityMap(len(NAMES))(part.rows))
        sites[site.site] = site
    return InProcessFederation(sites)


def printed(iterations: int, *, free: bool) -> FloatArray:
    """The models (4, d) of Forero's proposition 2, each site's problem solved by an interior point."""
    sites, d = len(PARTS), len(NAMES) + 1
    v, a = np.zeros((sites, d)), np.zeros((sites, d))
    curvature = np.full(d, 1 + 4 * ETA)
    curvature[-1] -= free
    units = np.sqrt(curvature[0] / curvature)
    around = np.array([np.roll(np.arange(sites), 1), np.roll(np.arange(sites), -1)]).T
    for _ in range(iterations):
        f = 2 * a - ETA * (2 * v + v[around].sum(axis=1))
        found = []
        for j, part in enumerate(PARTS):
            rows = np.column_stack([part.rows, np.ones(len(part.rows))]) * units
            centre = -f[j] / curvature / units
            found.append(units * minimize(rows, part.labels, centre, curvature[0] / (sites * C)))
        v = np.array(found)
        a = a + ETA / 2 * (2 * v - v[around].sum(axis=1))
    return v


def minimize(rows: FloatArray, labels: FloatArray, centre: FloatArray, rho: float) -> FloatArray:
    """The minimizer of the loss of rows (n, d) and rho / 2 times the squared distance from a center (d,)."""
    problem = Problem.of(rows, labels, 1 / rho, prior=centre, lever=0.0)
    (found,) = solve_pooled([problem], StoppingRule(1e-13, 200))
    return centre + found.w


def models(carried_out: InProcessFederation, iterations: int, bias: str) -> FloatArray:
    """The sites' models (4, d) after some iterations, each of which a failed round repeats."""
    for iteration in range(1, iterations + 1):
        for _ in range(2):
            carried_out.run("exchange_models", iteration=iteration, C=C, rho=ETA, bias=bias, fresh=iteration == 1)
    found = carried_out.gather("neighbor_model", shape=(len(NAMES) + 1,))
    return np.array([found[site] for site in carried_out.sites])


@pytest.mark.parametrize("bias", ["free", "regularised"])
def test_sites_carry_out_the_printed_iteration(bias: str) -> None:
    carried_out = federation()
    found = models(carried_out, 4, bias)
    np.testing.assert_allclose(found, printed(4, free=bias == "free"), atol=2e-5)
    distance, length, _ = carried_out.sum("neighbor_residuals", shape=(3,), bound=np.inf)
    both = found - np.roll(found, 1, axis=0)
    np.testing.assert_allclose([distance, length], [2 * (both**2).sum(), (found**2).sum()], rtol=1e-5)


def test_neighbors_agree_on_the_svm_of_all_rows() -> None:
    found = models(federation(), 400, "free")
    rows, labels = (np.concatenate([getattr(part, name) for part in PARTS]) for name in ("rows", "labels"))
    pooled = libsvm.linear(rows, labels, C)
    expected = np.append(pooled.coef_[0], pooled.intercept_[0])
    np.testing.assert_allclose(found, np.tile(expected, (4, 1)), atol=0.02 * float(np.linalg.norm(expected)))


SMALL = ["data.source=wine", "data.positive=class_0", "data.split=random", "algorithm.landmarks=20"]


@pytest.fixture(scope="module")
def ring(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The result of a run over a ring."""
    return run("svm-admm", tmp_path_factory.mktemp("ring") / "run", *SMALL, "algorithm.topology=ring").result


def test_a_run_over_a_ring_is_certified_and_says_what_neighbors_learn(ring: dict[str, Any]) -> None:
    model, cost, optimum = ring["model"], ring["cost"], ring["centralised"]["objective"]
    assert model["converged"]
    assert model["lower_bound"] <= optimum * (1 + 1e-6)
    assert optimum * (1 - 1e-6) <= model["objective"] < 1.05 * optimum
    assert cost["by_phase"]["train"]["rounds"] == 2 * model["iterations"] + 4
    assert cost["wire_bytes"] == cost["predicted_wire_bytes"]
    (shown,) = [each for each in ring["disclosures"] if each["step"] == "exchange_models"]
    assert (shown["to"], shown["times"]) == ("sites", model["iterations"])
    assert "in the clear" in shown["detail"]
    assert not [each for each in ring["disclosures"] if each["step"] == "consensus"]


def test_a_policy_refuses_the_exchange_with_neighbors(tmp_path: Path) -> None:
    rule = 'policy=[{site = 2, algorithms = {svm-admm = {topology = ["star"]}}}]'
    done = fedsvm("run", "svm-admm", "--set", "algorithm.topology=ring", "--set", rule, folder=tmp_path)
    assert done.returncode != 0
    assert "topology" in done.stderr
