"""Hybrid SVM: features that public rows fit, the minimiser over private rows, and runs that say what they promise."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import clarabel
import numpy as np
import pytest
from scipy import sparse
from scipy.optimize import check_grad
from sklearn.svm import LinearSVC

from algorithms.features.fourier import choose_frequencies, cosine_error, paired_error, paired_features, rbf
from algorithms.hybrid_svm import HybridSettings, minimised, public_weights, train
from algorithms.optimisation.cutting_plane import Stopping
from algorithms.optimisation.hinge_sums import HingeSums
from algorithms.privacy.mechanisms import PrivacyAccountant, PrivacyParameters
from federation.arrays import FloatArray
from federation.errors import FederationError
from federation.federation import Federation
from federation.site.partition import Partition
from scenarios.schema import spec
from tests.conftest import drill
from tests.test_runs import fedsvm, run

FREQUENCIES, SIGMA = 12, 2.0
SMALL = ["data.public=30", "algorithm.features=20", "compare.baselines=false"]


def table(rows: int, seed: int = 0) -> tuple[FloatArray, FloatArray]:
    random = np.random.default_rng(seed)
    points = random.normal(size=(rows, 4))
    return points, np.where(points[:, 0] + points[:, 1] ** 2 + 0.5 * random.normal(size=rows) > 1, 1.0, -1.0)


# Features.


def test_the_gradients_of_equation_6_are_right() -> None:
    random = np.random.default_rng(1)
    rows, offsets = table(15)[0], random.uniform(0, 6, 5)
    wanted, start = rbf(rows, SIGMA), random.normal(size=20)

    def of_paired(flat: FloatArray) -> tuple[float, FloatArray]:
        return paired_error(flat.reshape(5, 4), rows, wanted)

    def of_cosine(flat: FloatArray) -> tuple[float, FloatArray]:
        return cosine_error(flat.reshape(5, 4), rows, wanted, offsets)

    for error in (of_paired, of_cosine):
        slope = np.linalg.norm(error(start)[1])
        assert check_grad(lambda f, e=error: e(f)[0], lambda f, e=error: e(f)[1].ravel(), start) < 1e-5 * slope


def test_features_have_length_one_and_their_products_are_the_kernel_on_average() -> None:
    rows = table(30)[0]
    drawn = choose_frequencies(rows, 20_000, SIGMA, "random", np.random.default_rng(0))
    features = drawn.features(rows)
    np.testing.assert_allclose(np.linalg.norm(features, axis=1), 1.0, rtol=1e-12)
    np.testing.assert_allclose(features @ features.T, rbf(rows, SIGMA), atol=0.03)


def test_fitting_takes_the_error_down_by_orders_of_magnitude() -> None:
    public = np.random.default_rng(3).normal(size=(20, 14))
    fitted = choose_frequencies(public, 60, 4.0, "paired", np.random.default_rng(0))
    assert fitted.error <= fitted.error_as_drawn / 100
    of_paper = choose_frequencies(public, 60, 4.0, "paper", np.random.default_rng(0))
    assert fitted.error < of_paper.error, "the paper fits another map than the one it trains in"


# The minimiser.


def exact_objective(features: FloatArray, labels: FloatArray, price: float, prior: FloatArray) -> float:
    """min 1/2 |w - w0|^2 + C sum xi, by Clarabel on the whole problem."""
    rows, size = features.shape
    P = sparse.diags_array(np.concatenate([np.ones(size), np.zeros(rows)])).tocsc()
    q = np.concatenate([-prior, np.full(rows, price)])
    margins = sparse.hstack([sparse.csr_array(-labels[:, None] * features), -sparse.eye_array(rows)])
    positive = sparse.hstack([sparse.csr_array((rows, size)), -sparse.eye_array(rows)])
    A, b = sparse.vstack([margins, positive]).tocsc(), np.concatenate([-np.ones(rows), np.zeros(rows)])
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = 1e-11
    found = clarabel.DefaultSolver(P, q, A, b, [clarabel.NonnegativeConeT(len(b))], settings).solve()
    return float(found.obj_val + 0.5 * prior @ prior)


def loss(features: FloatArray, labels: FloatArray, price: float, w: FloatArray, prior: FloatArray) -> float:
    hinge = np.maximum(0.0, 1.0 - labels * (features @ w)).sum()
    return float(0.5 * (w - prior) @ (w - prior) + price * hinge)


@pytest.mark.parametrize("price", [0.001, 0.1, 10.0])
@pytest.mark.parametrize("with_prior", [False, True])
def test_the_minimiser_is_that_of_other_solvers(price: float, with_prior: bool) -> None:
    rows, labels = table(400)
    features = choose_frequencies(rows[:20], FREQUENCIES, SIGMA, "paired", np.random.default_rng(0)).features(rows)
    prior = np.random.default_rng(1).normal(size=24) if with_prior else np.zeros(24)
    sums = HingeSums.dealt(features, labels[None, :], 16, np.random.default_rng(0))
    found = minimised(sums, prior, price, Stopping(1e-11, 500))
    assert found.converged
    objective = loss(features, labels, price, prior + found.w, prior)
    assert objective == pytest.approx(found.objective, rel=1e-12)
    assert objective == pytest.approx(exact_objective(features, labels, price, prior), rel=1e-8)
    if not with_prior:
        other = LinearSVC(C=price, loss="hinge", fit_intercept=False, tol=1e-9, max_iter=2_000_000).fit(
            features, labels
        )
        assert objective == pytest.approx(loss(features, labels, price, other.coef_[0], prior), rel=1e-6)


def test_public_rows_choose_their_price_and_make_a_prior_that_predicts() -> None:
    rows, labels = table(300)
    frequencies = choose_frequencies(rows[:60], FREQUENCIES, SIGMA, "paired", np.random.default_rng(0))
    prior = public_weights(frequencies.features(rows[:60]), labels[:60], np.random.default_rng(0))
    right = np.sign(frequencies.features(rows[60:]) @ prior) == labels[60:]
    assert right.mean() > 0.75


# Over a federation.


def settings(promise: PrivacyParameters | None, **changes: Any) -> HybridSettings:
    given: dict[str, Any] = {
        "frequencies": FREQUENCIES,
        "sigma": SIGMA,
        "fit": "paired",
        "C": 20.0,
        "promise": promise,
        "sensitivity": "tight",
        "prior": "none",
        "variant": "cutting-plane",
        "groups": 8,
        "tolerance": 1e-11,
        "max_iterations": 300,
        "parts": 3,
        "seed": 1,
    }
    return HybridSettings(**given | changes)


def partitions(rows: FloatArray, labels: FloatArray, sites: int) -> list[Partition]:
    parts = np.array_split(np.arange(len(rows)), sites)
    return [
        Partition(
            {
                "numeric": rows[part],
                "codes": np.zeros((len(part), 0), dtype=np.int64),
                "labels": labels[None, part],
                "folds": np.full(len(part), -1),
            },
            {"categories": [], "numeric": ["a", "b", "c", "d"], "categorical": []},
        )
        for part in parts
    ]


def prepared(federation: Federation) -> None:
    federation.run("encode_known", remember=True, values=[], offset=np.zeros(4), scale=np.ones(4), fold=0)


@pytest.mark.parametrize("prior", ["none", "public"])
def test_without_noise_a_federation_finds_the_pooled_minimiser(prior: str) -> None:
    public, private = table(40, seed=5), table(600)
    with drill(3, program="hybrid-svm", partitions=partitions(*private, 3)) as federation:
        prepared(federation)
        model = train(federation, settings(None, prior=prior), public, lambda: 600, PrivacyAccountant())
    features = paired_features(private[0], model.frequencies.rho)
    assert model.solution is not None
    objective = loss(features, private[1], 20.0 / 600, model.weights, model.prior)
    assert objective == pytest.approx(exact_objective(features, private[1], 20.0 / 600, model.prior), rel=1e-6)
    assert model.noise is None


def test_a_one_shot_model_is_the_weighted_mean_of_the_sites_own_minimisers() -> None:
    public, private = table(40, seed=5), table(600)
    with drill(3, program="hybrid-svm", partitions=partitions(*private, 3)) as federation:
        prepared(federation)
        model = train(federation, settings(None, variant="one-shot"), public, lambda: 600, PrivacyAccountant())
        seen = {disclosure.step for disclosure in federation.disclosures if disclosure.to == "coordinator"}
    assert seen == {"own_part"}
    features = paired_features(private[0], model.frequencies.rho)
    parts = np.array_split(np.arange(600), 3)
    own = [
        minimised(
            HingeSums.dealt(features[part], private[1][None, part], 8, np.random.default_rng(0)),
            np.zeros(24),
            20.0 / len(part),
            Stopping(1e-11, 500),
        ).w
        for part in parts
    ]
    np.testing.assert_allclose(model.weights, np.mean(own, axis=0), atol=1e-5)


@pytest.mark.parametrize("mechanism", ["laplace", "gaussian", "spherical"])
@pytest.mark.parametrize("variant", ["cutting-plane", "one-shot"])
def test_what_is_released_is_the_model_with_noise_of_the_promised_size(mechanism: str, variant: str) -> None:
    public, private = table(40, seed=5), table(600)
    promise = PrivacyParameters(mechanism, 1.0, 1e-6 if mechanism == "gaussian" else 0.0)  # type: ignore[arg-type]
    with drill(3, program="hybrid-svm", partitions=partitions(*private, 3)) as federation:
        prepared(federation)
        exact = train(federation, settings(None, variant=variant), public, lambda: 600, PrivacyAccountant()).weights
        account, released = PrivacyAccountant(), []
        for _ in range(12):
            model = train(federation, settings(promise, variant=variant), public, lambda: 600, account)
            released.append(model.weights)
        steps = {disclosure.step for disclosure in federation.disclosures if disclosure.to == "coordinator"}
    assert model.noise is not None
    steps_of_lattice = np.array(released) / model.noise.step
    np.testing.assert_array_equal(steps_of_lattice, np.rint(steps_of_lattice))
    errors = np.array(released) - exact
    deviation = {
        "laplace": math.sqrt(2) * model.noise.scale,
        "gaussian": model.noise.scale,
        "spherical": model.noise.scale * math.sqrt(25),  # E|b|^2 / 24 = (24 + 24^2) scale^2 / 24
    }[mechanism]
    assert errors.std() == pytest.approx(deviation, rel=0.25)
    assert account.spent == pytest.approx((12.0, 12 * model.noise.delta))
    if variant == "one-shot" and mechanism != "spherical":
        assert "noisy_part" in steps
        assert account.releases[0].protects_against[1].startswith("the coordinator")
    else:
        assert account.releases[0].protects_against[1].startswith("not the coordinator")


def test_a_spent_budget_ends_it_before_private_rows_are_touched() -> None:
    public, private = table(40, seed=5), table(60)
    with drill(3, program="hybrid-svm", partitions=partitions(*private, 3)) as federation:
        prepared(federation)
        before = federation.progress.round
        with pytest.raises(FederationError, match="would exceed the budget of 1 and inf; nothing is released"):
            train(federation, settings(PrivacyParameters("laplace", 2.0)), public, lambda: 60, PrivacyAccountant(1.0))
        assert federation.progress.round == before


def test_a_delta_that_only_shares_add_is_in_the_budget_before_they_are_summed() -> None:
    public, private = table(40, seed=5), table(60)
    chosen = settings(PrivacyParameters("laplace", 1.0), variant="one-shot")
    with drill(3, program="hybrid-svm", partitions=partitions(*private, 3)) as federation:
        prepared(federation)
        with pytest.raises(FederationError, match="nothing is released"):
            train(federation, chosen, public, lambda: 60, PrivacyAccountant(delta=1e-12))
        assert "noisy_part" not in {record.step for record in federation.accounts.rounds.values()}


def test_nothing_is_released_when_training_falls_short_of_its_tolerance() -> None:
    public, private = table(40, seed=5), table(600)
    short = settings(PrivacyParameters("laplace", 1.0), max_iterations=1, C=1000.0)
    with drill(3, program="hybrid-svm", partitions=partitions(*private, 3)) as federation:
        prepared(federation)
        with pytest.raises(FederationError, match=r"did not reach the gap of 1e-11 .* nothing is released"):
            train(federation, short, public, lambda: 600, PrivacyAccountant())


def test_sites_that_are_lost_leave_noise_enough() -> None:
    """Shares for three of five: two die as they are asked for theirs, and the sum over the others is as noisy."""
    public, private = table(40, seed=5), table(600)
    faults = {
        site: [{"number": 0, "kind": "kill", "phase": "launch", "round": 4, "message": 1, "for_s": None}]
        for site in ("site-2", "site-4")
    }
    promise = PrivacyParameters("gaussian", 1.0, 1e-6)
    with drill(
        5, protocol="masked", program="hybrid-svm", partitions=partitions(*private, 5), faults=faults
    ) as federation:
        prepared(federation)
        chosen = settings(promise, variant="one-shot")
        model = train(federation, chosen, public, lambda: 600, PrivacyAccountant())
        assert federation.sites == ("site-1", "site-3", "site-5")
    assert model.noise is not None
    assert np.abs(model.weights).max() < 100 * model.noise.scale + 10.0


def test_a_site_that_is_started_again_trains_again_and_adds_its_part() -> None:
    public, private = table(40, seed=5), table(600)
    kill = {"number": 0, "kind": "kill", "phase": "launch", "round": 4, "message": 0, "for_s": None}
    chosen, held = settings(PrivacyParameters("gaussian", 1.0, 1e-6), variant="one-shot"), partitions(*private, 3)
    with drill(3, program="hybrid-svm", partitions=held, faults={"site-2": [kill]}, rejoin=True) as federation:
        prepared(federation)
        model = train(federation, chosen, public, lambda: 600, PrivacyAccountant())
        assert federation.sites == ("site-1", "site-2", "site-3")
        assert [change.joined for change in federation.membership.changes] == [("site-2",)]
    with drill(3, program="hybrid-svm", partitions=partitions(*private, 3)) as federation:
        prepared(federation)
        exact = train(federation, settings(None, variant="one-shot"), public, lambda: 600, PrivacyAccountant())
    assert model.noise is not None
    assert np.abs(model.weights - exact.weights).max() < 10 * model.noise.scale


# Runs.


def test_a_private_run_says_what_it_promises_and_hides_how_training_went(tmp_path: Path) -> None:
    finished = run("hybrid-stand-in", tmp_path / "run", *SMALL)
    result = finished.result
    privacy = result["privacy"]
    assert (privacy["epsilon"], privacy["delta"], privacy["mechanism"]) == (1.0, 1e-6, "gaussian")
    assert privacy["drawn_by"] == "the sites, in shares for 4 of them"
    assert privacy["protects_against"][1].startswith("the coordinator, and every site")
    assert {result["model"][name] for name in ("objective", "lower_bound", "gap", "iterations")} == {None}
    assert result["metrics"]["auc"] > 0.75
    to_coordinator = {each["step"] for each in result["disclosures"] if each["to"] == "coordinator"}
    assert to_coordinator == {"row_count", "noisy_part"}
    assert result["cost"]["wire_bytes"] == result["cost"]["predicted_wire_bytes"]
    model = np.load(finished.folder / "model.npz")
    assert (model["rho"].shape, model["w"].shape, float(model["b"])) == ((20, 13), (40,), 0.0)
    steps = model["w"] / privacy["lattice"]
    np.testing.assert_array_equal(steps, np.rint(steps))
    assert "gap" not in (finished.folder / "log.jsonl").read_text()


@pytest.mark.parametrize(
    ("changes", "others"),
    [
        (["protocol.sum=plain"], "not the coordinator, which saw what has no noise, or not all of it"),
        (["algorithm.variant=cutting-plane"], "not the coordinator and the sites, which saw it trained"),
    ],
)
def test_a_promise_does_not_reach_those_who_saw_more(changes: list[str], others: str, tmp_path: Path) -> None:
    """A plain sum shows each site's part with its own share of the noise alone."""
    result = run("hybrid-stand-in", tmp_path / "run", *SMALL, *changes, "data.test_fraction=0.9").result
    assert result["privacy"]["protects_against"] == ["everyone who gets the model", others]


