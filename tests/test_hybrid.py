"""Hybrid SVM: features that public rows fit, the minimiser over private rows, and runs that say what they promise."""

from __future__ import annotations

import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import clarabel
import numpy as np
import pytest
from scipy import sparse
from scipy.optimize import check_grad
from sklearn.svm import LinearSVC

from fedsvm.algorithms.features.fourier import choose_frequencies, cosine_error, paired_error, printed_error, rbf
from fedsvm.algorithms.hybrid_svm.algorithm import HybridSite, HybridSvm
from fedsvm.algorithms.hybrid_svm.minimizer import minimize, public_weights
from fedsvm.algorithms.hybrid_svm.release import ModelRelease
from fedsvm.algorithms.hybrid_svm.settings import HybridSettings
from fedsvm.algorithms.hybrid_svm.training import train
from fedsvm.algorithms.optimization.solution import StoppingRule
from fedsvm.algorithms.privacy.accountant import PrivacyAccountant
from fedsvm.federation.arrays import FloatArray
from fedsvm.federation.errors import FederationError, StepRefused
from fedsvm.scenarios.schema import spec
from tests.commands import fedsvm
from tests.conftest import drill, long_but_for
from tests.run_results import simulate
from tests.tasks import partitions, public_task, table
from tests.test_runs import run
from tests.test_secrecy import cards

FREQUENCIES, SIGMA = 12, 2.0
SMALL = ["data.public=30", "algorithm.features=20", "compare.baselines=false"]


# Features.


def test_new_frequencies_forget_the_models_of_the_last_ones() -> None:
    site = SimpleNamespace(check_agreed=lambda **agreed: None, channel=SimpleNamespace(sites=("a",)), site="a")
    release = ModelRelease(site, SimpleNamespace())  # type: ignore[arg-type]
    release.take(np.ones(3))
    release.take_whole(np.ones(3))
    assert release.own_part(joint=False).size == release.own_part(joint=True).size == 3
    release.begin(b"key")
    assert release.own_part(joint=False).size == 0
    with pytest.raises(StepRefused):
        release.own_part(joint=True)


def test_the_gradients_of_equation_6_are_right() -> None:
    random = np.random.default_rng(1)
    rows, offsets = table(15).rows, random.uniform(0, 6, 5)
    wanted, start = rbf(rows, SIGMA), random.normal(size=20)

    def of_paired(flat: FloatArray) -> tuple[float, FloatArray]:
        return paired_error(flat.reshape(5, 4), rows, wanted)

    def of_cosine(flat: FloatArray) -> tuple[float, FloatArray]:
        return cosine_error(flat.reshape(5, 4), rows, wanted, offsets)

    def of_printed(flat: FloatArray) -> tuple[float, FloatArray]:
        return printed_error(flat.reshape(5, 4), rows, wanted, offsets)

    for error in (of_paired, of_cosine, of_printed):
        slope = np.linalg.norm(error(start)[1])
        assert check_grad(lambda f, e=error: e(f)[0], lambda f, e=error: e(f)[1].ravel(), start) < 1e-5 * slope


def test_features_have_length_one_and_their_products_are_the_kernel_on_average() -> None:
    rows = table(30).rows
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


def test_the_printed_fit_lowers_the_printed_error() -> None:
    public, random = np.random.default_rng(3).normal(size=(20, 14)), np.random.default_rng(0)
    drawn = random.normal(0.0, math.sqrt(2.0) / 4.0, (10, 14))
    offsets = random.uniform(0.0, 2 * math.pi, 10)
    fitted = choose_frequencies(public, 10, 4.0, "printed", np.random.default_rng(0))
    before, after = (printed_error(rho, public, rbf(public, 4.0), offsets)[0] for rho in (drawn, fitted.rho))
    assert after < 0.9 * before


# The minimiser.


