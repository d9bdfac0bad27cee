"""Noisy statistics: the mechanism, what sites put in, kept answers, and runs that take them."""

from __future__ import annotations

import itertools
import math
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy import stats

from fedsvm.algorithms.data import scale_search, statistics
from fedsvm.algorithms.data.encoding import Vocabulary
from fedsvm.algorithms.data.horizontal import HorizontalSite
from fedsvm.algorithms.data.partition import site_partition
from fedsvm.algorithms.data.scale_search import ScaleEvidence, find_window
from fedsvm.algorithms.data.statistics import Budget, NoisyStatistics
from fedsvm.algorithms.data.statistics_rounds import StatisticsPlan, StatisticsSums, take_statistics
from fedsvm.algorithms.privacy.noisy_sums import NoisyBlock, clip_rows, compose_mu
from fedsvm.federation.arrays import FloatArray, Residues
from fedsvm.federation.channel.generator import KeyedRandom
from fedsvm.federation.errors import FederationError, OrderRefused
from fedsvm.federation.site.answers import AnswerRecord
from fedsvm.federation.site.terms import Terms
from tests.conftest import long_but_for
from tests.run_results import simulate

MIN_P = 1e-7
"""A right sampler fails one test in ten million."""


# The mechanism.


@pytest.mark.parametrize("block", [NoisyBlock("a", 1, 1.0, 0.5), NoisyBlock("b", 40, 6.3, 0.1)])
def test_one_row_moves_the_sum_by_less_than_mu_deviations(block: NoisyBlock) -> None:
    random = np.random.default_rng(1)
    rows = random.normal(size=(200, block.size)) * 10.0 ** random.uniform(-3, 300, size=(200, 1))
    moved = np.rint(clip_rows(rows, block.length) / block.lattice)
    assert np.linalg.norm(moved, axis=1).max() <= block.steps * block.mu
    assert block.sigma == pytest.approx(block.length / block.mu, rel=1e-4)


def test_numbers_that_are_none_or_endless_are_clipped_too() -> None:
    rows = np.array([[np.nan, np.inf], [1e308, 1e308], [-np.inf, 3.0], [0.0, 0.0], [3.0, 4.0]])
    assert np.linalg.norm(clip_rows(rows, 2.0), axis=1).max() <= 2.0 + 1e-12
    np.testing.assert_allclose(clip_rows(rows, 2.0)[-1], [1.2, 1.6])


def test_the_sum_has_noise_of_the_promised_distribution() -> None:
    block = NoisyBlock("a", 4000, 3.0, 0.5)
    found = block.add_noise([], KeyedRandom(b"k" * 32)) / block.sigma
    assert stats.kstest(found, stats.norm.cdf).pvalue > MIN_P
    steps = np.rint(found * block.steps).astype(np.int64)
    assert stats.chisquare(np.bincount(steps % 7, minlength=7)).pvalue > MIN_P


def test_rows_are_added_up_exactly_on_the_lattice() -> None:
    block, rows = NoisyBlock("a", 3, 5.0, 0.5), np.random.default_rng(2).normal(size=(50, 3))
    key = b"k" * 32
    whole, noise = block.add_noise([rows[:20], rows[20:]], KeyedRandom(key)), block.add_noise([], KeyedRandom(key))
    np.testing.assert_allclose(whole - noise, rows.sum(axis=0), atol=50 * block.lattice)


@pytest.mark.parametrize("searched, products, explained", list(itertools.product([False, True], repeat=3)))
def test_all_rounds_together_promise_mu(searched: bool, products: bool, explained: bool) -> None:
    budget = Budget.of(0.5, searched=searched, products=products, explained=explained)
    assert math.hypot(*vars(budget).values()) == pytest.approx(0.5, rel=1e-12)
    assert (budget.again > 0) == searched
    assert (budget.scale > 0, budget.products > 0, budget.explained > 0) == (searched, products, explained)
    blocks = statistics.statistics_blocks(4, [3, 2], 2, budget.statistics, filled=True)
    assert compose_mu(blocks) == pytest.approx(budget.statistics, rel=1e-12)
    assert compose_mu(statistics.statistics_blocks(0, [], 3, 1.0, filled=False)) == 1.0


# What a site puts in.


NUMERIC = ["age", "dose"]
VALUES = [["a", "b", "c"]]


def site_of(
    rows: FloatArray, text: Sequence[str], labels: FloatArray, draw: Callable[[Any], Residues], **reading: Any
) -> HorizontalSite:
    """Return a site of some rows, whose channel draws as given."""
    held = site_partition(rows, labels, names=NUMERIC, categorical=np.array(text)[:, None], categorical_names=["kind"])
    site = HorizontalSite("site-1", held, {"seed": 1})
    site.terms = Terms("pan-svm", reading.pop("settings", {}), "ring", {}, 1, reading=reading)
    site.channel = SimpleNamespace(sites=("site-1",), random=draw)
    site.encode(VALUES)
    return site


