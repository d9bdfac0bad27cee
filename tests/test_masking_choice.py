"""The choice of a masking before a run: when a committee is taken, why not, and what sites and results are told."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks import masking_forecast
from fedsvm.algorithms.algorithm import Premises
from fedsvm.algorithms.data.conditions import Conditions
from fedsvm.algorithms.hybrid_svm.algorithm import HybridSvm
from fedsvm.algorithms.hybrid_svm.settings import HybridSettings
from fedsvm.algorithms.least_squares import LeastSquares, LeastSquaresSettings
from fedsvm.algorithms.logistic_regression.algorithm import LogisticRegression
from fedsvm.algorithms.logistic_regression.settings import LogisticSettings
from fedsvm.algorithms.optimization.masking_choice import MaskedRounds
from fedsvm.algorithms.pan_svm import PanSettings, PanSvm
from fedsvm.algorithms.rfe import Rfe, RfeSettings
from fedsvm.protocols.blind_system import blind_systems_cost
from fedsvm.protocols.sums.registry import SUMS
from fedsvm.protocols.sums.ring import RING
from fedsvm.scenarios.run.offered_terms import resolve_settings, terms_of
from fedsvm.scenarios.schema import spec
from tests.small_runs import run
from tests.test_explanation import explained

pytestmark = pytest.mark.usefixtures("committee_default")
DOCS = Path(__file__).parent.parent / "docs"
FEW = Premises(5)
SLOW = Conditions(latency_s=0.05)
NARROW = Conditions(bytes_per_s=1e5)


def chosen(premises: Premises, **settings: Any) -> tuple[str, str]:
    """Return the masking of PAN-SVM, and the sentence on it."""
    found, (remark,) = PanSvm().resolve_settings(PanSettings(masking="auto", **settings), premises)
    assert remark.name == "masking"
    return found.masking, remark.sentence


@pytest.mark.parametrize("sites", [3, 5, 20])
def test_a_committee_is_the_default(sites: int) -> None:
    """Landmarks are a share of rows whose number nobody knows yet."""
    found, _ = PanSvm().resolve_settings(PanSettings(), Premises(sites))
    assert found.masking == "committee"


@pytest.mark.parametrize(("rows", "expected"), [(None, 200), (400, 100), (10_000, 300)])
def test_landmarks_that_are_a_share_of_rows(rows: int | None, expected: int) -> None:
    assert PanSettings().expected_features(rows) == expected
    assert PanSettings(landmark_method="local").expected_features(10_000) == 2500


def test_the_other_algorithms_with_the_setting_have_no_committee() -> None:
    selected, _ = Rfe().resolve_settings(RfeSettings(), FEW)
    assert selected.masking == "congruence"


def test_a_private_model_is_trained_behind_a_committee_where_there_is_a_system() -> None:
    found, (remark,) = HybridSvm().resolve_settings(HybridSettings(), FEW)
    assert (found.masking, remark.sentence.partition(";")[0]) == ("committee", "committee")
    alone, remarks = HybridSvm().resolve_settings(HybridSettings(variant="one-shot"), FEW)
    assert (alone.masking, remarks) == ("congruence", ())
    assert HybridSvm().resolve_settings(HybridSettings(), Premises(2))[0].masking == "congruence"


@pytest.mark.parametrize("sites", [3, 5, 20])
def test_few_features_have_a_committee(sites: int) -> None:
    masking, sentence = chosen(Premises(sites), landmarks=50)
    assert masking == "committee"
    assert sentence.startswith("committee; on an idle machine a run would take about ")
    assert ", without one " in sentence


@pytest.mark.parametrize(
    ("premises", "settings"),
    [
        (Premises(3), {"landmarks": 400}),
        (Premises(3, rows=2000), {"landmarks": 340}),
        (replace(FEW, conditions=SLOW), {"landmarks": 50}),
        (replace(FEW, conditions=NARROW), {"landmarks": 50}),
        (replace(FEW, classes=10), {"landmarks": 180}),
        (replace(FEW, classes=11), {"landmarks": 15, "multiclass": "joint"}),
        (replace(FEW, models=10), {"landmarks": 180}),
    ],
)
def test_a_committee_that_costs_more_than_twice_is_not_taken(premises: Premises, settings: dict[str, Any]) -> None:
    masking, sentence = chosen(premises, **settings)
    assert masking == "congruence"
    assert sentence.startswith("congruence; on an idle machine a run would take about ")
    assert ", with a committee " in sentence


@pytest.mark.parametrize(
    ("premises", "settings", "why"),
    [
        (Premises(2), {"landmarks": 50}, "a committee needs 3 to 1024 sites"),
        (replace(FEW, min_sites=2), {"landmarks": 50}, "a committee needs 3 sites and the run may go on with 2"),
        (Premises(1025), {"landmarks": 50}, "a committee needs 3 to 1024 sites"),
        (Premises(5, conditions=Conditions(SUMS["plain"]())), {"landmarks": 50}, "shows the coordinator the sites'"),
        (FEW, {"landmarks": 50, "solver": "cutting-plane"}, "cutting planes have no system to mask"),
        (FEW, {"landmarks": 50, "solver": "auto"}, "cutting planes have no system to mask"),
        (FEW, {"features": "identity", "kernel": "linear"}, "the number of features is not known before the run"),
    ],
)
def test_a_run_that_can_have_no_committee_says_why(premises: Premises, settings: dict[str, Any], why: str) -> None:
    masking, sentence = chosen(premises, **settings)
    assert masking == "congruence"
    assert why in sentence


def test_another_masking_is_left_as_it_is() -> None:
    settings = PanSettings(masking="orthogonal", objective_noise=0.0, step_noise=0.1, tolerance=1e-4)
    assert PanSvm().resolve_settings(settings, FEW) == (settings, ())


def test_one_round_of_least_squares_has_a_committee_unless_the_network_is_slow() -> None:
    settings = LeastSquaresSettings(masking="auto")
    found, (remark,) = LeastSquares().resolve_settings(settings, FEW)
    assert (found.masking, remark.sentence.partition(";")[0]) == ("committee", "committee")
    found, (remark,) = LeastSquares().resolve_settings(settings, replace(FEW, conditions=NARROW))
    assert (found.masking, remark.sentence.partition(";")[0]) == ("none", "none")
    assert LeastSquares().resolve_settings(settings, Premises(2))[0].masking == "none"


def test_newton_s_method_has_a_committee_unless_it_costs_more_than_twice() -> None:
    settings = LogisticSettings(masking="auto")
    found, (remark,) = LogisticRegression().resolve_settings(settings, FEW)
    assert (found.masking, remark.sentence.partition(";")[0]) == ("committee", "committee")
    found, (remark,) = LogisticRegression().resolve_settings(settings, replace(FEW, models=10))
    assert (found.masking, ", with a committee " in remark.sentence) == ("none", True)


def test_the_prediction_counts_what_the_formulas_count() -> None:
    """A link of a byte a second, and seconds a hop, leave nothing else to see."""
    rounds = MaskedRounds.of_path(5, 40, 1, 1, Conditions(bytes_per_s=1.0, latency_s=1e3))
    cost = blind_systems_cost(RING, 5, rounds.systems)
    expected = rounds.share * rounds.rounds * (cost.payload_bytes / 5 + 1e3 * cost.hops)
    assert rounds.committee_s == pytest.approx(expected, rel=1e-3)
    cost = RING.cost(5, (rounds.numbers,), 1.0)
    assert rounds.open_s == pytest.approx(rounds.rounds * (cost.payload_bytes / 5 + 1e3 * cost.hops), rel=1e-3)
    assert rounds.committee_s > 2 * rounds.open_s


def test_the_tables_of_the_benchmarks_page_are_those_of_the_command() -> None:
    page = (DOCS / "benchmarks.md").read_text().splitlines()
    assert [line for line in masking_forecast.tables() if line not in page] == []


def test_few_rows_are_predicted_to_be_masked_in_place_of_their_matrix() -> None:
    few, many, unknown = (MaskedRounds.of_path(5, 400, 1, 1, Conditions(), rows=rows) for rows in (700, 10_000, None))
    assert few.open_s < many.open_s == unknown.open_s
    assert few.committee_s == many.committee_s


def test_sites_are_offered_the_masking_that_was_chosen() -> None:
    few, _ = spec.read("quickstart", overrides=["algorithm.masking=auto", "algorithm.landmarks=50"])
    assert terms_of(few).settings["masking"] == "committee"
    two = ["algorithm.masking=auto", "algorithm.landmarks=50", "protocol.sum=masked"]
    far, _ = spec.read("quickstart", overrides=two, sites=2)
    assert terms_of(far).settings["masking"] == "congruence"
    slow = ["algorithm.masking=auto", "algorithm.landmarks=50", "network.latency_ms=50"]
    assert resolve_settings(spec.read("quickstart", overrides=slow)[0])[0].masking == "congruence"


def test_an_explanation_is_of_the_masking_that_was_chosen() -> None:
    page = explained("quickstart", "algorithm.masking=auto", "algorithm.landmarks=50")
    assert any(each.startswith("In the step blind_newton the sites exchange messages") for each in page.beside)


def test_a_result_says_which_was_taken_and_what_the_other_costs(tmp_path: Path) -> None:
    changes = ["algorithm.masking=auto", "algorithm.landmarks=20", "compare.centralised=false"]
    result = run(tmp_path / "run", ["data.source=tic-tac-toe", "data.positive=positive", *changes], []).result
    assert result["error"] is None
    (remark,) = [each for each in result["model"]["remarks"] if each["name"] == "masking"]
    assert remark["sentence"].startswith("committee; on an idle machine a run would take about ")
    assert "two of the three committee members" in result["secrecy"]["whole_run"]
