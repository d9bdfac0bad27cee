"""Sites offer the steps that the agreed terms imply, and refuse a coordinator that orders any other.

Every order goes out over sockets to site processes, by a coordinator that orders what its algorithm would not.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedsvm.algorithms import SITE_MODULE
from fedsvm.algorithms.algorithm import Premises
from fedsvm.algorithms.data.columns import Schema
from fedsvm.algorithms.data.horizontal_task import HorizontalTask
from fedsvm.algorithms.data.partition import site_partition
from fedsvm.algorithms.features.fourier import FourierMap
from fedsvm.algorithms.features.kernels import Kernel, check_kernel
from fedsvm.algorithms.features.random_bins import RandomBins
from fedsvm.algorithms.hybrid_svm.noise import noise_of
from fedsvm.algorithms.hybrid_svm.settings import HybridSettings
from fedsvm.algorithms.hybrid_svm.training import _by_interior_point
from fedsvm.algorithms.optimization.loss_sums import MAX_STEPS
from fedsvm.algorithms.privacy.mechanisms import PrivacyParameters
from fedsvm.algorithms.registry import ALGORITHMS
from fedsvm.federation.arrays import IntArray
from fedsvm.federation.errors import LaunchError, OrderRefused, SiteFailed
from fedsvm.federation.federation import Federation
from fedsvm.federation.membership import DropoutPolicy
from fedsvm.federation.processes.launcher_cache import spare_launcher
from fedsvm.federation.site.program import SiteProgram, steps_of
from fedsvm.federation.site.rules import ANYTHING, SiteRules
from fedsvm.federation.site.terms import Terms
from fedsvm.federation.site_messages import StepFailure
from fedsvm.federation.startup import Deployment, SiteSetup, start_federation
from fedsvm.federation.transport.deadline import Deadline
from fedsvm.protocols.sums.registry import SUMS
from fedsvm.protocols.sums.secure_sum import SecureSum
from fedsvm.scenarios.run.offered_terms import terms_of
from tests import frozen
from tests.conftest import drill

SITES = ("site-1", "site-2", "site-3")
COLUMNS = 4
ROWS = dict(zip(SITES, np.random.default_rng(3).normal(size=(3, 20, COLUMNS)), strict=True))
LABELS = np.resize([1.0, -1.0], 20)
RING = SUMS["ring"]()
STRICT = SiteRules(
    algorithms={"pan-svm": {"solver": ["interior-point"], "masking": ["congruence"]}},
    gathers=("row_count",),
)
REFUSED = "order beyond what was agreed"


def terms(program: str, reading: Mapping[str, Any] | None = None, **settings: Any) -> Terms:
    """Return the terms of an algorithm's run, with defaults except for these settings."""
    chosen = chosen_settings(program, settings)
    said = {"scale": "standard", "missing": "refuse", **(reading or {})}
    shown = ALGORITHMS[program].shown_steps(chosen)
    release = settings.get("release", "everyone") == "everyone"
    epsilon = settings.get("epsilon")
    return Terms(program, vars(chosen), "ring", {}, 3, shown, releases=release, epsilon=epsilon, seed=1, reading=said)


@contextmanager
def sites(
    agreed: Terms,
    rules: SiteRules = STRICT,
    module: str = SITE_MODULE,
    protocol: SecureSum = RING,
    folds: IntArray | None = None,
) -> Iterator[Federation]:
    """Three sites with 20 rows each, that agreed to these terms. module: their installation. folds: of their rows."""

    def setup(site: str) -> SiteSetup:
        held = site_partition(ROWS[site], LABELS, names=[f"x{j}" for j in range(COLUMNS)], folds=folds)
        return SiteSetup(lambda path: held.write(str(path)), {"seed": 1}, rules=rules)

    deployment = Deployment(SITES, agreed, protocol, setup, 20.0, DropoutPolicy(3, "abort"))
    with spare_launcher(module) as launcher, start_federation(launcher, deployment) as federation:
        federation.assemble()
        yield federation


def chosen_settings(program: str, settings: Mapping[str, Any]) -> Any:
    """Return settings in which nothing is left to the run."""
    algorithm = ALGORITHMS[program]
    return algorithm.resolve_settings(algorithm.Settings(**settings), Premises(3))[0]


Orders = Callable[[Federation], Any]
NOISY: Mapping[str, Any] = {"mechanism": "laplace", "epsilon": 1.0, "variant": "joint"}
BUDGETED = SiteRules(max_epsilon=1.0)


