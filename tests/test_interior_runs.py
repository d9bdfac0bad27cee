"""The interior point over real processes: who has the model in the end, and sites that are restarted meanwhile."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

from fedsvm.scenarios import predict
from fedsvm.scenarios.data import dataset
from fedsvm.scenarios.saved_model import read_model
from fedsvm.scenarios.schema import spec
from fedsvm.scenarios.schema.errors import ScenarioError
from tests.conftest import long_but_for
from tests.small_runs import TOLERANCE, check_optimum, run
from tests.test_prediction import write_table


@pytest.mark.parametrize("masking", long_but_for(["congruence", "orthogonal"], "congruence"))
def test_a_model_that_the_sites_keep_is_with_them_alone(masking: str, tmp_path: Path) -> None:
    """In a file of each, for its owner only; `predict` puts it together with the map. Of two folds the last is kept."""
    changes = ["algorithm.release=sites", f"algorithm.masking={masking}", "data.folds=2", "data.test_fraction=0.0"]
    finished = run(tmp_path / "run", changes, [])
    result, folder = finished.result, finished.folder
    assert result["error"] is None
    with np.load(folder / "model.npz") as public:
        assert not {"w", "b"} & set(public.files)
    files = sorted((folder / "sites").iterdir())
    assert [file.name for file in files] == [f"site-{number}.npz" for number in range(1, 6)]
    assert {file.stat().st_mode & 0o777 for file in files} == {0o600}
    weights = []
    for file in files:
        with np.load(file) as part:
            weights.append(np.append(part["w"], part["b"]))
    assert (np.array(weights) == weights[0]).all()
    assert "released" not in {each["step"] for each in result["disclosures"]}
    scenario, base = spec.read(str(folder / "scenario.toml"))
    labels = write_table(tmp_path / "new.csv", "wine", dataset.prepare(scenario, base).tests[-1])
    found = predict.predict(folder, str(tmp_path / "new.csv"))
    right = float(np.mean((found.predicted == "class_0") == (labels == "class_0")))
    assert right == pytest.approx(result["metrics"]["folds"][-1]["accuracy"], abs=1e-12)
    files[0].unlink()
    with pytest.raises(ScenarioError, match=r"site-1\.npz cannot be read"):
        predict.predict(folder, str(tmp_path / "new.csv"))


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        (["solver=cutting-plane"], 'algorithm.release: "sites" needs solver = "interior-point"; cutting planes show'),
        (["masking=none"], 'algorithm.release: "sites" needs a masking other than "none", which shows'),
    ],
)
def test_what_does_not_go_with_a_model_that_sites_keep(changes: list[str], says: str) -> None:
    with pytest.raises(ScenarioError) as refused:
        spec.read("quickstart", overrides=["algorithm.release=sites", *(f"algorithm.{each}" for each in changes)])
    assert says in str(refused.value)


def test_training_in_the_open_shows_the_coordinator_the_path_and_says_so(tmp_path: Path) -> None:
    result = run(tmp_path / "run", ["algorithm.masking=none", "algorithm.step_noise=0.1"], []).result
    check_optimum(result)
    (shown,) = [each for each in result["disclosures"] if (each["kind"], each["step"]) == ("design", "newton")]
    assert "with it the path of weights" in shown["detail"]


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        (["step_noise_floor=0.9"], "stopped training at a gap of .*; lower algorithm.step_noise_floor"),
        pytest.param(["masking=committee"], "stopped training .*; lower algorithm.step_noise ", marks=pytest.mark.long),
        pytest.param([], "halved to .*; algorithm.step_noise_floor keeps more", marks=pytest.mark.long),
    ],
)
def test_the_summary_says_what_became_of_the_step_noise(changes: list[str], says: str, tmp_path: Path) -> None:
    large = ["algorithm.step_noise=0.9", "algorithm.tolerance=1e-6", "compare.centralised=false"]
    result = run(tmp_path / "run", [*large, *(f"algorithm.{each}" for each in changes)], []).result
    (sentence,) = [each["sentence"] for each in result["model"]["remarks"] if each["name"] == "step noise"]
    assert re.match(says, sentence)


def kill(site: int, phase: str, number: int, *, rejoin: bool = True) -> str:
    return f"kill:site={site},phase={phase},round={number},rejoin={str(rejoin).lower()}"


@pytest.mark.parametrize(
    ("protocol", "faults"),
    [
        pytest.param("ring", [kill(1, "train", 9)], marks=pytest.mark.long),
        ("masked", [kill(1, "train", 9), kill(3, "train", 9)]),
        pytest.param("ring", [kill(1, "train", 3), kill(2, "train", 17)], marks=pytest.mark.long),
        pytest.param("masked", [kill(4, "train", 17, rejoin=False)], marks=pytest.mark.long),
    ],
    ids=["the first", "two at once", "as it is told, as it releases", "gone at the end"],
)
def test_sites_that_are_restarted_in_training_are_handed_the_path(
    protocol: str, faults: list[str], tmp_path: Path
) -> None:
    result = run(tmp_path / "run", [f"protocol.sum={protocol}"], faults).result
    assert result["error"] is None
    check_optimum(result)
    assert not [fault for fault in result["faults"] if " dropped in " not in fault["outcome"]]
    left = 4 if "rejoin=false" in faults[-1] else 5
    assert len(result["model"]["sites"]) == left
    assert result["model"]["iterations"] <= 13 + 13
    log = (tmp_path / "run" / "log.jsonl").read_text()
    assert "NaN" not in log
    assert "Infinity" not in log
    iterations = [event["iteration"] for event in map(json.loads, log.splitlines()) if event["event"] == "figures"]
    assert iterations == sorted(iterations), "nothing began anew"


def test_a_site_that_is_lost_as_it_keeps_the_model_is_made_up_for(tmp_path: Path) -> None:
    """The others train on, and what they keep is the optimum of their rows; a restarted one has its file again."""
    faults = [kill(2, "train", 17, rejoin=False), kill(3, "train", 18)]
    finished = run(tmp_path / "run", ["algorithm.release=sites"], faults)
    assert finished.result["error"] is None
    check_optimum(finished.result)
    sites = finished.result["model"]["sites"]
    assert sites == ["site-1", "site-3", "site-4", "site-5"]
    for site in sites:
        with np.load(finished.folder / "sites" / f"{site}.npz") as part:
            assert part["w"].shape == (1, finished.result["model"]["figures"]["rank"])
    assert not read_model(finished.folder).model.kept_by_sites
    (finished.folder / "sites").rename(tmp_path / "away")
    with pytest.raises(ScenarioError, match="only the sites have them"):
        read_model(finished.folder)


def test_a_site_that_is_restarted_in_a_later_fold_is_not_told_of_an_earlier_ones_training(tmp_path: Path) -> None:
    """There are as many features as landmarks: terms of the first fold do not fit those of the second."""
    changes = ["data.folds=2", "data.test_fraction=0.0", "algorithm.landmarks=0.2"]
    faults = [kill(2, "landmarks", 8), kill(1, "train", 30)]
    result = run(tmp_path / "run", changes, faults).result
    assert result["error"] is None
    assert not [fault for fault in result["faults"] if " dropped in " not in fault["outcome"]]
    assert result["model"]["gap"] <= TOLERANCE
    assert result["model"]["objective"] == pytest.approx(result["centralised"]["objective"], rel=2e-5)
