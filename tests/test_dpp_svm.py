"""DPP-SVM: columns at different sites give the model that pooled rows give, with any kernel, at the formula's cost."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.datasets import load_breast_cancer
from sklearn.metrics import roc_auc_score
from sklearn.svm import SVC

from algorithms.dpp_svm import (
    LIBSVM_TOLERANCE,
    DppModel,
    DppSettings,
    KernelExchange,
    decision_values,
    exchange_kernel,
    train,
)
from algorithms.kernels import Kernel
from algorithms.vertical import hold_out, reach_of
from federation.arrays import FloatArray, IntArray
from federation.coordinator import Federation
from federation.partition import Partition
from protocols.kernel_exchange import exchanged_elements, packed_size, partial_kernel, row_blocks, unpack
from tests.conftest import drill, sum_protocol
from tests.tables import tic_tac_toe

KERNELS = [
    Kernel("linear"),
    Kernel("rbf", gamma=0.05),
    Kernel("poly", gamma=0.1, degree=3, coef0=1.0),
    Kernel("sigmoid", gamma=0.005, coef0=-0.5),
]
FOLDS = 10


def dealt(rows: FloatArray, labels: FloatArray, folds: IntArray, sites: int) -> list[Partition]:
    """Columns dealt evenly; the first site has the labels."""
    columns = np.array_split(np.arange(rows.shape[1]), sites)
    return [
        Partition(
            {
                "numeric": np.ascontiguousarray(rows[:, part]),
                "codes": np.zeros((len(rows), 0), dtype=np.int64),
                "labels": labels[None, :] if i == 0 else np.zeros((0, len(rows))),
                "folds": folds,
            },
            {"categories": []},
        )
        for i, part in enumerate(columns)
    ]


def folds_of(rows: int) -> IntArray:
    return np.random.default_rng(5).permutation(rows) % FOLDS


def pooled(rows: FloatArray, labels: FloatArray, kernel: Kernel, C: float, test: np.ndarray) -> FloatArray:
    """Decision values of LIBSVM trained on all columns together."""
    held = rows[~test]
    model = SVC(C=C, kernel="precomputed", tol=LIBSVM_TOLERANCE).fit(kernel(held, held), labels[~test])
    return np.asarray(model.decision_function(kernel(rows[test], held)))


def boards() -> tuple[FloatArray, FloatArray]:
    return tic_tac_toe()


def tumours() -> tuple[FloatArray, FloatArray]:
    rows, target = load_breast_cancer(return_X_y=True)
    return (rows - rows.mean(axis=0)) / rows.std(axis=0), 2.0 * target - 1.0


def federated(federation: Federation, kernel: Kernel, C: float, fold: int) -> tuple[DppModel, FloatArray]:
    records = hold_out(federation, fold, "none")
    model = train(federation, DppSettings(kernel, C), records.labels)
    return model, decision_values(federation, model, records.held_out)


@pytest.mark.parametrize("sites", [2, 3, 4])
def test_ten_folds_of_the_papers_experiment_equal_pooled_libsvm(sites: int) -> None:
    rows, labels = boards()
    folds = folds_of(len(rows))
    partitions = dealt(rows, labels, folds, sites)
    with drill(sites, protocol="masked", program="dpp-svm", partitions=partitions) as federation:
        for fold in range(FOLDS):
            _, found = federated(federation, Kernel("linear"), 0.2, fold)
            expected = pooled(rows, labels, Kernel("linear"), 0.2, folds == fold)
            np.testing.assert_allclose(found, expected, rtol=0, atol=1e-8)
            # Boards of equal score are told apart by rounding alone, here and there: rank what is above it.
            areas = [roc_auc_score(labels[folds == fold], np.round(scores, 9)) for scores in (found, expected)]
            assert areas[0] == pytest.approx(areas[1], abs=1e-9)


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)
@pytest.mark.parametrize("data", [boards, tumours], ids=["tic-tac-toe", "wdbc"])
def test_any_kernel_gives_the_pooled_model(data: Callable[[], tuple[FloatArray, FloatArray]], kernel: Kernel) -> None:
    rows, labels = data()
    folds = folds_of(len(rows))
    with drill(3, program="dpp-svm", partitions=dealt(rows, labels, folds, 3)) as federation:
        _, found = federated(federation, kernel, 1.0, 0)
    np.testing.assert_allclose(found, pooled(rows, labels, kernel, 1.0, folds == 0), rtol=0, atol=1e-8)


def test_every_sum_gives_the_same_kernel_to_the_last_bit() -> None:
    rows, labels = tumours()
    folds = np.full(len(rows), -1)
    found = []
    for protocol in ("plain", "ring", "k-secure", "masked"):
        with drill(4, protocol=protocol, program="dpp-svm", partitions=dealt(rows, labels, folds, 4)) as federation:
            hold_out(federation, 0, "none")
            exchange = KernelExchange(federation, DppSettings(Kernel("rbf", 0.05), 1.0), reach_of(federation))
            found.append(exchange_kernel(exchange, len(rows)))
        payload = sum(
            traffic.payload_bytes
            for link, traffic in federation.accounts.select(control=False)
            if federation.accounts.rounds[link.round].step == "kernel_rows"
        )
        if protocol == "ring":
            assert payload == 5 * exchanged_elements(len(rows)) * 8, "every hop carries the upper triangle once"
        assert sum_protocol(protocol).name == protocol
    for kernel in found[1:]:
        np.testing.assert_array_equal(kernel, found[0])
    np.testing.assert_allclose(found[0], Kernel("rbf", 0.05)(rows, rows), rtol=0, atol=1e-11)


@given(st.integers(1, 40), st.integers(1, 100), st.integers(0, 2**32), st.booleans())
def test_blocks_of_the_upper_triangle_are_small_and_make_the_whole(rows: int, most: int, seed: int, far: bool) -> None:
    columns = np.random.default_rng(seed).normal(size=(rows, 3))
    matrix = np.full((rows, rows), np.nan)
    blocks = list(row_blocks(rows, most))
    assert [first for first, _ in blocks[1:]] == [last for _, last in blocks[:-1]]
    for first, last in blocks:
        assert packed_size(rows, first, last) <= most or last == first + 1
        unpack(partial_kernel(columns, first, last, distances=far), first, last, matrix)
    expected = ((columns[:, None] - columns[None]) ** 2).sum(axis=2) if far else columns @ columns.T
    np.testing.assert_allclose(matrix, expected, atol=1e-12)
    assert sum(packed_size(rows, *block) for block in blocks) == exchanged_elements(rows)
