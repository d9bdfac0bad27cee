"""Features by every way: what a federation agrees on is what pooled rows give, and who is shown what on the way."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer

from benchmarks.features import pooled_map
from fedsvm import PanSVC
from fedsvm.algorithms.features import k_means
from fedsvm.algorithms.features.choice import FEATURE_MAPS, FeatureSettings, read_map
from fedsvm.algorithms.features.feature_map import FeatureMap
from fedsvm.algorithms.features.fourier import FourierMap
from fedsvm.algorithms.features.identity import IdentityMap
from fedsvm.algorithms.features.kernels import Kernel
from fedsvm.algorithms.features.landmarks import LONE_ROWS, ROUNDS_OPENED
from fedsvm.algorithms.features.nystrom import NystromMap
from fedsvm.algorithms.linear_model import PanModel
from fedsvm.algorithms.optimization import libsvm
from fedsvm.federation.arrays import FloatArray
from fedsvm.federation.channel.memory import InMemoryNetwork, MemoryChannel
from fedsvm.federation.channel.transcript import read_transcript
from fedsvm.federation.errors import FederationError
from fedsvm.protocols.ring_broadcast import broadcast_ring
from fedsvm.scenarios.schema import spec
from fedsvm.scenarios.schema.errors import ScenarioError
from tests.test_attacks import collude, learnt
from tests.test_runs import run
from tests.test_sums import is_uniform

RANDOM = np.random.default_rng(0)
ROWS = RANDOM.normal(size=(200, 4))
X, Y = load_breast_cancer(return_X_y=True)
X = X[:240, :6]
Y = Y[:240]
WHERE = np.array(["north", "east", "south", "north"])[np.arange(240) % 4]
QUICK: dict[str, Any] = {"tolerance": 1e-3}


# A map is a map wherever it is read.


@pytest.mark.parametrize(
    "feature_map",
    [
        NystromMap.span(Kernel("poly", 0.5, 2, 1.0), ROWS[:9], 1e-10),
        FourierMap.draw(0.2, 7, 4, seed=1),
        IdentityMap(4),
    ],
    ids=lambda each: each.name,
)
def test_a_map_is_the_same_at_a_site_and_from_a_file(feature_map: FeatureMap, tmp_path: Path) -> None:
    features = feature_map(ROWS)
    assert features.shape == (200, feature_map.dimensions)
    arrays: dict[str, Any] = {**feature_map.to_arrays(), "columns": np.array(["a", "b", "c", "d"])}
    np.savez(tmp_path / "model.npz", **arrays)
    with np.load(tmp_path / "model.npz") as file:
        read = read_map(dict(file))
    for again in (read, read_map(feature_map.to_fields())):
        assert (type(again), again.kernel) == (type(feature_map), feature_map.kernel)
        np.testing.assert_array_equal(again(ROWS), features)


def test_every_kind_of_features_that_a_user_can_choose_has_a_map() -> None:
    with pytest.raises(ScenarioError, match=r'algorithm\.features: must be "landmarks", "fourier" or "identity"'):
        spec.read("quickstart", overrides=["algorithm.features=columns"])
    assert list(FEATURE_MAPS) == ["landmarks", "fourier", "identity"]


def test_random_frequencies_approximate_the_kernel_without_bias_and_better_than_independent_ones() -> None:
    rows, kernel = RANDOM.normal(size=(40, 8)), Kernel("rbf", 0.15)
    wanted, errors = kernel(rows, rows), []
    for draw in range(200):
        features = FourierMap.draw(0.15, 24, 8, seed=draw)(rows)
        np.testing.assert_allclose((features**2).sum(axis=1), 1.0, atol=1e-12)
        errors.append(features @ features.T - wanted)
    assert np.abs(np.mean(errors, axis=0)).max() < 0.06
    independent = []
    for draw in range(200):
        rho = np.sqrt(2 * 0.15) * np.random.default_rng(draw).standard_normal((24, 8))
        features = FourierMap(0.15, rho)(rows)
        independent.append(features @ features.T - wanted)
    assert np.std(errors) < 0.9 * np.std(independent)


# k-means by sums.


@pytest.mark.parametrize("count", [1, 2, 7, 40, 200])
def test_how_many_rounds_k_means_takes_depends_on_no_row(count: int) -> None:
    rounds = k_means.rounds(count)
    assert [each.number for each in rounds] == list(range(len(rounds)))
    assert (rounds[0].slots, rounds[-1].slots) == (1, count)
    for rows in (ROWS, np.zeros((5, 4)), np.repeat(ROWS[:3], 20, axis=0)):
        for least in (1, 3):
            centres = k_means.pooled_centres(rows, count, least, seed=1)
            assert len(centres) <= min(count, len(rows) // least)
    assert len(k_means.pooled_centres(ROWS, count, 1, seed=1)) >= 0.9 * count


def test_clusters_that_are_too_small_never_leave_the_site_that_opens() -> None:
    """Of any centres that are passed on, each is the mean of three rows or more."""
    sums = np.zeros((0, 6))
    for each in k_means.rounds(60):
        if each.number:
            kept = k_means.Clusters.of_sums(sums, 3)
            assert kept.sizes.min() >= 3
            passed_on = each.centres(sums, 3, seed=1)
            assert len(passed_on) <= each.slots
            if not each.splits:
                np.testing.assert_array_equal(passed_on, kept.centres)
        sums = k_means.cluster_sums(ROWS, passed_on if each.number else np.zeros((1, 4)))
    assert sums[:, -1].sum() == len(ROWS)


def test_what_a_site_has_goes_round_and_the_coordinator_is_left_out() -> None:
    sites = ("site-1", "site-2", "site-3", "site-4")
    network = InMemoryNetwork(sites)

    def part(channel: MemoryChannel) -> FloatArray:
        own = ROWS if channel.me == "site-3" else None
        return np.asarray(broadcast_ring(channel, "site-3", own, ROWS.shape, np.float64))

    received = network.run(dict.fromkeys(sites, part))
    assert all(np.array_equal(each, ROWS) for each in received.values())
    assert [(each.sender, each.receiver) for each in network.sent] == [
        ("site-3", "site-4"),
        ("site-4", "site-1"),
        ("site-1", "site-2"),
    ]
    assert network.hops == 3
    alone = InMemoryNetwork(("site-1",))
    assert alone.run({"site-1": lambda channel: broadcast_ring(channel, "site-1", ROWS, ROWS.shape)})["site-1"] is ROWS
    assert not alone.sent


# Real federations.

WAYS: dict[str, dict[str, Any]] = {
    "local": {"landmarks": 30},
    "global": {"landmarks": 30, "landmark_method": "global"},
    "fourier": {"features": "fourier", "frequencies": 20},
    "identity": {"features": "identity", "kernel": "linear"},
}
SHOWN = {"fourier": ("frequencies_", (20, 6)), "identity": ("coef_", (1, 6))}


def fitted(seed: int = 4, **settings: Any) -> PanSVC:
    return PanSVC(10.0, **settings, **QUICK, random_state=seed).fit(X, Y, groups=WHERE)


def features_of(model: PanSVC) -> FloatArray:
    """(n, m) of all rows."""
    assert isinstance(model.model_, PanModel)
    return model.model_.features(model.scaling_(X))


def held(model: PanSVC) -> dict[str, FloatArray]:
    """The scaled rows of each site, in ring order."""
    return {site["name"]: model.scaling_(X[site["name"] == WHERE]) for site in model.result_["sites"]}


def summed(model: PanSVC, to: str) -> set[str]:
    """The steps whose sums a party was shown."""
    return {each["step"] for each in model.result_["disclosures"] if (each["kind"], each["to"]) == ("sum", to)}


ASKED = {
    "local": {"local_landmarks", "records_exposed"},
    "global": {"last_centres", "rows_isolated"},
    "fourier": set[str](),
    "identity": set[str](),
}
"""The sums for the features that the coordinator sees."""


@pytest.mark.parametrize("way", WAYS)
def test_a_federation_agrees_on_the_map_that_pooled_rows_give(way: str) -> None:
    """By the same seed, and by no other. Training in it comes to the same optimum, and asks for what is said."""
    model, settings = fitted(**WAYS[way]), FeatureSettings(**WAYS[way])
    rows, features = model.scaling_(X), features_of(model)
    pooled, other = (pooled_map(settings, held(model), seed)(rows) for seed in (4, 5))
    np.testing.assert_allclose(features @ features.T, pooled @ pooled.T, rtol=0, atol=1e-6)
    assert (way == "identity") == np.allclose(other @ other.T, pooled @ pooled.T, rtol=0, atol=1e-6)
    signs = np.where(model.classes_[1] == Y, 1.0, -1.0)
    best = libsvm.objective(libsvm.linear(features, signs, 10.0), features, signs, 10.0)
    training = model.result_["model"]
    assert training["objective"] == pytest.approx(best, rel=2 * QUICK["tolerance"])
    assert training["figures"]["rank"] == pooled.shape[1]
    assert summed(model, "coordinator") & set().union(*ASKED.values()) == ASKED[way]
    if way in SHOWN:
        name, shape = SHOWN[way]
        assert getattr(model, name).shape == shape
    if way in ("fourier", "identity"):
        assert model.result_["cost"]["by_phase"]["landmarks"]["rounds"] == 1
    if way == "identity":
        np.testing.assert_allclose(X @ model.coef_[0] + model.intercept_, model.decision_function(X), atol=1e-9)


def test_rounds_of_k_means_are_opened_at_the_site_with_the_fewest_rows_and_what_it_learns_is_counted() -> None:
    """It is the attacker here: less its own rows the sums are of others, and a cluster of one of them is that row."""
    model = fitted(**WAYS["global"])
    assert model.result_["model"]["sites"] == ["east", "north", "south"]
    assert summed(model, "east") == {"cluster_sums"}
    assert not summed(model, "north") | summed(model, "south")
    told = {each["detail"]: each for each in model.result_["disclosures"] if each["to"] == "east"}
    assert ROUNDS_OPENED in told

    of_site = held(model)
    pooled = np.vstack([of_site[site] for site in ("east", "north", "south")])
    others = k_means.on_grid(np.vstack([of_site["north"], of_site["south"]]))
    lone, sums = 0, np.zeros((0, 8))
    for each in k_means.rounds(30):
        centres = each.centres(sums, 3, seed=4) if each.number else np.zeros((1, 6))
        sums = k_means.cluster_sums(pooled, centres)
        of_others = sums - k_means.cluster_sums(of_site["east"], centres)
        single = of_others[np.rint(of_others[:, -1]) == 1, :-2]
        assert all(np.abs(others - row).max(axis=1).min() < 1e-9 for row in single)
        lone += len(single)
    assert told[LONE_ROWS]["times"] == lone > 0


def test_the_coordinator_sees_nothing_of_k_means_before_its_end(tmp_path: Path) -> None:
    """Of the rounds on the way, what went through its hands is uniform, and no order has an array."""
    changes = ["algorithm.landmark_method=global", "algorithm.landmarks=40"]
    collusion = collude(tmp_path / "run", [], *changes, coordinator=True)["collusion"]
    assert learnt(collusion) == set()
    assert collusion["remarks"] == []
    log = [json.loads(line) for line in (tmp_path / "run" / "log.jsonl").read_text().splitlines()]
    verbs = {each["round"]: (each["verb"], each["step"]) for each in log if each["event"] == "round"}
    (transcript,) = (tmp_path / "run" / "transcripts").glob("coordinator*")
    received = [entry for entry in read_transcript(str(transcript)) if entry.what == "received"]
    seen = [entry.array for entry in received if verbs[entry.round] == ("sum-at", "cluster_sums") and entry.array.size]
    assert len(seen) == len(k_means.rounds(40))
    assert is_uniform(seen)
    assert not [entry for entry in received if verbs[entry.round] == ("run", "take_centres")]
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    arrays = {(each["step"], each["detail"]) for each in result["disclosures"] if each["kind"] == "parameter"}
    assert not {step for step, _ in arrays} & {"take_centres", "cluster_sums"}


@pytest.mark.parametrize("protocol", ["ring", "masked"])
def test_when_the_site_that_opens_drops_the_others_begin_anew_with_another(protocol: str, tmp_path: Path) -> None:
    changes = ["algorithm.landmark_method=global", "algorithm.landmarks=20", "algorithm.max_iterations=5"]
    changes += [f"protocol.sum={protocol}", "data.source=wine", "data.positive=class_0", "data.scale=standard"]
    changes += ["faults=[{kind='kill',site=3,phase='landmarks',round=12}]"]
    result = run("quickstart", tmp_path / "run", *changes, "compare.centralised=false").result
    openers = [each["to"] for each in result["disclosures"] if each["detail"] == ROUNDS_OPENED]
    assert list(dict.fromkeys(openers)) == ["site-3", "site-4"]
    assert result["model"]["sites"] == ["site-1", "site-2", "site-4", "site-5"]
    assert 0 < result["model"]["figures"]["landmarks"] <= 20


def test_a_restarted_site_takes_part_in_k_means_from_its_beginning(tmp_path: Path) -> None:
    settings = ["algorithm.landmark_method=global", "algorithm.landmarks=20", "algorithm.max_iterations=5"]
    settings += ["data.source=wine", "data.positive=class_0", "data.scale=standard", "compare.centralised=false"]
    fault = "faults=[{kind='kill',site=3,phase='landmarks',round=9,rejoin=true}]"
    undisturbed = run("quickstart", tmp_path / "one", *settings)
    restarted = run("quickstart", tmp_path / "two", *settings, fault)
    assert len(restarted.result["memberships"]) > 1
    with np.load(undisturbed.folder / "model.npz") as one, np.load(restarted.folder / "model.npz") as two:
        np.testing.assert_array_equal(one["landmarks"], two["landmarks"])


# Rows that are few, and settings that do not go together.


def test_landmarks_are_means_of_three_rows_or_more_unless_one_asks_otherwise() -> None:
    assert fitted(landmarks=0.9).result_["model"]["figures"]["records_exposed"] == 0
    assert fitted(landmarks=0.9, min_cluster_size=1).result_["model"]["figures"]["records_exposed"] > 0


@pytest.mark.parametrize(
    ("settings", "asked", "why"),
    [
        ({"landmarks": 0.5}, 120, "240 rows make at most 80 clusters of 3 (algorithm.min_cluster_size)"),
        ({"landmarks": 300, "min_cluster_size": 1}, 300, "there are 240 rows"),
        ({"landmarks": 78}, 78, "each is of 3 rows or more (algorithm.min_cluster_size), and equal rows share one"),
    ],
)
def test_a_result_says_why_there_are_fewer_landmarks_than_asked_for(
    settings: dict[str, Any], asked: int, why: str
) -> None:
    model = fitted(**settings).result_["model"]
    count = model["figures"]["landmarks"]
    assert model["figures"]["landmarks_asked"] == asked > count
    (remark,) = [each["sentence"] for each in model["remarks"] if each["name"] == "landmarks"]
    assert remark.startswith(f"{count} of the {asked} asked for: {why}; ")


def test_a_result_says_nothing_of_landmarks_that_are_as_many_as_asked_for() -> None:
    model = fitted(landmarks=12).result_["model"]
    assert model["figures"]["landmarks"] == model["figures"]["landmarks_asked"] == 12
    (remark,) = [each["sentence"] for each in model["remarks"] if each["name"] == "landmarks"]
    assert remark.startswith("none is a single row's copy, but exact means of few rows name these to whoever has ")


def test_a_site_with_fewer_rows_than_a_cluster_has_gives_no_landmark_and_takes_part() -> None:
    few = np.where(np.arange(240) < 2, "few", WHERE)
    for settings in (WAYS["local"], WAYS["global"]):
        model = PanSVC(10.0, **settings, **QUICK).fit(X, Y, groups=few)
        assert "few" in model.result_["model"]["sites"]
        distances = np.abs(model.scaling_(X[:2])[:, None, :] - model.landmarks_[None, :, :]).max(axis=2)
        assert distances.min() > 1e-3
    with pytest.raises(FederationError, match=r"No cluster of any site has 3 rows: lower algorithm\.min_cluster_size"):
        PanSVC(landmarks=1.0).fit(X[:6], np.arange(6) % 2, groups=[1, 1, 2, 2, 3, 3])
    with pytest.raises(FederationError, match="No cluster over all sites has 9 rows"):
        PanSVC(landmark_method="global", min_cluster_size=9).fit(X[:6], np.arange(6) % 2)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        (["features=fourier", "kernel=linear"], 'kernel: must be "rbf" with features = "fourier", got "linear"; or'),
        (["features=identity"], 'kernel: must be "linear" with features = "identity", which has no other, got "rbf"'),
        (
            ["features=fourier", "landmark_method=global"],
            'landmark_method: applies to features = "landmarks", got "fourier"; remove it',
        ),
        (["frequencies=30"], 'frequencies: applies to features = "fourier", got "landmarks"; remove it'),
        (["landmark_method=drawn", "min_cluster_size=2"], "min_cluster_size: drawn landmarks are no means of"),
        (["landmark_method=drawn", "landmark_noise=0.5"], "landmark_noise: applies to local landmarks, got drawn"),
        (
            ["landmark_method=gaussian"],
            'landmark_method: must be "auto", "drawn", "local" or "global"; "gaussian" is now "drawn".',
        ),
        (["frequencies=0"], "frequencies: must be a whole number from 1 "),
    ],
)
def test_settings_of_features_that_do_not_go_together(changes: list[str], says: str) -> None:
    overrides = [f"algorithm.{change}" for change in changes]
    with pytest.raises(ScenarioError, match=re.escape(f"algorithm.{says}")):
        spec.read("quickstart", overrides=overrides)
