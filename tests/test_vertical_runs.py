"""Whole runs over vertical partitions: the pooled model, aligned in secret, and what is shown to whom."""

from __future__ import annotations

import hashlib
import json
import stat
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from fedsvm.algorithms.features.kernels import Kernel
from fedsvm.algorithms.features.partial_kernel import exchanged_elements
from fedsvm.algorithms.optimization.kernel_dual import kernel_bytes
from fedsvm.federation.channel.transcript import read_transcript
from fedsvm.protocols.arithmetic.commutative import P256
from fedsvm.protocols.common_seed import SHAPE
from fedsvm.protocols.sums.masked import masked
from tests.commands import fedsvm
from tests.conftest import long_but_for
from tests.run_results import Ran, simulate
from tests.test_runs import run

SAME = 1e-8
"""The tolerance of decision values against those of all columns together; the paper has 1e-6."""


def fails(name: str, folder: Path, *changes: str, faults: tuple[str, ...] = ()) -> dict[str, Any]:
    """The result of a run that goes wrong."""
    finished = attempt(name, folder, *changes, faults=faults)
    assert finished.result["status"] == "failed"
    return finished.result


def attempt(name: str, folder: Path, *changes: str, faults: tuple[str, ...] = ()) -> Ran:
    return Ran.of(simulate(name, folder, changes, faults=faults, another_follows=True))


def check_pooled(result: dict[str, Any]) -> None:
    """Every fold is what LIBSVM gets of all columns together."""
    found, pooled = result["metrics"]["folds"], result["centralised"]["folds"]
    assert len(found) == len(pooled) > 0
    for ours, theirs in zip(found, pooled, strict=True):
        assert ours["auc"] == pytest.approx(theirs["auc"], abs=1e-9)
        assert ours["accuracy"] == theirs["accuracy"]
        assert theirs["max_decision_difference"] <= SAME
    assert result["model"]["objective"] == pytest.approx(result["centralised"]["objective"], rel=1e-6)


def payload_of(finished: Ran, step: str) -> int:
    import pyarrow.parquet as pq  # one of the tests needs it

    ledger = pq.read_table(finished.folder / "ledger.parquet").to_pylist()
    return sum(row["payload_bytes"] for row in ledger if row["step"] == step and row["protocol"] != "control")


# The model.


@pytest.mark.parametrize("sites", long_but_for([2, 3, 4], 3))
def test_the_papers_experiment_gives_the_pooled_model_in_every_fold(sites: int, tmp_path: Path) -> None:
    result = run("dpp-svm-tic-tac-toe", tmp_path / "run", sites=sites).result
    assert len(result["metrics"]["folds"]) == 10
    check_pooled(result)
    assert len({site["pid"] for site in result["sites"]}) == sites
    assert sum(site["columns"] for site in result["sites"]) == 9
    assert result["cost"]["wire_bytes"] == result["cost"]["predicted_wire_bytes"]


@pytest.mark.parametrize("kernel", long_but_for(["linear", "rbf", "poly", "sigmoid"], "rbf", "sigmoid"))
@pytest.mark.parametrize("data", long_but_for(["tic-tac-toe", "wdbc"], "tic-tac-toe"))
def test_any_kernel_gives_the_pooled_model(data: str, kernel: str, tmp_path: Path) -> None:
    positive = {"tic-tac-toe": "positive", "wdbc": "malignant"}[data]
    scale = {"tic-tac-toe": "none", "wdbc": "standard"}[data]
    changes = [f"data.source={data}", f"data.positive={positive}", f"data.scale={scale}", "protocol.sum=k-secure"]
    shape = [f"algorithm.kernel={kernel}", "algorithm.gamma=0.02", "algorithm.coef0=0.5", "algorithm.C=1.0"]
    result = run("dpp-svm-tic-tac-toe", tmp_path / "run", *changes, *shape, "data.folds=3", sites=3).result
    check_pooled(result)
    if kernel != "sigmoid":
        assert 0 <= result["model"]["gap"] < 1e-4
    else:
        assert result["model"]["lower_bound"] is None


