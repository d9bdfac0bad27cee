"""Scenario files: read whole, refused with every mistake at once, written back the same."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedsvm.federation.faults import kinds
from fedsvm.federation.faults.fault_kind import find_kinds
from fedsvm.scenarios.data import dataset
from fedsvm.scenarios.schema import spec
from fedsvm.scenarios.schema.errors import ScenarioError
from fedsvm.scenarios.schema.threats import FaultSpec

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
    assert (scenario.protocol.sum, scenario.algorithm.settings.cut_groups, scenario.data.test_fraction) == (
        "ring",
        32,
        0.2,
    )
    assert not spec.validate(with_part("federation", transport="ipc")).federation.encryption


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"name": "x"}, "data: is missing; add it to the scenario."),
        (with_part("data", sorce="iris"), "data.sorce: unknown key. Did you mean 'source'?"),
        (LEAST | {"faultz": []}, "faultz: unknown key. Did you mean 'faults'?"),
        (with_part("algorithm", C="ten"), "algorithm.C: must be a number from 1e-12 to 1e12, got 'ten'."),
        (with_part("algorithm", C=0.0), "algorithm.C: must be a number from 1e-12 to 1e12, got 0.0."),
        (
            with_part("algorithm", cut_groups=0),
            "algorithm.cut_groups: must be a whole number from 1 to 5792, got 0.",
        ),
        (
            with_part("algorithm", cut_groups=1.5),
            "algorithm.cut_groups: must be a whole number from 1 to 5792, got 1.5.",
        ),
        (with_part("algorithm", kernel="gauss"), 'algorithm.kernel: must be "linear", "rbf"'),
        (
            with_part("algorithm", landmarks=1.5),
            "algorithm.landmarks: must be a whole number from 1 to 5792 or a number above 0 and up",
        ),
        (
            with_part("algorithm", landmarks=True),
            "algorithm.landmarks: must be a whole number from 1 to 5792 or a number above 0 and",
        ),
        (
            with_part("algorithm", tolerance=1.0),
            "algorithm.tolerance: must be a number from 1e-15 and below 1, got 1.0.",
        ),
        (
            with_part("protocol", sum="rings"),
            "protocol.sum: must be one of plain, ring, k-secure",
        ),
        (
            with_part("federation", encryption="yes"),
            "federation.encryption: must be true or false, got 'yes'.",
        ),
        (
            with_part("federation", sites=2),
            "protocol.sum: a ring sum needs 3 sites or more and there are 2; with fewer it hides nothing.",
        ),
        (with_part("federation", sites=3, names=["a", "b"]), "federation: sites is 3 but names lists 2"),
        (
            with_part("federation", names=["a", "a", "b"]),
            "federation.names: 'a' appears more than once; names must differ",
        ),
        (with_part("federation", names=["a", "b", "../c"]), "federation.names: must be made of"),
        (with_part("federation", names=["a", "b", "coordinator"]), "federation.names: must be made of letters, digits"),
        (with_part("federation", names=[]), "federation.names: must be a list that is not empty."),
        (with_part("federation", transport="ipc", port=5000), "federation: port needs transport"),
        (with_part("federation", sites=20_000), "federation.sites: must be 10000 or less, got 20000."),
        (with_part("federation", transport="ipc", encryption=True), "federation: encryption needs transport"),
        (with_part("federation", port=65534), "federation: port 65534 leaves too few ports for 5 sites"),
        (with_part("data", folds=5, test_fraction=0.2), "data: folds and test_fraction exclude each other"),
        (
            with_part("data", split="by-feature:"),
            "data.split: must be random, label-skew",
        ),
        (
            with_part("data", split="dirichlet:0"),
            "data.split: must be written dirichlet:0.5, with a number from 0.001 to 1e+06, got 'dirichlet:0'.",
        ),
        (with_part("data", split="quantity:much"), "data.split: must be written quantity:0.5, with a number from"),
        (with_part("data", split="by-value:"), "data.split: must be random, label-skew"),
        (
            with_part("data", split="sizes:[1,x]"),
            "data.split: must be written sizes:[10, 20, 30], each of them 1 or more, got 'sizes:[1,x]'.",
        ),
        (with_part("data", split="sizes:[1,2]"), "data.split: 2 sizes are given for 5 sites."),
        (
            with_part("data", split="sizes:[5,0]"),
            "data.split: must be written sizes:[10, 20, 30], each of them 1 or more, got 'sizes:[5,0]'.",
        ),
        (with_part("data", positive=[1]), "data.positive: must be text, in quotes."),
        (LEAST | {"name": "a/b"}, "name: must be made of letters, digits"),
        (LEAST | {"seed": 2**63}, "seed: must be 9.22337e+18 or less, got 9223372036854775808."),
        (LEAST | {"federation": 5}, "federation: must be a table, got 5."),
    ],
)
def test_a_mistake_is_reported_with_its_key_and_what_is_allowed(given: dict[str, Any], sentence: str) -> None:
    (problem,) = problems(given)
    assert problem.startswith(sentence)


DPP = LEAST | {"data": {"source": "wdbc", "partition": "vertical"}, "algorithm": {"name": "dpp-svm"}}


def vertical(part: str, **keys: Any) -> dict[str, Any]:
    return DPP | {part: DPP.get(part, {}) | keys}


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (
            DPP | {"algorithm": {}},
            'data.partition: pan-svm needs "horizontal"; set it to that, or set algorithm.name = "dp',
        ),
        (
            LEAST | {"algorithm": {"name": "dpp-svm"}},
            'data.partition: dpp-svm needs "vertical"; set it to that, or set',
        ),
        (vertical("data", split="random"), "data.split: must be even or columns:[[age, sex]"),
        (
            vertical("data", split="columns:[a,b]"),
            "data.split: must be written columns:[[age, sex], [weight]], got 'columns:[a,b]'.",
        ),
        (
            vertical("data", split="columns:[[a],[]]"),
            "data.split: must be written columns:[[age, sex], [weight]], got 'columns:[[a],[]]'.",
        ),
        (vertical("data", split="columns:[[a],[b]]"), "data.split: 2 lists of columns are given for 5 sites."),
        (
            vertical("data", label_site=6),
            "data.label_site: there is no site 6; there are site-1, site-2, site-3, site-4",
        ),
        (vertical("data", label_site="clinic"), "data.label_site: there is no site 'clinic'; there are site-1"),
        (
            vertical("data", overlap=0.5, align="position"),
            'data: overlap below 1 needs align = "identifier"; by position',
        ),
        (vertical("data", overlap=0.0), "data.overlap: must be above 0, got 0.0."),
        (vertical("data", align="hash"), 'data.align: must be "identifier" or "position", got \'hash\'.'),
        (
            vertical("data", identifier="id", align="position"),
            "data: identifier is for alignment; remove it, or",
        ),
        (
            vertical("data", categories={"a": ["b"]}),
            "data.categories: applies to horizontal partitions; remove it, or set",
        ),
        (
            vertical("data", identifier="label", align="identifier"),
            "data: identifier must be another column than label, got 'label' for both.",
        ),
        (with_part("data", identifier="id"), "data.identifier: applies to vertical partitions; remove it, or set"),
        (
            with_part("data", overlap=0.5),
            "data.overlap: applies to vertical partitions; remove it, or set data.partition",
        ),
        (
            vertical("algorithm", cut_groups=8),
            "algorithm.cut_groups: applies to training with landmarks, and dpp-svm without them is",
        ),
        (
            vertical("algorithm", landmarks=9, min_cluster_size=3),
            "algorithm.min_cluster_size: unknown key. It is a setting of pan-svm, ",
        ),
        (
            vertical("algorithm", kernel="laplacian"),
            'algorithm.kernel: must be "linear", ',
        ),
        (
            vertical("algorithm", kernel_exchange="none"),
            'algorithm.kernel_exchange: must be "summed',
        ),
        (
            with_part("algorithm", kernel_exchange="plain"),
            "algorithm.kernel_exchange: unknown key. It is a setting of dpp-svm, dpp-selection.",
        ),
        (
            vertical("federation", sites=1) | {"protocol": {"sum": "plain"}},
            "federation.sites: a vertical partition needs",
        ),
        (
            LEAST | {"collusion": {"sites": [1], "known_records": 5}},
            "collusion.known_records: applies to vertical partitions",
        ),
    ],
)
def test_a_mistake_of_a_vertical_scenario_is_reported(given: dict[str, Any], sentence: str) -> None:
    (problem,) = problems(given)
    assert problem.startswith(sentence)


DP = LEAST | {
    "data": {"source": "wdbc", "public": 60},
    "algorithm": {"name": "dp-erm", "epsilon": 1.0},
}


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"data": {"source": "wdbc"}}, "data.public: dp-erm takes columns, scale and features from public rows; set"),
        (
            {"data": DP["data"] | {"ranges": {"age": [9.0, 1.0]}}},
            "data.ranges: the range of 'age' must be written [low",
        ),
        ({"data": DP["data"] | {"ranges": {"age": [9.0]}}}, "data.ranges.age: "),
        (
            {"algorithm": DP["algorithm"] | {"C": 5.0}},
            "algorithm.C: unknown key. It is a setting of pan-svm, dpp-svm, hybrid-svm, ",
        ),
        (
            {"algorithm": DP["algorithm"] | {"features": 2000}},
            "algorithm.features: must be 1770 or less, as 60 public rows have pairs, got 2000;",
        ),
        (
            {"algorithm": DP["algorithm"] | {"delta": 0.1}},
            "algorithm.delta: unknown key. It is a setting of hybrid-svm.",
        ),
        ({"algorithm": {}}, "data.public: pan-svm does not use public rows; remove this key."),
    ],
)
def test_a_mistake_of_a_private_scenario_is_reported(changed: dict[str, Any], sentence: str) -> None:
    (problem,) = problems(DP | changed)
    assert problem.startswith(sentence)


def test_a_vertical_scenario_with_every_default_spelt_out_reads_back_the_same() -> None:
    for written in (DPP, vertical("data", overlap=0.5), vertical("algorithm", landmarks=50, cut_groups=4)):
        scenario = spec.validate(written)
        assert spec.validate(tomllib.loads(spec.resolved_toml(scenario))) == scenario
    assert spec.validate(vertical("data", overlap=0.5)).data.align == "identifier"
    assert spec.validate(DPP).data.split == "even"
    assert spec.validate(DPP).algorithm.settings.landmarks is None


KILL = {"kind": "kill", "site": 3, "phase": "train", "round": 5}
PARTITION = {"kind": "partition", "phase": "train", "round": 2}


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"faults": [KILL | {"site": 9}]}, "faults.1: there is no site 9; there are site-1, site-2"),
        ({"faults": [KILL | {"site": "north"}]}, "faults.1: there is no site 'north'; there are site-1"),
        ({"faults": [KILL | {"site": [1]}]}, "faults.1.site: must be the number of a site"),
        ({"faults": [KILL | {"phase": "trian"}]}, "faults.1: there is no phase 'trian' with rounds; there are setup"),
        ({"faults": [KILL | {"phase": "evaluate"}]}, "faults.1: there is no phase 'evaluate' with rounds"),
        (
            {"faults": [KILL | {"kind": "explode"}]},
            'faults.1.kind: must be "corrupt", "delay"',
        ),
        ({"faults": [KILL | {"rond": 5}]}, "faults.1.rond: unknown key. Did you mean 'round'?"),
        ({"faults": [KILL | {"for_s": 1.0}]}, "faults.1: for_s does not apply to a kill fault; remove it."),
        ({"faults": [KILL | {"kind": "delay"}]}, "faults.1: a delay fault needs delay_ms, the extra milliseconds."),
        ({"faults": [PARTITION]}, "faults.1: a partition fault needs groups"),
        (
            {"faults": [PARTITION | {"groups": "halves"}]},
            'faults.1.groups: must be "split-one", "bisect" or lists of sites',
        ),
        ({"faults": [PARTITION | {"groups": [[1, 2], [2, 3]]}]}, "faults.1: a site is in two of the groups"),
        ({"faults": [PARTITION | {"groups": [[1, "site-1"]]}]}, "faults.1: a site is in two of the groups"),
        ({"faults": [PARTITION | {"groups": [[1], [9]]}]}, "faults.1: there is no site 9"),
        ({"faults": [PARTITION | {"groups": "split-one"}]}, "faults.1: a partition fault needs a site"),
        (
            {"faults": [KILL, KILL | {"round": 9}]},
            "faults.2: fault 1 kills its site for good before; set rejoin = true",
        ),
        ({"faults": [KILL, KILL | {"kind": "stall"}]}, "faults.2: fault 1 strikes the same site at the same message"),
        (
            {"faults": [PARTITION | {"groups": "bisect"}, PARTITION | {"groups": [[1, 2]]}]},
            "faults.2: fault 1 is a partition in the same round; list all groups in one.",
        ),
        (
            {"faults": [KILL] * 12},
            "faults.2, 3, 4, 5, 6, 7, 8, 9 and 3 more: fault 1 strikes the same site at the same message; keep one.",
        ),
        ({"faults": [KILL] * 1001}, "faults: must be a list of 1000 or fewer, got 1001."),
        ({"faults": [KILL | {"kind": "explode"}] * 1001}, "faults: must be a list of 1000 or fewer, got 1001."),
        (
            {"faults": [KILL, KILL | {"site": 1}], "protocol": {"sum": "masked"}},
            "faults: kills leave 3 of 5 sites, and 4 are needed (federation.min_sites = 1, and a masked (threshold",
        ),
        (
            {
                "faults": [KILL | {"site": site} for site in range(1, 23)],
                "protocol": {"sum": "masked", "threshold": 0.501},
                "federation": {"sites": 52},
            },
            "faults: kills leave 30 of 52 sites, and 31 are needed",
        ),
        ({"faults": [KILL], "federation": {"min_sites": 5}}, "faults: kills leave 4 of 5 sites, and 5 are needed"),
        ({"federation": {"min_sites": 6}}, "federation: min_sites is 6 and there are 5 sites; lower it."),
        (
            {"faults": [KILL | {"kind": "corrupt"}], "federation": {"encryption": False}},
            "faults: without encryption a changed frame is not detected",
        ),
        ({"network": {}, "federation": {"transport": "ipc"}}, "federation.transport: network conditions and faults on"),
        (
            {"network": {}, "federation": {"sites": 200}},
            "federation.sites: network conditions and faults on links need",
        ),
        ({"network": {"latency_ms": 601.0}}, "network.latency_ms: must be 600 or less, got 601.0."),
        ({"network": {"latency_ms": 5.0, "jitter_ms": 9.0}}, "network: jitter_ms is more than latency_ms"),
        ({"network": {"links": [{"from": 1, "to": 9}]}}, "network.links.1: there is no party 9; there are coordinator"),
        ({"network": {"links": [{"from": 1}]}}, "network.links.1.to: is missing; add it to the scenario."),
        ({"collusion": {"sites": [1, 2, 3, 4, 5]}}, "collusion.sites: all sites are in the coalition"),
        ({"collusion": {"sites": [1, "site-1"]}}, "collusion.sites: site-1 is listed twice, by number and by name."),
        ({"collusion": {"sites": [1, 9]}}, "collusion.sites: there is no site 9"),
        ({"collusion": {}}, "collusion: nobody colludes; list sites, set coordinator = true"),
        ({"protocol": {"threshold": 0.4}}, "protocol.threshold: must be a number above 0.5 and up to 1, got 0.4."),
    ],
)
def test_a_mistake_in_what_a_run_is_to_suffer_is_reported_too(given: dict[str, Any], sentence: str) -> None:
    (problem,) = problems(LEAST | given)
    assert problem.startswith(sentence)


def test_faults_are_numbered_as_in_the_file_beside_one_that_is_no_fault() -> None:
    _, contradiction = problems(LEAST | {"faults": [KILL, KILL | {"kind": "explode"}, KILL | {"round": 9}]})
    assert contradiction.startswith("faults.3: fault 1 kills its site for good before; set rejoin = true")


def test_each_contradiction_of_many_faults_is_one_sentence() -> None:
    """Comparing every two of them took minutes, and gave half a million sentences."""
    equal = [KILL | {"round": 2}] * 400 + [PARTITION | {"groups": "bisect"}] * 300
    said = problems({"name": "x", "data": {"source": "tic-tac-toe"}, "faults": [*equal, *[KILL] * 300]})
    assert [sentence.partition(": ")[2].partition(";")[0] for sentence in said] == [
        "fault 1 kills its site for good before",
        "fault 1 strikes the same site at the same message",
        "fault 701 strikes the same site at the same message",
        "fault 401 is a partition in the same round",
    ]


def test_faults_can_be_added_on_the_command_line() -> None:
    faults = [
        "kill:site=3,phase=train,round=5,rejoin=true",
        "partition:groups=[[1,2],[3,4]],phase=train,round=2,for_s=1.5",
    ]
    scenario, _ = spec.read("quickstart", faults=faults)
    assert [fault.kind for fault in scenario.faults] == ["kill", "partition"]
    assert scenario.faults[0].restarts
    assert scenario.faults[1].groups == [[1, 2], [3, 4]]
    with pytest.raises(ScenarioError, match="write it as kind:key=value"):
        spec.read("quickstart", faults=["kill:site"])


def test_a_partition_is_a_function_of_the_sites() -> None:
    names = ["a", "b", "c", "d", "e"]

    def groups(**terms: Any) -> list[set[str]]:
        return FaultSpec.model_validate(PARTITION | terms).parties(names)

    assert groups(groups="bisect") == [{"a", "b", "c", "coordinator"}, {"d", "e"}]
    assert groups(groups="split-one", site=2) == [{"a", "c", "d", "e", "coordinator"}, {"b"}]
    assert groups(groups=[["a"], [3, "d"]]) == [{"a"}, {"c", "d", "coordinator"}, {"b", "e"}]
    links = FaultSpec.model_validate(PARTITION | {"groups": "bisect"}).links(names)
    assert len(links) == 2 * 4 * 2
    inward = FaultSpec.model_validate(KILL | {"kind": "disconnect", "direction": "in"}).links(names)
    assert set(inward) == {(other, "c") for other in ["coordinator", "a", "b", "d", "e"]}


def test_all_mistakes_are_reported_together() -> None:
    wrong = {"name": "x", "seed": -1, "data": {"source": 3}, "algorithm": {"C": -1.0, "gama": 1.0}}
    assert [problem.split(":")[0] for problem in problems(wrong)] == [
        "seed",
        "data.source",
        "algorithm.C",
        "algorithm.gama",
    ]


def test_what_does_not_go_together_is_reported_beside_other_mistakes() -> None:
    wrong = with_part("federation", sites=2) | {"algorithm": {"C": -1.0}}
    assert [problem.split(":")[0] for problem in problems(wrong)] == ["algorithm.C", "protocol.sum"]


def test_a_scenario_is_read_without_the_slow_libraries() -> None:
    code = "import sys, fedsvm.scenarios.schema.spec; print(*{name.partition('.')[0] for name in sys.modules})"
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert "pydantic" in printed.split()
    assert not set(printed.split()) & {"sklearn", "pyarrow", "scipy"}


@pytest.mark.parametrize("name", spec.catalogue())
def test_the_catalogue_fits_its_data(name: str, data_folder: Path) -> None:
    scenario, folder = spec.read(name)
    prepared = dataset.prepare(scenario, folder)
    assert (
        len(prepared.classes) > 2 if scenario.data.positive is None else prepared.classes[1] == scenario.data.positive
    )
    assert len(prepared.shards) == scenario.federation.sites


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
    again = spec.validate(tomllib.loads(spec.resolved_toml(scenario)))
    assert again == scenario
    assert type(again.algorithm.settings.landmarks) is type(landmarks)  # 1 is a count and 1.0 is all rows


NAMES = st.lists(st.from_regex(r"[a-z][a-z0-9._-]{0,8}", fullmatch=True), min_size=3, max_size=6, unique=True)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)


@given(names=NAMES, texts=st.dictionaries(TEXTS, st.lists(TEXTS)), transport=st.sampled_from(["tcp", "ipc"]))
def test_names_and_texts_of_any_kind_read_back_the_same(
    names: list[str], texts: dict[str, list[str]], transport: str
) -> None:
    data = {"source": "x.csv", "categories": texts, "ignore": list(texts)}
    scenario = spec.validate({"name": "x", "federation": {"names": names, "transport": transport}, "data": data})
    assert scenario.federation.site_names == names
    assert spec.validate(tomllib.loads(spec.resolved_toml(scenario))) == scenario


def test_a_file_is_read_and_changed_from_the_command_line(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text('[data]\nsource = "mine.csv"\n')
    changes = ["algorithm.C=3.5", "algorithm.kernel=linear", "data.ignore=['id']", "federation.round_timeout_s=5.0"]
    scenario, folder = spec.read(path, overrides=changes, sites=7)
    assert (scenario.name, folder) == ("mine", tmp_path)
    assert (scenario.algorithm.settings.C, scenario.algorithm.settings.kernel, scenario.data.ignore) == (
        3.5,
        "linear",
        ["id"],
    )
    assert scenario.federation.sites == 7


@pytest.mark.parametrize(
    ("scenario", "changes", "sentence"),
    [
        ("quickstar", [], "There is no scenario 'quickstar' in the catalogue. Did you mean 'quickstart'? It has aust"),
        ("/", [], "/ is a folder; name the TOML file in it."),
        ("gone.toml", [], "There is no scenario file 'gone.toml'; `fedsvm scenarios` lists the catalogue."),
        ("quickstart", ["algorithm.C"], "--set algorithm.C: write it as key.path=value"),
        ("quickstart", ["name.x=1"], "--set name.x=1: name is not a table."),
        ("quickstart", ["algorithm.D=1"], "algorithm.D: unknown key."),
        ("quickstart", ["C", "x"], "--set C: write it as key.path=value, such as algorithm.C=10.\n--set x: write it"),
    ],
)
def test_what_cannot_be_read_is_said(scenario: str, changes: list[str], sentence: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        spec.read(scenario, overrides=changes)
    assert str(caught.value).startswith(sentence)


def test_the_folder_of_a_run_is_told_from_other_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "first").mkdir()
    with pytest.raises(ScenarioError, match=r"^first is a folder; name the TOML file in it\.$"):
        spec.read("first")
    (tmp_path / "first" / "scenario.toml").write_text("")
    with pytest.raises(ScenarioError, match=r"^first is the folder of a run; name first/scenario\.toml\.$"):
        spec.read("first")


@pytest.mark.parametrize(("content", "place"), [(b"seed = 1\nname = \n", "line 2"), (b"\xff\xfe", "not UTF-8 text")])
def test_bad_toml_is_refused_with_its_place(content: bytes, place: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.toml"
    path.write_bytes(content)
    with pytest.raises(ScenarioError, match=f"is not valid TOML: .*{place}"):
        spec.read(str(path))


def test_sites_cannot_be_changed_where_they_are_named() -> None:
    with pytest.raises(ScenarioError, match=r"change federation\.names instead"):
        spec.read("wdbc-10-fold", sites=4)


@pytest.mark.parametrize(
    ("part", "key", "value", "sentence"),
    [
        ("algorithm", "cut_groups", 10**9, "must be a whole number from 1 to 5792, got 1000000000"),
        ("algorithm", "landmarks", 10**9, "must be a whole number from 1 to 5792 or a number above 0 and up to 1"),
        ("algorithm", "C", 1e300, "must be a number from 1e-12 to 1e12, got 1e+300"),
        ("algorithm", "gamma", 1e308, "must be a number from 1e-12 to 1e12"),
        ("algorithm", "degree", 10**9, "must be a whole number from 1 to 100"),
        ("algorithm", "coef0", 1e300, "must be a number from -1e12 to 1e12"),
        ("algorithm", "tolerance", 1e-300, "must be a number from 1e-15 and below 1"),
        ("algorithm", "line_search_step", 1e300, "must be a number from 1e-12 to 1e12"),
        ("algorithm", "max_iterations", 10**4000, "must be a whole number from 1 to 1000000000, got a number of 4001"),
        ("federation", "sites", 10**6, "must be 10000 or less"),
        ("federation", "names", [f"s{number}" for number in range(10**5)], "must be a list of 10000 or fewer"),
        ("federation", "names", ["a" * 5000, "b", "c"], "must have 200 letters or fewer, got 'aaa"),
        ("federation", "round_timeout_s", 1e300, "must be 100000 or less"),
        ("federation", "round_timeout_s", 1e-300, "must be 0.001 or more"),
        ("protocol", "segments", 10**9, "must be a whole number from 2 to 10000, got 1000000000"),
        ("protocol", "rings", 10**9, "must be a whole number from 1 to 10000, got 1000000000"),
        ("data", "folds", 10**9, "must be 1000 or less"),
        ("data", "ranges", {"age": [0.0, 1e300]}, "must be 1e+12 or less"),
        ("network", "latency_ms", 1e300, "must be 600 or less"),
        ("network", "bandwidth_mbit", 1e-300, "must be 1e-06 or more"),
    ],
)
def test_what_is_out_of_sense_is_refused_before_anything_starts(part: str, key: str, value: Any, sentence: str) -> None:
    (problem,) = [each for each in problems(with_part(part, **{key: value})) if each.startswith(f"{part}.{key}")]
    assert sentence in problem
    assert len(problem) < 300


@pytest.mark.parametrize(
    ("key", "value"), [("for_s", 1e300), ("round", 10**20), ("message", 10**20), ("bytes", 10**20), ("delay_ms", 1e300)]
)
def test_a_fault_out_of_sense_is_refused(key: str, value: Any) -> None:
    kind = {"for_s": "stall", "bytes": "corrupt", "delay_ms": "delay"}.get(key, "kill")
    fault = {"kind": kind, "site": 1, "phase": "train", "round": 1, "delay_ms": 1.0} | {key: value}
    if kind != "delay":
        del fault["delay_ms"]
    (problem,) = problems(LEAST | {"faults": [fault]})
    assert problem.startswith(f"faults.1.{key}: must be ")


@pytest.mark.usefixtures("noisy_default")
def test_algorithms_in_features_take_noisy_statistics_unless_the_scenario_says_otherwise() -> None:
    privacy = {name: spec.read(name)[0].data.statistics_privacy for name in ("quickstart", "naive-bayes", "splice")}
    assert privacy == {"quickstart": 0.5, "naive-bayes": 0.0, "splice": 0.0}
    exact, _ = spec.read("quickstart", overrides=["data.statistics_privacy=0"])
    assert exact.data.statistics_privacy == 0
    spec.read("quickstart", overrides=["data.ranges={age=[0,120]}"])


def test_kinds_of_faults_are_found_by_their_modules() -> None:
    found = find_kinds()
    assert {f"{kinds.__name__}.{name}" for name in found} == {kind.__module__ for kind in found.values()}
    own = [key.name for kind in found.values() for key in kind.own_keys]
    assert len(set(own)) == len(own)
    assert {key for kind in found.values() for key in (*kind.keys, *own)} <= FaultSpec.model_fields.keys()
    for kind in found.values():
        assert kind.sentence in str(FaultSpec.__doc__)
