"""A coordinator that lies to sites with a committee: about rounds of SVMs on columns, and of hybrid-svm's training.

Every order goes out over sockets to site processes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from fedsvm.algorithms.optimization.blind_path import BlindOrder, _numbers_of
from fedsvm.algorithms.optimization.committee import solve_with_committee
from fedsvm.algorithms.optimization.path_rounds import BOUNDS, Layout
from fedsvm.federation.arrays import FloatArray
from fedsvm.federation.control import Order
from fedsvm.federation.errors import SiteFailed
from fedsvm.federation.federation import Federation
from fedsvm.federation.site.rules import ANYTHING
from fedsvm.federation.site.terms import Terms
from tests.lying_coordinator import telling
from tests.test_agreed_steps import BUDGETED, COLUMNS, SITES, encoded_as_public, prepared, sites, terms

NUMBERS = np.arange(COLUMNS)
RFE = terms("rfe", select_solver="interior-point", masking="committee", kernel="linear", features="identity")
HYBRID = terms("hybrid-svm", masking="committee", variant="joint", mechanism="spherical", epsilon=1.0, features=2)
PAN = terms("pan-svm", masking="congruence", kernel="linear", features="identity")
POSED: Mapping[str, Any] = {
    "epoch": 0,
    "columns": NUMBERS,
    "lengths": np.array([COLUMNS]),
    "folds": np.array([-1]),
    "kinds": np.array([0]),
    "groups": 4,
    "inner_folds": 5,
    "price": 1.0,
    "lever": 1.0,
    "masking": "committee",
}
NEXT: Mapping[str, Any] = {"epoch": 0, "iteration": 2}


def round_of(problems: int = 1) -> dict[str, Any]:
    """Return what an honest coordinator says of the first round of some problems."""
    return {
        "iteration": 1,
        "problems": np.arange(problems),
        "mus": np.ones(problems),
        "keep": np.zeros(problems),
        "still": np.zeros(problems),
        "scales": np.full((problems, 5), 2.0**12),
        "rows": 60,
        "noises": np.full((problems, 3), 0.5),
        "dithers": np.full((problems, 2), 0.1),
    }


def ordered(federation: Federation, step: str, layout: Layout, **told: Any) -> FloatArray:
    """Run a round as an honest coordinator does, and return what it sees of the problem."""
    order = {**round_of(), **told}
    blind = BlindOrder(**{name: order[name] for name in round_of()})
    return np.asarray(solve_with_committee(federation, step, blind.systems([layout]), _numbers_of, **order)[0])


def of_columns(federation: Federation, **told: Any) -> FloatArray:
    return ordered(federation, "blind_subset_newton", Layout(COLUMNS + 1, COLUMNS), **told)


OF_A_ROUND: Mapping[str, tuple[Mapping[str, Any], str]] = {
    "a problem that there is not": (
        {"problems": np.array([3])},
        r"problems must be different numbers from 0 to 0, got",
    ),
    "a problem twice": ({**round_of(2), **NEXT, "problems": np.array([0, 0])}, "problems must be different numbers"),
    "no problem": ({**round_of(0), **NEXT}, "problems must be different numbers"),
    "scales of two problems": ({"scales": np.ones((2, 5))}, r"scales must be finite numbers of shape \(1, 5\)"),
    "a scale that is no power of two": ({"scales": np.full((1, 5), 3.0)}, "scales must be powers of two"),
    "a scale of zero": ({"scales": np.zeros((1, 5))}, "scales must be above 0"),
    "noise that is no number": (
        {"noises": np.full((1, 3), np.nan)},
        r"noises must be finite numbers of shape \(1, 3\)",
    ),
    "no noise": ({"noises": np.array([[0.5, 0.0, 0.5]])}, "noises must be above 0"),
    "dithers below 0": ({"dithers": -np.ones((1, 2))}, "dithers must be 0 or more"),
    "dithers of one kind": ({"dithers": np.ones((1, 1))}, r"dithers must be finite numbers of shape \(1, 2\)"),
    "words as weights": ({"mus": "all"}, r"mus must be finite numbers of shape \(1,\)"),
    "a barrier of zero": ({"mus": np.zeros(1)}, "mus must be above 0"),
    "a round before the path": ({"iteration": 0}, "iteration must be above 0, from which the problems go on, got 0"),
}
"""Changes of a path's second order, and words of the refusal."""
OF_COLUMNS: Mapping[str, tuple[Mapping[str, Any], str]] = {
    "a column that there is not": (
        {**POSED, "columns": NUMBERS + 1},
        r"columns must be different .* got \[1, 2, 3, 4\]",
    ),
    "a column twice": ({**POSED, "columns": 0 * NUMBERS}, "columns must be different"),
    "columns of no problem": ({**POSED, "columns": np.append(NUMBERS, 0)}, "add up to the 5 columns, got 4"),
    "a class that there is not": ({**POSED, "kinds": np.array([1])}, r"kinds must be from 0 to 0, got \[1\]"),
    "a fold that there is not": ({**POSED, "folds": np.array([5])}, "folds must be below 5, got 5"),
    "folds of two problems": ({**POSED, "folds": np.array([0, 1])}, "must have one number for each problem"),
    "a scale that is no number": ({**POSED, "lever": np.nan}, "lever must be a finite number of at least 0, got nan"),
    "no masks": ({**POSED, "masking": "none"}, 'masking must be "committee", as agreed, got "none"'),
    "another price": ({**POSED, "price": 9.0}, "select_penalty must be 1.0, as agreed, got 9.0"),
    "other groups": ({**POSED, "groups": 60}, "select_groups must be 4, as agreed, got 60"),
    "a kept column twice": ({"epoch": 1, "kept": np.array([0, 0])}, "columns must be different"),
    "a kept column that there is not": ({"epoch": 1, "kept": np.array([4])}, "columns must be different"),
}
"""Orders that pose problems, and words of the refusal."""


