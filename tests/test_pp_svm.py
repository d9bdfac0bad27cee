"""PP-SVM of Yu and others: the exact kernel matrix from encrypted sets, and the attacks that read the rows in it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from sklearn.svm import SVC

from fedsvm import classifier
from fedsvm.algorithms.attacks.attack import Attack, Prior, RowClaim
from fedsvm.algorithms.attacks.encrypted_items import ItemFrequencies, KnownItems
from fedsvm.algorithms.data.columns import LabeledRows
from fedsvm.algorithms.pp_svm import PpModel, sets_of
from fedsvm.federation.arrays import FloatArray, IntArray
from fedsvm.federation.channel.memory import InMemoryNetwork, MemoryChannel
from fedsvm.federation.errors import FederationError
from fedsvm.federation.transport.keys import COORDINATOR
from fedsvm.protocols.analysis.execution import site_names
from fedsvm.protocols.analysis.views import Coalition, RoundView, RunView
from fedsvm.protocols.sets.records import compare_records, encrypt_records
from tests.commands import fedsvm
from tests.conftest import long_but_for
from tests.tasks import table
from tests.test_runs import run
from tests.views import WrittenDown, scaled

PpSVC = classifier("pp-svm")
SALT = b"a salt that sites share"


def compared(rows: Mapping[str, IntArray]) -> tuple[IntArray, InMemoryNetwork, list[NDArray[Any]]]:
    """The table that the coordinator makes of every site's rows of 0 and 1, and what it received, in its order."""
    network = InMemoryNetwork(tuple(rows))
    records = {site: len(own) for site, own in rows.items()}
    items = {site: int(own.sum()) for site, own in rows.items()}

    def site(own: IntArray, channel: MemoryChannel) -> None:
        encrypt_records(channel, [[str(j) for j in np.flatnonzero(row)] for row in own], items, SALT)

    parts: dict[str, Callable[[MemoryChannel], Any]] = {
        name: functools.partial(site, own) for name, own in rows.items()
    }
    parts[COORDINATOR] = lambda channel: compare_records(channel, records, items)
    found = network.run(parts)
    sent = [
        [each.array for each in network.sent if (each.sender, each.receiver) == (name, COORDINATOR)] for name in rows
    ]
    return np.asarray(found[COORDINATOR]), network, [sizes for sizes, _ in sent] + [points for _, points in sent]


def binary_rows(counts: list[int], columns: int, seed: int, chances: FloatArray | float = 0.4) -> dict[str, IntArray]:
    """Rows of 0 and 1 at each of some sites."""
    random = np.random.default_rng(seed)
    drawn = [(random.random((count, columns)) < chances).astype(np.int64) for count in counts]
    return dict(zip(site_names(len(counts)), drawn, strict=True))


# The protocol.


@settings(max_examples=20)
@given(st.lists(st.integers(0, 6), min_size=2, max_size=4), st.integers(1, 9), st.integers(0, 99))
def test_what_rows_have_in_common_is_counted_exactly(counts: list[int], columns: int, seed: int) -> None:
    rows = binary_rows(counts, columns, seed)
    all_rows = np.concatenate(list(rows.values()))
    found, network, _ = compared(rows)
    np.testing.assert_array_equal(found @ found.T, all_rows @ all_rows.T)
    sites, items = len(rows), int(all_rows.sum())
    assert (len(network.sent), network.hops) == (sites * (sites + 1), sites)
    assert network.payload_bytes == 32 * sites * items + 8 * sum(counts)


def test_items_are_other_points_in_every_run_and_in_no_order() -> None:
    rows = binary_rows([5, 5, 5], 6, seed=0)
    once, again = (compared(rows)[2][-1] for _ in range(2))
    assert once.shape == again.shape
    assert not {point.tobytes() for point in once} & {point.tobytes() for point in again}


# The algorithm.


ROWS, LABELS = table(120, seed=1)