def exact_objective(features: FloatArray, labels: FloatArray, C: float, prior: FloatArray) -> float:
    """min 1/2 |w - w0|^2 + C sum xi, by Clarabel on the whole problem."""
    rows, size = features.shape
    P = sparse.diags_array(np.concatenate([np.ones(size), np.zeros(rows)])).tocsc()
    q = np.concatenate([-prior, np.full(rows, C)])
    margins = sparse.hstack([sparse.csr_array(-labels[:, None] * features), -sparse.eye_array(rows)])
    positive = sparse.hstack([sparse.csr_array((rows, size)), -sparse.eye_array(rows)])
    A, b = sparse.vstack([margins, positive]).tocsc(), np.concatenate([-np.ones(rows), np.zeros(rows)])
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = 1e-11
    found = clarabel.DefaultSolver(P, q, A, b, [clarabel.NonnegativeConeT(len(b))], settings).solve()
    return float(found.obj_val + 0.5 * prior @ prior)


def loss(features: FloatArray, labels: FloatArray, C: float, w: FloatArray, prior: FloatArray) -> float:
    hinge = np.maximum(0.0, 1.0 - labels * (features @ w)).sum()
    return float(0.5 * (w - prior) @ (w - prior) + C * hinge)


@pytest.mark.parametrize("C", [0.001, 0.1, 10.0])
@pytest.mark.parametrize("with_prior", [False, True])
def test_the_minimiser_is_that_of_other_solvers(C: float, with_prior: bool) -> None:
    rows, labels = table(400)
    features = choose_frequencies(rows[:20], FREQUENCIES, SIGMA, "paired", np.random.default_rng(0)).features(rows)
    prior = np.random.default_rng(1).normal(size=24) if with_prior else np.zeros(24)
    found = minimize(features, labels, prior, C, StoppingRule(1e-11, 500))
    assert found.converged
    objective = loss(features, labels, C, prior + found.w, prior)
    assert objective == pytest.approx(found.objective, rel=1e-12)
    assert objective == pytest.approx(exact_objective(features, labels, C, prior), rel=1e-8)
    if not with_prior:
        other = LinearSVC(C=C, loss="hinge", fit_intercept=False, tol=1e-9, max_iter=2_000_000).fit(features, labels)
        assert objective == pytest.approx(loss(features, labels, C, other.coef_[0], prior), rel=1e-6)


def test_public_rows_choose_their_penalty_and_make_a_prior_that_predicts() -> None:
    rows, labels = table(300)
    frequencies = choose_frequencies(rows[:60], FREQUENCIES, SIGMA, "paired", np.random.default_rng(0))
    prior = public_weights(frequencies.features(rows[:60]), labels[:60], np.random.default_rng(0))
    right = np.sign(frequencies.features(rows[60:]) @ prior) == labels[60:]
    assert right.mean() > 0.75


# Over a federation.


def settings(**changes: Any) -> HybridSettings:
    """Settings without noise, but for `changes`."""
    given: dict[str, Any] = {
        "features": FREQUENCIES,
        "sigma": SIGMA,
        "fit_to": "paired",
        "C": 20.0,
        "mechanism": "none",
        "sensitivity": "tight",
        "prior": "none",
        "variant": "joint",
        "cut_groups": 8,
        "tolerance": 1e-11,
        "max_iterations": 300,
        "masking": "congruence",
    }
    return HybridSettings(**given | changes)


GAUSSIAN = {"mechanism": "gaussian", "epsilon": 1.0, "delta": 1e-6}


@pytest.mark.parametrize("prior", ["none", "public"])
def test_without_noise_a_federation_finds_the_pooled_minimiser(prior: str) -> None:
    task, private = public_task(table(40, seed=5)), table(600)
    with drill(3, program="hybrid-svm", partitions=partitions(private, 3)) as federation:
        task.prepare(federation)
        model = train(federation, settings(prior=prior), task)
    features = model.features(private.rows)
    assert model.training is not None
    objective = loss(features, private.labels, 20.0 / 600, model.weights, model.prior)
    assert objective == pytest.approx(model.training.objective, rel=1e-12)
    assert objective == pytest.approx(exact_objective(features, private.labels, 20.0 / 600, model.prior), rel=1e-6)
    assert model.noise is None
    assert task.accountant.releases == []


