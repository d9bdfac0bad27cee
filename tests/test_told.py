"""Every argument of every step is declared: agreed, checked by the site, or chosen, with what a liar gains."""

from __future__ import annotations

import inspect
from dataclasses import fields

import numpy as np
import pytest

from fedsvm.algorithms.optimization.blind_path import BlindOrder
from fedsvm.algorithms.optimization.path_rounds import RoundOrder
from fedsvm.algorithms.registry import ALGORITHMS, OWN_ALGORITHMS
from fedsvm.federation.errors import OrderRefused
from fedsvm.federation.site.partition import Partition
from fedsvm.federation.site.program import AGREED, CHECKED, SiteProgram, free, mark_of, step, step_methods
from fedsvm.federation.site.terms import Terms
from tools.lying import PAGE, steps, table, with_table

HOW = (
    "Say in its decorator how each is bound: @step(told={{{arguments}: AGREED}}) if it must be the setting of this "
    "name (the site compares it), CHECKED if the step compares it with what it holds, or free(bound, gain) if the "
    "coordinator chooses it; then run `python -m tools.lying`."
)


@pytest.mark.parametrize("where", steps())
def test_every_argument_of_a_step_is_declared(where: str) -> None:
    method = steps()[where]
    parameters = [each for each in inspect.signature(method).parameters.values() if each.name != "self"]
    named = [each.name for each in parameters if each.kind != each.VAR_KEYWORD]
    declared = mark_of(method).told or {}
    undeclared = [name for name in named if name not in declared]
    how = HOW.format(arguments=f'"{", ".join(undeclared)}"')
    assert not undeclared, f"{where} does not declare {', '.join(undeclared)}. {how}"
    if len(named) == len(parameters):
        assert set(declared) <= set(named), f"{where} declares arguments that it does not have"
    else:
        assert len(declared) > len(named), f"{where} takes arguments by name, and declares none of them. {how}"


@pytest.mark.parametrize("name", OWN_ALGORITHMS)
def test_an_agreed_argument_is_a_setting_of_every_program_that_offers_the_step(name: str) -> None:
    """Sites compare an argument only with a setting of its name, so that another name would go unchecked."""
    settings = {each.name for each in fields(ALGORITHMS[name].Settings)}
    for named, method in step_methods(ALGORITHMS[name].Site).items():
        agreed = {argument for argument, told in (mark_of(method).told or {}).items() if told is AGREED}
        assert agreed <= settings, (named, agreed - settings)


def test_an_order_of_the_path_has_the_declared_arguments() -> None:
    assert set(mark_of(steps()["NewtonPath.newton"]).told or ()) == set(RoundOrder.__dataclass_fields__)
    assert set(mark_of(steps()["BlindNewton.blind_newton"]).told or ()) == set(BlindOrder.__dataclass_fields__)


@pytest.mark.parametrize("where", steps())
def test_what_a_liar_gains_is_said_of_whatever_it_chooses(where: str) -> None:
    for name, told in (mark_of(steps()[where]).told or {}).items():
        assert bool(told.bound and told.gain) == (told.kind == "chosen"), (where, name)


def test_the_page_lists_what_a_coordinator_chooses() -> None:
    page = PAGE.read_text()
    assert table() in page
    assert with_table(page) == page, "run `python -m tools.lying`"


class Shop(SiteProgram):
    @step(told={"price": AGREED, "fold": CHECKED, "w, b": free("any point", "a sum there")})
    def sell(self, price: float, fold: int, w: float, b: float) -> None: ...

    @step
    def of_a_plugin(self, price: float) -> None: ...


def _check(name: str, **arguments: object) -> None:
    shop = Shop("site-1", Partition({"rows": np.zeros(1)}), {})
    shop.terms = Terms("shop", {"price": 2.0}, "ring", {}, 3)
    shop.check_arguments(name, mark_of(shop.find_step(name)), arguments)


def test_a_site_compares_agreed_arguments_and_refuses_undeclared_ones() -> None:
    _check("sell", price=2.0, fold=1, w=0.0, b=0.0)
    with pytest.raises(OrderRefused, match=r"price must be 2\.0, as agreed, got 3\.0"):
        _check("sell", price=3.0, fold=1, w=0.0, b=0.0)
    with pytest.raises(OrderRefused, match="step 'sell' declares no argument 'discount'"):
        _check("sell", price=2.0, discount=1)
    _check("of_a_plugin", price=3.0)