@pytest.mark.long
def test_training_that_cannot_reach_its_tolerance_stops_and_says_how_far_it_is(tmp_path: Path) -> None:
    """Standardised 0/1 columns follow from each other, and LIBSVM's kernel cache is too coarse to tell."""
    changes = ["data.scale=standard", "data.folds=2", "compare.centralised=false"]
    result = run("dpp-svm-tic-tac-toe", tmp_path / "run", *changes).result
    assert not result["model"]["converged"]
    assert 0 < result["model"]["gap"] < 1e-4
    assert result["warnings"][0].startswith("Training of fold 0 stopped, ")


def test_the_low_rank_model_is_the_pooled_one_with_the_same_landmarks(tmp_path: Path) -> None:
    changes = ["algorithm.landmarks=60", "algorithm.tolerance=1e-7", "data.scale=minmax"]
    result = run("dpp-svm-rbf", tmp_path / "run", *changes).result
    assert (result["model"]["figures"]["landmarks"], result["model"]["converged"]) == (60, True)
    assert result["model"]["objective"] == pytest.approx(result["centralised"]["objective"], rel=1e-5)
    assert result["metrics"]["auc"] == pytest.approx(result["centralised"]["auc"], abs=5e-3)


def test_a_model_stays_split_and_its_parts_score_as_the_whole(tmp_path: Path) -> None:
    finished = run("dpp-svm-unaligned", tmp_path / "run", "data.test_fraction=0.0")
    model = np.load(finished.folder / "model.npz")
    assert not {"reference", "columns", "landmarks"} & set(model.files)
    inner, columns = 0.0, []
    for site in finished.result["sites"]:
        path = finished.folder / "sites" / f"{site['name']}.npz"
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        part = np.load(path)
        assert part["reference"].shape == (finished.result["model"]["figures"]["support"], site["columns"])
        columns += part["columns"].tolist()
        inner = inner + part["reference"] @ part["reference"].T
    assert len(set(columns)) == 30
    kernel = Kernel("poly", float(model["gamma"]), int(model["degree"]), float(model["coef0"]))
    scores = kernel.of_sums(np.asarray(inner)) @ model["dual_coef"] + model["b"]
    free = np.abs(model["dual_coef"]) < finished.result["scenario"]["algorithm"]["C"] * (1 - 1e-9)
    np.testing.assert_allclose(np.abs(scores[free]), 1.0, atol=1e-4)  # support records within the box are on the margin


# Alignment.


def test_unaligned_sites_train_on_the_intersection_and_no_identifier_leaves_its_site(tmp_path: Path) -> None:
    changes = ["collusion.sites=[1, 2, 3]", "collusion.coordinator=true"]
    finished = run("dpp-svm-unaligned", tmp_path / "run", *changes)
    result = finished.result
    rows = [site["rows"] for site in result["sites"]]
    assert result["alignment"] == {"by": "identifier", "records": round(0.8 * 569)}
    assert min(rows) > 455
    check_pooled(result)

    points = (len(rows) + 1) * sum(rows) + len(rows) * 455
    cost_of_alignment = 32 * points + 8 * len(rows) + 3 * 32  # the sizes of the sets, and the common seed
    names = [f"record-{number + 1}" for number in range(569)]
    paths = sorted((finished.folder / "transcripts").iterdir())
    entries = [entry for path in paths for entry in read_transcript(str(path))]
    salts = {
        entry.array.tobytes() for entry in entries if entry.what in ("received", "sent") and entry.array.shape == SHAPE
    }
    assert len(salts) == 1, "every site has the same salt"
    (salt,) = salts
    everything = b"".join(entry.array.tobytes() for entry in entries)
    aligning = b"".join(entry.array.tobytes() for entry in entries if entry.round <= 2)
    assert b"record" not in everything
    assert len(aligning) > cost_of_alignment
    for name, point in zip(names, P256.hash_identifiers(names, salt), strict=True):
        assert point.tobytes() not in aligning
        for kind in ("md5", "sha1", "sha256"):
            for text in (name.encode(), salt + name.encode()):
                assert hashlib.new(kind, text).digest() not in aligning
    assert payload_of(finished, "set_intersection") == cost_of_alignment