def test_a_one_shot_model_is_the_weighted_mean_of_the_sites_own_minimisers() -> None:
    task, private = public_task(table(40, seed=5)), table(600)
    with drill(3, program="hybrid-svm", partitions=partitions(private, 3)) as federation:
        task.prepare(federation)
        model = train(federation, settings(variant="one-shot"), task)
        seen = {disclosure.step for disclosure in federation.disclosures if disclosure.to == "coordinator"}
    assert seen == {"row_count", "own_part"}
    features = model.features(private.rows)
    parts = np.array_split(np.arange(600), 3)
    own = [
        minimize(features[part], private.labels[part], np.zeros(24), 20.0 / len(part), StoppingRule(1e-11, 500)).w
        for part in parts
    ]
    np.testing.assert_allclose(model.weights, np.mean(own, axis=0), atol=1e-5)


@pytest.mark.parametrize("mechanism", long_but_for(["laplace", "gaussian", "spherical"], "laplace"))
@pytest.mark.parametrize("variant", ["joint", "one-shot"])
def test_what_is_released_is_the_model_with_noise_of_the_promised_size(mechanism: str, variant: str) -> None:
    task, private = public_task(table(40, seed=5)), table(600)
    noisy = settings(mechanism=mechanism, delta=1e-6 if mechanism == "gaussian" else None, variant=variant)
    with drill(3, program="hybrid-svm", partitions=partitions(private, 3)) as federation:
        task.prepare(federation)
        exact = train(federation, settings(variant=variant), task).weights
        released = []
        for _ in range(12):
            model = train(federation, noisy, task)
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
    assert task.accountant.spent == pytest.approx((12.0, 12 * model.noise.delta))
    others = task.accountant.releases[0].protects_against[1]
    assert ("noisy_part" in steps) == (mechanism != "spherical")
    if variant == "joint":
        assert others.startswith("not the sites")
    else:
        assert others.startswith("the coordinator" if mechanism != "spherical" else "not the coordinator")


def test_a_spent_budget_ends_it_before_private_rows_are_touched() -> None:
    task, private = public_task(table(40, seed=5), PrivacyAccountant(1.0)), table(60)
    with drill(3, program="hybrid-svm", partitions=partitions(private, 3)) as federation:
        task.prepare(federation)
        before = federation.progress.round
        with pytest.raises(FederationError, match="would exceed the budget of 1 and inf; nothing is released"):
            train(federation, settings(mechanism="laplace", epsilon=2.0), task)
        assert federation.progress.round == before


def test_a_delta_that_only_shares_add_is_in_the_budget_before_they_are_summed() -> None:
    task, private = public_task(table(40, seed=5), PrivacyAccountant(delta=1e-12)), table(60)
    with drill(3, program="hybrid-svm", partitions=partitions(private, 3)) as federation:
        task.prepare(federation)
        with pytest.raises(FederationError, match="nothing is released"):
            train(federation, settings(mechanism="laplace", variant="one-shot"), task)
        steps = {record.step for record in federation.accounts.rounds.values()}
        assert "train_alone" in steps
        assert "noisy_part" not in steps


def test_nothing_is_released_when_training_falls_short_of_its_tolerance() -> None:
    task, private = public_task(table(40, seed=5)), table(600)
    with drill(3, program="hybrid-svm", partitions=partitions(private, 3)) as federation:
        task.prepare(federation)
        with pytest.raises(FederationError, match=r"did not reach the gap of 1e-11 .* nothing is released"):
            train(federation, settings(mechanism="laplace", max_iterations=1, C=1000.0), task)
    assert task.accountant.releases == []


def test_training_that_stands_still_behind_a_committee_goes_on() -> None:
    task, private = public_task(table(40, seed=5)), table(600)
    much = settings(mechanism="laplace", max_iterations=50, C=20000.0, masking="committee", step_noise=0.95)
    with drill(3, program="hybrid-svm", partitions=partitions(private, 3)) as federation:
        task.prepare(federation)
        with pytest.raises(FederationError, match="in 50 iterations; nothing is released"):
            train(federation, much, task)


def killed_as_the_parts_are_summed(message: int) -> dict[str, Any]:
    """A kill in the fourth round of training, after the count of rows, the frequencies and the sites' own training."""
    return {"number": 0, "kind": "kill", "phase": "train", "round": 4, "message": message, "for_s": None}