def test_rows_are_encoded_and_filled_again_after_a_site_joined() -> None:
    rows, text, labels = rows_of(12)
    rows[0, 0] = np.nan
    site = site_of(rows, text, labels, drawn)
    site.fill(np.array([50.0, 3.0]), [0])
    once = site.encoded
    site.encode(VALUES)
    site.fill(np.array([50.0, 3.0]), [0])
    np.testing.assert_array_equal(site.encoded, once)
    assert once.shape == (12, 2 + 3 + 1)


def drawn(shape: Sequence[int]) -> Residues:
    """Return random residues of the operating system's."""
    return np.frombuffer(os.urandom(8 * math.prod(shape)), dtype=np.uint64).reshape(shape)


def rows_of(count: int) -> tuple[FloatArray, list[str], FloatArray]:
    """Return numeric columns, text and labels of some rows."""
    random = np.random.default_rng(3)
    age = random.normal(50.0, 10.0, size=count)
    rows = np.column_stack([age, 0.1 * age + random.normal(3.0, 1.0, size=count)])
    return rows, random.choice(["a", "b", "c"], p=[0.6, 0.3, 0.1], size=count).tolist(), np.sign(age - 52.0)


class OneSite:
    """A federation of one site in this process."""

    sites = ("site-1",)

    def __init__(self, site: HorizontalSite) -> None:
        self._part: StatisticsSums = site.statistics

    def sum(self, step: str, *, shape: Sequence[int], bound: float, **params: Any) -> FloatArray:
        found: FloatArray = getattr(self._part, step)(**params)
        assert found.shape == tuple(shape)
        return found


def taken(site: HorizontalSite) -> NoisyStatistics:
    """Return the statistics that a site alone releases."""
    federation: Any = OneSite(site)
    return take_statistics(federation, StatisticsPlan.of(site.terms), NUMERIC, Vocabulary({"kind": VALUES[0]}), 2)


DRAWN = {"features": "landmarks", "landmark_method": "drawn"}


@pytest.mark.parametrize("ranges", [{}, {"age": [0.0, 120.0]}, {"age": [0.0, 120.0], "dose": [0.0, 16.0]}])
def test_statistics_of_little_noise_are_those_of_the_rows(ranges: dict[str, list[float]]) -> None:
    rows, text, labels = rows_of(20_000)
    gaps = rows.copy()
    gaps[::10, 1] = np.nan
    site = site_of(gaps, text, labels, drawn, statistics_privacy=100.0, ranges=ranges, missing="mean", settings=DRAWN)
    found = taken(site)
    assert found.rows == pytest.approx(20_000, rel=1e-3)
    np.testing.assert_allclose(found.classes, [(labels < 0).sum(), (labels > 0).sum()], rtol=1e-3)
    np.testing.assert_allclose(found.mean, np.nanmean(gaps, axis=0), rtol=0.01)
    np.testing.assert_allclose(found.deviation, np.nanstd(gaps, axis=0), rtol=0.05)
    np.testing.assert_allclose(found.frequencies[0], [text.count(each) / 20_000 for each in "abc"], atol=2e-3)
    np.testing.assert_allclose(found.missing, [0.0, 0.1], atol=2e-3)
    correlation = found.covariance[0, 1] / found.deviation.prod()
    assert correlation == pytest.approx(0.9 * 0.7, abs=0.12)  # a tenth has no dose
    scale = found.scale("standard", [1])
    assert len(scale.offset) == 2 + 3 + 1
    np.testing.assert_allclose(scale.scale[2:5], np.sqrt(scale.offset[2:5] * (1 - scale.offset[2:5])), rtol=1e-6)
    ends = found.scale("minmax")
    np.testing.assert_allclose(ends.offset[:2] - ends.scale[:2], found.low)


def test_a_question_is_answered_once_and_another_one_with_fresh_noise() -> None:
    site = site_of(*rows_of(300), drawn, statistics_privacy=0.5)
    ends = np.array([[0.0, 0.0], [100.0, 20.0]])
    once = site.statistics.noisy_statistics(ends)
    np.testing.assert_array_equal(site.statistics.noisy_statistics(ends.copy()), once)
    other = site.statistics.noisy_statistics(ends + 1e-9)
    assert np.mean(other != once) > 0.5
    again = site_of(*rows_of(300), drawn, statistics_privacy=0.5).statistics.noisy_statistics(ends)
    assert np.mean(again != once) > 0.5, "noise follows from the operating system's generator alone"


