"""Site programs are composed of parts, each with steps and state of its own."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterator
from itertools import combinations
from typing import Any

import pytest

from fedsvm.algorithms.registry import ALGORITHMS, OWN_ALGORITHMS
from fedsvm.federation.site.partition import Partition
from fedsvm.federation.site.program import NO_TERMS, SitePart, SiteProgram, open_steps, step, steps_of

MAX_METHODS = 25


class Till(SitePart):
    """A part with one step that may be summed and one that may be shown."""

    def __init__(self, shop: Shop) -> None:
        self._shop, self.is_counted = shop, False

    @step
    def takings(self) -> str:
        return self._shop.site

    @step(opens="value")
    def customers(self) -> int:
        return 3

    def work_ahead(self) -> None:
        self.is_counted = True


class Shelf(SitePart):
    @step
    def stock(self) -> int:
        return 7


class Shop(SiteProgram):
    """A program of two parts, with a step of its own."""

    part_types = (Till, Shelf)

    def __init__(self, site: str) -> None:
        super().__init__(site, Partition({}), {})
        self.till, self.shelf = Till(self), Shelf()

    @step
    def hours(self) -> int:
        return 8


def test_a_program_has_the_steps_of_its_parts() -> None:
    shop = Shop("corner")
    assert (shop.find_step("hours")(), shop.find_step("takings")(), shop.find_step("stock")()) == (8, "corner", 7)
    for name in ("till", "work_ahead", "is_counted", "nothing"):
        with pytest.raises(LookupError, match="Shop has no step"):
            shop.find_step(name)
    shop.work_ahead()
    assert shop.till.is_counted


def test_a_program_lists_the_steps_of_its_parts() -> None:
    assert steps_of(Shop) == Shop.script(NO_TERMS).steps == {"hours", "takings", "customers", "stock"}
    assert open_steps(Shop) == ("customers",)


def parts_of_algorithms() -> set[type[SitePart]]:
    """Return the parts of all algorithms."""
    return {part for name in OWN_ALGORITHMS for part in ALGORITHMS[name].Site.part_types}


@pytest.mark.parametrize("name", OWN_ALGORITHMS)
def test_every_step_belongs_to_one_part(name: str) -> None:
    program = ALGORITHMS[name].Site
    parts = program.part_types
    shared = {(a.__name__, b.__name__): steps_of(a) & steps_of(b) for a, b in combinations(parts, 2)}
    assert not {pair: steps for pair, steps in shared.items() if steps}
    assert not [name for part in parts for name in steps_of(part) if hasattr(program, name)]


def test_parts_create_their_state_in_constructors() -> None:
    parts = parts_of_algorithms()
    assert len(parts) > 10
    for part in parts:
        created = {name for base in part.__mro__ for name in _assigned(vars(base).get("__init__"))}
        for name, method in inspect.getmembers(part, inspect.isfunction):
            assert set(_assigned(method)) <= created, f"{part.__name__}.{name}"


def test_parts_are_small() -> None:
    for part in parts_of_algorithms():
        assert len([name for name in dir(part) if not hasattr(object, name)]) <= MAX_METHODS


def _assigned(method: Any) -> Iterator[str]:
    """Yield the attributes of `self` that a method assigns."""
    if inspect.isfunction(method):
        for node in ast.walk(ast.parse(textwrap.dedent(inspect.getsource(method)))):
            if (
                isinstance(node, ast.Attribute)
                and isinstance(node.ctx, ast.Store)
                and ast.unparse(node.value) == "self"
            ):
                yield node.attr