def encoded(federation: Federation) -> None:
    """Have the columns agreed on."""
    federation.run("encode", values=[])


def prepared(federation: Federation) -> None:
    """Have the rows encoded and scaled, as honest rounds do."""
    encoded(federation)
    federation.gather("row_count", shape=())
    federation.sum("column_sums", shape=(COLUMNS,), bound=np.inf)
    federation.sum("column_squares", shape=(COLUMNS,), bound=np.inf, mean=np.zeros(COLUMNS))
    federation.run("rescale", offset=np.zeros(COLUMNS), scale=np.ones(COLUMNS))


def mapped(federation: Federation) -> None:
    """Have features ready, too."""
    prepared(federation)
    federation.run("receive_map", features="identity", dimensions=COLUMNS)


def measured(federation: Federation) -> None:
    """Have features ready, and their lengths known."""
    mapped(federation)
    federation.sum("squared_norms", shape=(2,), bound=np.inf)


def balanced(federation: Federation) -> None:
    """Have the rows of each class counted, too."""
    measured(federation)
    federation.sum("class_counts", shape=(2,), bound=1e6)


def clustered(federation: Federation) -> None:
    """Have landmarks agreed on, but the map not yet told."""
    prepared(federation)
    federation.run("agree_secret")
    federation.run("cluster", quotas=[2, 2, 2], min_cluster_size=3)
    federation.sum("local_landmarks", shape=(6, COLUMNS + 1), bound=np.inf, quotas=[2, 2, 2])
    federation.sum("records_exposed", shape=(), bound=6.0)


def aligned(federation: Federation) -> None:
    """Have records aligned by their positions."""
    federation.gather("record_count", shape=())


def encoded_as_public(federation: Federation) -> None:
    """Have private rows in the columns of public ones, and counted."""
    federation.run("encode_known", values=[], offset=np.zeros(COLUMNS), scale=np.ones(COLUMNS), fold=None)
    federation.gather("row_count", shape=())


def fit(program: str, fold: int | None = None, **settings: Any) -> Orders:
    """Have a model trained as an honest coordinator does."""
    task = HorizontalTask(Schema([f"x{j}" for j in range(COLUMNS)]), "standard", 1, fold=fold)
    return lambda federation: ALGORITHMS[program].fit(federation, task, chosen_settings(program, settings))


def scored(bins: int) -> Orders:
    """Have the sites test a model; they hold no rows out."""
    return summed("score_counts", (4 + 2 * bins,), model=ONE, bins=bins, threshold=0.0, kept=False)


def after(*orders: Orders) -> Orders:
    """Give orders one after the other."""

    def give(federation: Federation) -> None:
        for each in orders:
            each(federation)

    return give


def losses(times: int) -> Orders:
    """Have the losses of private rows summed at so many points."""

    def give(federation: Federation) -> None:
        for number in range(times):
            f = np.full((1, COLUMNS), 0.01 * number)
            federation.sum("erm_sums", shape=(1, 21), bound=1e6, f=f, loss="logistic", half_width=0.5)

    return give


def trained_for_one_step(federation: Federation) -> None:
    """End the joint training of private rows after one iteration, whatever its gap is."""
    settings = HybridSettings(**{**NOISY, "mechanism": "spherical"}, max_iterations=1, masking="congruence")
    _by_interior_point(federation, settings, np.zeros(2), 60)


def summed(step: str, shape: tuple[int, ...] = (1,), bound: float = 1e6, **params: Any) -> Orders:
    return lambda federation: federation.sum(step, shape=shape, bound=bound, **params)


def ran(step: str, **params: Any) -> Orders:
    return lambda federation: federation.run(step, **params)


def nothing(federation: Federation) -> None:
    """Order nothing before the lie."""


PAN: Mapping[str, Any] = {"kernel": "linear", "features": "identity"}
W = np.ones(COLUMNS)
RBF: Mapping[str, Any] = {"kernel": "rbf", "gamma": 0.25, "degree": 3, "coef0": 0.0}
ONE = np.zeros(1, dtype=np.int64)
BLIND_STEPS: dict[str, Any] = {
    "points": np.zeros((1, 5)),
    "scales": np.ones(3),
    "noises": np.ones(1),
    "dithers": np.ones((1, 2)),
    "intercept": True,
    "regularisation": 1.0,
}
BEGUN: Mapping[str, Any] = {"prior": 0 * W, "price": 1.0, "lever": 1.0, "masking": "congruence"}
ONE_SHOT = terms("hybrid-svm", mechanism="laplace", epsilon=1.0, variant="one-shot", features=1)


