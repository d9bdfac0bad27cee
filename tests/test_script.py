"""Scripts of steps: what a site may be ordered to do, and where it is in a run with faults."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedsvm.algorithms.registry import ALGORITHMS, OWN_ALGORITHMS
from fedsvm.federation.errors import OrderRefused
from fedsvm.federation.site.program import NO_TERMS, SiteProgram, step, steps_of
from fedsvm.federation.site.script import (
    END,
    Script,
    any_order,
    either,
    maybe,
    once,
    repeat,
    seq,
    stage,
)
from fedsvm.federation.site.script_position import MAX_REPEATS, ScriptPosition
from fedsvm.federation.site.terms import Terms
from fedsvm.federation.transport.wire import RUN_ID_BYTES

ALL = ("a", "b", "c")
FEWER = ("a", "b")
RUN = bytes(RUN_ID_BYTES)


# Scripts, against regular expressions of Python.


def scripts() -> st.SearchStrategy[tuple[Script, str]]:
    """Return scripts over three steps, each with the regular expression that it stands for."""
    steps = st.sampled_from("xyz").map(lambda name: (once(name), name))

    def larger(inner: st.SearchStrategy[tuple[Script, str]]) -> st.SearchStrategy[tuple[Script, str]]:
        pairs = st.tuples(inner, inner)
        counts = st.tuples(inner, st.integers(0, 2), st.integers(0, 2))
        return st.one_of(
            pairs.map(lambda both: (seq(both[0][0], both[1][0]), f"(?:{both[0][1]}{both[1][1]})")),
            pairs.map(lambda both: (either(both[0][0], both[1][0]), f"(?:{both[0][1]}|{both[1][1]})")),
            inner.map(lambda one: (maybe(one[0]), f"(?:{one[1]})?")),
            inner.map(lambda one: (stage(one[0]), one[1])),
            counts.map(
                lambda told: (
                    repeat(told[0][0], told[1], told[1] + told[2]),
                    f"(?:{told[0][1]}){{{told[1]},{told[1] + told[2]}}}",
                )
            ),
        )

    return st.recursive(steps, larger, max_leaves=6)


def left_after(script: Script, steps: str) -> tuple[Script, ...]:
    """Return what is left of a script once steps were ordered."""
    may: tuple[Script, ...] = (script,)
    for name in steps:
        may = tuple(left for each in may for left in each.after(name))
    return may


@given(scripts(), st.text("xyz", max_size=6))
def test_a_script_allows_what_its_regular_expression_matches(script: tuple[Script, str], steps: str) -> None:
    allowed = any(each.nullable for each in left_after(script[0], steps))
    assert allowed == bool(re.fullmatch(script[1], steps))
    assert script[0].nullable == bool(re.fullmatch(script[1], ""))


@given(scripts())
def test_a_script_names_the_steps_of_its_regular_expression(script: tuple[Script, str]) -> None:
    assert script[0].steps == set(re.findall("[xyz]", script[1]))
    assert hash(script[0]) == hash(script[0])


@given(scripts(), st.text("xyz", min_size=1, max_size=5))
def test_open_stages_start_again_and_no_other_part_does(script: tuple[Script, str], steps: str) -> None:
    whole = stage(script[0])
    assert whole.anew() == ()
    for left in left_after(whole, steps):
        assert whole in left.anew()


def test_a_change_of_membership_allows_the_rounds_that_the_script_says() -> None:
    grown = repeat("x", 1, 2, per_change=3).grow()
    assert left_after(grown, "x" * 5)
    assert not left_after(grown, "x" * 6)
    assert left_after(seq("a", repeat("x", 0, 1, per_change=1)).grow(), "axx")
    assert repeat("x").grow() == repeat("x")


def test_steps_of_a_program_without_a_script_come_in_any_order() -> None:
    class Own(SiteProgram):
        @step
        def one(self) -> None: ...

        @step
        def other(self) -> None: ...

    assert Own.script(NO_TERMS) == any_order(["one", "other"])
    assert left_after(Own.script(NO_TERMS), [])[0].nullable  # type: ignore[arg-type]
    assert Own.script(NO_TERMS).after("third") == ()


# Where a site is.


def at(*steps: str, script: Script) -> ScriptPosition:
    """Return where a site is after steps that each came once."""
    place = ScriptPosition(script)
    for number, name in enumerate(steps, start=1):
        place.admit(name, name.encode(), ALL, number)
    return place


def test_the_example_of_the_documentation_holds() -> None:
    place = ScriptPosition(seq(stage("count", "scale"), repeat("newton", 1, 3)))
    orders = [("count", ALL), ("scale", ALL), ("count", FEWER), ("scale", FEWER), ("newton", FEWER), ("newton", FEWER)]
    for number, (name, sites) in enumerate(orders, start=1):
        place.admit(name, b"", sites, number)
    with pytest.raises(OrderRefused, match="step 'scale' is out of place"):
        place.admit("scale", b"", FEWER, 7)
    for number in (7, 8):
        place.admit("newton", bytes([number]), FEWER, number)
        with pytest.raises(OrderRefused, match="step 'count' is out of place"):
            place.admit("count", b"", FEWER, number)
    with pytest.raises(OrderRefused, match="step 'newton' is out of place"):
        place.admit("newton", b"another point", FEWER, 9)


def test_an_order_that_is_refused_changes_nothing() -> None:
    place = at("a", script=seq("a", "b", "c"))
    for wrong in ("c", "d"):
        with pytest.raises(OrderRefused, match=f"step '{wrong}' is out of place"):
            place.admit(wrong, b"", ALL, 2)
    place.admit("b", b"", ALL, 2)


def restarted(*, opened: bool) -> ScriptPosition:
    """Return a place in a stage that repeats nothing, with a sum of its step, after a site left."""
    place = ScriptPosition(stage("a", "b"), max_repeats=0)
    place.admit("a", b"", ALL, 1)
    if opened:
        place.note_opened()
    place.note_change()
    return place


@pytest.mark.parametrize("then", ["a again", "b, then a"])
def test_a_stage_starts_again_over_others_unless_a_sum_was_opened(then: str) -> None:
    free, bound = restarted(opened=False), restarted(opened=True)
    if then == "b, then a":
        for place in (free, bound):
            place.admit("b", b"", ALL[1:], 2)
            place.note_change()
    free.admit("a", b"", ALL[2:], 3)
    with pytest.raises(OrderRefused, match=r"over other sites at most 0 times .max_repeats., and step 'a' would be"):
        bound.admit("a", b"", ALL[2:], 3)


def test_what_a_sum_opened_is_not_forgotten_when_its_order_comes_again() -> None:
    """The second attempt, over the same sites, breaks off before anything is opened."""
    place = ScriptPosition(stage("a", "b"), max_repeats=0)
    place.admit("a", b"", ALL, 1)
    place.note_opened()
    place.admit("a", b"", ALL, 2)
    place.note_change()
    with pytest.raises(OrderRefused, match="over other sites at most 0 times"):
        place.admit("a", b"", ALL[1:], 3)


def test_a_site_that_was_restarted_takes_earlier_sums_for_opened() -> None:
    place = ScriptPosition(stage("a", "b"), max_repeats=0)
    place.miss([1], ["a"])
    place.admit("b", b"", ALL, 2)
    place.note_change()
    with pytest.raises(OrderRefused, match="over other sites at most 0 times"):
        place.admit("a", b"", ALL[1:], 3)


def test_an_order_comes_again_only_if_it_is_unchanged() -> None:
    place = at("a", script=seq("a", "b"))
    with pytest.raises(OrderRefused):
        place.admit("a", b"other arguments", ALL, 2)
    for number in range(MAX_REPEATS):
        place.admit("a", b"a", ALL, 2 + number)
    with pytest.raises(OrderRefused):
        place.admit("a", b"a", ALL, 99)
    place.admit("a", b"a", FEWER, 100)
    place.admit("b", b"b", FEWER, 101)


def test_equal_orders_in_a_row_are_counted_where_the_script_has_them() -> None:
    place = at(script=seq("a", "a", "b"))
    place.admit("a", b"a", ALL, 1)
    place.admit("a", b"a", ALL, 2)
    place.admit("b", b"b", ALL, 3)


@pytest.mark.parametrize("changed", ["members", "roster"])
def test_a_stage_starts_again_only_after_a_change_of_membership(changed: str) -> None:
    script = seq(stage("a", "b"), "c")
    place = at("a", "b", script=script)
    with pytest.raises(OrderRefused):
        place.admit("a", b"again", ALL, 3)
    if changed == "roster":
        place.note_change()
    place.admit("a", b"again", ALL if changed == "roster" else FEWER, 3)


def test_a_stage_that_is_over_does_not_start_again() -> None:
    place = at("a", "b", "c", "d", script=seq(stage("a", "b"), "c", "d"))
    with pytest.raises(OrderRefused):
        place.admit("a", b"again", FEWER, 5)


def test_a_stage_starts_again_when_the_order_after_it_failed() -> None:
    place = at("a", "b", "c", script=seq(stage("a", "b"), "c", "d"))
    place.admit("a", b"again", FEWER, 4)
    place.admit("b", b"b", FEWER, 5)
    place.admit("c", b"c", FEWER, 6)
    place.admit("d", b"d", FEWER, 7)


def test_a_site_moves_on_by_orders_that_it_missed_and_never_back() -> None:
    script = seq("a", stage("b", "c"), "d", "e")
    place = ScriptPosition(script)
    place.miss([1, 2, 4, 5], ["a", "b", "b", "c"])
    place.admit_missed("a")
    place.admit_missed("b")
    with pytest.raises(OrderRefused, match="did not miss step 'a'"):
        place.admit_missed("a")
    place.admit("d", b"d", ALL, 6)
    with pytest.raises(OrderRefused, match="did not miss"):
        place.admit_missed("c")
    place.miss([1, 2, 4, 5, 6], ["a", "b", "b", "c", "d"])
    place.admit_missed("b")
    with pytest.raises(OrderRefused):
        place.admit("d", b"other arguments", ALL, 7)
    place.admit("e", b"e", ALL, 7)


def test_a_site_that_missed_hundreds_of_rounds_moves_on_with_few_alternatives() -> None:
    place, rounds = ScriptPosition(stage("a", repeat("b", 1, 900), "c")), range(1, 800)
    place.miss(rounds, ["a", *["b"] * 798])
    assert len(place._may) <= 2
    place.admit("b", b"b", ALL, 801)


def test_an_outer_stage_starts_again_after_its_inner_one_did() -> None:
    place = at("a", "b", "c", script=stage("a", stage("b", "c"), "d"))
    place.admit("b", b"again", FEWER, 4)
    place.admit("a", b"again", FEWER, 5)
    with pytest.raises(OrderRefused):
        place.admit("a", b"once more", FEWER, 6)


def test_a_path_that_all_sites_lost_begins_anew() -> None:
    place = at(*PREPARED, *MAPPED, *BEGUN, "newton", script=ALGORITHMS["pan-svm"].Site.script(ONE_MODEL))
    place.admit("newton", b"at other sites", FEWER, 20)
    for number, name in enumerate(BEGUN, start=21):
        place.admit(name, b"anew", FEWER, number)


@pytest.mark.parametrize(("size", "products"), [(60, 60), ("significant", 50)])
def test_a_filter_by_mrmr_orders_as_many_products_as_columns_are_kept(size: object, products: int) -> None:
    terms = settings_of("filter", statistic="mrmr", size=size)
    script = ALGORITHMS["filter"].Site.script(replace(terms, reading={**terms.reading, "calibration": 0}))
    place = at(*PREPARED, "class_sizes", "class_moments", script=script)
    for number in range(products):
        place.admit("column_products", str(number).encode(), ALL, 20 + number)
    with pytest.raises(OrderRefused):
        place.admit("column_products", b"one more", ALL, 99)


def test_orders_that_could_not_have_been_missed_are_refused() -> None:
    place = ScriptPosition(seq("a", "b", "c"))
    with pytest.raises(OrderRefused, match="step 'c' is out of place"):
        place.miss([1, 2], ["a", "c"])
    place.admit("a", b"", ALL, 1)


# Honest runs with faults are never refused, and a liar hardly finds anything to order.


class Changed(Exception):
    """Sites left or joined."""


class Run:
    """A coordinator of sites that drop, come late, are restarted and join again, as `Federation` orders them."""

    def __init__(self, script: Script, seed: int, faults: float) -> None:
        self.random, self.faults, self.script = random.Random(seed), faults, script
        self.places = {f"site-{number}": ScriptPosition(script) for number in range(6)}
        self.members = tuple(self.places)
        self.number = 0
        self.rounds: list[int] = []
        self.steps: list[str] = []
        self.state: list[str] = []
        self.orders = 0

    def verb(self, name: str, told: object = None, *, fixed: bool = False) -> None:
        """Order a step until a round is complete; raise Changed as a stage would."""
        digest, attempts = repr((name, told)).encode(), 0
        while True:
            self.number += 1
            attempts += 1
            failed = attempts < MAX_REPEATS and self.random.random() < self.faults
            reached = [site for site in self.members if self.random.random() < 0.7]
            for site in reached if failed else self.members:
                self.places[site].admit(name, digest, self.members, self.number)
                self.orders += 1
            if not failed:
                self.rounds.append(self.number)
                self.steps.append(name)
                if name in REMEMBERED:
                    del self.state[self.state.index(name) if name in self.state else len(self.state) :]
                    self.state.append(name)
                return
            if self.random.random() < 0.6:
                self.change()
                attempts = 0
                if fixed:
                    raise Changed

    def change(self) -> None:
        """Have a site leave, or leave and come back, or be restarted."""
        site = self.random.choice(self.members)
        kind = self.random.random()
        if kind < 0.3 and len(self.members) > 3:
            self.members = tuple(each for each in self.members if each != site)
        else:
            self.join(site, restarted=kind < 0.7)

    def join(self, site: str, *, restarted: bool) -> None:
        """Let a site in, and tell it what it missed, and the others that it is there."""
        if restarted:
            self.places[site] = ScriptPosition(self.script)
        self.places[site].miss(self.rounds, self.steps)
        for name in self.state:
            self.places[site].admit_missed(name)
        self.members = tuple(each for each in self.places if each in self.members or each == site)
        for other in self.members:
            self.places[other].note_change()

    def phase(self) -> None:
        """Let a site in that had left, as at the start of a phase."""
        gone = [site for site in self.places if site not in self.members]
        if gone and self.random.random() < 0.5:
            self.join(self.random.choice(gone), restarted=False)

    def until_stable(self, staged: Callable[[], None]) -> None:
        """Run a stage, from its start after each change of membership."""
        while True:
            try:
                staged()
            except Changed:
                continue
            return


def settings_of(name: str, **chosen: object) -> Terms:
    """Return the terms of a run over three folds, which sites test."""
    reading = {"scale": "standard", "missing": "refuse", "folds": 3, "tested_by": "sites", "calibration": 0.2}
    return Terms(name, vars(ALGORITHMS[name].Settings(**chosen)), "ring", {}, 3, reading=reading)


PAN = settings_of("pan-svm", max_iterations=8)
ONE_MODEL = replace(PAN, reading={**PAN.reading, "calibration": 0})
REMEMBERED = {"encode", "hold_out", "rescale", "receive_map", "begin_path", "score_apart"}
PREPARED = ("hold_out", "row_count", "column_sums", "column_squares", "rescale")
MAPPED = ("agree_secret", "cluster", "local_landmarks", "records_exposed", "receive_map")
BEGUN = ("squared_norms", "begin_path", "share_path")
APART = ("score_apart", "classes_apart", "sigmoid_sums")
PAN_FOLD = (*PREPARED, *MAPPED, *BEGUN, "newton", "newton", "newton", "released", *APART, "score_counts")


def ordered(run: Run, *names: str) -> Callable[[], None]:
    """Return a stage of some steps."""

    def staged() -> None:
        run.phase()
        for name in names:
            run.verb(name, run.members, fixed=True)

    return staged


def honest(seed: int, faults: float) -> Run:
    """Train PAN-SVM over three folds, as its coordinator does, but for its numbers."""
    run = Run(ALGORITHMS["pan-svm"].Site.script(PAN), seed, faults)
    run.until_stable(ordered(run, "encode"))
    for _ in range(3):
        run.until_stable(ordered(run, *PREPARED, *MAPPED))
        run.until_stable(ordered(run, *BEGUN))
        seen = run.members
        for iteration in range(run.random.randint(1, 8)):
            run.verb("newton", iteration)
            if run.members != seen:
                seen = run.members
                run.until_stable(ordered(run, "share_path", "squared_norms"))
        run.verb("released")
        run.until_stable(ordered(run, *APART))
        run.phase()
        run.verb("score_counts")
    return run


@pytest.mark.parametrize("faults", [0.0, 0.03, 0.1])
def test_honest_schedules_are_never_refused(faults: float) -> None:
    orders = sum(honest(seed, faults).orders for seed in range(400))
    assert orders > 400 * 3 * 6 * len(PAN_FOLD) / 2


def test_a_liar_can_order_hardly_anything_out_of_place() -> None:
    script = ALGORITHMS["pan-svm"].Site.script(PAN)
    whole = ("encode", *PAN_FOLD)
    names = sorted(script.steps | {"deal_groups", "cuts", "subset_newton"})
    admitted = set()
    for position, name in product(range(len(whole) + 1), names):
        place = at(*whole[:position], script=script)
        try:
            place.admit(name, b"a lie", ALL, 99)
        except OrderRefused:
            continue
        admitted.add((whole[position - 1] if position else "", name))
    honestly = set(zip(("", *whole), whole, strict=False))
    assert honestly <= admitted
    assert admitted - honestly == {
        ("", "category_tables"),  # of columns whose categories are not declared
        ("", "hold_out"),
        ("newton", "share_path"),
        ("share_path", "share_path"),
        ("released", "score_counts"),
        ("sigmoid_sums", "sigmoid_sums"),
        ("score_counts", "encode"),
        ("score_counts", "category_tables"),
        ("score_counts", "hold_out"),
    }


@pytest.mark.parametrize("name", sorted(OWN_ALGORITHMS))
def test_every_script_names_steps_of_its_program_only(name: str) -> None:
    needed = {"epsilon": 1.0, "gamma": 0.5, "regularisation": 0.1, "C": 1.0}
    fields = ALGORITHMS[name].Settings.__dataclass_fields__
    chosen = {key: value for key, value in needed.items() if key in fields}
    program = ALGORITHMS[name].Site
    script = program.script(settings_of(name, **chosen))
    assert script.steps <= steps_of(program)
    assert script != END
    assert script == program.script(settings_of(name, **chosen))