@pytest.mark.parametrize("groups", [None, np.array(["a", "b", "c"])[np.arange(120) % 3]])
def test_a_linear_model_is_libsvms_of_the_sets(groups: object) -> None:
    model = PpSVC(C=2.0, scale="none").fit(ROWS, LABELS, groups=groups)
    svm = SVC(kernel="linear", C=2.0, tol=1e-10).fit(sets_of(ROWS), LABELS)
    np.testing.assert_allclose(model.decision_function(ROWS), svm.decision_function(sets_of(ROWS)), atol=1e-4)
    assert model.model_.w.shape == (4,)


def test_rows_of_one_class_are_all_it_knows(tmp_path: Path) -> None:
    where = np.where(LABELS > 0, "ill", np.array(["b", "c", "d"])[np.arange(120) % 3])
    labels = np.where(where == "b", 1.0, LABELS)
    model = PpSVC(scale="none").fit(ROWS, labels, groups=where)
    assert np.isfinite(model.decision_function(ROWS)).all()


@pytest.mark.parametrize("kernel", long_but_for(["rbf", "poly"], "rbf"))
def test_sites_that_keep_support_rows_score_by_one_sum(kernel: str, tmp_path: Path) -> None:
    result = run(
        "pp-svm", tmp_path / "run", f"algorithm.kernel={kernel}", "data.folds=2", "data.test_fraction=0"
    ).result
    assert result["centralised"]["max_decision_difference"] < 5e-3  # LIBSVM's own tolerance
    assert result["cost"]["by_phase"]["evaluate"]["rounds"] == 2
    assert len([note for note in result["warnings"] if note.startswith("pp-svm is there to compare with")]) == 1
    assert result["cost"]["wire_bytes"] == result["cost"]["predicted_wire_bytes"]
    with np.load(tmp_path / "run" / "model.npz") as arrays:
        assert not {"w", "support"} & set(arrays.files)
    predicted = fedsvm("predict", tmp_path / "run", "tic-tac-toe", folder=tmp_path)
    assert (predicted.returncode, len(predicted.stdout.splitlines())) == (0, 959)


@pytest.mark.parametrize(("phase", "number"), [("setup", 1), ("train", 1), ("train", 4), ("train", 5)])
def test_a_site_that_drops_in_training_is_done_without(phase: str, number: int, tmp_path: Path) -> None:
    kill = f"faults=[{{kind='kill',site=2,phase='{phase}',round={number}}}]"
    result = run("pp-svm", tmp_path / "run", kill, "federation.sites=4").result
    assert result["model"]["sites"] == ["site-1", "site-3", "site-4"]
    assert result["centralised"]["max_decision_difference"] < 5e-3


def test_support_rows_that_are_lost_end_the_run(tmp_path: Path) -> None:
    fault = "kill:site=2,phase=evaluate,round=1"
    done = fedsvm("run", "pp-svm", "--sites", "4", "--fault", fault, "--out", "run", folder=tmp_path)
    assert done.returncode == 3
    assert "The support rows of every site are needed to score new ones" in done.stderr


def test_what_has_no_file_or_is_no_setting_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(FederationError, match=r"no file to keep support rows in; use algorithm\.kernel = .linear"):
        PpSVC(kernel="rbf").fit(ROWS, LABELS)
    with pytest.raises(ValueError, match="read it together with their files"):
        PpModel(kernel=PpSVC().fit(ROWS, LABELS).model_.kernel, b=0.0).decision_function(ROWS)
    done = fedsvm("run", "pp-svm", "--set", "algorithm.C=0", folder=tmp_path)
    assert "algorithm.C: must be a number from 1e-12 to 1e12, got 0." in done.stderr


# The attacks.


def view_of(rows: dict[str, IntArray], labels: dict[str, FloatArray], colluding: tuple[str, ...]) -> RunView:
    """Return the coordinator's view of a comparison, with some sites."""
    _, _, received = compared(rows)
    written = WrittenDown()
    scaled(written, np.concatenate(list(rows.values())).astype(float), [])
    values: dict[tuple[str, ...], FloatArray] = {
        (site,): own[None] for site, own in labels.items() if site not in colluding
    }
    written.rounds.append(RoundView(8, "class_labels", {}, values))
    counts = {site: len(own) for site, own in rows.items()}
    items = {site: int(own.sum()) for site, own in rows.items()}
    written.rounds.append(RoundView(9, "encrypt_records", {"records": counts, "items": items}, {}, tuple(received)))
    return RunView(Coalition(colluding, coordinator=True), tuple(written.rounds))