def with_frequencies(federation: Federation) -> None:
    """Have private rows mapped by one frequency."""
    encoded_as_public(federation)
    federation.run("receive_frequencies", rho=np.ones((1, COLUMNS)))


def with_measured_frequencies(federation: Federation) -> None:
    """Have the lengths of these features known, too."""
    with_frequencies(federation)
    federation.sum("squared_norms", shape=(2,), bound=np.inf)


def trained_alone(federation: Federation, rows: int = 60) -> None:
    """Have every site train its own model, as an honest coordinator does, but for the number of rows."""
    with_frequencies(federation)
    federation.run("train_alone", prior=np.zeros(2), C=300.0, tolerance=1e-11, rows=rows)


def noise_for_epsilon() -> dict[str, Any]:
    """Return what an honest coordinator orders of a model of the 60 rows."""
    noise = noise_of(PrivacyParameters("laplace", 1.0), np.zeros(2), 2 * 300.0 / 60, 1e-11 * 300.0, shares=2)
    kind = {"release": 1, "mechanism": "laplace", "with_model": True, "joint": False}
    return {**kind, "lattice": noise.step, "steps": noise.steps, "shares": noise.shares}


FOR_EPSILON = noise_for_epsilon()
Case = tuple[Terms, SiteRules, Orders, Orders, str]
"""The terms and the rules of all sites; honest orders; the order that they refuse; and words of the refusal."""


def case(agreed: Terms, before: Orders, orders: Orders, said: str, rules: SiteRules = ANYTHING) -> Case:
    return agreed, rules, before, orders, said


def pan(before: Orders, orders: Orders, said: str, reading: Mapping[str, Any] | None = None, **settings: Any) -> Case:
    """Return a case of pan-svm on the columns as they are, at sites with strict rules."""
    return terms("pan-svm", reading, **PAN, **settings), STRICT, before, orders, said