def test_the_same_records_in_any_order_give_the_same_model(tmp_path: Path) -> None:
    shuffled = run("dpp-svm-unaligned", tmp_path / "shuffled", "data.overlap=1.0", "data.folds=3").result
    ordered = run(
        "dpp-svm-unaligned", tmp_path / "ordered", "data.overlap=1.0", "data.folds=3", "data.align=position"
    ).result
    assert shuffled["alignment"]["records"] == ordered["alignment"]["records"] == 569
    check_pooled(shuffled)
    for one, other in zip(shuffled["metrics"]["folds"], ordered["metrics"]["folds"], strict=True):
        assert one["auc"] == pytest.approx(other["auc"], abs=1e-6)


def test_a_column_of_a_file_aligns_and_is_no_feature(tmp_path: Path) -> None:
    random = np.random.default_rng(4)
    age = random.normal(50, 10, 80)
    lines = [f"p{i},{a:.3f},{'f' if i % 2 else 'm'},{i % 7},{'ill' if a > 50 else 'well'}" for i, a in enumerate(age)]
    table = tmp_path / "patients.csv"
    table.write_text("\n".join(["patient,age,sex,stage,label", *lines]) + "\n")
    changes = [
        f"data.source={table}",
        "data.positive=ill",
        "data.identifier=patient",
        "data.split=columns:[[age, sex],[stage]]",
    ]
    result = run(
        "dpp-svm-rbf", tmp_path / "run", *changes, 'federation.names=["clinic", "lab"]', "protocol.sum=masked"
    ).result
    assert [site["columns"] for site in result["sites"]] == [2, 1]
    assert result["alignment"] == {"by": "identifier", "records": 80}
    check_pooled(result)
    to_coordinator = [each for each in result["disclosures"] if each["step"] == "reference_kernel"]
    assert {each["to"] for each in to_coordinator} == {"coordinator"}, "of two sites none may open a sum"


# Costs.


def test_every_hop_carries_the_upper_triangle_once_and_bytes_are_those_predicted(tmp_path: Path) -> None:
    finished = run("dpp-svm-rbf", tmp_path / "run")
    rows = 569 - 114
    assert payload_of(finished, "kernel_rows") == (3 + 1) * exchanged_elements(rows) * 8
    cost = finished.result["cost"]
    assert cost["wire_bytes"] == cost["predicted_wire_bytes"] > cost["payload_bytes"]
    assert cost["control"]["wire_bytes"] == cost["control"]["predicted_wire_bytes"]


def test_a_masked_exchange_costs_what_its_formula_says(tmp_path: Path) -> None:
    finished = run("dpp-svm-rbf", tmp_path / "run", "protocol.sum=masked")
    elements = exchanged_elements(569 - 114)
    cost = masked(0.66).cost_of(3, (1, elements))
    assert payload_of(finished, "kernel_rows") == cost.payload_bytes


def test_plain_matrices_go_to_the_coordinator_once_each(tmp_path: Path) -> None:
    finished = run("dpp-svm-reconstruction", tmp_path / "run")
    assert payload_of(finished, "kernel_rows") == 3 * exchanged_elements(569 - 114) * 8


# What is shown.


def test_the_coordinator_learns_scores_of_new_records_and_no_kernel_values(tmp_path: Path) -> None:
    result = run("dpp-svm-rbf", tmp_path / "run").result
    evaluated = {
        (each["to"], each["step"]) for each in result["disclosures"] if each["step"] not in ("kernel_rows", "longest")
    }
    assert ("coordinator", "scores_of_opened") in evaluated
    assert ("clinic", "reference_kernel") in evaluated
    assert ("coordinator", "reference_kernel") not in evaluated


def test_plain_matrices_say_what_they_give_away_and_the_attack_shows_it(tmp_path: Path) -> None:
    result = run("dpp-svm-reconstruction", tmp_path / "run").result
    check_pooled(result)
    (words,) = [
        each["detail"]
        for each in result["disclosures"]
        if each["step"] == "kernel_rows" and "rotation" in each["detail"]
    ]
    assert "up to a rotation" in words
    (whole,) = result["audit"]
    befores = [each["known_before"] for each in whole["attacks"]]
    assert {tuple(each["sites"]) for each in befores} == {("site-1",), ("site-2",), ("site-3",)}
    for each, before in zip(whole["attacks"], befores, strict=True):
        assert (before["known_records"], before["held_back"]) == (11, 444)
        assert each["recovered"] == each["claimed"] == 444
        assert each["max_error"] < 1e-6
    exchanged = [victim for victim in result["collusion"]["victims"] if victim["step"] == "kernel_rows"]
    assert {victim["site"] for victim in exchanged} == {"site-1", "site-2", "site-3"}
    assert all(victim["recovered"] == victim["values"] > 0 for victim in exchanged)


