"""SVM by ADMM: Boyd's iteration to the last digits, residuals from sums, a true certificate, and whole runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedsvm import classifier
from fedsvm.algorithms.data.partition import site_partition
from fedsvm.algorithms.features.fourier import FourierMap
from fedsvm.algorithms.features.kernels import Kernel
from fedsvm.algorithms.features.nystrom import NystromMap
from fedsvm.algorithms.optimization import libsvm
from fedsvm.algorithms.optimization.barrier import Problem
from fedsvm.algorithms.optimization.local_path import solve_pooled
from fedsvm.algorithms.optimization.proximal_model import local_model
from fedsvm.algorithms.optimization.solution import StoppingRule
from fedsvm.algorithms.svm_admm import AdmmSettings, AdmmSite, Consensus, DualPoint, Residuals
from fedsvm.federation.arrays import FloatArray, IntArray
from fedsvm.protocols.sums.ring import RING
from fedsvm.scenarios.data import sources
from tests.commands import fedsvm
from tests.conftest import long_but_for
from tests.tasks import NAMES, table
from tests.test_runs import run

ROWS = table(90, seed=3)
MAP = FourierMap.draw(0.3, 12, len(NAMES), seed=1)
FEATURES = MAP(ROWS.rows)


def closest(features: FloatArray, labels: FloatArray, centre: FloatArray, rho: float) -> FloatArray:
    """The same as `local_model`, by the interior point, whose certificate says how exact it is."""
    rows = np.column_stack([features, np.ones(len(features))])
    (found,) = solve_pooled([Problem.of(rows, labels, 1 / rho, prior=centre, lever=0.0)], StoppingRule(1e-13, 200))
    return centre + found.w


@pytest.mark.parametrize("rho", [0.1, 1.0, 20.0])
def test_a_sites_model_minimises_its_loss_and_its_distance(rho: float) -> None:
    centre = np.random.default_rng(0).normal(size=FEATURES.shape[1] + 1)
    x, dual = local_model(FEATURES, ROWS.labels, centre, rho, np.zeros(len(FEATURES)))
    assert 0 <= dual.min() <= dual.max() <= 1
    np.testing.assert_allclose(x, closest(FEATURES, ROWS.labels, centre, rho), atol=1e-6)


@pytest.mark.parametrize("rho", [1e-4, 1e-2, 1.0, 1e4])
def test_a_sites_model_is_optimal_where_rows_repeat_and_scales_differ(rho: float) -> None:
    random = np.random.default_rng(1)
    half = random.normal(size=(150, 40)) * np.logspace(0, -4, 40)
    features, centre = np.vstack([half, half]), random.normal(size=41)
    labels = np.where(features[:, 0] + random.normal(size=300) / 2 > 0, 1.0, -1.0)
    x, dual = local_model(features, labels, centre, rho, np.zeros(300))
    rows = labels[:, None] * np.column_stack([features, np.ones(300)])
    loss, away, sent = np.maximum(0.0, 1.0 - rows @ x).sum(), x - centre, dual @ rows
    objective = loss + rho / 2 * (away @ away)
    bound = dual @ (1.0 - rows @ centre) - sent @ sent / (2 * rho)
    assert objective - bound <= 1e-6 * objective


@pytest.mark.parametrize(
    ("size", "rho", "lever"), [(300, 1e-6, 1.0), (3000, 1e-3, 1.0), (300, 1e-8, 1.0), (300, 1.0, 3000.0)]
)
def test_a_sites_model_is_optimal_from_no_model_with_a_small_penalty(size: int, rho: float, lever: float) -> None:
    random = np.random.default_rng(0)
    features = random.normal(size=(size, 10))
    labels = np.where(features @ random.normal(size=10) + random.normal(size=size) > 0, 1.0, -1.0)
    x, dual = local_model(features, labels, np.zeros(11), rho, np.zeros(size), lever)
    rows = labels[:, None] * np.column_stack([features, np.full(size, lever)])
    sent = dual @ rows
    objective = np.maximum(0.0, 1.0 - rows @ x).sum() + rho / 2 * (x @ x)
    assert objective - (dual.sum() - sent @ sent / (2 * rho)) <= 1e-6 * objective


def test_a_site_without_rows_stays_with_the_consensus() -> None:
    centre = np.arange(13.0)
    x, dual = local_model(np.zeros((0, 12)), np.zeros(0), centre, 1.0, np.zeros(0))
    assert (x == centre).all()
    assert dual.shape == (0,)


@dataclass
class Boyd:
    """linear_svm.m as printed, over parts of the rows: what all x_i together say."""

    settings: AdmmSettings
    parts: Sequence[tuple[FloatArray, FloatArray]]

    def iterations(self) -> Iterator[tuple[FloatArray, Residuals]]:
        """z (d,) and the residuals, iteration by iteration."""
        settings, sites, d = self.settings, len(self.parts), self.parts[0][0].shape[1] + 1
        rho, alpha = settings.rho, settings.relaxation
        z, u = np.zeros(d), np.zeros((sites, d))
        factor = np.full(d, sites * rho / (1 / settings.C + sites * rho))
        if settings.bias == "free":
            factor[-1] = 1.0
        while True:
            before = z
            x = np.stack([closest(*part, z - mine, rho) for part, mine in zip(self.parts, u, strict=True)])
            relaxed = alpha * x + (1 - alpha) * before
            z = factor * (relaxed + u).mean(axis=0)
            u = u + relaxed - z
            least = np.sqrt(d) * settings.absolute_tolerance
            lengths = max(np.linalg.norm(x), np.sqrt(sites) * np.linalg.norm(z))
            numbers = (
                np.linalg.norm(x - z),
                rho * np.sqrt(sites) * np.linalg.norm(z - before),
                least + settings.relative_tolerance * lengths,
                least + settings.relative_tolerance * rho * np.linalg.norm(u),
            )
            yield z, Residuals(*(np.array([float(number)]) for number in numbers))


class Sites:
    """Sites of the algorithm in this process, and the coordinator's consensus of their sums."""

    def __init__(self, settings: AdmmSettings, parts: Sequence[tuple[FloatArray, FloatArray]]) -> None:
        self.settings = settings
        self.sites = []
        for number, (features, labels) in enumerate(parts):
            site = AdmmSite(f"site-{number}", site_partition(features, labels, names=NAMES), {"seed": 0})
            site.mapped.place(features)
            self.sites.append(site)
        squares, rows = np.sum([site.mapped.squared_norms() for site in self.sites], axis=0)
        width = parts[0][0].shape[1]
        self.consensus = Consensus(settings, len(parts), np.sqrt(rows * (squares + rows)), np.zeros((1, width + 1)))
        self.iteration = 0

    def iterate(self) -> Residuals:
        """One iteration, without a federation: the sum is exact."""
        self.iteration += 1
        z, reach = self.consensus.z, self.consensus.reach
        order = (self.iteration, z[:, :-1], z[:, -1], self.settings.rho, self.settings.relaxation, reach)
        values = [site.consensus(*order, fresh=self.iteration == 1) for site in self.sites]
        again = [site.consensus(*order, fresh=self.iteration == 1) for site in self.sites]
        np.testing.assert_array_equal(values, again)  # a round that is run again comes to the same
        total = np.sum(values, axis=0)
        assert np.abs(values).sum(axis=0).max() <= 1.0  # as the sum's bound says
        width = z.shape[1]
        return self.consensus.take(np.hstack([total[:, :width] * reach, total[:, width:] * reach**2]))