LIES: Mapping[str, Case] = {
    "a bound that tells how large a sum is": pan(
        prepared, summed("column_sums", (COLUMNS,), 1.0), "a sum of step 'column_sums' must have the bound inf, got 1$"
    ),
    "groups of one row each": pan(mapped, ran("deal_groups", groups=20000), "no step 'deal_groups'"),
    "more groups than were agreed on": case(
        terms("pan-svm", **PAN, solver="cutting-plane"),
        mapped,
        ran("deal_groups", groups=20000),
        "groups must be 32 or fewer, as agreed, got 20000",
    ),
    "sums of groups": pan(mapped, summed("starting_sums", (2, 1, 5)), "no step"),
    "cuts": pan(mapped, summed("cuts", (1, 1, 6), problems=ONE, w=W[None], b=np.zeros(1)), "no step 'cuts'"),
    "a path around a point of its choice": pan(
        measured,
        ran("begin_path", prior=W, price=1.0, lever=1.0, masking="congruence"),
        "the prior of begin_path must be 0",
    ),
    "a path without the agreed masks": case(
        terms("pan-svm", **PAN),
        measured,
        ran("begin_path", prior=0 * W, price=1.0, lever=1.0, masking="none"),
        'masking must be "congruence", as agreed, got "none"',
    ),
    "a kernel so narrow that it sees single rows": case(
        terms("svm-admm"),
        clustered,
        ran("receive_map", features="landmarks", landmarks=W[None], map=np.eye(1), **{**RBF, "gamma": 1e7}),
        'gamma must be "auto", as agreed, got 10000000.0',
    ),
    "training rows as held-out rows": pan(
        encoded,
        ran("hold_out", fold=-1),
        "fold must be one of the 2 that were agreed on",
        reading={"folds": 2, "tested_by": "sites"},
    ),
    "training on the rows of all folds": pan(
        encoded, ran("hold_out", fold=None), "fold must be one of the 2 that were agreed on", reading={"folds": 2}
    ),
    "training on the private rows of all folds": case(
        terms("hybrid-svm", {"folds": 2}, epsilon=1.0),
        nothing,
        ran("encode_known", values=[], offset=np.zeros(COLUMNS), scale=np.ones(COLUMNS), fold=None),
        "fold must be one of the 2 that were agreed on",
    ),
    "columns scaled by the test's records": case(
        terms("dpp-svm", {"test_fraction": 0.2}),
        aligned,
        ran("prepare_fold", fold=None, scale="standard"),
        "fold must be one of the 1 that were agreed on",
    ),
    "a fold in a run without folds": pan(prepared, ran("hold_out", fold=-1), "no step"),
    "scores of training rows": pan(
        prepared,
        summed("score_counts", (2004,), model=ONE, bins=1000, threshold=0.0, kept=False),
        "no step 'score_counts'",
    ),
    "weights that sites keep": case(
        terms("pan-svm", **PAN, release="sites"),
        mapped,
        summed("released", (1, 6), np.inf, keep=ONE, constants=ONE, holder="site-1"),
        "no step 'released'",
        rules=SiteRules(release=False),
    ),
    "models that sites keep": case(
        terms("voting-ensemble", **PAN, release="sites"),
        mapped,
        summed("model_table", (3, 6), np.inf),
        "no step 'model_table'",
        rules=SiteRules(release=False),
    ),
    "frequencies of its choice": case(
        terms("pan-svm", features="fourier", gamma=0.25),
        prepared,
        ran("receive_map", features="fourier", gamma=0.25, rho=1e5 * np.ones((1, COLUMNS))),
        "rho must be the 100 frequencies that the agreed seed draws",
    ),
    "as many frequencies as agreed, of its choice": case(
        terms("pan-svm", features="fourier", gamma=0.25, frequencies=7),
        prepared,
        ran("receive_map", features="fourier", gamma=0.25, rho=2 * FourierMap.draw(0.25, 7, COLUMNS, 1).rho),
        "rho must be the 7 frequencies that the agreed seed draws",
    ),
    "grids of its choice": case(
        terms("binned-least-squares", gamma=0.1, grids=7, bins=20),
        prepared,
        ran("receive_grids", **RandomBins.draw(1e-3, 7, 20, COLUMNS, 1).to_fields()),
        "the grids must be the 7 that the agreed seed draws, and are not",
    ),
    "grids of more places": case(
        terms("binned-least-squares", gamma=0.1, grids=7, bins=20),
        prepared,
        ran("receive_grids", **RandomBins.draw(0.1, 7, 21, COLUMNS, 1).to_fields()),
        "the grids must be the 7 that the agreed seed draws, and are not",
    ),
    "more landmarks than an agreed count": case(
        terms("pan-svm", landmarks=2, gamma=0.25),
        clustered,
        ran("receive_map", features="landmarks", landmarks=np.ones((3, COLUMNS)), map=np.eye(3), **RBF),
        "landmarks must be 2 or fewer, as agreed, got 3",
    ),
    "factors of classes without class weights": pan(
        measured,
        ran("begin_path", **BEGUN, factors=[1e6, 1e6]),
        "factors must be those of class_weight = null, as agreed",
    ),
    "other factors than the agreed ones": pan(
        measured,
        ran("begin_path", **BEGUN, factors=[3.0, 1e6]),
        'factors must be those of class_weight = {"ill": 3.0}, as agreed',
        class_weight={"ill": 3.0},
    ),
    "balanced factors that balance nothing": pan(
        balanced,
        ran("begin_path", **BEGUN, factors=[1e6, 1e6]),
        'factors must be those of class_weight = "balanced", as agreed',
        class_weight="balanced",
    ),
    "moments of one class": case(
        terms("least-squares", **PAN),
        mapped,
        summed("moments", (20,), intercept=True, factors=[0.0, 1.0]),
        "factors must be those of class_weight = null, as agreed",
    ),
    "blind weights of one class": case(
        terms("least-squares", **PAN, masking="committee"),
        measured,
        ran("blind_weights", intercept=True, regularisation=1.0, scale=2.0, factors=[0.0, 1.0]),
        "factors must be those of class_weight = null, as agreed",
    ),
    "Newton sums of one class": case(
        terms("logistic-regression", **PAN),
        measured,
        summed("newton_sums", (1, 21), points=np.zeros((1, 5)), scales=np.ones(3), intercept=True, factors=[0.0, 1.0]),
        "factors must be those of class_weight = null, as agreed",
    ),
    "blind Newton steps of one class": case(
        terms("logistic-regression", **PAN, masking="committee"),
        measured,
        ran("blind_steps", **BLIND_STEPS, factors=[0.0, 1.0]),
        "factors must be those of class_weight = null, as agreed",
    ),
    "a path of other problems": pan(
        measured, ran("begin_path", **BEGUN, scheme="ovo"), "scheme must be 'ovr', as agreed, got 'ovo'"
    ),
    "groups of other problems": case(
        terms("pan-svm", **PAN, solver="cutting-plane"),
        mapped,
        ran("deal_groups", groups=4, scheme="ovo"),
        "scheme must be 'ovr', as agreed, got 'ovo'",
    ),
    "no groups": case(
        terms("pan-svm", **PAN, solver="cutting-plane"),
        mapped,
        ran("deal_groups", groups=0),
        "groups must be a whole number from 1 on, got 0",
    ),
    "a histogram without bins": pan(
        fit("pan-svm", fold=0, **PAN),
        summed("score_counts", (2004,), model=ONE, bins=-1, threshold=0.0, kept=False),
        "bins must be 1000, got -1",
        reading={"folds": 2, "tested_by": "sites"},
    ),
    "a finer histogram": pan(
        fit("pan-svm", fold=0, **PAN),
        summed("score_counts", (2002,), model=ONE, bins=999, threshold=0.0, kept=False),
        "bins must be 1000, got 999",
        reading={"folds": 2, "tested_by": "sites"},
    ),
    "a part that no site keeps": pan(
        fit("pan-svm", fold=0, **PAN),
        summed("score_counts", (2004,), model=ONE, bins=1000, threshold=0.0, kept=True),
        "kept must be false, as the agreed release says",
        reading={"folds": 2, "tested_by": "sites"},
    ),
    "more classes than labels": pan(
        fit("pan-svm", fold=0, **PAN),
        summed("score_counts", (6009,), model=ONE, bins=1000, threshold=0.0, kept=False, classes=3),
        "classes must be 2, as in the labels of this site, got 3",
        reading={"folds": 2, "tested_by": "sites"},
    ),
    "a threshold": pan(
        fit("pan-svm", fold=0, **PAN),
        summed("score_counts", (2004,), model=ONE, bins=1000, threshold=0.5, kept=False),
        "threshold must be 0, got 0.5",
        reading={"folds": 2, "tested_by": "sites"},
    ),
    "edges around single values": case(
        terms("decision-tree", max_depth=2),
        after(prepared, summed("column_moments", (2 * COLUMNS + 2,))),
        ran("receive_edges", edges=np.cumsum(np.tile([1.0, 1e-6], (COLUMNS, 16)), axis=1)[:, :31]),
        "edges must be 31 for each of 4 columns, equally far apart",
    ),
    "fewer columns": pan(
        prepared,
        ran("receive_map", features="identity", dimensions=COLUMNS - 1),
        "dimensions must be 4, the number of columns",
    ),
    "edges of a tree": pan(prepared, ran("receive_edges", edges=np.zeros((COLUMNS, 3))), "no step 'receive_edges'"),
    "tables of a tree": pan(prepared, summed("cross_tables"), "no step 'cross_tables'"),
    "rows by frequencies of its choice": pan(
        prepared, ran("take_rows", rho=np.ones((1, COLUMNS)), longest=1.0, clip=True), "no step 'take_rows'"
    ),
    "losses at a point": pan(prepared, summed("erm_sums", (1, 21)), "no step 'erm_sums'"),
    "frequencies in a run without": case(
        terms("dp-erm", epsilon=1.0),
        encoded_as_public,
        ran("take_rows", rho=np.ones((1, COLUMNS)), longest=1.0, clip=True),
        "features must be 0, as agreed, got 1",
    ),
    "a model without its noise": case(
        terms("hybrid-svm", **NOISY), nothing, summed("own_part", (2,), np.inf, joint=False), "no step 'own_part'"
    ),
    "each site's model": case(
        terms("hybrid-svm", **NOISY),
        nothing,
        ran("train_alone", prior=W, C=1.0, tolerance=1e-3, rows=60),
        "no step 'train_alone'",
    ),
    "a model with hardly any noise": case(
        ONE_SHOT,
        trained_alone,
        summed("noisy_part", (2,), np.inf, **{**FOR_EPSILON, "steps": 1}),
        "noise must have the scale .* that epsilon needs",
        rules=BUDGETED,
    ),
    "a model with noise for a smaller epsilon than it says": case(
        replace(ONE_SHOT, epsilon=0.1),
        trained_alone,
        summed("noisy_part", (2,), np.inf, **FOR_EPSILON),
        "the agreed settings must name the mechanism, and the epsilon that this site charges",
        rules=BUDGETED,
    ),
    "a model with noise for more rows than it was trained with": case(
        ONE_SHOT,
        lambda federation: trained_alone(federation, rows=30),
        summed("noisy_part", (2,), np.inf, **FOR_EPSILON),
        "noise must have the scale .* that epsilon needs",
        rules=BUDGETED,
    ),
    "a model that counts for more than all": case(
        ONE_SHOT,
        lambda federation: trained_alone(federation, rows=10),
        summed("noisy_part", (2,), np.inf, **FOR_EPSILON),
        "rows must be those of all sites, and 20 or more",
        rules=BUDGETED,
    ),
    "noise in shares for more sites than there are": case(
        ONE_SHOT,
        trained_alone,
        summed("noisy_part", (2,), np.inf, **{**FOR_EPSILON, "shares": 9}),
        "shares must be from 1 to 2",
        rules=BUDGETED,
    ),
    "private rows at a price of its choice": case(
        terms("hybrid-svm", **{**NOISY, "mechanism": "gaussian", "delta": 1e-6}, features=1),
        with_measured_frequencies,
        ran("begin_path", prior=np.zeros(2), price=7e3, lever=0.0, masking="congruence"),
        "price must be C = 300 over the number of rows, got 7000",
    ),
    "columns": pan(prepared, ran("keep_columns", columns=ONE), "no step 'keep_columns'"),
}