def test_a_plain_sum_is_said_to_show_what_it_shows(tmp_path: Path) -> None:
    result = run("dpp-svm-rbf", tmp_path / "run", "protocol.sum=plain").result
    seen = {(each["step"], each["detail"]) for each in result["disclosures"] if each["to"] == "coordinator"}
    assert any(step == "kernel_rows" and "every site's own kernel matrix" in form for step, form in seen)
    assert any(step == "reference_kernel" and form.startswith("value of every site") for step, form in seen)


@pytest.mark.parametrize("kernel", ["linear", "rbf"])
def test_the_attack_fails_with_fewer_known_records_than_columns(kernel: str, tmp_path: Path) -> None:
    changes = [f"algorithm.kernel={kernel}", "collusion.known_records=9"]
    result = run("dpp-svm-reconstruction", tmp_path / "run", *changes).result
    assert all(each["claimed"] == 0 for each in result["audit"][0]["attacks"])


def test_of_the_sum_a_coordinator_rebuilds_complete_records_only(tmp_path: Path) -> None:
    result = run("dpp-svm-reconstruction", tmp_path / "run", "algorithm.kernel_exchange=summed").result
    together, *alone = result["audit"][0]["attacks"]
    before = together["known_before"]
    assert before["columns_of"] == ["site-1", "site-2", "site-3"]
    assert (before["known_records"], together["recovered"]) == (31, before["held_back"])
    assert together["max_error"] < 1e-6
    assert [each["claimed"] for each in alone] == [0, 0, 0]
    assert not any(victim["recovered"] for victim in result["collusion"]["victims"])


def test_ring_neighbours_have_the_matrix_between_them_and_rebuild_from_it(tmp_path: Path) -> None:
    changes = ["algorithm.kernel_exchange=summed", "collusion.sites=[1, 3]", "collusion.coordinator=false"]
    result = run("dpp-svm-reconstruction", tmp_path / "run", *changes).result
    (rebuilt,) = result["audit"][0]["attacks"]
    before = rebuilt["known_before"]
    assert (before["sites"], rebuilt["recovered"]) == (["site-2"], before["held_back"])
    assert rebuilt["max_error"] < 1e-6


def test_the_site_that_opens_sums_is_audited_with_its_blind(tmp_path: Path) -> None:
    """Under every sum the coalition of the opener and the coordinator has what the algebra says, and no more."""
    for protocol in ("ring", "k-secure", "masked"):
        changes = [f"protocol.sum={protocol}", "collusion.sites=[1]", "collusion.coordinator=true"]
        result = run("dpp-svm-unaligned", tmp_path / protocol, *changes).result
        assert not any(victim["recovered"] for victim in result["collusion"]["victims"])
        steps = {(victim["site"], victim["step"]) for victim in result["collusion"]["victims"]}
        assert ("site-2", "reference_kernel") in steps


# Sites that are lost.


def test_a_site_lost_before_the_exchange_is_left_out_and_its_columns_are_named(tmp_path: Path) -> None:
    result = attempt(
        "dpp-svm-unaligned", tmp_path / "run", faults=("kill:site=2,phase=setup,round=2,message=2",)
    ).result
    assert (result["status"], result["model"]["sites"]) == ("completed", ["site-1", "site-3", "site-4"])
    check_pooled(result)
    (warning,) = result["warnings"]
    assert warning.startswith("The columns of site-2 are not in the model (mean-symmetry, ")


