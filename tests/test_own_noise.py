"""A site's own noise in the objective: an audit has it from the site's record, and takes it off."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedsvm.algorithms.attacks.attack import TWO_CLASSES, Attack
from fedsvm.algorithms.attacks.epochs import epochs
from fedsvm.algorithms.attacks.joint_blocks import JointSupportRows, last_joint_point
from fedsvm.algorithms.attacks.newton_path import joint_rounds, newton_paths, trainings
from fedsvm.algorithms.attacks.newton_steps import NewtonSteps
from fedsvm.algorithms.attacks.own_noise import OwnNoise, own_noise
from fedsvm.algorithms.attacks.support_rows import SupportRows
from fedsvm.algorithms.data.columns import LabeledRows
from fedsvm.algorithms.features.fourier import FourierMap
from fedsvm.algorithms.optimization.barrier import Problem
from fedsvm.algorithms.optimization.joint_barrier import JointProblem
from fedsvm.algorithms.optimization.local_path import solve_pooled
from fedsvm.algorithms.optimization.masking import Masking
from fedsvm.algorithms.optimization.objective_noise import repeat_draws
from fedsvm.algorithms.optimization.solution import StoppingRule
from fedsvm.federation.arrays import FloatArray
from fedsvm.federation.channel.transcript import DREW, TranscriptEntry
from fedsvm.protocols.analysis.views import Coalition, RoundView, RunView
from fedsvm.scenarios.run import runner
from fedsvm.scenarios.run.audit import GroundTruth, PartyAudit, audit_view
from tests.run_results import simulate
from tests.tasks import NAMES, table
from tests.test_joint_classes import NEWTON
from tests.test_newton_attacks import boards
from tests.views import WrittenDown, scaled, walked

SITES = ("site-1", "site-2", "site-3")


def audited_views(folder: Path, *changes: str, source: str = "quickstart") -> tuple[list[RunView], GroundTruth]:
    """Return the views of each site alone on a short run of real processes, and its rows."""
    views, truths = list[RunView](), list[GroundTruth]()

    def keep(view: RunView, attacks: list[Attack], truth: GroundTruth, known: Any) -> PartyAudit:
        views.append(view)
        truths.append(truth)
        return audit_view(view, [], truth, known)

    changes = ("compare.centralised=false", "algorithm.landmarks=40", "algorithm.objective_noise=0.2", *changes)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runner, "audit_view", keep)
        patch.setattr(
            runner, "standard_coalitions", lambda sites: [Coalition((site,), coordinator=False) for site in sites]
        )
        finished = simulate(source, folder, changes, sites=len(SITES), audit=True)
    assert finished.result.error is None, finished.traceback
    return views, truths[0]


@pytest.mark.parametrize("masking", ["congruence", "committee"])
def test_the_draws_of_all_sites_are_what_the_weights_lack_of_a_sum_over_rows(masking: Masking, tmp_path: Path) -> None:
    """Real processes: each site's record has its draw, and the barriers of its rows, by which the sum is computed."""
    views, truth = audited_views(
        tmp_path, f"algorithm.masking={masking}", "algorithm.tolerance=1e-5", "algorithm.step_noise=0.1"
    )
    parts = [epochs(view)[-1] for view in views]
    path = newton_paths(parts[0])[-1]
    found = [own_noise(epoch, TWO_CLASSES, len(path.prior)) for epoch in parts]
    assert [each.members for each in found] == [1, 1, 1]
    total = np.zeros(len(path.prior))
    for each, epoch, rows in zip(found, parts, truth.rows.values(), strict=True):
        problem = path.problem(epoch, rows)
        assert problem is not None
        assert each.key is not None
        secret = problem.with_secrets(each.key, 0)
        total += problem.weigh(path.standings(secret)[-1].alpha)[:-1]
    lacks = total - path.end[:-1]
    drawn = np.sum([each.draw for each in found], axis=0)
    assert np.linalg.norm(lacks) > 1
    assert np.linalg.norm(lacks - drawn) < 0.1 * np.linalg.norm(lacks)


@pytest.mark.parametrize("masking", ["congruence", "committee"])
def test_the_draws_of_all_sites_are_what_joint_weights_lack(masking: Masking, tmp_path: Path) -> None:
    """The same of all classes in one problem, whose draws are of another shape, and whose path a site knows."""
    views, truth = audited_views(tmp_path, *NEWTON, f"algorithm.masking={masking}", source="digits")
    parts = [epochs(view)[-1] for view in views]
    training, features = trainings(parts[0])[-1], parts[0].features
    point = last_joint_point(parts[0], 3)
    assert features is not None and point is not None and point.shape == (3, features.dimensions + 1)
    rows, labels = (np.concatenate([each[part] for each in truth.rows.values()]) for part in (0, 1))
    of_class, C = np.eye(3)[labels.astype(np.int64)].T, np.full(len(labels), float(training.begun["price"]))
    problem = JointProblem.of_classes(features(parts[0].scale(rows)), of_class, C, intercept=True)
    nothing = np.zeros(problem.dimensions)
    state = problem.stand_at(0, nothing, nothing)
    for number, each in enumerate(joint_rounds(training, 3), start=1):
        state = problem.move(state, number, each.step, each.mu, keep=each.keep, still=each.still)
    lacks = problem.weigh_classes(state.alpha) - point.ravel()
    drawn = np.sum([own_noise(each, TWO_CLASSES, point.size).draw for each in parts], axis=0)
    assert np.linalg.norm(lacks) > 1
    assert np.linalg.norm(lacks - drawn) < 0.2 * np.linalg.norm(lacks)
    (alone,) = audit_view(
        views[0],
        [SupportRows(1.0, 1e-6, 0.2, is_joint=True), JointSupportRows(1.0, 1e-6)],
        replace(truth, candidates=LabeledRows(rows, labels)),
        None,
    ).attacks
    assert alone.attack == "support rows, jointly"