def test_sites_that_are_lost_leave_noise_enough() -> None:
    """Shares for three of five: two die as they are asked for theirs, and the sum over the others is as noisy."""
    task, held = public_task(table(40, seed=5)), partitions(table(600), 5)
    faults = {site: [killed_as_the_parts_are_summed(message=1)] for site in ("site-2", "site-4")}
    with drill(5, protocol="masked", program="hybrid-svm", partitions=held, faults=faults) as federation:
        model = HybridSvm().fit(federation, task, settings(**GAUSSIAN, variant="one-shot"))
        assert federation.sites == ("site-1", "site-3", "site-5")
        assert "noisy_part" in {federation.accounts.rounds[c.round].step for c in federation.membership.changes}
    assert len(task.accountant.releases) == 1, "a masked sum goes on without them, and nobody saw another"
    assert model.noise is not None
    assert np.abs(model.weights).max() < 100 * model.noise.scale + 10.0


def test_a_site_that_is_started_again_trains_again_and_adds_its_part() -> None:
    task, private = public_task(table(40, seed=5)), table(600)
    faults = {"site-2": [killed_as_the_parts_are_summed(message=0)]}
    held = partitions(private, 3)
    with drill(3, program="hybrid-svm", partitions=held, faults=faults, rejoin=True) as federation:
        model = HybridSvm().fit(federation, task, settings(**GAUSSIAN, variant="one-shot"))
        assert federation.sites == ("site-1", "site-2", "site-3")
        assert [change.joined for change in federation.membership.changes] == [("site-2",)]
    assert [release.what for release in task.accountant.releases] == [
        "weights of the model",
        "weights of the model, summed again over other sites",
    ]
    with drill(3, program="hybrid-svm", partitions=partitions(private, 3)) as federation:
        exact = HybridSvm().fit(federation, task, settings(variant="one-shot"))
    assert model.noise is not None
    assert np.abs(model.weights - exact.weights).max() < 10 * model.noise.scale


def test_a_sum_over_other_sites_is_refused_where_the_budget_has_room_for_one() -> None:
    task = public_task(table(40, seed=5), PrivacyAccountant(1.0))
    faults = {"site-2": [killed_as_the_parts_are_summed(message=0)]}
    held = partitions(table(600), 3)
    with drill(3, program="hybrid-svm", partitions=held, faults=faults, rejoin=True) as federation:
        with pytest.raises(FederationError, match="after 1 and 1e-06 would exceed the budget of 1"):
            HybridSvm().fit(federation, task, settings(**GAUSSIAN, variant="one-shot"))
        summed = [record for record in federation.accounts.rounds.values() if record.step == "noisy_part"]
    assert [record.aborted for record in summed] == [True]


@pytest.mark.parametrize("mechanism", ["laplace", "gaussian"])
def test_a_release_that_is_summed_again_shows_the_same_again(mechanism: str) -> None:
    """Else the first site of a ring, whose message with the sum got lost, sees the model twice with fresh noise."""
    task, private = public_task(table(40, seed=5)), table(300)
    terms: dict[str, Any] = {
        "lattice": 2.0**-30,
        "mechanism": mechanism,
        "steps": 2**20,
        "shares": 3,
        "with_model": True,
        "joint": False,
    }
    with drill(3, program="hybrid-svm", partitions=partitions(private, 3)) as federation:
        task.prepare(federation)
        train(federation, settings(variant="one-shot"), task)

        def summed(release: int) -> FloatArray:
            total: FloatArray = federation.sum("noisy_part", shape=(24,), bound=math.inf, release=release, **terms)
            return total

        first, again, other = summed(1), summed(1), summed(2)
    np.testing.assert_array_equal(first, again)
    assert (first != other).all()


class Alone:
    """The channel of a round over some sites, in which this one says nothing."""

    def __init__(self, *sites: str) -> None:
        self.sites = sites