def test_sites_refuse_false_rounds_of_problems_on_columns_and_go_on_with_true_ones() -> None:
    with sites(RFE, ANYTHING) as federation:
        prepared(federation)
        of_columns(federation, **POSED)
        for changes, says in OF_A_ROUND.values():
            with pytest.raises(SiteFailed, match=f"it refuses the order: {says}"):
                federation.run("blind_subset_newton", **{**round_of(), **NEXT, **changes})
        of_columns(federation, **NEXT)
        for posed, says in OF_COLUMNS.values():
            with pytest.raises(SiteFailed, match=f"it refuses the order: .*{says}"):
                federation.run("blind_subset_newton", **{**round_of(), **posed})
        kept = Layout(COLUMNS, COLUMNS - 1)
        for _ in range(2):  # a round whose connection was lost comes again
            ordered(federation, "blind_subset_newton", kept, epoch=1, kept=np.array([0, 2, 3]))
        for changes, says in OF_BEST_POINTS:
            with pytest.raises(SiteFailed, match=f"it refuses the order: {says}"):
                told = {"keep": np.ones(1), "constants": np.zeros(1), **changes}
                federation.sum("subset_weights", shape=(4,), bound=np.inf, **told, holder=SITES[0])
        told = {"keep": np.ones(1), "constants": np.zeros(1)}
        best = federation.sum("subset_weights", shape=(4,), bound=np.inf, **told, holder=SITES[0])
        assert best.shape == (4,)


OF_BEST_POINTS: tuple[tuple[Mapping[str, Any], str], ...] = (
    ({"keep": np.ones(2)}, "keep must have one of 0, 1 for each of the 1 problems"),
    ({"constants": np.zeros(0)}, "constants must have one of -1, 0, 1 for each of the 1 problems"),
    ({"constants": np.full(1, 5)}, "constants must have one of -1, 0, 1"),
    ({"keep": "all"}, "keep must have one of 0, 1"),
)
"""Changes of an order that asks for the best points, and words of the refusal."""


def begun(federation: Federation, agreed: Terms) -> None:
    """Have the path of hybrid-svm begun."""
    encoded_as_public(federation)
    federation.run("receive_frequencies", rho=np.ones((2, COLUMNS)))
    federation.sum("squared_norms", shape=(2,), bound=np.inf)
    price = agreed.settings["C"] / 60
    federation.run("begin_path", prior=np.zeros(4), price=price, lever=0.0, masking="committee")
    federation.run("share_path", holders=list(SITES))


def test_sites_of_hybrid_svm_refuse_false_rounds_and_orders_out_of_place() -> None:
    with sites(HYBRID, ANYTHING) as federation:
        encoded_as_public(federation)
        with pytest.raises(SiteFailed, match="'blind_newton' is out of place"):
            federation.run("blind_newton", **round_of())
    with sites(HYBRID, ANYTHING) as federation:
        begun(federation, HYBRID)
        with pytest.raises(SiteFailed, match="'take_best' is out of place"):
            federation.run("take_best", keep=np.ones(1), constants=np.zeros(1))
        ordered(federation, "blind_newton", Layout(4, 4))
        for changes, says in OF_A_ROUND.values():
            with pytest.raises(SiteFailed, match=f"it refuses the order: {says}"):
                order = {**round_of(), **NEXT, **changes}
                federation.run("blind_newton", **{name: order[name] for name in round_of()})
        with pytest.raises(SiteFailed, match="'begin_path' is out of place"):
            federation.run("begin_path", prior=np.ones(4), price=1.0, lever=0.0, masking="committee")
        with pytest.raises(SiteFailed, match="it refuses the order: constants must have one of -1, 0, 1"):
            federation.run("take_best", keep=np.ones(1), constants=np.zeros(2))
        with pytest.raises(SiteFailed, match="no step 'newton'"):
            federation.run("newton", **round_of())