def with_own_noise(view: RunView, seed: Any, deviation: float) -> RunView:
    """Return the view of a site that also drew noise from this seed, and told its size."""
    lines = [TranscriptEntry(DREW, 1, "", place, array, {}) for place, array in enumerate((seed + 1, seed))]
    begun = next((place for place, each in enumerate(view.rounds) if each.step == "begin_path"), len(view.rounds))
    own = [
        RoundView(0, "share_path", {}, {}, entries={"site-4": lines}),
        RoundView(0, "noise_sizes", {}, {}, inputs={"site-4": np.array([1.0, deviation**2])}),
    ]
    return RunView(
        Coalition(("site-4",), coordinator=False), (*view.rounds[: begun + 1], *own, *view.rounds[begun + 1 :])
    )


def test_a_site_that_takes_its_noise_off_names_more_rows_by_the_weights() -> None:
    """The weights have much noise of the site's own, and of others as agreed."""
    rows, C, size = table(300, seed=4), 4.0, 0.1
    there = LabeledRows(rows.rows[:200], rows.labels[:200])
    written, feature_map = WrittenDown(), FourierMap.draw(0.3, 80, len(NAMES), seed=1)
    features, seed = feature_map(scaled(written, there.rows, [])), np.arange(4, dtype=np.uint64)[None]
    own = repeat_draws(seed, 2 * C, 1, features.shape[1])[0][0]
    others = size * C * np.random.default_rng(1).standard_normal(features.shape[1])
    (found,) = solve_pooled([Problem.of(features, there.labels, C, tilt=own + others)], StoppingRule(1e-6, 100))
    written.add("receive_map", **feature_map.to_fields(), w=found.w, b=np.array(found.b))
    truth = GroundTruth({"site-1": there}, {}, rows)
    without = written.view(coordinator=False)
    areas = [
        audit_view(view, [SupportRows(C, 1e-6, size)], truth, None).attacks[0].auc or 0.0
        for view in (without, with_own_noise(without, seed, 2 * C))
    ]
    assert areas[1] > max(0.8, areas[0] + 0.1)


@pytest.mark.long
def test_a_site_that_takes_its_noise_off_ranks_rows_better_by_the_steps() -> None:
    """On a short path: on a long one the attack sometimes ends far from the right chances."""
    data, candidates = boards()
    seed, deviation, areas = np.arange(4, dtype=np.uint64)[None], 20.0, list[float]()

    def draw(width: int) -> FloatArray:
        return np.asarray(repeat_draws(seed, deviation, 1, width)[0][0])

    written = WrittenDown()
    categories = [["b", "o", "x"]] * 9
    walked(written, data, landmarks=60, step_noise=0.1, tolerance=0.1, categories=categories, tilt=draw)
    view, truth = written.view(coordinator=False), GroundTruth({"site-1": data}, {}, candidates)
    for each in (view, with_own_noise(view, seed, deviation)):
        areas.append(audit_view(each, [NewtonSteps(0.1, 0.02)], truth, None).attacks[0].auc or 0.0)
    assert areas[1] > max(0.62, areas[0] + 0.08)


def test_noise_that_is_left_is_that_of_the_other_sites() -> None:
    """With five sites: of all but one as agreed, of all more, and of three less."""
    nothing = np.zeros(1)
    shares = [OwnNoise(nothing, known).share_left(5) for known in (0, 1, 2)]
    np.testing.assert_allclose(np.square(shares), [5 / 4, 1, 3 / 4])
    assert OwnNoise(nothing, 0).share_left(None) == 1


def test_an_attack_on_one_view_after_another_finds_in_each_what_it_finds_alone() -> None:
    data, candidates = boards()
    written = WrittenDown()
    walked(written, data, landmarks=30, step_noise=0.1, categories=[["b", "o", "x"]] * 9)
    ours = [LabeledRows(data.rows[part], data.labels[part]) for part in (slice(0, 60), slice(60, 120))]
    view, attack = written.view(coordinator=False), NewtonSteps(0.1)
    for own in ours:
        truth = GroundTruth({"site-4": own, "site-1": data}, {}, candidates)
        assert audit_view(view, [attack], truth, None) == audit_view(view, [NewtonSteps(0.1)], truth, None)
    several = replace(view, coalition=Coalition(("site-4",), coordinator=True))
    assert audit_view(several, [attack], truth, None).attacks == audit_view(view, [attack], truth, None).attacks