TREE: Mapping[str, Any] = {"max_depth": 2}
LEAF: Mapping[str, Any] = {
    "column": np.array([-1]),
    "bin": np.array([0]),
    "children": np.array([[0, 0]]),
    "nodes": np.array([0]),
}
TESTED: Mapping[str, Any] = {"test_fraction": 0.2, "tested_by": "sites"}
TAKEN = ran("take_rows", rho=np.zeros((0, COLUMNS)), longest=9.0, clip=True)
SPHERICAL = terms("hybrid-svm", **{**NOISY, "mechanism": "spherical"}, features=1)
OUT_OF_PLACE: Mapping[str, Case] = {
    "a second path, around a point of its choice": pan(
        fit("pan-svm", **PAN), ran("begin_path", **{**BEGUN, "prior": W}), "begin_path"
    ),
    "a path begun again in mid-training": pan(
        after(measured, ran("begin_path", **BEGUN), ran("share_path", holders=list(SITES))),
        ran("begin_path", **{**BEGUN, "lever": 2.0}),
        "begin_path",
    ),
    "Newton's system before there is a path": pan(measured, summed("newton", (1, 24), 1.0, iteration=1), "newton"),
    "weights before training": pan(
        after(measured, ran("begin_path", **BEGUN), ran("share_path", holders=list(SITES))),
        summed("released", (1, 6), np.inf, keep=ONE, constants=ONE, holder="site-1"),
        "released",
    ),
    "columns on another scale after training": pan(
        fit("pan-svm", **PAN), ran("rescale", offset=np.zeros(COLUMNS), scale=np.full(COLUMNS, 1e-4)), "rescale"
    ),
    "a second test with other bins": pan(
        after(fit("pan-svm", fold=0, **PAN), scored(1000)), scored(500), "score_counts", reading=TESTED
    ),
    "training after the last test": pan(
        after(fit("pan-svm", fold=0, **PAN), scored(1000)),
        summed("newton", (1, 24), 1.0, iteration=99),
        "newton",
        reading=TESTED,
    ),
    "the models of all sites twice": case(
        terms("voting-ensemble", **PAN),
        fit("voting-ensemble", **PAN),
        summed("model_table", (3, 7), np.inf),
        "model_table",
    ),
    "bins of a tree of its own": case(
        terms("decision-tree", **TREE),
        fit("decision-tree", **TREE),
        ran("receive_edges", edges=np.zeros((COLUMNS, 31))),
        "receive_edges",
    ),
    "more levels than a tree has": case(
        terms("decision-tree", **TREE),
        after(
            prepared,
            summed("column_moments", (2 * COLUMNS + 2,)),
            ran("receive_edges", edges=np.tile(np.linspace(-1, 1, 31), (COLUMNS, 1))),
            *(summed("cross_tables", (1, COLUMNS, 32, 2), **{**LEAF, "bin": np.array([n])}) for n in (0, 1)),
        ),
        summed("cross_tables", (1, COLUMNS, 32, 2), **{**LEAF, "bin": np.array([2])}),
        "cross_tables",
    ),
    "rows mapped anew while a model is trained": case(
        terms("dp-erm", epsilon=1.0),
        after(encoded_as_public, TAKEN, losses(2)),
        ran("take_rows", rho=np.zeros((0, COLUMNS)), longest=99.0, clip=True),
        "take_rows",
    ),
    "losses at more points than training takes": case(
        terms("dp-erm", epsilon=1.0),
        after(encoded_as_public, TAKEN, losses(1 + MAX_STEPS)),
        summed("erm_sums", (1, 21), f=np.full((1, COLUMNS), 7.0), loss="logistic", half_width=0.5),
        "erm_sums",
    ),
    "joint private training that ended early and starts again": case(
        SPHERICAL, after(with_frequencies, trained_for_one_step), trained_for_one_step, "squared_norms"
    ),
    "a model of private rows without its release": case(
        SPHERICAL,
        after(with_frequencies, trained_for_one_step, summed("own_part", (2,), np.inf, joint=True)),
        summed("own_part", (3,), np.inf, joint=True),
        "own_part",
    ),
}