@pytest.mark.parametrize("phase", long_but_for(["train", "evaluate"], "train"))
def test_a_site_lost_later_is_named_and_ends_the_run(phase: str, tmp_path: Path) -> None:
    result = fails("dpp-svm-unaligned", tmp_path / "run", faults=(f"kill:site=2,phase={phase},round=2",))
    assert "site-2 dropped in round" in result["error"]
    assert "Its columns are in the kernel, and no other site has them." in result["error"]
    assert result["faults"][0]["outcome"].startswith("site-2 dropped")


@pytest.mark.parametrize(
    "place",
    long_but_for(
        ["train,round=2,message=1", "train,round=2", "train,round=4", "evaluate,round=2"], "train,round=2,message=1"
    ),
)
def test_a_site_that_is_started_again_is_waited_for(place: str, tmp_path: Path) -> None:
    result = attempt("dpp-svm-unaligned", tmp_path / "run", faults=(f"kill:site=2,phase={place},rejoin=true",)).result
    assert (result["status"], result["error"], len(result["model"]["sites"])) == ("completed", None, 4)
    assert {site["name"]: site["status"] for site in result["sites"]}["site-2"] == "rejoined"
    check_pooled(result)


@pytest.mark.long
def test_folds_that_were_done_stay_done_when_a_site_is_started_again(tmp_path: Path) -> None:
    result = attempt(
        "dpp-svm-tic-tac-toe", tmp_path / "run", faults=("kill:site=2,phase=train,round=18,rejoin=true",)
    ).result
    assert result["status"] == "completed"
    check_pooled(result)
    assert result["cost"]["rounds"] < 2 * 101


@pytest.mark.long
def test_a_site_that_stalls_is_waited_for_as_long_as_a_round_takes(tmp_path: Path) -> None:
    """It answers after it was given up, within the time that a lost site has to come back."""
    stall = "stall:site=3,phase=train,round=2,for_s=6"
    result = attempt("dpp-svm-rbf", tmp_path / "run", "federation.round_timeout_s=3.0", faults=(stall,)).result
    assert (result["status"], result["error"]) == ("completed", None)
    check_pooled(result)


@pytest.mark.long
def test_a_site_that_stays_silent_is_named(tmp_path: Path) -> None:
    stall = "stall:site=3,phase=train,round=2"
    result = fails("dpp-svm-rbf", tmp_path / "run", "federation.round_timeout_s=1.0", faults=(stall,))
    assert "south dropped in round" in result["error"]
    assert "no other site has them" in result["error"]


def test_without_the_site_of_the_labels_nothing_can_be_learnt(tmp_path: Path) -> None:
    kill = "kill:site=clinic,phase=setup,round=1"
    result = fails("dpp-svm-rbf", tmp_path / "run", "protocol.sum=masked", faults=(kill,))
    assert result["error"].startswith("None of north, south holds the labels")


# What cannot be.


def test_a_matrix_beyond_memory_is_refused_before_it_is_exchanged(tmp_path: Path) -> None:
    rows = int((psutil.virtual_memory().total / 8) ** 0.5) + 1000
    random = np.random.default_rng(0)
    columns = random.integers(0, 100, (rows, 2))
    table = tmp_path / "tall.csv"
    np.savetxt(
        table, np.column_stack([columns, columns[:, 0] > 50]), fmt="%d", delimiter=",", header="a,b,label", comments=""
    )
    changes = [f"data.source={table}", 'data.positive="1"', "data.test_fraction=0.0", 'federation.names=["a", "b"]']
    result = fails("dpp-svm-rbf", tmp_path / "run", *changes, "data.label_site=a", "protocol.sum=masked")
    needed = kernel_bytes(rows) / 2**30
    assert f"The kernel matrix of {rows} records takes {needed:.1f} GiB and " in result["error"]
    assert "algorithm.landmarks" in result["error"]
    assert "train" not in {phase for phase, spent in result["cost"]["by_phase"].items() if spent["rounds"]}


def test_the_summary_says_how_many_records_matched(tmp_path: Path) -> None:
    done = fedsvm("run", "dpp-svm-unaligned", "--out", tmp_path / "run", folder=tmp_path)
    assert done.returncode == 0
    assert "455 held by all sites, aligned by identifier" in done.stdout
    assert "with all columns in one place" in done.stdout
    assert json.loads((tmp_path / "run" / "result.json").read_text())["alignment"]["records"] == 455