@pytest.mark.parametrize(
    "ends", [[[0.0, 0.0], [0.0, 20.0]], [[0.0], [1.0]], [[0.0, 0.0], [math.inf, 1.0]], [[1.0, 0.0], [120.0, 1.0]]]
)
def test_a_site_refuses_windows_that_the_terms_do_not_allow(ends: list[list[float]]) -> None:
    site = site_of(*rows_of(30), drawn, statistics_privacy=0.5, ranges={"age": [0.0, 120.0]})
    with pytest.raises(OrderRefused, match="ends must be"):
        site.statistics.noisy_statistics(np.array(ends))
    with pytest.raises(OrderRefused, match="ends must be"):
        site.statistics.noisy_products(np.zeros(2), np.ones(2), np.array(ends))
    with pytest.raises(OrderRefused, match="deviations above 0"):
        site.statistics.noisy_products(np.zeros(2), np.zeros(2), np.array([[0.0, 0.0], [120.0, 1.0]]))


def test_values_outside_a_window_count_and_are_scaled_as_its_ends() -> None:
    rows, text, labels = rows_of(400)
    ranges = {"age": [45.0, 55.0], "dose": [0.0, 16.0]}
    said = {"statistics_privacy": 100.0, "ranges": ranges, "settings": DRAWN}
    clipped_rows = np.clip(rows, [45.0, 0.0], [55.0, 16.0])
    near, far = (taken(site_of(each, text, labels, drawn, **said)) for each in (clipped_rows, rows))
    np.testing.assert_allclose(far.covariance, near.covariance, rtol=0.05, atol=0.2)
    scale = far.scale("standard")
    assert scale.window is not None and scale.window.tolist() == [[45, 0, 0, 0, 0], [55, 16, 1, 1, 1]]
    site = site_of(rows, text, labels, drawn, **said)
    site.rescale(scale.offset, scale.scale, scale.window)
    np.testing.assert_allclose(site.rows[:, :2], ((clipped_rows - scale.offset[:2]) / scale.scale[:2]))
    assert far.scale("none").window is None


def test_a_site_refuses_to_clip_to_a_window_that_the_terms_do_not_allow() -> None:
    ranges, scale = {"age": [0.0, 120.0]}, (np.zeros(5), np.ones(5))
    window = np.array([[0.0, 0.0, 0.0, 0.0, 0.0], [120.0, 16.0, 1.0, 1.0, 1.0]])
    exact = site_of(*rows_of(30), drawn)
    with pytest.raises(OrderRefused, match="applies to noisy statistics alone"):
        exact.rescale(*scale, window)
    site = site_of(*rows_of(30), drawn, statistics_privacy=0.5, ranges=ranges)
    site.rescale(*scale, window)
    for place in np.ndindex(2, 5):
        other = window.copy()
        other[place] += 0.5
        if place[1] == 1:  # the column without an agreed range
            site.rescale(*scale, other)
        else:
            with pytest.raises(OrderRefused, match=r"window must be of|ends must be"):
                site.rescale(*scale, other)
    with pytest.raises(OrderRefused, match="window must be of the 5 columns"):
        site.rescale(*scale, window[:, :4])


NUMBERS = {
    "positive": np.exp(np.linspace(1.0, 3.0, 999)),
    "both": np.linspace(-3.0, 5.0, 999),
    "negative": np.linspace(-700.0, -600.0, 999),
    "binary": np.tile([0.0, 1.0, 1.0], 333),
    "zero": np.zeros(999),
    "gaps": np.where(np.arange(999) % 2, np.nan, 40.0),
    "zeros and sizes": np.concatenate([np.zeros(500), np.linspace(20.0, 600.0, 499)]),
}


def evidence_of(columns: Sequence[FloatArray], noise: FloatArray | float, sigma: float) -> ScaleEvidence:
    """Return the evidence of columns with given noise."""
    counts = scale_search.scale_counts(np.column_stack(columns)) * scale_search.scale_weights(len(columns))
    return ScaleEvidence.of(counts + noise * sigma, sigma, len(columns))


@pytest.mark.parametrize("sigma", [0.1, 30.0])
def test_the_search_finds_where_the_values_of_a_column_are(sigma: float) -> None:
    noise = np.random.default_rng(4).normal(size=1 + len(NUMBERS) * scale_search.ENTRIES)
    evidence = evidence_of(list(NUMBERS.values()), noise, sigma)
    for place, (name, values) in enumerate(NUMBERS.items()):
        found = find_window(place, evidence)
        known = values[~np.isnan(values)]
        inside = np.mean((known >= found.low) & (known <= found.high))
        assert found.sure and inside > 0.7, name
        size = np.abs(known).max() or 1.0
        assert max(abs(found.low), found.high) <= 3 * size, name
        if not (name == "both" or (known == 0).any()):
            assert found.low * found.high >= 0, name