@pytest.mark.parametrize(
    ("gamma", "columns", "told", "said"),
    [
        (0.5, None, Kernel("rbf", 0.5), ""),
        (0.5, None, Kernel("rbf", 0.25), "gamma must be 0.5, as agreed, got 0.25"),
        (0.5, None, Kernel("linear", 0.5), 'kernel must be "rbf", as agreed, got "linear"'),
        (0.5, None, Kernel("rbf", 0.5, degree=5), "degree must be 3, as agreed, got 5"),
        ("auto", None, Kernel("rbf", 7.0), ""),
        ("auto", 4, Kernel("rbf", 0.25), ""),
        ("auto", 4, Kernel("rbf", 7.0), "gamma must be 1 / 4, one by the number of columns, got 7.0"),
    ],
)
def test_a_kernel_must_be_the_agreed_one(gamma: float | str, columns: int | None, told: Kernel, said: str) -> None:
    site = object.__new__(SiteProgram)
    site.terms = terms("dpp-svm", gamma=gamma, kernel="rbf")
    with pytest.raises(OrderRefused, match=said) if said else nullcontext():
        check_kernel(site, told, columns)


def refusals(federation: Federation, orders: Orders) -> dict[str, str]:
    """Give orders that the sites refuse, and return what each says; an honest coordinator ends with the first."""
    with pytest.raises(SiteFailed, match=r"^site-\d failed in round \d+ ") as caught:
        orders(federation)
    assert not caught.value.remote_traceback
    said, deadline, dispatcher = {caught.value.site: caught.value.reason}, Deadline(20.0), federation._dispatcher
    while len(said) < len(SITES):
        if (came := dispatcher.next_answer()) is None:
            dispatcher.mailbox.wait(deadline)
            continue
        site, answer = came
        assert isinstance(answer, StepFailure)
        said[site] = answer.reason
    return said