@pytest.mark.parametrize("bias", ["regularised", "free"])
@pytest.mark.parametrize(("sites", "relaxation"), [(1, 1.0), (3, 1.0), (3, 1.6), (3, 0.7)])
def test_iterates_and_residuals_are_those_of_boyds_code(sites: int, relaxation: float, bias: str) -> None:
    """The code knows every x_i; the coordinator, d + 2 numbers that are sums over the sites."""
    settings = AdmmSettings(C=2.0, bias=bias, relaxation=relaxation)  # type: ignore[arg-type]
    dealt = np.array_split(np.arange(len(FEATURES)), sites)
    parts = [(FEATURES[part], ROWS.labels[part]) for part in dealt]
    ours, known = Sites(settings, parts), Boyd(settings, parts).iterations()
    for _ in range(12):
        residuals = ours.iterate()
        z, expected = next(known)
        np.testing.assert_allclose(ours.consensus.z[0], z, atol=1e-6)
        for name, value in vars(expected).items():
            np.testing.assert_allclose(getattr(residuals, name), value, atol=1e-5)


@pytest.mark.long
def test_with_a_free_intercept_it_comes_to_libsvms_optimum() -> None:
    settings = AdmmSettings(C=2.0, relative_tolerance=1e-7, absolute_tolerance=1e-8)
    dealt = np.array_split(np.arange(len(FEATURES)), 3)
    ours = Sites(settings, [(FEATURES[part], ROWS.labels[part]) for part in dealt])
    while not ours.iterate().converged and ours.iteration < 2000:
        pass
    (z,) = ours.consensus.z
    svm = libsvm.linear(FEATURES, ROWS.labels, 2.0)
    sums = np.sum([site.dual_sums(z[None, :-1], z[None, -1], np.ones(2)) for site in ours.sites], axis=0)
    theta = DualPoint.theta(sums[:, 1:])
    vectors = np.sum([site.dual_vector(theta, 1.0) for site in ours.sites], axis=0)
    ((objective,), (lower_bound,)) = DualPoint(sums[:, 0], sums[:, 1:], vectors).certify(z[None, :-1], 2.0)
    optimum = libsvm.objective(svm, FEATURES, ROWS.labels, 2.0)
    assert lower_bound <= optimum * (1 + 1e-6)
    assert objective == pytest.approx(optimum, rel=1e-5)
    assert lower_bound == pytest.approx(optimum, rel=1e-3)


