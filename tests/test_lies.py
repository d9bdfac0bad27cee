"""Lies of a coordinator that make sites show their rows: each succeeds where sites lack one check, and fails with it.

Site processes are real. The terms of a run name the check that they lack, see `tests.trusting_site_process`. Lies that
no check stops are here too.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from sklearn.svm import SVC

from fedsvm.algorithms.data.score_counts import MAX_BINS, count_scores
from fedsvm.algorithms.features.fourier import paired_features
from fedsvm.algorithms.features.identity import IdentityMap
from fedsvm.algorithms.hybrid_svm.minimizer import minimize
from fedsvm.algorithms.linear_model import PanModel
from fedsvm.algorithms.naive_bayes import Categories, NaiveBayesModel
from fedsvm.algorithms.optimization.solution import StoppingRule
from fedsvm.algorithms.site_scores import pack_model
from fedsvm.federation.arrays import FloatArray
from fedsvm.federation.errors import SiteFailed
from fedsvm.federation.federation import Federation
from fedsvm.federation.site.rules import SiteRules
from fedsvm.federation.site.terms import Terms
from tests.conftest import ROOT, long_but_for
from tests.test_agreed_steps import (
    BEGUN,
    BUDGETED,
    COLUMNS,
    FOR_EPSILON,
    LABELS,
    ONE,
    ONE_SHOT,
    PAN,
    RBF,
    ROWS,
    SITES,
    TAKEN,
    TREE,
    clustered,
    encoded,
    encoded_as_public,
    fit,
    mapped,
    measured,
    sites,
    terms,
    trained_alone,
)

TRUSTING = "tests.trusting_site_process"
ALL_ROWS, ALL_LABELS = np.vstack(list(ROWS.values())), np.tile(LABELS, len(SITES))
SCALED = (ALL_ROWS - ALL_ROWS.mean(axis=0)) / ALL_ROWS.std(axis=0)
W = np.array([1.0, -2.0, 0.5, 3.0])
CLOSE = 1e-6
BINS_OF_TREE = 32
FREE = SiteRules()
KEPT = SiteRules(release=False)


@dataclass(frozen=True)
class Lie:
    """A lie that works at sites without these checks.

    gains: orders what it takes, and returns whether the coordinator then has what it wanted. refused: what sites with
    all checks say.
    """

    agreed: Terms
    rules: SiteRules
    without: tuple[str, ...]
    gains: Callable[[Federation], bool]
    refused: str


def named(sums: FloatArray, rows: FloatArray) -> int:
    """Return how many of these rows are a sum of one row, in sums (..., m + 1) whose last number counts rows."""
    alone = sums.reshape(-1, sums.shape[-1])
    alone = alone[np.rint(alone[:, -1]) == 1, :-1]
    return int((np.abs(rows[:, None] - alone).max(axis=2) < CLOSE).any(axis=1).sum())


def in_groups(groups: int, least: int) -> Callable[[Federation], bool]:
    """Have the rows summed in groups; so many or more are then alone in theirs."""

    def gains(federation: Federation) -> bool:
        mapped(federation)
        federation.run("deal_groups", groups=groups)
        federation.sum("squared_norms", shape=(2,), bound=math.inf)
        sums = federation.sum("starting_sums", shape=(2, groups, COLUMNS + 1), bound=1e6)
        return named(sums, ALL_ROWS) >= least

    return gains


def loss_at_a_point(federation: Federation) -> bool:
    """Have the loss of all rows opened at weights of its choice, in a path whose masks do not hide it."""
    measured(federation)
    federation.run("begin_path", **{**BEGUN, "prior": W})
    federation.run("share_path", holders=list(SITES))
    dimensions, scale = COLUMNS + 1, 2.0**14
    told: dict[str, Any] = {"problems": ONE, "mus": np.ones(1), "keep": np.zeros(1), "still": np.ones(1)}
    total = federation.sum(
        "newton",
        shape=(1, 36),
        bound=1.0,
        iteration=1,
        steps=np.zeros(dimensions),
        scales=np.full((1, 5), scale),
        rows=60,
        **told,
    )
    loss = np.maximum(0, 1 - ALL_LABELS * (ALL_ROWS @ W)).sum()
    return bool(abs(total[0, dimensions * (dimensions + 3) // 2] * scale / loss - 1) < 1e-3)


def scores_of_training_rows(model: Any) -> Callable[[Federation], bool]:
    """Have all rows held out, and counted by the decision values of a model of its choice."""

    def gains(federation: Federation) -> bool:
        encoded(federation)
        federation.run("hold_out", fold=-1)
        federation.run("rescale", offset=np.zeros(COLUMNS), scale=np.ones(COLUMNS))
        if isinstance(model, PanModel):
            federation.run("receive_map", features="identity", dimensions=COLUMNS)
        told: dict[str, Any] = {"model": pack_model(model), "bins": MAX_BINS, "threshold": 0.0, "kept": False}
        counts = federation.sum("score_counts", shape=(4 + 2 * MAX_BINS,), bound=1e6, **told)
        expected = count_scores(model.decision_function(ALL_ROWS), ALL_LABELS[None], 0.0, MAX_BINS)
        return np.array_equal(np.rint(counts), expected)

    return gains


def weights_that_sites_keep(federation: Federation) -> bool:
    model = fit("pan-svm", **PAN)(federation)
    pooled = SVC(kernel="linear", C=1.0, tol=1e-8).fit(SCALED, ALL_LABELS)
    return np.allclose(model.w, pooled.coef_[0], rtol=0, atol=1e-2)


def models_that_sites_keep(federation: Federation) -> bool:
    model = fit("voting-ensemble", **PAN)(federation)
    own = SVC(kernel="linear", C=1.0, tol=1e-8).fit(SCALED[:20], LABELS)
    return bool((np.abs(model.models[:, :-1] - own.coef_[0]).max(axis=1) < 1e-2).any())


def labels_in_bins(federation: Federation, rows: FloatArray) -> bool:
    """Have a candidate of each column decided by one table, in which it has a bin of its own."""
    candidates = np.diag(rows[:COLUMNS])
    places = np.arange(BINS_OF_TREE - 1) - BINS_OF_TREE / 2 + 1.5
    federation.run("receive_edges", edges=candidates[:, None] + CLOSE * places)
    root: dict[str, Any] = {"column": np.array([-1]), "bin": ONE, "children": np.array([[0, 0]]), "nodes": ONE}
    table = federation.sum("cross_tables", shape=(1, COLUMNS, BINS_OF_TREE, 2), bound=1e6, **root)
    found = np.rint(table[0, :, BINS_OF_TREE // 2 - 1])
    return np.array_equal(found, np.stack([ALL_LABELS[:COLUMNS] < 0, ALL_LABELS[:COLUMNS] > 0], axis=1))


def second_tree(federation: Federation) -> bool:
    fit("decision-tree", **TREE)(federation)
    return labels_in_bins(federation, SCALED)


def first_tree(federation: Federation) -> bool:
    measured_for_tree(federation)
    return labels_in_bins(federation, ALL_ROWS)


def measured_for_tree(federation: Federation) -> None:
    encoded(federation)
    federation.gather("row_count", shape=())
    federation.sum("column_sums", shape=(COLUMNS,), bound=math.inf)
    federation.sum("column_squares", shape=(COLUMNS,), bound=math.inf, mean=np.zeros(COLUMNS))
    federation.run("rescale", offset=np.zeros(COLUMNS), scale=np.ones(COLUMNS))
    federation.sum("column_moments", shape=(2 * COLUMNS + 2,), bound=1e6)


def narrow_kernel(federation: Federation) -> bool:
    """Have a kernel that only a row equal to a candidate is not 0 in."""
    clustered(federation)
    candidate = {"landmarks": ALL_ROWS[7:8], "map": np.eye(1), **RBF, "gamma": 1e7}
    federation.run("receive_map", features="landmarks", **candidate)
    squares, _ = federation.sum("squared_norms", shape=(2,), bound=math.inf)
    return bool(abs(squares - 1) < CLOSE)


def exact_gradient(federation: Federation) -> bool:
    encoded_as_public(federation)
    TAKEN(federation)
    at = np.zeros((1, COLUMNS))
    sums = federation.sum("erm_sums", shape=(1, 21), bound=1e6, f=at, loss="logistic", half_width=0.5)
    return np.allclose(sums[0, 1 : 1 + COLUMNS], -0.5 * ALL_LABELS @ ALL_ROWS / 9.0, rtol=0, atol=CLOSE)


def exact_model() -> FloatArray:
    """Return the mean of the models of the three sites, in one frequency."""
    stopping = StoppingRule(1e-11, 1000)
    own = [
        minimize(paired_features(ROWS[site], np.ones((1, COLUMNS))), LABELS, np.zeros(2), 15.0, stopping)
        for site in SITES
    ]
    return np.asarray(np.mean([each.w for each in own], axis=0))


def model_without_noise(federation: Federation) -> bool:
    trained_alone(federation)
    found = federation.sum("own_part", shape=(2,), bound=math.inf, joint=False)
    return np.allclose(found, exact_model(), rtol=0, atol=1e-5)


def model_with_hardly_any_noise(federation: Federation) -> bool:
    trained_alone(federation)
    told = {**FOR_EPSILON, "steps": 1, "lattice": 2.0**-40}
    found = federation.sum("noisy_part", shape=(2,), bound=math.inf, **told)
    return np.allclose(found, exact_model(), rtol=0, atol=1e-5)


def private_rows_in_groups(federation: Federation) -> bool:
    """Have a frequency so low that a feature is a column, and the rows summed in groups."""
    encoded_as_public(federation)
    federation.run("receive_frequencies", rho=1e-3 * np.eye(1, COLUMNS))
    federation.run("deal_groups", groups=32)
    sums = federation.sum("starting_sums", shape=(2, 32, 3), bound=1e6)
    sine = sums[..., [1, 2]] / np.array([1e-3, 1.0])
    return named(sine, ALL_ROWS[:, :1]) >= 10


SITES_KEEP = terms("pan-svm", **PAN, release="sites")
OF_A_LINE = PanModel(IdentityMap(COLUMNS), W, 0.0)
OF_ITS_OWN_BAYES = NaiveBayesModel(
    np.array([1.0, 1.0]),
    np.array([-W, W]),
    np.ones((2, COLUMNS)),
    np.zeros((2, COLUMNS)),
    Categories(np.full(COLUMNS, -1), np.zeros(COLUMNS)),
)
LIES: Mapping[str, Lie] = {
    "groups in a run without": Lie(terms("pan-svm", **PAN), FREE, ("script",), in_groups(32, 10), "no step"),
    "groups of one row": Lie(
        terms("pan-svm", **PAN, solver="cutting-plane"), FREE, ("agreed",), in_groups(2000, 50), "groups must be 32 or"
    ),
    "the loss at a point": Lie(terms("pan-svm", **PAN), FREE, ("prior",), loss_at_a_point, "prior of begin_path"),
    "scores of training rows": Lie(
        terms("pan-svm", **PAN), FREE, ("script", "fold"), scores_of_training_rows(OF_A_LINE), "no step 'hold_out'"
    ),
    "scores by Gaussians": Lie(
        terms("naive-bayes"), FREE, ("script", "fold"), scores_of_training_rows(OF_ITS_OWN_BAYES), "no step 'hold_out'"
    ),
    "weights that sites keep": Lie(SITES_KEEP, KEPT, ("script",), weights_that_sites_keep, "no step 'released'"),
    "models that sites keep": Lie(
        terms("voting-ensemble", **PAN, release="sites"),
        KEPT,
        ("script",),
        models_that_sites_keep,
        "no step 'agree_secret'",
    ),
    "a second tree": Lie(terms("decision-tree", **TREE), FREE, ("script",), second_tree, "'receive_edges' is out of"),
    "a narrow kernel": Lie(terms("svm-admm"), FREE, ("agreed",), narrow_kernel, 'gamma must be "auto"'),
    "exact sums of private rows": Lie(
        terms("dp-erm", epsilon=1.0), BUDGETED, ("exact",), exact_gradient, "sums exact ones"
    ),
    "a private model without noise": Lie(
        ONE_SHOT, BUDGETED, ("script", "exact"), model_without_noise, "no step 'own_part'"
    ),
    "a private model with hardly any noise": Lie(
        ONE_SHOT, BUDGETED, ("noise",), model_with_hardly_any_noise, "noise must have the scale"
    ),
    "private rows in groups": Lie(
        ONE_SHOT, BUDGETED, ("script", "exact"), private_rows_in_groups, "no step 'deal_groups'"
    ),
}


OFTEN = (
    "groups in a run without",
    "the loss at a point",
    "weights that sites keep",
    "exact sums of private rows",
    "a private model with hardly any noise",
)
"""One for each check, of which `make test` tries these."""


def lacking(agreed: Terms, checks: tuple[str, ...]) -> Terms:
    return replace(agreed, reading={**agreed.reading, "trusts": list(checks)})


@pytest.mark.parametrize("lie", long_but_for(LIES, *OFTEN))
def test_a_lie_works_where_sites_lack_a_check_and_fails_where_they_have_it(lie: str) -> None:
    told = LIES[lie]
    with sites(lacking(told.agreed, told.without), told.rules, TRUSTING) as federation:
        assert told.gains(federation)
    with pytest.raises(SiteFailed, match=told.refused), sites(told.agreed, told.rules, TRUSTING) as federation:
        told.gains(federation)


def test_edges_of_its_choice_decide_which_candidates_are_rows() -> None:
    """This still succeeds, once for each tree: the sums that edges follow from are opened to the coordinator alone."""
    with sites(terms("decision-tree", **TREE), FREE) as federation:
        assert first_tree(federation)


def test_the_page_names_tests_and_lies_that_exist() -> None:
    page = (ROOT / "docs" / "lying-coordinator.md").read_text()
    known = "".join(path.read_text() for path in (ROOT / "tests").glob("test_*.py"))
    named_tests = set(re.findall(r"`(test_\w+)`", page))
    assert named_tests
    assert all(f"def {name}(" in known for name in named_tests)
    assert all(any(words in lie for lie in LIES) for words in re.findall(r'`test_lies.py`, "([^"]+)"', page))