def test_the_rarer_of_two_values_is_told_from_the_other() -> None:
    """Among 13 columns of 240 rows, by the counts of a run of five sites with mu 0.5, and drawn noise."""
    random, sigma, told = np.random.default_rng(6), 37.0, 0
    values = np.where(np.arange(240) % 100 < 84, 1.0, 2.0)
    for _ in range(40):
        noise = random.normal(size=1 + 13 * scale_search.ENTRIES)
        found = find_window(0, evidence_of(13 * [values], noise, sigma))
        told += not found.sure or bool(np.ptp(np.clip([1.0, 2.0], found.low, found.high)) > 0.2)
    assert told >= 36, told


def test_much_data_moves_the_ends_of_a_window_past_the_tails() -> None:
    values = np.concatenate([np.full(9900, 10.0), np.full(100, 900.0), np.full(100, -5.0)])
    found = find_window(0, evidence_of([values], 0.0, 1.0))
    assert found.high >= 900 and found.low <= -5


def test_a_scale_that_noise_hides_is_asked_for_again_and_then_required() -> None:
    noise = np.random.default_rng(4).normal(size=1 + scale_search.ENTRIES)
    hidden = evidence_of([NUMBERS["positive"]], noise, 400.0)
    windows = [find_window(0, hidden)]
    assert not windows[0].sure
    with pytest.raises(FederationError, match=r"do not show the scale of 'age': data.ranges must"):
        scale_search.found_ends(windows, hidden.rows, ["age"])
    again = find_window(0, hidden, evidence_of([NUMBERS["both"], NUMBERS["positive"]], 0.0, 10.0), 1)
    assert again.sure and again.low < 5 < again.high


def test_counts_of_a_row_are_as_long_as_the_block_promises() -> None:
    rows = np.array([[0.0, 1e-300, -1e300], [3.0, -0.2, np.nan], [np.inf, -np.inf, 1.0]])
    block, weights = scale_search.scale_block(3, 0.5), scale_search.scale_weights(3)
    lengths = [np.linalg.norm(scale_search.scale_counts(row[None, :]) * weights) for row in rows]
    assert max(lengths) <= block.length + 1e-12 and len(weights) == block.size
    assert lengths[0] == pytest.approx(block.length)
    counts, key = scale_search.scale_counts(rows), b"k" * 32
    noisy, noise = (block.noised_counts(each, weights, KeyedRandom(key)) for each in (counts, 0 * counts))
    np.testing.assert_allclose(noisy - noise, counts * weights, atol=3 * block.lattice)


def test_numbers_of_every_size_have_a_place() -> None:
    numbers = np.array([1e-300, 0.7, 1.0, 1.0 + 1e-9, 1e300, math.inf])
    found = scale_search.size_parts(numbers)
    assert found[0] == 0 and found[-1] == scale_search.SIZES - 1
    assert found[2] + 1 == found[3] and found[1] < found[2]
    np.testing.assert_array_equal(scale_search.size_parts(-numbers), found)


def test_only_columns_without_a_range_are_counted_again() -> None:
    site = site_of(*rows_of(30), drawn, statistics_privacy=0.5, ranges={"age": [0.0, 120.0]})
    assert len(site.statistics.more_scale_counts([1])) == 1 + scale_search.ENTRIES
    for columns in ([], [0], [0, 1], [1, 1], [2]):
        with pytest.raises(OrderRefused, match="columns must be numbers of columns without"):
            site.statistics.more_scale_counts(columns)


# Runs.


RANGES = "data.ranges={age=[0,120],dose=[0,16]}"


def finished(folder: Path, name: str, *changes: str) -> Any:
    """Return a run of rows in a file."""
    rows, text, labels = rows_of(400)
    lines = [
        f"{age:.3f},{'' if number % 9 == 0 else f'{dose:.3f}'},{kind},{label:.0f}"
        for number, ((age, dose), kind, label) in enumerate(zip(rows, text, labels, strict=True))
    ]
    (folder / "rows.csv").write_text("\n".join(["age,dose,kind,label", *lines]) + "\n")
    overrides = [
        f"data.source={folder / 'rows.csv'}",
        "data.positive=1",
        "data.missing=mean",
        "data.missing_indicators=true",
        "algorithm.landmarks=12",
        "compare.centralised=false",
        "compare.baselines=false",
        *changes,
    ]
    return simulate("quickstart", folder / name, overrides, another_follows=True)


