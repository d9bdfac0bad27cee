"""Scenario files: read whole, refused with every mistake at once, written back the same."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scenarios import spec
from scenarios.problems import ScenarioError
from scenarios.spec import Scenario

LEAST: dict[str, Any] = {"name": "x", "data": {"source": "iris"}}


def problems(given: dict[str, Any]) -> list[str]:
    with pytest.raises(ScenarioError) as caught:
        spec.validate(given)
    return list(caught.value.problems)


def with_part(part: str, **keys: Any) -> dict[str, Any]:
    return LEAST | {part: LEAST.get(part, {}) | keys}


@pytest.mark.parametrize("name", spec.catalogue())
def test_every_scenario_of_the_catalogue_is_valid_and_described(name: str) -> None:
    scenario, folder = spec.read(name)
    assert scenario.name == name
    assert folder == spec.CATALOGUE
    assert len(spec.catalogue()[name]) > 20
    assert tomllib.loads(spec.catalogue_text(name))


def test_the_defaults_are_those_of_the_documentation() -> None:
    scenario = spec.validate(LEAST)
    assert scenario.federation.site_names == ["site-1", "site-2", "site-3", "site-4", "site-5"]
    assert (scenario.federation.transport, scenario.federation.encryption) == ("tcp", True)
    assert (scenario.protocol.sum, scenario.algorithm.groups, scenario.data.test_fraction) == ("ring", 32, 0.2)
    assert not spec.validate(with_part("federation", transport="ipc")).federation.encryption


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"name": "x"}, "data: is missing; the scenario must say it."),
        (with_part("data", sorce="iris"), "data.sorce: unknown key. Did you mean 'source'?"),
        (LEAST | {"faultz": []}, "faultz: unknown key."),
        (with_part("algorithm", C="ten"), "algorithm.C: 'ten' will not do; it must be a number."),
        (with_part("algorithm", C=0.0), "algorithm.C: 0.0 will not do; it must be above 0"),
        (with_part("algorithm", groups=0), "algorithm.groups: 0 will not do; it must be 1 or more."),
        (with_part("algorithm", groups=1.5), "algorithm.groups: 1.5 will not do; it must be a whole number."),
        (with_part("algorithm", kernel="gauss"), 'algorithm.kernel: \'gauss\' will not do; it must be "linear", "rbf"'),
        (with_part("algorithm", landmarks=1.5), "algorithm.landmarks: 1.5 will not do; a share of the rows"),
        (with_part("algorithm", tolerance=1.0), "algorithm.tolerance: 1.0 will not do; it must be below 1"),
        (with_part("protocol", sum="rings"), "protocol.sum: 'rings' will not do; one of plain, ring."),
        (
            with_part("federation", encryption="yes"),
            "federation.encryption: 'yes' will not do; it must be true or false.",
        ),
        (with_part("federation", sites=2), "protocol.sum: with 2 sites a ring sum hides nothing; it needs 3 or more."),
        (with_part("federation", sites=3, names=["a", "b"]), "federation: sites is 3 but names lists 2"),
        (with_part("federation", names=["a", "a", "b"]), "federation.names: names that differ from each other."),
        (with_part("federation", names=["a", "b", "../c"]), "federation.names: letters, digits"),
        (with_part("federation", names=["a", "b", "coordinator"]), "federation.names: letters, digits"),
        (with_part("federation", transport="ipc", encryption=True), "federation: encryption needs transport"),
        (with_part("federation", port=65534), "federation: port 65534 leaves too few ports for 5 sites"),
        (with_part("data", folds=5, test_fraction=0.2), "data: folds and test_fraction exclude each other"),
        (with_part("data", split="by-feature:"), "data.split: 'by-feature:' will not do; random, label-skew"),
        (
            with_part("data", split="sizes:[1,x]"),
            "data.split: 'sizes:[1,x]' will not do; sizes are written sizes:[10, 20, 30].",
        ),
        (with_part("data", split="sizes:[1,2]"), "data.split: 2 sizes are given for 5 sites."),
        (LEAST | {"name": "a/b"}, "name: 'a/b' will not do; letters, digits"),
        (LEAST | {"federation": 5}, "federation: 5 will not do; it must be a table."),
    ],
)
def test_a_mistake_is_reported_with_its_key_and_what_is_allowed(given: dict[str, Any], sentence: str) -> None:
    (problem,) = problems(given)
    assert problem.startswith(sentence)


def test_all_mistakes_are_reported_together() -> None:
    wrong = {"name": "x", "seed": -1, "data": {"source": 3}, "algorithm": {"C": -1.0, "gama": 1.0}}
    assert [problem.split(":")[0] for problem in problems(wrong)] == [
        "seed",
        "data.source",
        "algorithm.C",
        "algorithm.gama",
    ]


@given(
    sites=st.integers(3, 50),
    C=st.floats(1e-6, 1e6),
    landmarks=st.integers(1, 1000) | st.floats(0.01, 1),
    split=st.sampled_from(["random", "label-skew", "by-feature:a b"]),
    folds=st.none() | st.integers(2, 10),
    seed=st.integers(0, 2**40),
)
def test_a_resolved_scenario_reads_back_the_same(
    sites: int, C: float, landmarks: float, split: str, folds: int | None, seed: int
) -> None:
    data = {"source": "x.csv", "split": split} | ({"folds": folds} if folds else {})
    given = {"name": "x", "seed": seed, "federation": {"sites": sites}, "data": data}
    scenario = spec.validate(given | {"algorithm": {"C": C, "landmarks": landmarks}})
    assert Scenario.model_validate(tomllib.loads(spec.resolved_toml(scenario))) == scenario


def test_a_file_is_read_and_changed_from_the_command_line(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text('[data]\nsource = "mine.csv"\n')
    changes = ["algorithm.C=3.5", "algorithm.kernel=linear", "data.ignore=['id']", "federation.round_timeout_s=5.0"]
    scenario, folder = spec.read(str(path), overrides=changes, sites=7)
    assert (scenario.name, folder) == ("mine", tmp_path)
    assert (scenario.algorithm.C, scenario.algorithm.kernel, scenario.data.ignore) == (3.5, "linear", ["id"])
    assert scenario.federation.sites == 7


@pytest.mark.parametrize(
    ("scenario", "changes", "sentence"),
    [
        ("quickstar", [], "There is no scenario 'quickstar' in the catalogue. Did you mean 'quickstart'?"),
        ("gone.toml", [], "There is no scenario file 'gone.toml'"),
        ("quickstart", ["algorithm.C"], "--set algorithm.C: write it as key.path=value"),
        ("quickstart", ["name.x=1"], "--set name.x=1: name is not a table."),
        ("quickstart", ["algorithm.D=1"], "algorithm.D: unknown key."),
    ],
)
def test_what_cannot_be_read_is_said(scenario: str, changes: list[str], sentence: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        spec.read(scenario, overrides=changes)
    assert str(caught.value).startswith(sentence)


@pytest.mark.parametrize("content", [b"name = ", b"\xff\xfe"])
def test_bad_toml_is_refused_with_its_place(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "bad.toml"
    path.write_bytes(content)
    with pytest.raises(ScenarioError, match="is not valid TOML"):
        spec.read(str(path))


def test_sites_cannot_be_changed_where_they_are_named() -> None:
    with pytest.raises(ScenarioError, match=r"change federation\.names instead"):
        spec.read("wdbc-10-fold", sites=4)
