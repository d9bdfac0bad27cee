"""Attacks on the file of a model: rows that exact landmarks and an exact scale name, and none that noisy ones do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from benchmarks import file_audit
from fedsvm.algorithms.attacks.attack import Attack, Prior, RowClaim
from fedsvm.algorithms.attacks.fold_differences import FoldDifferences
from fedsvm.algorithms.attacks.landmark_means import LandmarkMeans
from fedsvm.algorithms.attacks.newton_steps import MOST_LEFT, SURE
from fedsvm.algorithms.attacks.scale_digits import ScaleDigits, one_solution
from fedsvm.algorithms.attacks.subset_sums import SubsetsOfMean
from fedsvm.algorithms.attacks.weight_equations import Loss, members_by_weights, pulls_of
from fedsvm.algorithms.data.classes import members
from fedsvm.algorithms.data.columns import Columns, LabeledRows
from fedsvm.algorithms.data.encoding import Vocabulary
from fedsvm.algorithms.data.scaling import Scale
from fedsvm.algorithms.features import k_means
from fedsvm.algorithms.features.kernels import Kernel
from fedsvm.algorithms.features.nystrom import NystromMap
from fedsvm.algorithms.naive_bayes import NaiveBayes, NaiveBayesModel, NaiveBayesSettings
from fedsvm.federation.arrays import FloatArray
from fedsvm.protocols.analysis.views import Coalition, RoundView, RunView
from fedsvm.scenarios.report import whole_run
from fedsvm.scenarios.run.audit import GroundTruth, PartyAudit, audit_view, file_audits

ATTACKS: list[Attack] = [LandmarkMeans(3), ScaleDigits()]


def of_file(arrays: dict[str, Any], training: LabeledRows, source: LabeledRows) -> tuple[PartyAudit, PartyAudit]:
    """Return the audits of a file, without a list and with one."""
    without, listed = file_audits(arrays, ATTACKS, GroundTruth({"site-1": training}, {}, source=source))
    return without, listed


def file_of(rows: FloatArray, landmarks: int, noise: float = 0.0, names: list[str] | None = None) -> dict[str, Any]:
    """Return the arrays of a model with local landmarks, whose centres and scale have noise of a given size."""
    random = np.random.default_rng(7)
    scale = Scale.of(rows, "standard") if names is None else Scale.none(rows.shape[1])
    centres, _ = k_means.local_centres(scale(rows), landmarks, 3, random)
    scale = Scale(scale.offset + noise * random.normal(size=rows.shape[1]), scale.scale)
    centres = centres + noise * random.normal(size=centres.shape)
    columns = np.array(names or [f"c{j}" for j in range(rows.shape[1])])
    feature_map = NystromMap.span(Kernel("rbf", 0.1), centres, 1e-10)
    return {**feature_map.to_arrays(), "columns": columns, "offset": scale.offset, "scale": scale.scale}


@pytest.fixture(scope="module")
def patients() -> tuple[LabeledRows, LabeledRows]:
    """Return 80 training rows of numbers with two decimals, and the 110 rows of the source."""
    random = np.random.default_rng(3)
    rows, labels = random.normal(50, 10, size=(110, 6)).round(2), random.choice([-1.0, 1.0], size=110)
    return LabeledRows(rows[:80], labels[:80]), LabeledRows(rows, labels)


def test_exact_landmarks_and_digits_of_the_scale_name_every_row_of_a_list(
    patients: tuple[LabeledRows, LabeledRows],
) -> None:
    training, source = patients
    without, listed = of_file(file_of(training.rows, 20), training, source)
    assert (without.attacks, without.parties) == ((), ("model file",))
    means, digits = listed.attacks
    assert means.recovered > 60
    assert (listed.recovered, listed.false_claims, listed.rows) == (80, 0, 80)
    assert means.recovered + digits.recovered == 80
    said = whole_run.line([without, listed])
    assert said.startswith("whoever holds the model file with a list of candidates recovers 80 of 80 rows")
    assert whole_run.table([without])[1][2] == whole_run.WITHOUT_LIST


@pytest.mark.parametrize(("noise", "named"), [(0.0, 40), (1e-4, 0)])
def test_exact_means_of_classes_name_every_row_of_a_list_and_noisy_ones_none(
    noise: float, named: int, patients: tuple[LabeledRows, LabeledRows]
) -> None:
    held, listed_rows = patients
    training, source = LabeledRows(*(each[:40] for each in held)), LabeledRows(*(each[:55] for each in listed_rows))
    scale = Scale.of(training.rows, "standard")
    scale = Scale(scale.offset + noise, scale.scale)
    of_class = members(training.labels[None, :])
    scaled = scale(training.rows)
    sums = np.stack([of_class @ scaled, of_class @ scaled**2]) + noise
    columns = Columns([f"c{j}" for j in range(6)], Vocabulary({}), scale)
    model = NaiveBayesModel.of_sums(of_class.sum(axis=1), sums, 1e-9, columns, ("site-1",))
    attacks = NaiveBayes().file_attacks(NaiveBayesSettings())[1:]
    arrays = {**model.to_arrays(), **columns.to_arrays()}
    _, listed = file_audits(arrays, attacks, GroundTruth({"site-1": training}, {}, source=source))
    assert (listed.recovered, listed.false_claims) == (named, 0)


@pytest.mark.parametrize("loss", ["squared", "logistic"])
def test_exact_weights_in_many_features_name_training_rows_of_a_list_and_noisy_ones_none(loss: Loss) -> None:
    random = np.random.default_rng(2)
    points = random.standard_normal((200, 4))
    angles = points @ random.standard_normal((4, 75)) / 2
    signs = np.sign(points[:, 0] * points[:, 1])
    rows = signs[:, None] * np.hstack([np.cos(angles), np.sin(angles)]) / 3
    is_training, ridge, weights = random.random(200) < 0.7, np.ones(150), np.zeros(150)
    for _ in range(30):  # of Newton's method
        pulls, slopes = pulls_of(rows @ weights, loss)
        pull = (is_training * pulls) @ rows - ridge * weights
        weights = weights + np.linalg.solve((rows.T * (is_training * slopes)) @ rows + np.diag(ridge), pull)
    found = members_by_weights(rows, weights, ridge, loss)
    named = found.chances > SURE
    assert np.count_nonzero(named & is_training) > 60
    assert not (named & ~is_training).any()
    noisy = members_by_weights(rows, weights + random.normal(0.0, 0.3, 150), ridge, loss)
    assert found.left < MOST_LEFT < noisy.left


@pytest.mark.parametrize("noise", [1e-5, 0.1])
def test_noise_beyond_the_check_leaves_no_row_to_name(patients: tuple[LabeledRows, LabeledRows], noise: float) -> None:
    training, source = patients
    _, listed = of_file(file_of(training.rows, 20, noise), training, source)
    assert (listed.recovered, listed.false_claims) == (0, 0)


def test_means_of_categories_name_only_rows_that_are_in_every_possible_cluster() -> None:
    """Of 0/1 columns a mean belongs to several subsets."""
    random = np.random.default_rng(5)
    codes = np.unique(random.integers(0, 3, size=(150, 6)), axis=0)
    codes = codes[random.permutation(len(codes))]
    rows = np.hstack([np.eye(3)[column] for column in codes.T])
    labels = random.choice([-1.0, 1.0], size=len(rows))
    training, names = LabeledRows(rows[:100], labels[:100]), [f"c{j}={v}" for j in range(6) for v in "abc"]
    _, listed = of_file(file_of(training.rows, 25, names=names), training, LabeledRows(rows, labels))
    assert listed.false_claims == 0
    assert listed.recovered > 30


def test_a_mean_of_two_possible_subsets_names_what_both_hold() -> None:
    rows = np.array([[0.0, 0, 1], [1, 1, 0], [0, 1, 0], [1, 0, 0], [1, 0, 1]])
    subsets = SubsetsOfMean(rows)(rows[[0, 1, 4]].mean(axis=0), 3)
    assert subsets == [frozenset({0, 1, 4})]
    twice = SubsetsOfMean(np.vstack([rows, rows[4]]))(rows[[0, 1, 4]].mean(axis=0), 3)
    assert sorted(map(sorted, twice)) == [[0, 1, 4], [0, 1, 5], [2, 4, 5]]


@pytest.mark.parametrize("noise", [0.0, 0.1])
def test_exact_moments_name_rows_of_a_list_and_noisy_ones_none(noise: float) -> None:
    """Mean and covariance of all rows, as landmarks give them that are drawn from exact moments by a public seed."""
    random = np.random.default_rng(9)
    rows = random.normal(size=(40, 5)).round(2)
    upper = np.triu_indices(5)
    moments = np.hstack([rows, rows[:, upper[0]] * rows[:, upper[1]]])
    total = moments[:30].sum(axis=0) + noise * random.normal(size=moments.shape[1])
    assert one_solution(moments, total).tolist() == [noise == 0 and place < 30 for place in range(40)]


def test_a_sum_that_two_subsets_have_decides_nothing() -> None:
    rows = np.array([[1.0, 0.5], [2.0, 1.5], [3.0, 2.0], [7.0, 1.0]])
    assert one_solution(rows, rows[3] + rows[0]).tolist() == [True, False, False, True]
    assert not one_solution(rows, rows[2]).any()  # the first two have this sum, too


def test_two_folds_give_the_row_that_a_cluster_lost(patients: tuple[LabeledRows, LabeledRows]) -> None:
    """Of a list those rows that are on it, without one a ranking of all differences, in which rows stand above."""
    training, source = patients
    scale = Scale.of(training.rows, "standard")
    held_out, rounds = [3, 17, 40], list[RoundView]()
    for left in (np.arange(80), np.setdiff1d(np.arange(80), held_out)):
        clusters = [cluster[np.isin(cluster, left)] for cluster in np.arange(80).reshape(20, 4)]
        means = np.array([scale(training.rows[cluster]).mean(axis=0) for cluster in clusters])
        feature_map = NystromMap.span(Kernel("rbf", 0.1), means, 1e-10)
        for step, told in (("rescale", vars(scale)), ("receive_map", feature_map.to_fields())):
            rounds.append(RoundView(len(rounds) + 1, step, told, {}))
    view = RunView(Coalition((), coordinator=True), tuple(rounds))
    (claim,) = FoldDifferences(3)(view, Prior(candidates=source))
    assert isinstance(claim, RowClaim)
    np.testing.assert_allclose(np.sort(claim.rows, axis=0), np.sort(training.rows[held_out], axis=0))
    found = audit_view(view, [FoldDifferences(3)], GroundTruth({"site-1": training}, {}), None)
    (ranked,) = found.attacks
    assert ranked.members == 3
    assert ranked.auc is not None
    assert ranked.auc > 0.9


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.usefixtures("data_folder")
@pytest.mark.parametrize(("is_exact", "named"), [(True, 216), (False, 0)])
def test_a_run_on_heart_names_all_rows_with_exact_statistics_and_none_with_noisy_ones(
    is_exact: bool, named: int
) -> None:
    found = file_audit.audit("heart", is_exact=is_exact)
    assert (found.rows, found.recovered, found.false_claims) == (216, named, 0)
