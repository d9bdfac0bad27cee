"""Predictions of new records whose columns are at different sites, by a model that stays split among these."""

from __future__ import annotations

import csv
import shutil
import stat
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

import numpy as np
import pytest

from fedsvm.algorithms import SITE_MODULE
from fedsvm.algorithms.column_prediction import NAME, PredictionSite, Request, ask, prediction_partition
from fedsvm.algorithms.data.vertical import align, max_squared_norm
from fedsvm.algorithms.features.kernel_expansion import KernelExpansion
from fedsvm.algorithms.features.kernels import Kernel, KernelName
from fedsvm.federation.errors import FederationError, OrderRefused, StepRefused
from fedsvm.federation.hosts.site_session import SiteSession
from fedsvm.federation.site.program import open_steps
from fedsvm.federation.site.terms import Terms
from fedsvm.federation.startup import local_federation
from fedsvm.protocols.sums.ring import ring
from fedsvm.scenarios.column_prediction import SplitModel, read_split_model
from fedsvm.scenarios.hosts import new_records
from fedsvm.scenarios.hosts.new_records import hold_asked
from fedsvm.scenarios.schema.errors import ScenarioError
from fedsvm.scenarios.schema.policy import PolicyFile, template
from tests.commands import fedsvm
from tests.hosts import NAMES, Hosts, Started, hosts
from tests.test_hosts import write_columns

pytestmark = pytest.mark.timeout(300)
NEW = 25
"""New patients, of whom each hospital has most."""


@dataclass
class Asked:
    """A model that three hospitals trained, and new patients that they predicted together."""

    there: Hosts
    pooled: dict[str, float]
    """The decision values of the pooled model, by patient."""
    coordinator: Started
    sites: list[Started]

    @property
    def folder(self) -> Path:
        """The folder of all files."""
        return self.there.folder


def write_new_patients(folder: Path) -> dict[str, tuple[float, ...]]:
    """A column of measurements at each site, of new patients in an order of its own; those that all have."""
    random = np.random.default_rng(11)
    known = {f"N{number:03d}": tuple(random.normal(size=3).tolist()) for number in range(NEW)}
    in_all = set(known)
    for place, (name, column) in enumerate({"east": "size", "north": "depth", "south": "age"}.items()):
        here = random.permutation(sorted(known))[: NEW - 3].tolist()
        in_all &= set(here)
        lines = [f"patient,{column}", *(f"{who},{known[who][place]!r}" for who in here)]
        (folder / f"{name}-new.csv").write_text("\n".join([*lines, ""]))
    return {who: known[who] for who in sorted(in_all)}


def pooled_decisions(folder: Path, new: dict[str, tuple[float, ...]]) -> dict[str, float]:
    """Decision values of the model in the folder `deployed`, of all columns in one place."""
    with np.load(folder / "deployed" / "model.npz") as file:
        model = dict(file)
    parts = [np.load(folder / f"{name}.npz") for name in NAMES]
    offset, scale, reference = (np.hstack([part[name] for part in parts]) for name in ("offset", "scale", "reference"))
    rows = (np.array(list(new.values())) - offset) / scale
    kernel = Kernel.from_arrays(model)(rows, reference)
    return dict(zip(new, (kernel @ model["dual_coef"] + model["b"]).tolist(), strict=True))


def asks(there: Hosts, *words: str) -> Started:
    """Start a coordinator that asks for predictions, and wait until it listens."""
    begun = there.command(
        "coordinator",
        *("coordinate", "--predict", "deployed", "--listen", "tcp://127.0.0.1:0", "--key", "coordinator.key_secret"),
        *("--sites", "sites", "--wait", "80s", *words),
    )
    begun.says("listens at ")
    return begun


def answers(there: Hosts, name: str, coordinator: Started, *words: str) -> Started:
    """Start a site with its part of the model and its new patients."""
    address = coordinator.said.partition("listens at ")[2].partition(" ")[0]
    return there.command(
        name,
        *("site", "--coordinator", address, "--coordinator-key", "coordinator.key", "--key", f"{name}.key_secret"),
        *("--data", f"{name}-new.csv", "--predict", f"{name}.npz", "--wait", "80s", "--listen", "tcp://127.0.0.1:0"),
        *words,
    )


def read(path: Path) -> list[dict[str, str]]:
    """The rows of a file of predictions."""
    with path.open() as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Asked]:
    folder = tmp_path_factory.mktemp("asked")
    with hosts(folder) as there:
        write_columns(folder)
        trained = there.coordinator()
        begun = [there.site(name, trained) for name in NAMES]
        assert [each.ends() for each in (trained, *begun)] == [0] * 4, [x.said for x in (trained, *begun)]
        pooled = pooled_decisions(folder, write_new_patients(folder))
        (folder / "south.toml").write_text(
            template("dpp-svm", "south").replace("# [algorithms.predict]\n# records", "[algorithms.predict]\nrecords")
            + "\n[sums.ring]\n"
        )
        coordinator = asks(there, "--records", "100")
        sites = [
            answers(there, name, coordinator, *(("--policy", "south.toml") if name == "south" else ()))
            for name in NAMES
        ]
        assert [each.ends() for each in (coordinator, *sites)] == [0] * 4, [x.said for x in (coordinator, *sites)]
        yield Asked(there, pooled, coordinator, sites)