def test_no_two_sums_of_different_things_have_the_same_noise_and_each_beyond_the_first_is_charged() -> None:
    """Whatever the coordinator says: the difference of two of one noise would be of rows alone, or the noise itself."""
    site, charged = HybridSite("a", partitions(table(30), 1)[0], {}), []
    release, part = site.release, np.array([1.0, -2.0, 3.0, 0.5])
    site.mapped.place(np.ones((30, 4)))
    release.begin(bytes(32))
    release.take(part)
    site.charge_again = lambda: charged.append(len(charged) + 1)
    asked: dict[str, Any] = {
        "release": 1,
        "lattice": 2.0**-10,
        "mechanism": "laplace",
        "steps": 2**10,
        "shares": 2,
        "with_model": True,
        "joint": False,
    }

    def noise(*sites: str, **changed: Any) -> tuple[float, ...]:
        """In steps of the lattice."""
        terms = {**asked, **changed}
        site.channel = Alone(*sites)  # type: ignore[assignment]
        own = np.rint(part / terms["lattice"]) if terms["with_model"] else 0
        return tuple(release.noisy_part(**terms) / terms["lattice"] - own)

    first = noise("a", "b", "c")
    assert noise("a", "b", "c") == first
    assert not charged
    found = [first, noise("a", "b", "c", with_model=False)]
    assert not charged  # of noise alone nothing is released
    found += [noise("a", "b"), noise("a", "b", "c", lattice=2.0**-9), noise("a", "b", "c", release=2)]
    part[:] = 0.0
    release.take(part)
    found.append(noise("a", "b", "c"))
    assert len(set(found)) == len(found)
    assert charged == [1, 2, 3, 4]


# Runs.


def test_a_private_run_says_what_it_promises_and_hides_how_training_went(tmp_path: Path) -> None:
    finished = run("hybrid-stand-in", tmp_path / "run", *SMALL)
    result = finished.result
    privacy = result["privacy"]
    assert (privacy["epsilon"], privacy["delta"], privacy["mechanism"]) == (1.0, 1e-6, "gaussian")
    assert privacy["drawn_by"] == "the sites, in shares for 4 of them"
    assert privacy["protects_against"][1:] == [
        "the coordinator, and every site but the row's own",
        "2 sites or more together, which may be left with one site's share of the noise, to epsilon 2.12 only",
    ]
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
        (
            ["protocol.sum=plain"],
            "the coordinator, which saw each site's part with its share of the noise alone, to epsilon 2.12 only",
        ),
        (
            ["algorithm.variant=joint"],
            "not the sites, which saw it trained, nor the coordinator, which saw figures of every step",
        ),
    ],
)
def test_a_promise_does_not_reach_those_who_saw_more(changes: list[str], others: str, tmp_path: Path) -> None:
    """A plain sum shows each site's part with its own share of the noise alone: a quarter of a Gaussian."""
    result = run("hybrid-stand-in", tmp_path / "run", *SMALL, *changes, "data.test_fraction=0.9").result
    assert result["privacy"]["protects_against"] == ["everyone who gets the model", others]


@pytest.mark.parametrize(
    ("protocol", "colluding", "drawn_by", "share_epsilon"),
    [
        ("ring", "[1]", "the sites, in shares for 4 of them", 2.12),
        ("ring", "[1, 3]", "the sites, all of it at each", 1.0),
        ("masked", "[1, 3]", "the sites, in shares for 3 of them", 1.81),
    ],
)
def test_where_colluders_may_isolate_a_site_every_site_draws_all_of_the_noise(
    protocol: str, colluding: str, drawn_by: str, share_epsilon: float, tmp_path: Path
) -> None:
    changes = [f"protocol.sum={protocol}", f"collusion.sites={colluding}", "data.test_fraction=0.95"]
    result = run("hybrid-stand-in", tmp_path / "run", *SMALL, *changes).result
    (release,) = result["privacy"]["releases"]
    assert (release["drawn_by"], round(release["share_epsilon"], 2)) == (drawn_by, share_epsilon)
    isolated = {victim["site"] for victim in result["collusion"]["victims"] if victim["recovered"]}
    assert isolated == ({"site-2"} if colluding == "[1, 3]" and protocol == "ring" else set())
    told = release["protects_against"][1:]
    assert told[0] == "the coordinator, and every site but the row's own"
    assert len(told) == (1 if "all of it" in drawn_by else 2)