@pytest.mark.parametrize("lie", LIES)
def test_an_order_outside_the_agreed_steps_is_refused_by_every_site(lie: str) -> None:
    agreed, rules, before, orders, sentence = LIES[lie]
    with sites(agreed, rules) as federation:
        before(federation)
        said = refusals(federation, orders)
    for site in SITES:
        assert re.search(f"^it refuses the order: .*{sentence}", said[site])
        assert federation.final_reports[site].refused[REFUSED] == 1
        sent = sum(link.sender == site and traffic.messages for link, traffic in last_round(federation))
        assert sent == 0, "something left the site"


@pytest.mark.parametrize("lie", OUT_OF_PLACE)
def test_an_order_out_of_place_is_refused_by_every_site(lie: str) -> None:
    agreed, rules, before, orders, step = OUT_OF_PLACE[lie]
    with sites(agreed, rules) as federation:
        before(federation)
        said = refusals(federation, orders)
    for site in SITES:
        assert said[site] == (
            f"it refuses the order: step {step!r} is out of place: the agreed terms do not allow it now, or not again"
        )
        assert federation.final_reports[site].refused[REFUSED] == 1
        sent = sum(link.sender == site and traffic.messages for link, traffic in last_round(federation))
        assert sent == 0, "something left the site"


@pytest.mark.parametrize("changed", [{}, {"solver": "interior-point"}])
def test_terms_without_the_settings_of_the_program_are_refused(changed: dict[str, Any]) -> None:
    lacking = replace(terms("pan-svm", **PAN), settings=changed)
    with (
        pytest.raises(SiteFailed, match=r"the terms must have all settings of pan-svm: C is missing; "),
        sites(lacking),
    ):
        raise AssertionError("sites took part")


def test_terms_with_a_setting_that_the_program_does_not_have_are_refused() -> None:
    agreed = terms("naive-bayes")
    more = replace(agreed, settings={**agreed.settings, "solver": "cutting-plane"})
    with pytest.raises(SiteFailed, match=r"'solver' is none of them"), sites(more, SiteRules()):
        raise AssertionError("sites took part")