def test_hosts_predict_patients_that_nobody_had_in_training_as_the_pooled_model(asked: Asked) -> None:
    found = read(asked.folder / "south-predictions.csv")
    assert {row["patient"] for row in found} == asked.pooled.keys()
    for row in found:
        assert float(row["decision"]) == pytest.approx(asked.pooled[row["patient"]], abs=1e-9)
        assert row["predicted"] == ("M" if asked.pooled[row["patient"]] > 0 else "B")


def test_only_the_receiver_learns_decision_values(asked: Asked) -> None:
    assert stat.S_IMODE((asked.folder / "south-predictions.csv").stat().st_mode) == 0o600
    assert not list(asked.folder.glob("[en]*-predictions.csv"))
    said = asked.coordinator.said
    assert f"south has the predictions of {len(asked.pooled)} records" in " ".join(said.split())
    assert "coordinator learned of 'kernel_to_support'" not in said


def test_the_receipt_of_a_site_has_the_request(asked: Asked) -> None:
    (path,) = (each for each in asked.folder.glob("north-*.receipt") if b"kernel_to_support" in each.read_bytes())
    shown = fedsvm("receipt", path.name, folder=asked.folder)
    assert shown.returncode == 0, shown.stderr
    assert "kernel_to_support" in shown.stdout and "predict" in shown.stdout


@pytest.mark.long
def test_a_coordinator_has_numbers_and_sites_the_patients_of_these(asked: Asked) -> None:
    coordinator = asks(asked.there, "--receiver", "coordinator", "--out", "answer")
    kept = {name: f"{name}-numbers.csv" for name in NAMES}
    sites = [answers(asked.there, name, coordinator, "--keep", kept[name]) for name in NAMES]
    assert [each.ends() for each in (coordinator, *sites)] == [0] * 4, [x.said for x in (coordinator, *sites)]
    named = {row["row"]: row["patient"] for row in read(asked.folder / kept["east"])}
    assert (asked.folder / kept["east"]).read_text() == (asked.folder / kept["south"]).read_text()
    for row in read(asked.folder / "answer" / "predictions.csv"):
        assert float(row["decision"]) == pytest.approx(asked.pooled[named[row["row"]]], abs=1e-9)
    assert "east learned of 'kernel_to_support': kernel values of all columns together" in coordinator.said
    assert "coordinator learned of 'kernel_to_support'" not in coordinator.said


@pytest.fixture(scope="module")
def model(asked: Asked) -> SplitModel:
    return read_split_model(asked.folder / "deployed")


def test_a_policy_limits_records_and_receivers(model: SplitModel) -> None:
    given = {"algorithms": {"predict": {"records": {"max": 100}, "receiver": ["south"]}}}
    rules = PolicyFile.model_validate(given).rules
    assert rules.refusals(model.terms(model.request(None, 100))) == []
    refused = " ".join(rules.refusals(model.terms(model.request("coordinator", 101))))
    assert "records must be 100 or less, got 101" in refused and 'receiver must be "south"' in refused
    others = PolicyFile.model_validate({"algorithms": {"dpp-svm": {}}}).rules
    assert others.refusals(model.terms(model.request(None, 1))) == ["the algorithm must be dpp-svm, got predict"]


def test_a_receiver_is_a_party_and_of_two_sites_the_coordinator(model: SplitModel) -> None:
    with pytest.raises(ScenarioError, match="--receiver: must be one of"):
        model.request("west", 10)
    two = replace(model, sites=("east", "south"))
    assert two.request(None, 10).receiver == "coordinator"
    with pytest.raises(ScenarioError, match="each would learn the other's part"):
        two.request("south", 10)


