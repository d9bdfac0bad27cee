"""The rows that the interior point reveals: to the coordinator behind masks, to a site through the dither, and to
both."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fedsvm.algorithms.attacks.attack import Attack
from fedsvm.algorithms.attacks.binary_counts import posterior
from fedsvm.algorithms.attacks.newton_steps import NewtonSteps
from fedsvm.algorithms.attacks.newton_systems import NewtonSystems
from fedsvm.algorithms.attacks.secret_barriers import HiddenTerms, StepSums, chances_of
from fedsvm.algorithms.attacks.support_rows import SupportRows
from fedsvm.algorithms.data.columns import LabeledRows
from fedsvm.algorithms.optimization.barrier import SPREAD, SecretBarriers
from fedsvm.algorithms.optimization.masking import Masking, dither_seed
from fedsvm.protocols.analysis.views import RunView
from fedsvm.scenarios.run.audit import AttackResult, GroundTruth, PartyAudit, audit_view
from tests.tables import tic_tac_toe
from tests.test_run_attacks import audit
from tests.views import WrittenDown, two_classes, walked

SQUARES = [["b", "o", "x"]] * 9


def boards() -> tuple[LabeledRows, LabeledRows]:
    """Some boards to train on, and all that there are to choose from: a third of the 958."""
    rows, labels = (each[::3] for each in tic_tac_toe())
    chosen = np.random.default_rng(0).permutation(len(rows))[:240]
    return LabeledRows(rows[chosen], labels[chosen]), LabeledRows(rows, labels)


def against(data: LabeledRows, view: RunView, *attacks: Attack, candidates: LabeledRows | None = None) -> PartyAudit:
    """Return the results of attacks on a view of some rows."""
    return audit_view(view, attacks, GroundTruth({"site-1": data}, {}, candidates), None)


def walk(
    masking: Masking = "congruence", step_noise: float = 0.0, objective_noise: float = 0.0
) -> tuple[LabeledRows, LabeledRows, WrittenDown]:
    data, candidates = boards()
    written = WrittenDown()
    walked(
        written,
        data,
        landmarks=60,
        masking=masking,
        step_noise=step_noise,
        categories=SQUARES,
        objective_noise=objective_noise,
    )
    return data, candidates, written


@pytest.mark.parametrize("masking", ["congruence", "orthogonal", "none"])
def test_masks_keep_every_row_from_a_coordinator_and_without_them_it_has_all(masking: Masking) -> None:
    data, candidates, written = walk(masking, step_noise=0.1)
    alone = against(data, written.view(), NewtonSystems(), candidates=candidates)
    both = against(data, written.view(site=True), NewtonSystems(), candidates=candidates)
    assert (alone.recovered, alone.false_claims) == (240 if masking == "none" else 0, 0)
    assert (both.recovered, both.false_claims) == (240, 0), "one site that tells the seed takes the masks off"


def test_candidates_that_cannot_make_up_the_systems_are_not_claimed() -> None:
    data, candidates, written = walk("none")
    lacking = LabeledRows(candidates.rows[20:], candidates.labels[20:])
    claim = against(data, written.view(), NewtonSystems(), candidates=lacking)
    assert claim.false_claims == 0


@pytest.mark.parametrize("kept", [2, 4])
def test_one_system_in_the_middle_of_training_names_all_candidates(kept: int) -> None:
    """Two members of a committee may be so in one round only. Its right-hand side has noise."""
    data, candidates, written = walk("none", step_noise=0.1)
    whole = written.view()
    hidden = {each.number for place, each in enumerate(whole.of("newton")) if place != kept}
    rounds = tuple(replace(each, sums={}) if each.number in hidden else each for each in whole.rounds)
    found = against(data, replace(whole, rounds=rounds), NewtonSystems(is_noisy=True), candidates=candidates)
    assert (found.recovered, found.false_claims) == (240, 0)


def test_without_candidates_rows_at_the_margin_stand_out_of_the_last_systems() -> None:
    """Numbers, of which nobody has a list; the check of the attack, by leverage, knows which came out right.

    The noise on the steps is fresh. After one training of six, no row passes the check.
    """
    data, recovered = two_classes(200, 6, 1), 0
    for _ in range(10):
        written = WrittenDown()
        walked(written, data, landmarks=50, step_noise=0.1, tolerance=1e-5)
        both = against(data, written.view(site=True), NewtonSystems())
        assert both.false_claims == 0
        assert against(data, written.view(), NewtonSystems()).attacks == (AttackResult("Newton systems"),)
        if (recovered := both.recovered) >= 10:
            break
    assert recovered >= 10


def ranked(found: PartyAudit) -> float:
    (area,) = [attack.auc for attack in found.attacks if attack.auc is not None]
    return area


@pytest.mark.long
def test_a_site_tells_all_rows_from_exact_steps_and_most_through_the_noise() -> None:
    found = {}
    for noise in (0.0, 0.1):
        data, candidates, written = walk(step_noise=noise)
        found[noise] = against(data, written.view(coordinator=False), NewtonSteps(noise), candidates=candidates)
    assert (found[0.0].recovered, found[0.0].false_claims) == (240, 0)
    assert ranked(found[0.0]) == 1.0
    assert found[0.1].recovered < 240
    assert found[0.1].false_claims <= 3
    assert ranked(found[0.1]) > 0.7, "the noise hides less than one would wish"


def test_secret_barriers_take_most_certainty_from_a_site_that_knows_the_path() -> None:
    data, candidates, written = walk(step_noise=0.1, objective_noise=0.2)
    found = against(data, written.view(coordinator=False), NewtonSteps(0.1, 0.2), candidates=candidates)
    assert found.recovered < 60, "all 240 without noise, and most of them by noise on the steps alone"
    assert found.false_claims <= 3


def test_who_has_the_systems_names_all_rows_whatever_their_barriers() -> None:
    """The weights of rows in the systems are unknown, and those that are absent have none."""
    data, candidates, written = walk("none", step_noise=0.1, objective_noise=0.2)
    found = against(data, written.view(), NewtonSystems(is_noisy=True), candidates=candidates)
    assert (found.recovered, found.false_claims) == (240, 0)
    lacking = LabeledRows(candidates.rows[20:], candidates.labels[20:])
    assert against(data, written.view(), NewtonSystems(is_noisy=True), candidates=lacking).false_claims == 0


def test_barriers_at_a_point_are_always_the_same_and_elsewhere_others() -> None:
    """An order of another round at the same point must not show a second draw."""
    key, point = dither_seed(), np.arange(3.0)
    barriers = SecretBarriers(key, 0)
    first = barriers.draw(point, 1000)
    assert (first == barriers.draw(point.copy(), 1000)).all()
    others = [barriers.draw(point + 1e-12, 1000), SecretBarriers(key, 1).draw(point, 1000)]
    others.append(SecretBarriers(dither_seed(), 0).draw(point, 1000))
    for other in others:
        assert abs(np.corrcoef(np.log(first), np.log(other))[0, 1]) < 0.2
    assert 1 / SPREAD <= first.min() < 1.1 / SPREAD
    assert 0.9 * SPREAD < first.max() <= SPREAD


def test_chances_are_right_of_rows_with_hidden_terms() -> None:
    """Against what going through all sets of six candidates gives, with normal terms."""
    random, (n, s, d) = np.random.default_rng(5), (6, 2, 4)
    rows, means = random.normal(size=(n, d)), random.normal(size=(n, s))
    parts = random.normal(size=(n, s, s)) * 0.4
    covariances = parts @ parts.transpose(0, 2, 1) + 0.05 * np.eye(s)
    hidden, prior = HiddenTerms(rows, means, covariances), np.full(n, 0.6)
    right = np.array([[1.0, -0.5, 0.8, 0.2], [0.3, 0.7, -1.0, 0.4]])
    sums = StepSums(right, np.array([0.3 * np.eye(d)] * s), np.full(d, 0.2))
    chances, _ = chances_of(hidden, sums, prior)
    exact, total = np.zeros(n), 0.0
    for chosen in itertools.product([0.0, 1.0], repeat=n):
        c = np.array(chosen)
        covariance = np.kron(np.eye(s), 0.3 * np.eye(d)) + np.kron(np.ones((s, s)), 0.2 * np.eye(d))
        covariance += sum(np.kron(c[i] * covariances[i], np.outer(rows[i], rows[i])) for i in range(n))
        apart = (right - (c[:, None] * means).T @ rows).ravel()
        weight = np.exp(-0.5 * apart @ np.linalg.solve(covariance, apart) - 0.5 * np.linalg.slogdet(covariance)[1])
        weight *= 0.6 ** c.sum() * 0.4 ** (n - c.sum())
        exact, total = exact + weight * c, total + weight
    assert np.abs(chances - exact / total).max() < 0.2
    assert np.corrcoef(chances, exact / total)[0, 1] > 0.9


def test_what_a_site_knows_of_its_own_is_not_claimed() -> None:
    data, candidates, written = walk()
    ours, theirs = (LabeledRows(data.rows[part], data.labels[part]) for part in (slice(0, 40), slice(40, None)))
    truth = GroundTruth({"site-4": ours, "site-1": theirs}, {}, candidates)
    found = audit_view(written.view(coordinator=False), [NewtonSteps(0.0), SupportRows(10.0, 1e-4)], truth, None)
    assert (found.recovered, found.false_claims) == (200, 0)


def test_the_posterior_of_few_unknowns_is_that_of_going_through_all_of_them() -> None:
    random = np.random.default_rng(3)
    design, truth = random.normal(size=(6, 8)), (random.random(8) < 0.7).astype(float)
    noisy = design @ truth + 0.8 * random.normal(size=6)
    G, h = design.T @ design / 0.64, design.T @ noisy / 0.64
    all_of_them = np.array(list(itertools.product([0.0, 1.0], repeat=8)))
    weights = np.exp(-0.5 * np.einsum("ij,jk,ik->i", all_of_them, G, all_of_them) + all_of_them @ h)
    weights *= 0.7 ** all_of_them.sum(axis=1) * 0.3 ** (8 - all_of_them.sum(axis=1))
    exact = weights @ all_of_them / weights.sum()
    assert np.abs(posterior(G, h, 0.7) - exact).max() < 0.2
    assert np.corrcoef(posterior(G, h, 0.7), exact)[0, 1] > 0.95


@pytest.mark.parametrize("masking", ["congruence", "orthogonal"])
def test_nothing_that_a_blind_coordinator_sees_points_where_the_weights_do(masking: Masking) -> None:
    """With release = "sites": no vector of its transcript does, nor the vectors that stand out in its matrices."""
    data, _ = boards()
    written = WrittenDown()
    w = walked(written, data, landmarks=60, masking=masking, step_noise=0.1, categories=SQUARES).w
    guesses = []
    for each in written.view().of("newton"):
        told = each.parameters
        d = told["steps"].shape[1]
        (total,) = each.sums.values()
        upper, rest = np.split(total[0], [d * (d + 1) // 2])
        matrix = np.zeros((d, d))
        matrix[np.triu_indices(d)] = upper
        matrix += np.triu(matrix, 1).T
        vectors = rest[d + 3 :][: 2 * (d - 1)].reshape(2, d - 1)
        guesses += [told["steps"][0][:-1], rest[: d - 1], *vectors, vectors.sum(axis=0)]
        guesses += list(np.linalg.eigh(matrix)[1][:-1].T[[0, 1, -2, -1]])
    guesses.append(np.sum([each.parameters["steps"][0] for each in written.view().of("newton")], axis=0)[:-1])
    lengths = [float(np.linalg.norm(guess)) for guess in guesses]
    seen = [abs(float(g @ w)) / size for g, size in zip(guesses, lengths, strict=True) if size > 0]
    random = np.random.default_rng(0).normal(size=(100, len(seen), len(w)))
    chance = (np.abs(random @ w) / np.linalg.norm(random, axis=2)).max(axis=1)
    assert max(seen) <= 1.25 * chance.max(), "far more than the best of a hundred times as many random directions"


@pytest.mark.long
def test_the_quickstart_gives_the_coordinator_nothing_and_a_site_some(tmp_path: Path) -> None:
    """Real processes: the figures of the threat model."""
    changes = ["algorithm.solver=interior-point", "algorithm.min_cluster_size=3"]
    found = audit("quickstart", tmp_path / "run", *changes, site="site-1")
    by = {attack.attack: attack.recovered for attack in found["coordinator",].attacks}
    assert [name for name, recovered in by.items() if recovered and name != "support rows"] == []
    assert 150 < by["support rows"] < 250, "the released weights name rows at the margin and within"
    assert found["coordinator",].false_claims <= 1
    both, one = found["site-1", "coordinator"], found["site-1",]
    assert both.recovered == both.rows
    assert one.recovered < 0.6 * one.rows
    (area,) = [attack.auc for attack in one.attacks if attack.attack == "Newton steps" and attack.auc is not None]
    assert 0.8 < area < 0.98
    assert one.false_claims <= 3