# Whole runs.


@pytest.mark.parametrize("bias", [pytest.param("regularised", marks=pytest.mark.long), "free"])
def test_a_scenario_is_certified_against_the_problem_of_libsvm(bias: str, tmp_path: Path) -> None:
    result = run("svm-admm", tmp_path / "run", f"algorithm.bias={bias}").result
    model, cost, optimum = result["model"], result["cost"], result["centralised"]["objective"]
    assert model["lower_bound"] <= optimum * (1 + 1e-6)
    assert optimum * (1 - 1e-6) <= model["objective"] < 1.05 * optimum
    assert model["converged"]
    assert (model["figures"]["restarts"], model["figures"]["rank"] > 50) == (0, True)
    assert cost["by_phase"]["train"]["rounds"] == model["iterations"] + 3
    assert cost["wire_bytes"] == cost["predicted_wire_bytes"]
    rank = model["figures"]["rank"]
    sums = [(each["step"], each["shape"], each["times"]) for each in result["disclosures"] if each["kind"] == "sum"]
    assert sums[-4:] == [
        ("squared_norms", [2], 1),
        ("consensus", [1, rank + 3], model["iterations"]),
        ("dual_sums", [1, 3], 1),
        ("dual_vector", [1, rank], 1),
    ]
    paid = RING.cost(5, (2,), np.inf).payload_bytes
    paid += sum(RING.cost(5, shape, 1.0).payload_bytes for shape in [(1, 3), (1, rank)])
    paid += model["iterations"] * RING.cost(5, (1, rank + 3), 1.0).payload_bytes
    assert cost["by_phase"]["train"]["payload_bytes"] == paid


@pytest.mark.long
def test_pan_svm_takes_fewer_rounds_to_a_smaller_gap(tmp_path: Path) -> None:
    """And more bytes: a round of it carries Newton's system."""
    admm, pan = (run("svm-admm", tmp_path / name, f"algorithm.name={name}").result for name in ("svm-admm", "pan-svm"))
    assert pan["cost"]["rounds"] < 0.5 * admm["cost"]["rounds"]
    assert pan["model"]["gap"] < 1e-4 < admm["model"]["gap"]
    assert admm["cost"]["payload_bytes"] < pan["cost"]["payload_bytes"]


SMALL = ["data.source=wine", "data.positive=class_0", "data.split=random", "algorithm.landmarks=20"]


def check_certificate(result: dict[str, Any]) -> None:
    """The gap is to LIBSVM's optimum over the rows of the sites that were there in the end."""
    optimum = result["centralised"]["objective"]
    assert result["model"]["lower_bound"] <= optimum * (1 + 1e-6)
    assert optimum * (1 - 1e-6) <= result["model"]["objective"] < 1.05 * optimum


