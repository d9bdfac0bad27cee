"""Formulas of differential privacy: bounds, calibrations and budgets against expressions of their own."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
from scipy import special, stats

from fedsvm.algorithms.privacy import discrete_noise
from fedsvm.algorithms.privacy.accountant import PrivacyAccountant, Release
from fedsvm.algorithms.privacy.budget import BudgetSettings, pairs_problem
from fedsvm.algorithms.privacy.discrete_noise import laplace_share_loss, spherical_distance, total_variation_bound
from fedsvm.algorithms.privacy.mechanisms import (
    MechanismName,
    Noise,
    PrivacyParameters,
    gaussian_delta,
    gaussian_deviation,
    gaussian_epsilon,
    noise_for,
)
from fedsvm.algorithms.privacy.privacy_ledger import DataIdentity, PrivacyLedger, Spent, require_room
from fedsvm.federation.errors import FederationError

MIN_P = 1e-5
DATA = DataIdentity.of("patients", "label", ["age", "sex"])


# Distances of what is drawn from what is promised.


@pytest.mark.parametrize(("scale", "size"), [(1, 2), (3, 2), (3, 5), (2**20, 2), (2**20, 40), (2**60, 3)])
def test_distance_of_spherical_noise_is_the_sum_of_its_three_terms(scale: int, size: int) -> None:
    shape = (size + 1) / 2
    large = 2.2 * size * (1 + (2 * math.pi * scale) ** 2) ** -shape
    small = 2 * 1.4**size / (math.gamma(shape) * (2.0 * scale * scale) ** shape)
    assert spherical_distance(scale, size) == pytest.approx(large + small + size * 2.0**-112, rel=1e-9, abs=0)


@pytest.mark.parametrize(("scale", "size"), [(40, 1), (1 << 20, 7)])
def test_distance_of_laplace_shares_counts_every_rounding(scale: int, size: int) -> None:
    roundings = size * (3 + 2 * math.log(scale)) * 160 * scale
    assert total_variation_bound(scale, 5, size) == pytest.approx(roundings * float(np.finfo(np.longdouble).eps), abs=0)
    assert total_variation_bound(scale, 1, size) == 0.0


def test_squared_cosines_of_a_uniform_angle_follow_the_arcsine_law() -> None:
    draws = [discrete_noise._squared_cosine() for _ in range(4000)]
    assert len(set(draws)) == len(draws), "no coarse grid"
    assert stats.kstest([float(each) for each in draws], stats.arcsine.cdf).pvalue > MIN_P


def test_gammas_of_half_integers_have_their_distribution() -> None:
    for twice in (1, 4):
        draws = [discrete_noise._half_integer_gamma(twice) for _ in range(600)]
        assert stats.kstest([float(each) for each in draws], stats.gamma(twice / 2).cdf).pvalue > MIN_P
        digits = [len(each.as_tuple().digits) for each in draws]
        assert max(digits) == 90, "more than the bits of a variance"


@pytest.mark.parametrize("parts", [1, 2, 5])
def test_loss_of_one_laplace_share_is_that_of_its_probabilities(parts: int) -> None:
    scale, shift, reach = 20, 3, 2000
    j = np.arange(reach)
    one = np.exp(special.gammaln(j + 1 / parts) - special.gammaln(j + 1) - j / scale)
    expected = math.log((one @ one) / (one[shift:] @ one[:-shift]))
    assert laplace_share_loss(scale, parts, shift) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("parts", [2, 5])
def test_loss_of_one_share_that_is_shifted_by_thousands_of_scales_is_that_of_its_probabilities(parts: int) -> None:
    scale, shift, j = 20, 65536, np.arange(4000)
    one, shifted = (special.gammaln(k + 1 / parts) - special.gammaln(k + 1) - k / scale for k in (j, j + shift))
    expected = special.logsumexp(2 * one) - special.logsumexp(one + shifted)
    assert laplace_share_loss(scale, parts, shift) == pytest.approx(float(expected), rel=1e-9)


@pytest.mark.parametrize("scale", [2**17, 2**20])
@pytest.mark.parametrize("shift", [1, 2])
def test_loss_of_one_share_counts_what_lies_far_out(scale: int, shift: int) -> None:
    """Beside hypergeometric functions, to which the sums of probabilities come."""
    r, q = 1 / 3, math.exp(-1 / scale)
    at_zero = special.gamma(r) ** 2 * special.hyp2f1(r, r, 1, q * q)
    rising = special.gamma(r) * special.gamma(shift + r) / math.factorial(shift) * q**shift
    shifted = rising * special.hyp2f1(r, shift + r, shift + 1, q * q)
    assert laplace_share_loss(scale, 3, shift) == pytest.approx(math.log(at_zero / shifted), rel=1e-8, abs=0)


# How much noise.


@pytest.mark.parametrize("deviation", [0.002, 0.02, 0.3, 1.0, 4.0, 60.0])
@pytest.mark.parametrize("delta", [1e-9, 1e-5, 1e-3])
def test_epsilon_of_a_deviation_is_the_smallest_that_covers_its_delta(deviation: float, delta: float) -> None:
    epsilon = gaussian_epsilon(deviation, delta)
    assert gaussian_delta(deviation, epsilon) <= delta
    assert epsilon > 0
    assert gaussian_delta(deviation, epsilon * (1 - 1e-6)) > delta


def test_noise_that_is_private_without_an_epsilon_has_none() -> None:
    assert gaussian_epsilon(1e6, 1e-3) == 0.0


@pytest.mark.parametrize("epsilon", [1e-3, 1.0, 20.0])
@pytest.mark.parametrize("delta", [1e-12, 1e-6, 1e-2])
def test_deviation_of_an_epsilon_is_the_smallest_that_keeps_delta(epsilon: float, delta: float) -> None:
    deviation = gaussian_deviation(epsilon, delta)
    assert gaussian_delta(deviation, epsilon) <= delta < gaussian_delta(deviation * (1 - 1e-6), epsilon)


@pytest.mark.parametrize(("mechanism", "delta"), [("laplace", 0.0), ("gaussian", 1e-6), ("spherical", 0.0)])
@pytest.mark.parametrize(("size", "gap"), [(1, 0.0), (9, 1e-4)])
def test_scale_follows_from_the_sensitivity_in_the_norm_of_the_mechanism(
    mechanism: MechanismName, delta: float, size: int, gap: float
) -> None:
    noise = noise_for(PrivacyParameters(mechanism, 0.5, delta), size, 0.01, gap, shares=3)
    l2 = 0.01 + 2 * math.sqrt(2 * gap) + math.sqrt(size) * noise.step
    assert noise.sensitivity == pytest.approx(l2 * (math.sqrt(size) if mechanism == "laplace" else 1.0), rel=1e-12)
    factor = gaussian_deviation(0.5, delta) if mechanism == "gaussian" else 2.0
    assert noise.scale == pytest.approx(factor * noise.sensitivity, rel=1e-12)
    assert 2.0**20 <= noise.scale / noise.step < 2.0**21 + 2
    assert noise.steps == math.ceil(noise.scale / noise.step)
    assert noise.variance == noise.steps**2
    assert (noise.size, noise.shares, noise.privacy.epsilon) == (size, 3, 0.5)


def test_a_vector_on_the_lattice_is_moved_by_half_a_step_at_most() -> None:
    vector = np.random.default_rng(0).normal(size=200)
    noise = Noise(PrivacyParameters("laplace", 1.0), 200, 0.25, 1.0, 1.0, 1)
    moved = noise.on_lattice(vector)
    assert np.abs(moved - vector).max() <= 0.125
    np.testing.assert_array_equal(moved / 0.25, np.rint(moved / 0.25))


@pytest.mark.parametrize(("mechanism", "delta"), [("laplace", 0.0), ("gaussian", 1e-6), ("spherical", 0.0)])
def test_released_vectors_have_the_noise_that_is_promised(mechanism: MechanismName, delta: float) -> None:
    size = 2 if mechanism == "spherical" else 3000
    noise = noise_for(PrivacyParameters(mechanism, 1.0, delta), size, 0.01, 0.0)
    vector = np.linspace(-1, 1, size)
    if mechanism == "spherical":
        drawn = np.array([np.linalg.norm(noise.released(vector) - vector) for _ in range(600)])
        expected = stats.gamma(size, scale=noise.scale)
    else:
        drawn = noise.released(vector) - vector
        expected = stats.laplace(0, noise.scale) if mechanism == "laplace" else stats.norm(0, noise.scale)
    assert stats.kstest(drawn, expected.cdf).pvalue > MIN_P


def test_delta_of_a_pure_mechanism_covers_either_neighbour() -> None:
    noise = noise_for(PrivacyParameters("laplace", 2.0), 30, 0.01, 0.0, shares=4)
    bound = total_variation_bound(noise.steps, 4, 30)
    assert noise.delta == pytest.approx((1 + math.exp(2.0)) * bound, rel=1e-12, abs=0)
    ball = noise_for(PrivacyParameters("spherical", 2.0), 30, 0.01, 0.0)
    assert ball.delta == pytest.approx((1 + math.exp(2.0)) * spherical_distance(ball.steps, 30), rel=1e-12, abs=0)
    assert not ball.is_divisible
    huge = Noise(PrivacyParameters("laplace", 1e4), 30, 1.0, 2.0**20, 1.0, 4)
    assert huge.delta == 1.0


def test_epsilon_of_one_share_covers_all_coordinates() -> None:
    laplace = noise_for(PrivacyParameters("laplace", 1.0), 4, 0.01, 0.0, shares=3)
    shift = math.ceil(laplace.sensitivity / 4 / laplace.step * (1 - 1e-12))
    assert laplace.share_epsilon == pytest.approx(4 * laplace_share_loss(laplace.steps, 3, shift), rel=1e-12)
    gaussian = noise_for(PrivacyParameters("gaussian", 1.0, 1e-6), 4, 0.01, 0.0, shares=4)
    deviation = gaussian.steps * gaussian.step / 2 / gaussian.sensitivity
    assert gaussian.share_epsilon == pytest.approx(gaussian_epsilon(deviation, 1e-6), rel=1e-12)


# Budgets.


@pytest.mark.parametrize(
    ("epsilon", "delta", "has_room"),
    [(0.5, 5e-7, True), (0.51, 5e-7, False), (0.5, 5.1e-7, False), (0.0, 1e-6, False), (1.0, 0.0, False)],
)
def test_limits_hold_for_epsilon_and_for_delta(epsilon: float, delta: float, has_room: bool) -> None:
    spent, limits = Spent(0.5, 5e-7, 1), (1.0, 1e-6)
    if has_room:
        require_room(spent, epsilon, delta, limits)
        return
    with pytest.raises(FederationError, match=r"would exceed the budget of 1 and 1e-06; nothing is released\. Raise"):
        require_room(spent, epsilon, delta, limits)


def problems(private: bool = True, models: int = 5, **settings: float | str) -> list[str]:
    """Return why settings of a budget are refused; each release has an epsilon of 0.2 and a delta of 1e-7."""
    made = BudgetSettings(epsilon=0.2, **settings)  # type: ignore[arg-type]
    return list(made.budget_problems(models, 1e-7, private=private))


def test_budgets_that_the_releases_of_a_run_would_exceed_are_refused_before_it() -> None:
    assert problems() == problems(budget=1.0, budget_delta=5e-7, ledger="file") == []
    (over,) = problems(budget=0.99)
    assert over.startswith("budget: 5 releases of 0.2 would spend 1 of a budget of 0.99; raise it, lower epsilon")
    (over,) = problems(budget_delta=4.9e-7)
    assert over.startswith("budget_delta: 5 releases of 1e-07 would spend 5e-07 of a budget of 4.9e-07; ")
    assert len(problems(models=6, budget=1.0, budget_delta=5e-7)) == 2


def test_budgets_without_noise_are_refused() -> None:
    without = problems(private=False, budget=9.0, budget_delta=0.5, ledger="file")
    assert [each.partition(":")[0] for each in without] == ["ledger", "budget", "budget_delta"]
    assert problems(private=False) == []


def test_frequencies_are_at_most_the_pairs_of_public_rows() -> None:
    assert list(pairs_problem(45, 10)) == []
    (problem,) = pairs_problem(46, 10)
    assert problem.startswith("features: must be 45 or less, as 10 public rows have pairs, got 46; set more")


def test_identities_of_data_depend_on_source_label_and_columns() -> None:
    others = [
        ("doctors", "label", ["age", "sex"]),
        ("patients", "sex", ["age", "label"]),
        ("patients", "label", ["age"]),
    ]
    assert DataIdentity.of("patients", "label", ["age", "sex"]) == DATA
    assert len({DATA, *(DataIdentity.of(*each) for each in others)}) == 4


@pytest.mark.parametrize("amount", [math.inf, math.nan, -0.5, 1, None])
@pytest.mark.parametrize("key", ["epsilon", "delta"])
def test_amounts_that_no_release_has_are_refused(key: str, amount: float | None, tmp_path: Path) -> None:
    ledger = PrivacyLedger(tmp_path / "ledger", DATA)
    ledger.charge(1.0, 0.5, "a model", (9.0, 9.0))
    entry, charged = json.loads(ledger.path.read_text().splitlines()[1]), ledger.path.read_bytes()
    without = {name: value for name, value in entry.items() if name != key}
    for damaged in (entry | {key: amount}, without):
        ledger.path.write_bytes(charged + json.dumps(damaged).encode() + b"\n")
        with pytest.raises(FederationError, match="damaged in line 3"):
            ledger.spent()


def test_budget_and_ledger_of_settings_are_those_of_the_accountant(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    limited = PrivacyAccountant.within(BudgetSettings(budget=2.0, budget_delta=1e-6, ledger=str(path)), DATA)
    assert (limited.epsilon, limited.delta, limited.ledger) == (2.0, 1e-6, PrivacyLedger(path.resolve(), DATA))
    for settings in (BudgetSettings(), object()):
        unlimited = PrivacyAccountant.within(settings, DATA)
        assert (unlimited.epsilon, unlimited.delta, unlimited.ledger) == (math.inf, math.inf, None)


def test_a_report_says_how_the_last_release_was_made_and_what_all_spent(tmp_path: Path) -> None:
    ledger = PrivacyLedger(tmp_path / "ledger", DATA)
    accountant = PrivacyAccountant(3.0, 0.5, ledger=ledger)
    for number in (1, 2):
        accountant.check_budget(1.0, 0.1)
        accountant.spend(Release("weights", 1.0, 0.1, "laplace", 0.25, number, ("everyone",), "the sites", 0.125))
    report = accountant.report()
    assert report is not None
    assert (report.epsilon, report.delta, report.mechanism, report.drawn_by) == (2.0, 0.2, "laplace", "the sites")
    assert (report.sensitivity, report.noise_scale, report.lattice) == (0.25, 2, 0.125)
    assert (report.protects_against, len(report.releases)) == (("everyone",), 2)
    assert (report.budget.epsilon, report.budget.delta) == (3.0, 0.5)
    assert report.ledger is not None
    assert (report.ledger.path, report.ledger.epsilon, report.ledger.releases) == (str(ledger.path), 2.0, 2)
    for epsilon, delta in ((1.1, 0.0), (0.0, 0.31)):
        with pytest.raises(FederationError, match=f"of {ledger.path} would exceed"):
            accountant.check_budget(epsilon, delta)