def test_a_site_whose_part_is_beyond_a_scale_takes_no_further_order() -> None:
    """Otherwise a coordinator finds the loss of a single site by bisection."""
    small = np.array([[2.0**12, 2.0**12, 8.0, 2.0**12, 2.0**12]])
    with sites(RFE, ANYTHING) as federation:
        prepared(federation)
        with pytest.raises(SiteFailed, match="beyond the declared bound") as first:
            of_columns(federation, **POSED, scales=small)
        for scales in (2 * small, round_of()["scales"]):
            with pytest.raises(SiteFailed, match="beyond the bound of an earlier round, which ends the run") as later:
                of_columns(federation, **POSED, scales=scales)
            assert later.value.site in SITES
        assert first.value.site in SITES


def test_a_sum_with_false_steps_or_another_bound_is_refused() -> None:
    with sites(PAN, ANYTHING) as federation:
        prepared(federation)
        federation.run("receive_map", features="identity", dimensions=COLUMNS)
        federation.sum("squared_norms", shape=(2,), bound=np.inf)
        federation.run("begin_path", prior=np.zeros(COLUMNS), price=1.0, lever=1.0, masking="congruence")
        federation.run("share_path", holders=list(SITES))
        told = {name: value for name, value in round_of().items() if name not in ("noises", "dithers")}
        for steps in (np.zeros(COLUMNS), np.full(COLUMNS + 1, np.nan)):
            with pytest.raises(SiteFailed, match=r"steps must be finite numbers of shape \(.*5"):
                federation.sum("newton", shape=(1, 36), bound=1.0, **told, steps=steps)
        for bound in (0.75, 2.0, np.inf):
            with pytest.raises(SiteFailed, match=r"'newton' must have the bound 1 or 1\.67772e\+07, got"):
                federation.sum("newton", shape=(1, 36), bound=bound, **told, steps=np.zeros(COLUMNS + 1))
        for bound in BOUNDS:
            told["iteration"] += 1
            assert federation.sum("newton", shape=(1, 36), bound=bound, **told, steps=np.zeros(COLUMNS + 1)).any()


def test_sites_with_a_limit_of_epsilon_count_rounds_of_a_committee_as_exact() -> None:
    noisy = terms("hybrid-svm", masking="committee", variant="joint", mechanism="laplace", epsilon=1.0, features=2)
    with pytest.raises(SiteFailed, match=r"sums exact ones \(blind_newton"), sites(noisy, BUDGETED):
        pass


OF_PATHS: Mapping[str, tuple[Terms, str, Layout, Callable[[Federation], None]]] = {
    "rfe": (RFE, "blind_subset_newton", Layout(COLUMNS + 1, COLUMNS), prepared),
    "hybrid-svm": (HYBRID, "blind_newton", Layout(4, 4), lambda federation: begun(federation, HYBRID)),
}
"""The terms, the step of a round, its layout, and honest orders before it."""


@pytest.mark.parametrize("name", ["rfe", "hybrid-svm"])
def test_a_replayed_round_is_refused_and_a_repeated_one_has_fresh_masks_and_noise(name: str) -> None:
    """Orders of an earlier round, of an earlier number, and of a round that all sites have completed."""
    agreed, step, layout, begin = OF_PATHS[name]
    with sites(agreed, ANYTHING) as federation:
        begin(federation)
        told, orders = (POSED if name == "rfe" else {}), list[Order]()

        def kept(site: str, order: Order) -> Order:
            orders.append(order)
            return order

        with telling(kept):
            ordered(federation, step, layout, **told)
        then = {name: told[name] for name in ("epoch",) if name in told}
        seen = [ordered(federation, step, layout, **then, iteration=2) for _ in range(3)]
        with pytest.raises(SiteFailed, match=r"its round must be above \d+, the last one here"):
            federation.progress.round -= 1
            federation.run(step, **{**round_of(), **then, "iteration": 3})
        federation.progress.round += 1
        with pytest.raises(SiteFailed, match=r"must follow round \d+"), telling(lambda site, order: orders[0]):
            federation.run(step, **{**round_of(), **then, "iteration": 3})
        if name == "hybrid-svm":
            with pytest.raises(SiteFailed, match="iteration must be above 1, from which the problems go on, got 1"):
                federation.run(step, **round_of())
    traces, objectives = np.array(seen)[:, 1], np.array(seen)[:, 2]
    assert len(set(traces)) == len(set(objectives)) == 3
    assert np.ptp(objectives) <= 4 * 0.5 / 2.0**12