def labels_of(rows: dict[str, IntArray]) -> dict[str, FloatArray]:
    return {site: np.where(own[:, 0] > 0, 1.0, -1.0) for site, own in rows.items()}


def claim_of(attack: Attack, view: RunView, prior: Prior) -> set[tuple[float, ...]]:
    """The rows claimed, with their labels; each was there once."""
    (claim,) = attack(view, prior)
    assert isinstance(claim, RowClaim)
    return {(*row, label) for row, label in zip(claim.rows.tolist(), claim.labels.tolist(), strict=True)}


def there(rows: dict[str, IntArray], labels: dict[str, FloatArray], without: str) -> set[tuple[float, ...]]:
    return {
        (*row, label)
        for site, own in rows.items()
        if site != without
        for row, label in zip(own.astype(float).tolist(), labels[site].tolist(), strict=True)
    }


def test_a_site_with_a_canary_for_each_column_reads_every_bit() -> None:
    rows = binary_rows([12, 40, 40], 12, seed=2)
    rows["site-1"] = np.eye(12, dtype=np.int64)
    labels = labels_of(rows)
    view = view_of(rows, labels, ("site-1",))
    prior = Prior(own=LabeledRows(rows["site-1"].astype(float), labels["site-1"]))
    assert claim_of(KnownItems(), view, prior) == there(rows, labels, "site-1")


def test_a_site_that_made_nothing_up_does_so_too() -> None:
    """Forty of its own rows are as good: no two columns are 1 in the same of them."""
    rows = binary_rows([40, 40, 40], 12, seed=3)
    labels = labels_of(rows)
    own = LabeledRows(rows["site-2"].astype(float), labels["site-2"])
    assert claim_of(KnownItems(), view_of(rows, labels, ("site-2",)), Prior(own=own)) == there(rows, labels, "site-2")


def test_columns_that_occur_differently_often_are_told_by_that() -> None:
    """Of 2,000 rows at two sites, against 2,000 other records of the same kind."""
    chances = np.array([0.1, 0.22, 0.35, 0.5, 0.65, 0.8])
    rows, others = (binary_rows([1000, 1000], 6, seed=seed, chances=chances) for seed in (4, 5))
    public = np.concatenate(list(others.values())).astype(float)
    candidates = LabeledRows(public, np.where(public[:, 0] > 0, 1.0, -1.0))
    labels = labels_of(rows)
    view = view_of(rows, labels, ())
    assert claim_of(ItemFrequencies(), view, Prior(candidates=candidates)) == there(rows, labels, "")


def test_columns_that_occur_as_often_are_not() -> None:
    """But for the one that is the label; of rows with an item beside nothing is claimed."""
    rows = binary_rows([300, 300], 6, seed=6)
    labels = labels_of(rows)
    public = np.concatenate(list(binary_rows([600], 6, seed=7).values())).astype(float)
    candidates = LabeledRows(public, np.where(public[:, 0] > 0, 1.0, -1.0))
    claimed = claim_of(ItemFrequencies(), view_of(rows, labels, ()), Prior(candidates=candidates))
    assert claimed == {(0.0, 0.0, 0.0, 0.0, 0.0, 0.0, -1.0), (1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0)}


@pytest.mark.long
def test_an_audit_has_all_rows_from_the_coordinator_with_any_site(tmp_path: Path) -> None:
    done = fedsvm("audit", "pp-svm", "--out", "audited", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    said = " ".join(done.stdout.split())
    assert "the coordinator alone recovers 0 of 766" in said
    assert "the coordinator with a site recovers 510 of 510 rows of others by known items; no false claim" in said