@pytest.mark.parametrize("folds", long_but_for([False, True], True))
def test_a_run_takes_one_set_of_noisy_statistics_for_all_folds(folds: bool, tmp_path: Path) -> None:
    changes = ["data.test_fraction=0", "data.folds=2"] if folds else []
    ran = finished(tmp_path, "run", "data.statistics_privacy=4", RANGES, *changes)
    assert ran.result.status == "completed", ran.result.error
    summed = {each.step: each.times for each in ran.result.disclosures if each.kind == "sum"}
    assert summed["noisy_statistics"] == 1
    assert not {"column_sums", "column_squares", "missing_values", "known_values", "scale_counts"} & summed.keys()


def test_a_run_whose_noise_hides_the_scale_ends_with_a_sentence(tmp_path: Path) -> None:
    ran = finished(tmp_path, "run", "data.statistics_privacy=0.001")
    assert ran.result.status == "failed"
    assert re.search(r"do not show the scale of '(age|dose)'.*: data\.ranges must", str(ran.result.error))


def test_a_number_of_rows_that_noise_could_be_finds_no_scale() -> None:
    """Mistake noise for the values of a column in none of 200 draws."""
    length, sigma = 1 + scale_search.ENTRIES, 1000.0
    draws = np.random.default_rng(3).normal(0, sigma, (200, length))
    draws[:, 0] = 3.9 * sigma
    assert not any(find_window(0, ScaleEvidence.of(counts, sigma, 1)).sure for counts in draws)


# What a membership test makes of it.


@pytest.mark.long
@pytest.mark.parametrize("mu", [0.5, 2.0])
def test_the_best_membership_test_stays_below_what_mu_allows(mu: float) -> None:
    """The attacker knows all rows but one, which is as far out as any, and the noise of all other sites.

    What is left is one site's answer, however many sites there are, since each adds all of the noise.
    """
    rows, text, labels = rows_of(40)
    rows[-1] = [120.0, 16.0]
    ends = np.array([[0.0, 0.0], [120.0, 16.0]])
    runs = 1000

    def answers(count: int) -> tuple[FloatArray, FloatArray]:
        """Return (runs, k) answers of fresh sites over so many rows, and the deviation (k,) of their noise."""
        site = site_of(rows[:count], text[:count], labels[:count], drawn, statistics_privacy=mu, ranges=FULL_RANGES)
        blocks = site.statistics._blocks
        sigma = np.concatenate([np.full(block.size, block.sigma) for block in blocks])
        found = []
        for _ in range(runs):
            site.answers = AnswerRecord()
            found.append(site.statistics.noisy_statistics(ends))
        return np.array(found), sigma

    (with_row, sigma), (without, _) = answers(40), answers(39)
    difference = exact_answer(rows[-1], text[-1], labels[-1:], ends)
    with_row, without = ((found / sigma) @ (difference / sigma) for found in (with_row, without))
    auc = stats.mannwhitneyu(with_row, without).statistic / runs**2
    assert auc < stats.norm.cdf(mu / math.sqrt(2)) + 5.5 / math.sqrt(6 * runs), "false alarm below 1e-7"
    moved = np.linalg.norm(difference / sigma)
    assert moved <= mu, "by Neyman and Pearson no test is better than the one of this distance"
    assert moved > 0.8 * mu, "and the noise is not much larger than it must be"


FULL_RANGES = {"age": [0.0, 120.0], "dose": [0.0, 16.0]}


def exact_answer(row: FloatArray, text: str, label: FloatArray, ends: FloatArray) -> FloatArray:
    """Return what one row contributes."""
    middle, half = ends.mean(axis=0), (ends[1] - ends[0]) / 2
    moved = clip_rows(((row - middle) / half)[None, :], 1.0)[0]
    kinds = [float(text == each) for each in VALUES[0]]
    return np.concatenate([[label[0] < 0, label[0] > 0], moved, moved**2, kinds])


def test_a_site_with_a_small_category_does_not_open_it() -> None:
    rows, _, labels = rows_of(20)
    site = site_of(rows, ["a"] * 12 + ["b"] * 5 + ["c"] * 3, labels, drawn)
    assert site.open_categories(0) == ["a", "b", "c"]
    site.min_cell = 5
    assert site.open_categories(0) == ["a", "b"]
    site.encode([["a", "b"]])
    np.testing.assert_array_equal(site.encoded[:][:, 2:].sum(axis=0), [12, 5])
    site.min_cell = 6
    assert site.open_categories(0) == ["a"]