@pytest.mark.parametrize(
    ("phase", "number"),
    [
        ("train", 7),
        *(pytest.param(*place, marks=pytest.mark.long) for place in (("setup", 2), ("landmarks", 3), ("train", 1))),
    ],
)
@pytest.mark.parametrize("protocol", long_but_for(["ring", "masked"], "masked"))
def test_a_site_that_drops_takes_its_multipliers_along(phase: str, number: int, protocol: str, tmp_path: Path) -> None:
    kill = f"faults=[{{kind='kill',site=2,phase='{phase}',round={number}}}]"
    result = run("svm-admm", tmp_path / "run", *SMALL, f"protocol.sum={protocol}", kill).result
    assert result["model"]["sites"] == ["site-1", "site-3", "site-4", "site-5"]
    assert result["model"]["figures"]["restarts"] == int((phase, number) == ("train", 7))
    check_certificate(result)


def test_a_site_that_comes_back_goes_on_with_the_others(tmp_path: Path) -> None:
    kill = "faults=[{kind='kill',site=2,phase='train',round=7,rejoin=true}]"
    result = run("svm-admm", tmp_path / "run", *SMALL, kill).result
    assert len(result["model"]["sites"]) == 5
    assert result["model"]["figures"]["restarts"] == 1
    check_certificate(result)


def test_bad_settings_are_sentences(tmp_path: Path) -> None:
    done = fedsvm("run", "svm-admm", "--set", "algorithm.relaxation=2", folder=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert "algorithm.relaxation: must be a number above 0 and below 2, got 2." in done.stderr
    done = fedsvm("run", "svm-admm", "--set", "algorithm.features=identity", folder=tmp_path)
    assert 'must be "linear" with features = "identity"' in done.stderr


def test_the_estimator_is_the_runs_model() -> None:
    rows, labels = table(120, seed=1)
    model = classifier("svm-admm")(C=2.0, landmarks=20, kernel="rbf", gamma=0.3).fit(rows, labels)
    assert model.n_iter_ == model.result_["model"]["iterations"] > 5
    assert 0 < model.gap_ < 0.1
    assert model.score(rows, labels) > 0.8


# What the certificate gives away.


def test_candidates_at_the_margin_are_told_where_they_are_fewer_than_features(tmp_path: Path) -> None:
    """Of wine's 142 training rows, in 200 Fourier features, by a coordinator that has the list of 178."""
    listed = "collusion={sites=[], coordinator=true, candidates='source'}"
    wine = ["data.source=wine", "data.positive=class_0", "data.split=random"]
    fourier = "algorithm={name='svm-admm', C=1.0, features='fourier', frequencies=100, gamma=0.05}"
    (audit,) = run("svm-admm", tmp_path / "run", *wine, fourier, listed).result["audit"]
    (found,) = [each for each in audit["attacks"] if each["attack"] == "dual points"]
    assert found["recovered"] > 20
    assert audit["false_claims"] == 0


# The papers' figures.


def rounds_of(parts: Sequence[IntArray], features: FloatArray, labels: FloatArray) -> int:
    """Iterations to Boyd's stop, with his numbers, over parts of the rows."""
    settings = AdmmSettings(C=8.0, bias="regularised")
    ours = Sites(settings, [(features[part], labels[part]) for part in parts])
    while not ours.iterate().converged:
        pass
    return ours.iteration


@pytest.mark.long
def test_sites_that_differ_and_more_sites_take_more_rounds(data_folder: Path) -> None:
    """Fourclass, 240 landmarks, C = gamma = 8."""
    columns = sources.read_columns("fourclass", Path())
    rows = np.column_stack([columns["f1"], columns["f2"]]).astype(float)
    rows = 2 * (rows - rows.min(axis=0)) / np.ptp(rows, axis=0) - 1
    labels = np.where(columns["label"].astype(float) > 0, 1.0, -1.0)
    shuffled = np.random.default_rng(0).permutation(len(rows))
    features = NystromMap.span(Kernel("rbf", gamma=8.0), rows[shuffled[:240]], 1e-10)(rows)
    by_feature = np.argsort(rows[:, 0], kind="stable")
    taken = {
        sites: [rounds_of(np.array_split(order, sites), features, labels) for order in (shuffled, by_feature)]
        for sites in (5, 10, 20)
    }
    expected = {5: [60, 96], 10: [92, 131], 20: [124, 146]}  # dealt at random, by feature
    for sites, rounds in taken.items():
        np.testing.assert_allclose(rounds, expected[sites], atol=2)