def last_round(federation: Federation) -> list[Any]:
    """Return what protocols carried in the last round, by link."""
    links = federation.accounts.select(control=False)
    return [(link, traffic) for link, traffic in links if link.round == federation.progress.round]


def test_steps_of_frozen_runs_are_offered_and_few_others(tmp_path: Path) -> None:
    """Others depend on the rows: whether columns are categories, or how many rows a class has."""
    known = json.loads(frozen.PATH.read_text())["cases"]
    for case in frozen.CASES:
        scenario, _ = frozen.scenario_of(case, tmp_path)
        offered = scenario.algorithm.implementation.Site.script(terms_of(scenario)).steps
        taken = known[case]["steps"].keys() - {"join"}
        assert taken <= offered, case
        unused = {"agree_secret", "category_tables", "class_counts", "column_count", "record_count"}
        unused |= {"cuts", "deal_groups", "line", "starting_sums"} if case == "pan-svm, either solver" else set()
        assert offered - taken <= unused, case


def test_a_program_of_one_class_offers_all_its_steps() -> None:
    program = ALGORITHMS["naive-bayes"].Site
    named = program.script(terms("naive-bayes")).steps
    assert {"class_counts", "class_sums"} <= named < steps_of(program)


def test_the_frequencies_that_the_agreed_seed_draws_are_taken() -> None:
    with sites(terms("pan-svm", features="fourier", frequencies=7, gamma=0.25), SiteRules()) as federation:
        prepared(federation)
        federation.run("receive_map", **FourierMap.draw(0.25, 7, COLUMNS, 1).to_fields())
        squares, rows = federation.sum("squared_norms", shape=(2,), bound=np.inf)
    assert squares == pytest.approx(60.0)
    assert rows == 60


def test_a_model_beyond_the_agreed_ones_is_refused(tmp_path: Path) -> None:
    """Three sites are each charged 1 when they join, and refuse to train a second model."""
    rules = SiteRules(max_epsilon=1.0, budget=30.0, ledger=str(tmp_path / "ledger"))
    with sites(ONE_SHOT, rules) as federation:
        trained_alone(federation)
        assert np.isfinite(federation.sum("noisy_part", shape=(2,), bound=np.inf, **FOR_EPSILON)).all()
        said = refusals(federation, encoded_as_public)
    assert all("step 'encode_known' is out of place" in why for why in said.values())
    assert len((tmp_path / "ledger").read_text().splitlines()) == len(SITES)


@pytest.mark.parametrize(
    ("agreed", "exact"),
    [
        (terms("dp-erm", epsilon=1.0), "erm_sums"),
        (terms("hybrid-svm", mechanism="spherical", epsilon=1.0, variant="one-shot", features=1), "own_part"),
        (terms("hybrid-svm", **NOISY), r"newton, released, squared_norms|squared_norms"),
        (
            terms(
                "hybrid-svm",
                {"folds": 2, "tested_by": "sites"},
                mechanism="laplace",
                epsilon=1.0,
                variant="one-shot",
                features=1,
            ),
            "score_counts",
        ),
    ],
)
def test_a_site_that_limits_epsilon_takes_no_part_where_exact_sums_are_opened(
    agreed: Terms, exact: str, tmp_path: Path
) -> None:
    rules = SiteRules(max_epsilon=1.0, budget=30.0, ledger=str(tmp_path / "ledger"))
    with pytest.raises(SiteFailed, match=f"sums exact ones .*({exact}).*variant = .one-shot."), sites(agreed, rules):
        raise AssertionError("sites took part")
    assert not (tmp_path / "ledger").exists(), "a run that was refused was charged"


def test_a_model_that_sites_keep_is_tested_with_their_part_only() -> None:
    held = site_partition(np.zeros((2, COLUMNS)), np.array([1.0, -1.0]), names=[f"x{j}" for j in range(COLUMNS)])
    site = ALGORITHMS["pan-svm"].Site("site-1", held, {"seed": 1})
    site.terms = terms("pan-svm", **PAN, release="sites")
    for step, told in (("score_counts", {"bins": 1000, "threshold": 0.0}), ("own_model_counts", {})):
        with pytest.raises(OrderRefused, match="kept must be true, as the agreed release says"):
            site.find_step(step)(model=ONE, kept=False, **told)


def test_program_that_cannot_tell_its_steps_is_named_in_a_sentence() -> None:
    said = r"Undecided\.script fails \(ValueError: no setting of this name\); fix this method\.$"
    with pytest.raises(LaunchError, match=said), drill(3, program="undecided"):
        pass
