"""A vote of models that sites train alone: each is LIBSVM's of its rows, and votes are counted without the models."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fedsvm import classifier
from fedsvm.algorithms.attacks.attack import CandidateScores, Prior, RowClaim
from fedsvm.algorithms.attacks.support_rows import SiteSupportRows
from fedsvm.algorithms.data.columns import LabeledRows
from fedsvm.algorithms.features.fourier import FourierMap
from fedsvm.algorithms.features.identity import IdentityMap
from fedsvm.algorithms.optimization import libsvm
from fedsvm.algorithms.optimization.barrier import Problem
from fedsvm.algorithms.optimization.local_path import solve_pooled
from fedsvm.algorithms.optimization.solution import StoppingRule
from fedsvm.algorithms.voting_ensemble import EnsembleModel, votes
from fedsvm.federation.errors import FederationError
from tests.commands import fedsvm
from tests.tasks import NAMES, table
from tests.test_runs import run
from tests.views import WrittenDown, scaled

Ensemble = classifier("voting-ensemble")
ROWS, LABELS = table(120, seed=1)
WHERE = np.array(["north", "south", "west"])[np.arange(120) % 3]


def test_every_model_is_libsvms_of_one_sites_rows() -> None:
    model = Ensemble(C=2.0, gamma=0.3, landmarks=25, scale="none").fit(ROWS, LABELS, groups=WHERE)
    features = model.model_.feature_map(ROWS)
    expected = {
        site: libsvm.linear(features[site == WHERE], LABELS[site == WHERE], 2.0).decision_function(features)
        for site in np.unique(WHERE)
    }
    values = features @ model.model_.models[:, :-1].T + model.model_.models[:, -1]
    for scores in expected.values():  # in places that do not say whose they are
        assert np.abs(values - scores[:, None]).max(axis=0).min() < 2e-2
    cast = np.mean([np.where(scores >= 0, 1.0, -1.0) for scores in expected.values()], axis=0)
    clear = np.min([np.abs(scores) for scores in expected.values()], axis=0) > 2e-2
    np.testing.assert_allclose(model.decision_function(ROWS)[clear], cast[clear], atol=1e-12)


def test_a_site_of_one_class_votes_for_it_and_0_counts_as_positive() -> None:
    where = np.where(LABELS > 0, "ill", "well")
    model = Ensemble(landmarks=25, scale="none", sum="plain").fit(ROWS, LABELS, groups=where)
    np.testing.assert_allclose(np.sort(model.model_.models[:, -1]), [-1.0, 1.0])
    assert (model.decision_function(ROWS) == 0).all()
    assert (model.predict(ROWS) == 1).all()
    assert votes(np.zeros((1, 3)), np.ones((2, 2))).tolist() == [[1.0, 1.0]]


@pytest.mark.long
@pytest.mark.parametrize("protocol", ["ring", "masked"])
def test_sites_that_keep_their_models_are_asked_by_one_sum(protocol: str, tmp_path: Path, data_folder: Path) -> None:
    """The votes are those of the models that are in the sites' files; and those that a federation releases."""
    kept = run("voting-ensemble", tmp_path / "kept", "data.folds=2", f"protocol.sum={protocol}")
    evaluate = kept.result["cost"]["by_phase"]["evaluate"]
    assert evaluate["rounds"] == 2
    assert "model_table" not in {each["step"] for each in kept.result["disclosures"]}
    released = run("voting-ensemble", tmp_path / "released", "data.folds=2", "algorithm.release=everyone")
    assert kept.result["metrics"] == released.result["metrics"]
    assert released.result["cost"]["by_phase"]["evaluate"]["rounds"] == 0
    with np.load(kept.folder / "model.npz") as arrays:
        assert "models" not in arrays.files
    predicted = [fedsvm("predict", tmp_path / name, "fourclass", folder=tmp_path) for name in ("kept", "released")]
    assert predicted[0].stdout == predicted[1].stdout
    assert len(predicted[0].stdout.splitlines()) == 863


def test_where_sites_differ_a_vote_is_no_match_for_a_model_of_all_rows(tmp_path: Path, data_folder: Path) -> None:
    """Fourclass, three sites by feature and dealt: the paper has 84.5 and 99.2 % of votes, and 99.9 % of all rows."""
    by_feature, dealt = (
        run("voting-ensemble", tmp_path / split, f"data.split={split}").result for split in ("by-feature:f1", "random")
    )
    assert by_feature["metrics"]["accuracy"] == pytest.approx(0.83, abs=0.03)
    assert dealt["metrics"]["accuracy"] == pytest.approx(0.99, abs=0.01)
    assert min(each["centralised"]["accuracy"] for each in (by_feature, dealt)) > 0.99


WDBC = ["data.source=wdbc", "data.positive=malignant", "data.split=random", "data.label=label", "data.folds=2"]
WDBC += ["algorithm.landmarks=20", "algorithm.gamma=0.03", "federation.sites=4"]


@pytest.mark.parametrize(("phase", "number"), [("setup", 2), ("landmarks", 2), ("train", 1), ("evaluate", 1)])
@pytest.mark.parametrize("release", ["sites", "everyone"])
def test_a_site_that_drops_does_not_vote(phase: str, number: int, release: str, tmp_path: Path) -> None:
    if (phase, release) == ("evaluate", "everyone"):
        pytest.skip("nobody is asked")
    kill = f"faults=[{{kind='kill',site=2,phase='{phase}',round={number}}}]"
    result = run("voting-ensemble", tmp_path / "run", *WDBC, f"algorithm.release={release}", kill).result
    assert result["sites"][1]["status"] == "dropped"
    assert result["metrics"]["accuracy"] > 0.9
    assert result["model"]["figures"]["models"] == 3


def test_an_estimator_has_no_files_for_its_sites() -> None:
    with pytest.raises(FederationError, match=r"no file to keep a model in; use algorithm\.release = .everyone"):
        Ensemble(landmarks=25, release="sites").fit(ROWS, LABELS)


def test_models_that_sites_keep_are_asked_for() -> None:
    with pytest.raises(ValueError, match="read them together with their files"):
        EnsembleModel(IdentityMap(2), None).decision_function(np.zeros((1, 2)))


def test_a_sites_own_model_tells_members_from_others() -> None:
    """Candidates at the margin of one model of 60 rows in 80 features: all who have a part are members."""
    candidates = table(120, seed=4)
    there = LabeledRows(candidates.rows[:60], candidates.labels[:60])
    written, feature_map = WrittenDown(), FourierMap.draw(0.3, 40, len(NAMES), seed=1)
    written.add("receive_map", **feature_map.to_fields())
    rows = scaled(written, there.rows, [])
    written.add("receive_map", **feature_map.to_fields())
    (found,) = solve_pooled([Problem.of(feature_map(rows), there.labels, 1.0)], StoppingRule(1e-8, 100))
    taken = np.append(found.w, [found.b, 1.0])
    written.add("model_table", np.stack([np.zeros_like(taken), taken]))
    ranking, claim = SiteSupportRows(1.0, 1e-8)(written.view(), Prior(candidates=candidates))
    assert isinstance(ranking, CandidateScores)
    assert isinstance(claim, RowClaim)
    member = (ranking.candidates.rows[:, None] == there.rows).all(axis=2).any(axis=1)
    assert member.any()
    assert not member.all()
    above = np.sign(ranking.scores[member][:, None] - ranking.scores[~member])
    assert (above.mean() + 1) / 2 > 0.9
    assert len(claim.rows) > 10
    assert (claim.rows[:, None] == there.rows).all(axis=2).any(axis=1).all(), "none that is claimed is wrong"