def test_a_run_without_noise_promises_nothing_and_equals_the_pooled_minimiser(tmp_path: Path) -> None:
    open_run = ["algorithm.variant=cutting-plane", "algorithm.prior=none", "compare.centralised=true"]
    scenario = tmp_path / "open.toml"
    text = spec.catalogue_text("hybrid-stand-in").replace('mechanism = "gaussian"', 'mechanism = "none"')
    for line in ("delta = 1e-6", "epsilon = 1.0", "budget = 1.0"):
        text = text.replace(line, "")
    scenario.write_text(text)
    result = run(str(scenario), tmp_path / "run", *SMALL, *open_run, "data.test_fraction=0.95").result
    assert result["privacy"] is None
    assert result["model"]["gap"] <= 1e-11
    assert result["model"]["objective"] == pytest.approx(result["centralised"]["objective"], rel=1e-6)
    assert result["centralised"]["max_decision_difference"] < 1e-5


def test_baselines_stand_beside_the_model(tmp_path: Path) -> None:
    changes = ["data.public=30", "algorithm.features=20", "data.test_fraction=0.8"]
    result = run("hybrid-stand-in", tmp_path / "run", *changes).result
    assert set(result["baselines"]) == {"public_rows", "public", "private", "no_noise"}
    assert result["baselines"]["public_rows"] == 30


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (["algorithm.epsilon=0.0"], "algorithm.epsilon: 0.0 will not do; it must be above 0."),
        (["algorithm.intercept=true"], "algorithm: intercept = true cannot be had: nothing regularises it"),
        (["data.public=8"], "data.public: 8 public rows make 28 pairs, too few for algorithm.features = 60"),
        (
            ["data.test_fraction=0.0", "data.folds=5"],
            "algorithm.budget: 5 releases of 1 would spend 5 of a budget",
        ),
        (["algorithm.mechanism=laplace"], 'algorithm: delta is what mechanism = "gaussian" needs, and no other'),
        (["algorithm.mechanism=none"], "algorithm: epsilon and a mechanism go together; give both, or"),
        (["algorithm.kernel=poly"], 'algorithm: kernel must be "rbf" for hybrid-svm'),
        (["algorithm.gamma=0.5"], "algorithm.gamma: is no part of hybrid-svm; leave it out"),
        (["algorithm.sigma=median"], "algorithm.sigma: 'median' will not do; it must be a number"),
        (["algorithm.name=pan-svm"], "algorithm.sigma: is no part of pan-svm; leave it out"),
        (["data.public=30000"], "data.public: made-census has 30000 rows, and some must be private; lower it."),
    ],
)
def test_what_cannot_be_promised_is_refused_before_anything_starts(
    changes: list[str], sentence: str, tmp_path: Path
) -> None:
    words = [word for change in changes for word in ("--set", change)]
    done = fedsvm("run", "hybrid-stand-in", *words, "--out", tmp_path / "run", folder=tmp_path)
    assert done.returncode == 2
    assert sentence in done.stderr
    assert not (tmp_path / "run").exists()