def test_files_that_do_not_fit_are_refused_and_quoted_to_nobody_else(asked: Asked, model: SplitModel) -> None:
    terms, folder = model.terms(model.request(None, 10)), asked.folder
    new, part = str(folder / "east-new.csv"), folder / "east.npz"
    with pytest.raises(StepRefused, match="asks for predictions; add --predict"):
        hold_asked("east", new, None, terms, None)
    with pytest.raises(StepRefused, match="trains a model; remove --predict"):
        hold_asked("east", new, part, replace(terms, program="dpp-svm"), None)
    for name, value in {"model": "0", "gamma": 1e7, "kernel": "linear", "classes": ["one"]}.items():
        other = replace(terms, settings={**terms.settings, name: value})
        with pytest.raises(StepRefused, match="is not this site's part of the model") as caught:
            hold_asked("east", new, part, other, None)
        assert str(folder) not in caught.value.shared
    (folder / "gap.csv").write_text("patient,size\nP1,1\nP2,\n")
    with pytest.raises(StepRefused, match="has no value in row 2") as caught:
        hold_asked("east", str(folder / "gap.csv"), part, terms, None)
    assert "row 2" not in caught.value.shared
    (folder / "nobody.csv").write_text("patient,size\n,1\n")
    with pytest.raises(StepRefused, match="has no 'patient'"):
        hold_asked("east", str(folder / "nobody.csv"), part, terms, None)


def test_a_site_creates_the_folder_of_its_predictions_before_it_takes_part(tmp_path: Path) -> None:
    target = tmp_path / "new" / "south.csv"

    @dataclass
    class EndedSession:
        settings: dict[str, str]

        def take_part(self) -> None:
            assert target.parent.is_dir()
            np.savez(self.settings["answer_path"], called="patient", records=["P1"])

        def tell(self, sentence: str) -> None:
            assert str(target) in sentence

    new_records.answer(cast(SiteSession, EndedSession({})), target)
    assert target.read_text() == "row,patient\n1,P1\n"


def test_options_of_predictions_need_a_run_to_predict_with(tmp_path: Path) -> None:
    words = ("--sites", "sites", "--listen", "tcp://127.0.0.1:0", "--key", "own.key_secret", "--receiver", "south")
    refused = fedsvm("coordinate", "study.toml", *words, folder=tmp_path)
    assert refused.returncode == 2
    assert "--receiver and --records are for --predict; remove them" in refused.stderr


def test_a_number_of_rows_above_those_of_the_site_is_refused_before_it_is_allocated() -> None:
    site = PredictionSite("a", prediction_partition(np.ones((3, 1)), np.ones((2, 1)), np.ones(2), ["x"]), {})
    for rows in (-1, 4, 10**15):
        with pytest.raises(OrderRefused, match="at most the number of records"):
            site.scores_of_opened("b", rows)


def test_more_records_than_agreed_are_refused_by_the_site() -> None:
    partition = prediction_partition(np.ones((3, 1)), np.ones((2, 1)), np.ones(2), ["x"])
    site = PredictionSite("east", partition, {"seed": 0})
    site.terms = Terms(NAME, {"records": 2}, "ring", {}, 3)
    with pytest.raises(OrderRefused, match="a request for 2 records or fewer was agreed on"):
        site.longest()


@pytest.mark.parametrize("kernel", ["linear", "rbf"])
def test_a_site_opens_sums_to_the_agreed_receiver_only(kernel: KernelName) -> None:
    def site(receiver: str) -> PredictionSite:
        made = PredictionSite("a", prediction_partition(np.ones((3, 1)), np.ones((2, 1)), np.ones(2), ["x"]), {})
        made.terms = Terms(NAME, {"kernel": kernel, "receiver": receiver, "records": 3}, "ring", {}, 3)
        return made

    step, names = "partial_scores" if kernel == "linear" else "kernel_to_support", ("a", "b", "c")
    site("b").check_receiver(step, "b", names)
    site("b").check_receiver("longest", "coordinator", names)
    site("coordinator").check_receiver(step, "coordinator" if kernel == "linear" else "a", names)
    site("coordinator").check_receiver(step, "coordinator", names[:2])
    for other in ("coordinator", "c"):
        with pytest.raises(OrderRefused, match=f"must be opened by b, got {other}"):
            site("b").check_receiver(step, other, names)
    with pytest.raises(OrderRefused, match="must be opened by coordinator, got b"):
        site("coordinator").check_receiver("scores_of_opened", "b", names)
    with pytest.raises(OrderRefused, match="would learn the other's part"):
        site("b").check_receiver(step, "b", names[:2])
    of_site, of_coordinator = (PredictionSite.script(site(each).terms).steps for each in ("b", "coordinator"))
    assert "scores_of_opened" not in of_site
    assert ("scores_of_opened" in of_coordinator) == (kernel == "rbf")


def test_a_coordinator_that_lies_does_not_open_what_a_site_receives() -> None:
    model = KernelExpansion(Kernel("rbf", 0.5, 3, 1.0), np.ones(2), np.array(0.0))
    request = Request(model, "b", 3, "position", ("x", "y"))
    partition = prediction_partition(np.ones((3, 1)), np.ones((2, 1)), np.ones(2), ["p"])
    asked = Terms(NAME, request.to_settings(), "ring", {}, 3, gathers=open_steps(PredictionSite))
    parts = dict.fromkeys("abc", partition)
    with (
        local_federation(SITE_MODULE, NAME, parts, ring(), settings={"seed": 0}, terms=asked) as federation,
        pytest.raises(FederationError, match="must be opened by b, got coordinator"),
    ):
        align(federation, "position")
        max_squared_norm(federation)
        federation.sum("kernel_to_support", shape=(3, 2), bound=100.0, first=0, last=3, distances=True)