@pytest.mark.parametrize("masking", ["congruence", "committee"])
def test_only_two_members_of_a_committee_have_the_system_of_all_rows(masking: str, tmp_path: Path) -> None:
    """Of three sites, every two are members in every round. Every record that there can be is on the list."""
    scenario = tmp_path / "cards.toml"
    scenario.write_text(
        f"""
        data = {{ source = "{cards(tmp_path / "cards.csv")}", positive = "yes", test_fraction = 0.2, public = 20 }}
        federation.sites = 3
        algorithm = {{ name = "hybrid-svm", features = 20, mechanism = "none", tolerance = 1e-6 }}
        compare = {{ centralised = true }}
        collusion = {{ sites = ["site-2", "site-3"], coordinator = true, candidates = "source" }}
        """
    )
    finished = simulate(scenario, tmp_path / "run", [f"algorithm.masking={masking}"], audit=True).result
    assert finished.error is None
    assert finished.model is not None
    assert finished.centralised is not None
    assert finished.model.objective == pytest.approx(finished.centralised.objective, rel=1e-5)
    attacks = [attack for audit in finished.audit for attack in audit.attacks]
    assert not any(attack.false_claims for attack in attacks if attack.attack == "Newton systems")
    by_parties = {audit.parties: audit for audit in finished.audit}
    pair, both = by_parties["site-2", "site-3", "coordinator"], by_parties["site-1", "coordinator"]
    assert pair.recovered == pair.rows > 20
    assert not by_parties["coordinator",].recovered
    by_systems = {each.attack: each.recovered for each in both.attacks}.get("Newton systems", 0)
    assert by_systems == (both.rows if masking == "congruence" else 0)
    if masking == "committee":
        assert both.recovered == by_parties["site-1",].recovered


def test_a_run_without_noise_promises_nothing_and_equals_the_pooled_minimiser(tmp_path: Path) -> None:
    open_run = ["algorithm.variant=joint", "algorithm.prior=none", "compare.centralised=true"]
    scenario = tmp_path / "open.toml"
    text = spec.catalogue_text("hybrid-stand-in").replace('mechanism = "gaussian"', 'mechanism = "none"')
    scenario.write_text(text.replace("delta = 1e-6", "").replace("budget = 1.0", ""))
    result = run(str(scenario), tmp_path / "run", *SMALL, *open_run, "data.test_fraction=0.95").result
    assert result["privacy"] is None
    assert result["model"]["gap"] <= 1e-11
    assert result["model"]["objective"] == pytest.approx(result["centralised"]["objective"], rel=1e-6)
    assert result["centralised"]["max_decision_difference"] < 1e-5


def test_baselines_stand_beside_the_model(tmp_path: Path) -> None:
    changes = ["data.public=30", "algorithm.features=20", "data.test_fraction=0.8"]
    result = run("hybrid-stand-in", tmp_path / "run", *changes).result
    assert {name: each["phrase"] for name, each in result["baselines"].items()} == {
        "public": "30 public rows alone",
        "private": "random features",
        "no_noise": "no noise",
    }


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (["algorithm.epsilon=0.0"], "algorithm.epsilon: must be a number from 1e-12 to 1e12, got 0.0."),
        (["algorithm.intercept=true"], "algorithm.intercept: unknown key. It is a setting of pan-svm, "),
        (["data.public=8"], "algorithm.features: must be 28 or less, as 8 public rows have pairs, got 60; set more"),
        (
            ["data.test_fraction=0.0", "data.folds=5"],
            "algorithm.budget: 5 releases of 1 would spend 5 of a budget of 1; raise it",
        ),
        (["algorithm.mechanism=laplace"], 'algorithm.delta: applies only to mechanism = "gaussian"'),
        (["algorithm.mechanism=none"], 'algorithm.delta: applies only to mechanism = "gaussian"'),
        (
            ["algorithm={name='hybrid-svm', mechanism='gaussian'}"],
            'algorithm.delta: must be given with mechanism = "gaussian": a number above 0 and below 1.',
        ),
        (["algorithm.kernel=poly"], "algorithm.kernel: unknown key. It is a setting of pan-svm, dpp-svm, "),
        (["algorithm.gamma=0.5"], "algorithm.gamma: unknown key. It is a setting of pan-svm, dpp-svm, "),
        (["algorithm.sigma=median"], "algorithm.sigma: must be a number from 1e-12 to 1e12 or \"auto\", got 'median'."),
        (["algorithm.name=pan-svm"], "data.public: pan-svm does not use public rows; remove this key."),
        (
            ["data.source=made-census:shift=1", "data.public=3001"],
            "data.public: must be from 1 to 3000 rows of made-census:shift=1, got 3001.",
        ),
        (["data.source=made-census:shift=9"], "data.source: 'made-census:shift=9' must be written made-census:shift=1"),
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
