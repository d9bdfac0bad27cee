"""DPP-SVM: columns at different sites give the model that pooled rows give, with any kernel, at the formula's cost."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.datasets import load_breast_cancer
from sklearn.metrics import roc_auc_score
from sklearn.svm import SVC

from fedsvm.algorithms.data.partition import site_partition
from fedsvm.algorithms.data.vertical import Align, align, hold_out, max_squared_norm
from fedsvm.algorithms.dpp_svm.model import DppModel
from fedsvm.algorithms.dpp_svm.scoring import decision_values
from fedsvm.algorithms.dpp_svm.settings import DppSettings
from fedsvm.algorithms.dpp_svm.training import train
from fedsvm.algorithms.features.kernel_exchange import KernelExchange, exchange_kernel
from fedsvm.algorithms.features.kernels import Kernel
from fedsvm.algorithms.features.partial_kernel import (
    exchanged_elements,
    packed_size,
    partial_kernel,
    row_blocks,
    unpack,
)
from fedsvm.algorithms.optimization.libsvm import DUAL_TOLERANCE
from fedsvm.federation.arrays import FloatArray, IntArray
from fedsvm.federation.errors import FederationError
from fedsvm.federation.federation import Federation
from fedsvm.federation.site.partition import Partition
from tests.conftest import drill, long_but_for, sum_protocol
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
        site_partition(rows[:, part], labels if site == 0 else None, names=[f"x{j}" for j in part], folds=folds)
        for site, part in enumerate(columns)
    ]


def folds_of(rows: int) -> IntArray:
    return np.random.default_rng(5).permutation(rows) % FOLDS


def pooled(rows: FloatArray, labels: FloatArray, kernel: Kernel, C: float, test: np.ndarray) -> FloatArray:
    """Decision values of LIBSVM trained on all columns together."""
    held = rows[~test]
    model = SVC(C=C, kernel="precomputed", tol=DUAL_TOLERANCE).fit(kernel(held, held), labels[~test])
    return np.asarray(model.decision_function(kernel(rows[test], held)))


def boards() -> tuple[FloatArray, FloatArray]:
    return tic_tac_toe()


def tumours() -> tuple[FloatArray, FloatArray]:
    rows, target = load_breast_cancer(return_X_y=True)
    return (rows - rows.mean(axis=0)) / rows.std(axis=0), 2.0 * target - 1.0


def federated(federation: Federation, kernel: Kernel, C: float, fold: int) -> tuple[DppModel, FloatArray]:
    records = hold_out(federation, fold, "none")
    settings = DppSettings(C, kernel=kernel.name, gamma=kernel.gamma, degree=kernel.degree, coef0=kernel.coef0)
    model = train(federation, settings, records.labels, seed=1)
    return model, decision_values(federation, model, records.held_out)


@pytest.mark.parametrize("sites", long_but_for([2, 3, 4], 3))
def test_ten_folds_of_the_papers_experiment_equal_pooled_libsvm(sites: int) -> None:
    rows, labels = boards()
    folds = folds_of(len(rows))
    partitions = dealt(rows, labels, folds, sites)
    reading = {"folds": FOLDS}
    with drill(sites, protocol="masked", program="dpp-svm", partitions=partitions, reading=reading) as federation:
        for fold in range(FOLDS):
            _, found = federated(federation, Kernel("linear"), 0.2, fold)
            expected = pooled(rows, labels, Kernel("linear"), 0.2, folds == fold)
            np.testing.assert_allclose(found, expected, rtol=0, atol=1e-8)
            # Boards of equal score are told apart by rounding alone, here and there: rank what is above it.
            areas = [roc_auc_score(labels[folds == fold], np.round(scores, 9)) for scores in (found, expected)]
            assert areas[0] == pytest.approx(areas[1], abs=1e-9)


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)
@pytest.mark.parametrize("data", long_but_for([boards, tumours], tumours))
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
            exchange = KernelExchange(federation, Kernel("rbf", 0.05), "summed", max_squared_norm(federation))
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


# Sites that do not fit together: found before any kernel is exchanged.


def patients(names: Sequence[str], labels: Sequence[float] = (), seed: int = 0) -> Partition:
    """A site with two columns, and labels where there are any."""
    numeric = np.random.default_rng(seed).normal(size=(len(names), 2))
    return site_partition(numeric, np.array(labels) if labels else None, names=["a", "b"], identifiers=names)


NAMES = ["Ada", "Grace", "Emmy", "Sofja"]
SIGNS = [1.0, -1.0, 1.0, -1.0]


@pytest.mark.parametrize(
    ("partitions", "by", "sentence"),
    [
        (
            [patients(NAMES, SIGNS), patients([*NAMES, "Ada"]), patients(NAMES)],
            "identifier",
            r"site-2 failed in round 1 .*: 1 of its 5 records share an identifier; keep one record of each",
        ),
        (
            [patients(NAMES, SIGNS), patients(["Hedy", "Mary"]), patients(NAMES)],
            "identifier",
            r"The sites have no record in common; see that data\.identifier names the same kind of identifier",
        ),
        (
            [patients(NAMES, SIGNS), patients(NAMES[:3]), patients(NAMES)],
            "position",
            r"different numbers of records \(site-1 4, site-2 3, site-3 4\).* set data\.align = \"identifier\"",
        ),
        (
            [patients(NAMES, SIGNS), patients(NAMES[::-1], SIGNS), patients(NAMES)],
            "identifier",
            r"The labels of 4 of 4 records disagree between site-1, site-2; correct them, or set data\.label_site",
        ),
        (
            [patients(NAMES), patients(NAMES)],
            "identifier",
            r"None of site-1, site-2 holds the labels; data\.label_site",
        ),
        (
            [patients(NAMES, SIGNS), patients(["Ada", "Emmy"])],
            "identifier",
            r"The 2 training records have one class; two are needed",
        ),
    ],
)
def test_sites_that_do_not_fit_together_are_told_so(partitions: list[Partition], by: Align, sentence: str) -> None:
    with drill(len(partitions), protocol="masked", program="dpp-svm", partitions=partitions) as federation:
        with pytest.raises(FederationError, match=sentence) as caught:
            align(federation, by)
            hold_out(federation, 0, "none")
        assert not any(name in str(caught.value) for name in NAMES), "an identifier is the site's own"


def test_sites_that_hold_out_different_records_are_told_so() -> None:
    odd = patients(NAMES)
    odd.arrays["folds"][0] = 0
    with drill(2, protocol="masked", program="dpp-svm", partitions=[patients(NAMES, SIGNS), odd]) as federation:
        align(federation, "identifier")
        with pytest.raises(FederationError, match="The sites hold out different records in fold 0"):
            hold_out(federation, 0, "none")


# Sums for one site.


@pytest.mark.parametrize("protocol", ["plain", "ring", "k-secure", "masked"])
def test_a_sum_for_one_site_costs_its_formula_and_reaches_nobody_else(protocol: str) -> None:
    rows, labels = tumours()
    folds = folds_of(len(rows))
    with drill(4, protocol=protocol, program="dpp-svm", partitions=dealt(rows, labels, folds, 4)) as federation:
        _, found = federated(federation, KERNELS[1], 1.0, 0)
        accounts = federation.accounts
        numbers = [number for number, record in accounts.rounds.items() if record.verb == "sum-at"]
        (number,) = numbers
        (shape,) = {d.shape for d in federation.disclosures if d.step == "reference_kernel" and d.to == "site-1"}
        cost = sum_protocol(protocol).cost_at_site(4, shape, 100.0)
        spent = [traffic for link, traffic in accounts.select(control=False) if link.round == number]
        assert sum(traffic.payload_bytes for traffic in spent) == cost.payload_bytes
        assert sum(traffic.messages for traffic in spent) == cost.messages
        assert accounts.rounds[number].hops == cost.hops
    assert len(found) == (folds == 0).sum()