def test_a_receiver_keeps_scores_by_record_whatever_the_order_of_blocks(tmp_path: Path) -> None:
    rows, reference, dual_coef = np.arange(3.0)[:, None], np.array([[1.0], [3.0]]), np.array([1.0, -2.0])
    model = KernelExpansion(Kernel("rbf", 0.5, 3, 1.0), dual_coef, np.array(0.25))
    path = tmp_path / "answer.npz"
    site = PredictionSite("b", prediction_partition(rows, reference, dual_coef, ["x"]), {"answer_path": str(path)})
    site.terms = Terms(NAME, Request(model, "b", 3, "position", ("x", "y")).to_settings(), "ring", {}, 3)

    def open_block(first: int, last: int) -> None:
        site.take_opened(site.kernel_to_support(first, last, distances=True))

    open_block(1, 3)
    site.kernel_to_support(0, 1, distances=True)  # a round that is aborted
    site.score_opened("b")
    with pytest.raises(OrderRefused, match="each record must be scored once"):
        site.keep_answer()
    open_block(0, 1)
    site.score_opened("b")
    site.keep_answer()
    with np.load(path) as kept:
        np.testing.assert_allclose(kept["decisions"], model.kernel(rows, reference) @ dual_coef + 0.25)
    with pytest.raises(OrderRefused, match="that the agreed kernel is of"):
        site.kernel_to_support(0, 3, distances=False)


@pytest.mark.parametrize(
    ("kernel", "classes", "receiver"), [("linear", 2, "coordinator"), ("poly", 3, "coordinator"), ("linear", 3, "b")]
)
def test_any_kernel_and_number_of_classes_is_as_pooled(
    kernel: KernelName, classes: int, receiver: str, tmp_path: Path
) -> None:
    random = np.random.default_rng(5)
    rows, reference = random.normal(size=(7, 6)), random.normal(size=(4, 6))
    dual_coef = random.normal(size=4 if classes == 2 else (classes, 4))
    intercept = np.array(0.3) if classes == 2 else random.normal(size=classes)
    model = KernelExpansion(Kernel(kernel, 0.5, 3, 1.0), dual_coef, intercept)
    request = Request(model, receiver, 7, "position", tuple("xyz"[:classes]))
    partitions = {
        name: prediction_partition(rows[:, part], reference[:, part], dual_coef, ["p", "q"])
        for name, part in {"a": slice(0, 2), "b": slice(2, 4), "c": slice(4, 6)}.items()
    }
    asked = Terms(NAME, request.to_settings(), "ring", {}, 3, gathers=open_steps(PredictionSite))
    path = tmp_path / "answer.npz"
    settings = {"seed": 0} | ({} if receiver == "coordinator" else {"answer_path": str(path)})
    with local_federation(SITE_MODULE, NAME, partitions, ring(), settings=settings, terms=asked) as federation:
        found = ask(federation, request).decisions
    exact = model.kernel(rows, reference) @ dual_coef.T + intercept
    if receiver != "coordinator":
        assert found is None
        with np.load(path) as kept:
            found = kept["decisions"]
            assert kept["records"].tolist() == list("1234567")
    np.testing.assert_allclose(np.asarray(found), exact, atol=1e-9)


def test_a_simulated_run_is_asked_over_its_sites(tmp_path: Path) -> None:
    words = ["run", "dpp-svm-tic-tac-toe", "--quiet", "--out", "run", "--set", "compare.centralised=false"]
    ran = fedsvm(*words, "--set", "data.folds=2", folder=tmp_path)
    assert ran.returncode == 0, ran.stderr
    answers = [fedsvm("predict", "run", "tic-tac-toe", *more, folder=tmp_path) for more in ([], ["--over-sites"])]
    assert [each.returncode for each in answers] == [0, 0], [each.stderr for each in answers]
    here, over_sites = (
        [float(row["decision"]) for row in csv.DictReader(each.stdout.splitlines())] for each in answers
    )
    np.testing.assert_allclose(over_sites, here, atol=1e-9)


def test_a_model_of_rows_has_no_sites_to_ask(asked: Asked) -> None:
    folder = asked.folder / "rows"
    shutil.copytree(asked.folder / "deployed", folder)
    with np.load(folder / "model.npz") as file:
        arrays = dict(file) | {"algorithm": np.array("pan-svm")}
    np.savez(folder / "model.npz", **arrays)
    with pytest.raises(ScenarioError, match="is not split among sites that hold columns"):
        read_split_model(folder)
