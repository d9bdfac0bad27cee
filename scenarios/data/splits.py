"""The splits of rows and columns over sites, test rows and folds."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from fedsvm.federation.arrays import FloatArray, IntArray
from fedsvm.federation.text import list_names
from fedsvm.scenarios.data.tables import Dataset
from fedsvm.scenarios.schema.errors import ScenarioError, nearest
from fedsvm.scenarios.schema.split import (
    BY_FEATURE,
    BY_VALUE,
    COLUMNS,
    DIRICHLET,
    LABEL_SKEW,
    QUANTITY,
    RANDOM,
    alpha_of,
    columns_of,
    sizes_of,
)

_SEEDS = 2**32


def horizontal(split: str, data: Dataset, sites: int, random: np.random.Generator) -> list[IntArray]:
    """Return the indices of the rows of each site: disjoint, and all rows together.

    random: dealt evenly. label-skew: sorted by label and cut into equal blocks, so that sites are left with one
    class. by-feature:NAME: sorted by that column and cut where its values change, into parts as equal in rows as
    that allows. by-value:NAME: all rows with one value of that column at one site, the most frequent value first, each
    at the site that has the fewest rows. dirichlet:ALPHA: of each class, shares drawn from Dirichlet's distribution,
    one-sided for a small alpha and equal for a large one. quantity:ALPHA: sizes drawn so, and rows at random.
    sizes:[a, b, …]: dealt at random in these sizes. No site is left without a row. Raises ScenarioError.

    Shares of classes by Dirichlet's distribution are of Yurochkin and others 2019 and Hsu, Qi and Brown 2019, and of
    sizes of Li, Diao, Chen and He 2022, "Federated learning on non-IID data silos", section IV.

    Table 3.3 of the PAN-SVM dissertation cuts fourclass into three "equally" by f1 at -0.307692 and 0.285714. Equal
    numbers of rows put the cuts at -0.296703 and 0.285714, one step of the data's grid (six rows) off at the first;
    equal widths would put them at -1/3 and 1/3, so parts are equal in rows here.
    """
    if data.rows < sites:
        raise ScenarioError(
            [f"federation.sites: {sites} sites cannot share {data.rows} training rows; use fewer sites."]
        )
    if split == RANDOM:
        return [np.sort(part) for part in np.array_split(random.permutation(data.rows), sites)]
    if split == LABEL_SKEW:
        shuffled = random.permutation(data.rows)
        by_label = shuffled[np.argsort(data.labels[shuffled], kind="stable")]
        return [np.sort(part) for part in np.array_split(by_label, sites)]
    if split.startswith(BY_FEATURE):
        return _by_feature(split.removeprefix(BY_FEATURE), data, sites)
    if split.startswith(BY_VALUE):
        return _by_value(split.removeprefix(BY_VALUE), data, sites)
    if split.startswith((DIRICHLET, QUANTITY)):
        # a quantity skew is that of rows that are all of one class
        labels = data.labels if split.startswith(DIRICHLET) else np.full(data.rows, "")
        return _by_dirichlet(alpha_of(split), labels, sites, random)
    return _by_size(sizes_of(split), data.rows, sites, random)


def by_site(sites: NDArray[np.str_], names: Sequence[str]) -> list[IntArray]:
    """Return the indices of the rows of each site, from each row's site (n,). Raises ScenarioError for a site without
    rows."""
    parts = [np.flatnonzero(sites == name) for name in names]
    if empty := [name for name, part in zip(names, parts, strict=True) if not len(part)]:
        raise ScenarioError([f"data.site: no row is left for {empty[0]} to train on; remove the site, or add rows."])
    return parts


def _by_dirichlet(alpha: float, labels: NDArray[np.str_], sites: int, random: np.random.Generator) -> list[IntArray]:
    dealt: list[list[IntArray]] = [[] for _ in range(sites)]
    for label in np.unique(labels):
        of_class = random.permutation(np.flatnonzero(labels == label))
        shares = random.dirichlet(np.full(sites, alpha))
        cuts = np.rint(np.cumsum(shares)[:-1] * len(of_class)).astype(np.int64)
        for held, part in zip(dealt, np.split(of_class, cuts), strict=True):
            held.append(part)
    return _without_empty([np.concatenate(held) for held in dealt])


def _without_empty(parts: Sequence[IntArray]) -> list[IntArray]:
    """Return the parts in rising order. A part without rows receives one from the largest part."""
    filled = list(parts)
    for place in [place for place, part in enumerate(filled) if not len(part)]:
        largest = max(range(len(filled)), key=lambda number: len(filled[number]))
        filled[place], filled[largest] = filled[largest][-1:], filled[largest][:-1]
    return [np.sort(part) for part in filled]


def _by_value(name: str, data: Dataset, sites: int) -> list[IntArray]:
    feature = next((feature for feature in data.features if feature.name == name), None)
    names = [feature.name for feature in data.features]
    if feature is None:
        raise ScenarioError([f"data.split: {data.name} has no column {name!r} to split by.{nearest(name, names)}"])
    distinct, value_of, counts = np.unique(feature.values, return_inverse=True, return_counts=True)
    if len(distinct) < sites:
        raise ScenarioError([_too_few_values(name, len(distinct), sites)])
    site_of, held = np.zeros(len(distinct), dtype=np.int64), np.zeros(sites)
    for value in np.argsort(-counts, kind="stable"):
        site_of[value] = held.argmin()
        held[site_of[value]] += counts[value]
    return [np.flatnonzero(site_of[value_of] == site) for site in range(sites)]


def _too_few_values(name: str, values: int, sites: int) -> str:
    return (
        f"data.split: column {name!r} has too few distinct values ({values}) for {sites} sites to have rows; use fewer "
        "sites or another column."
    )


def _by_feature(name: str, data: Dataset, sites: int) -> list[IntArray]:
    feature = next((feature for feature in data.features if feature.name == name), None)
    numeric = [feature.name for feature in data.features if not feature.categorical]
    if feature is None or feature.categorical:
        raise ScenarioError(
            [
                f"data.split: {data.name} has no numeric column {name!r} to split by.{nearest(name, numeric)} "
                f"It has: {', '.join(numeric[:40]) or 'none'}."
            ]
        )
    distinct, counts = np.unique(feature.values, return_counts=True)
    if len(distinct) < sites:
        raise ScenarioError([_too_few_values(name, len(distinct), sites)])
    part_of = np.searchsorted(distinct[_last_values(counts, sites)], feature.values, side="left")
    return [np.flatnonzero(part_of == site) for site in range(sites)]


def _last_values(counts: IntArray, sites: int) -> IntArray:
    """Return (sites - 1,) which distinct value, in rising order, is the last of each site but the last.

    counts: (v,) rows of each distinct value. It is the value of the last row of an equal share, unless a frequent
    value would then leave a site without rows.
    """
    site = np.arange(sites - 1)
    equal = np.searchsorted(np.cumsum(counts), counts.sum() * (site + 1) // sites)
    rising = np.maximum.accumulate(equal - site) + site
    return np.asarray(np.minimum(rising, len(counts) - sites + site))


def _by_size(sizes: Sequence[int], rows: int, sites: int, random: np.random.Generator) -> list[IntArray]:
    if len(sizes) != sites:
        raise ScenarioError([f"data.split: {len(sizes)} sizes are given for {sites} sites."])
    if sum(sizes) != rows:
        raise ScenarioError([f"data.split: the sizes add up to {sum(sizes)}, but there are {rows} training rows."])
    return [np.sort(part) for part in np.split(random.permutation(rows), np.cumsum(sizes)[:-1])]


def vertical(split: str, data: Dataset, sites: Sequence[str]) -> list[tuple[str, ...]]:
    """Return the names of the columns of each site: disjoint, and all columns together.

    even: as they come, in equal numbers. columns:[[a, b], [c]]: as listed. Raises ScenarioError.
    """
    names = [feature.name for feature in data.features]
    if not split.startswith(COLUMNS):
        if len(names) < len(sites):
            raise ScenarioError(
                [f"federation.sites: {len(sites)} sites cannot share {len(names)} columns; use fewer sites."]
            )
        return [tuple(str(name) for name in part) for part in np.array_split(np.array(names), len(sites))]
    lists = columns_of(split)
    if problems := [*_misdealt(lists, names, data.name)]:
        raise ScenarioError(problems)
    return lists


def _misdealt(lists: list[tuple[str, ...]], names: list[str], source: str) -> Iterator[str]:
    given = [name for listed in lists for name in listed]
    for name in dict.fromkeys(given):
        if name not in names:
            yield f"data.split: {source} has no column {name!r}.{nearest(name, names)}"
        elif given.count(name) > 1:
            claims = [f"{number}" for number, listed in enumerate(lists, start=1) if name in listed]
            where = f"sites {' and '.join(claims)}" if len(claims) > 1 else f"site {claims[0]} twice"
            yield f"data.split: column {name!r} is claimed by {where}; give it to one of them."
    if left := [name for name in names if name not in given]:
        unclaimed = ", ".join(map(repr, left[:8]))
        yield f"data.split: no site is given {unclaimed}; add it to one's columns, or to data.ignore."


def overlapping(rows: int, sites: int, overlap: float, random: np.random.Generator) -> NDArray[np.bool_]:
    """Return (sites, rows) which site holds which row: the share `overlap` is at all sites, the others are not."""
    holds = random.random((sites, rows)) < 0.5
    everywhere = random.permutation(rows) < round(overlap * rows)
    lucky, unlucky = random.integers(sites, size=rows), random.integers(1, sites, size=rows)
    holds[lucky, np.arange(rows)] = True
    holds[(lucky + unlucky) % sites, np.arange(rows)] = False
    return np.asarray(holds | everywhere)


def sites_without_a_class(
    names: Sequence[str], labels_of_site: Sequence[FloatArray], classes: tuple[str, ...]
) -> list[str]:
    """Return a sentence for each site that lacks a class. PAN-SVM trains on sums over sites and allows this."""
    numbers = [-1.0, 1.0] if len(classes) == 2 else np.arange(len(classes)).tolist()
    sentences = []
    for name, labels in zip(names, labels_of_site, strict=True):
        absent = [repr(each) for number, each in zip(numbers, classes, strict=True) if number not in labels]
        if absent:
            sentences.append(f"{name} holds no row of class {list_names(absent)}.")
    return sentences


def test_split(labels: NDArray[np.str_], fraction: float, seed: int) -> tuple[IntArray, IntArray]:
    """Return (training, test) indices with `fraction` of each class in the test; if it is 0, all train."""
    everything = np.arange(len(labels))
    if fraction == 0:
        return everything, everything[:0]
    _require_enough_for_test(labels, fraction)
    random = np.random.RandomState(seed % _SEEDS)
    _, class_of, counts = np.unique(labels, return_inverse=True, return_counts=True)
    tested = math.ceil(fraction * len(labels))
    for_training = _apportion(counts, len(labels) - tested, random)
    for_test = _apportion(counts - for_training, tested, random)  # what is left; draws as scikit-learn's split does
    test = []
    for place, (first, rows) in enumerate(zip(for_training, for_test, strict=True)):
        shuffled = random.permutation(np.flatnonzero(class_of == place))
        test.append(shuffled[first : first + rows])
    chosen = np.sort(np.concatenate(test))
    return np.setdiff1d(everything, chosen), chosen


def _apportion(counts: IntArray, seats: int, random: np.random.RandomState) -> IntArray:
    """Return (classes,) the share of `seats` per class: in proportion, by largest remainders, ties drawn by lot."""
    exact = counts / counts.sum() * seats
    given = np.floor(exact)
    remainders = exact - given
    for remainder in np.unique(remainders)[::-1]:
        missing = seats - int(given.sum())
        if missing <= 0:
            break
        tied = np.flatnonzero(remainders == remainder)
        given[random.choice(tied, size=min(len(tied), missing), replace=False)] += 1
    return np.asarray(given, dtype=np.int64)


def _require_enough_for_test(labels: NDArray[np.str_], fraction: float) -> None:
    classes, rarest, count = _rarest(labels)
    if count < 2:
        raise ScenarioError(
            [
                f"data.test_fraction: class {rarest!r} has one row only, which cannot be both trained on and tested; "
                "add rows of it, or set data.test_fraction = 0."
            ]
        )
    test = math.ceil(fraction * len(labels))
    for kind, rows, change in [("test", test, "larger"), ("training", len(labels) - test, "smaller")]:
        if rows < classes:
            raise ScenarioError(
                [
                    f"data.test_fraction: {fraction} of {len(labels)} rows leaves {rows} {kind} rows for {classes} "
                    f"classes; choose a {change} fraction."
                ]
            )


def own_folds(
    labels: FloatArray, site: str, seed: int, *, fraction: float, folds: int | None, repeats: int
) -> IntArray:
    """Return (n,) or (n, repeats), the fold in which each row of one site is held out by it, -1 for none.

    Each class is dealt by itself, as a site knows its own rows and no others. Without folds, fold 0 has the `fraction`.
    """
    random = np.random.default_rng([seed, 10, *site.encode()])
    dealt = np.full((len(labels), repeats), -1)
    for repeat in range(repeats):
        for label in np.union1d(labels, (-1.0, 1.0)):  # of two classes these, whether there are rows of both or not
            rows = random.permutation(np.flatnonzero(labels == label))
            if folds is None:
                dealt[rows[: round(fraction * len(rows))], repeat] = 0
            else:
                dealt[rows, repeat] = repeat * folds + (random.integers(folds) + np.arange(len(rows))) % folds
    return dealt[:, 0] if repeats == 1 else dealt


def blind_test_split(rows: int, fraction: float, seed: int) -> tuple[IntArray, IntArray]:
    """Return (training, test) indices that do not depend on labels: changing one label changes nothing else."""
    test = math.ceil(fraction * rows)
    if test >= rows:
        raise ScenarioError(
            [f"data.test_fraction: {fraction} of {rows} rows leaves none to train on; choose a smaller fraction."]
        )
    shuffled = _blindly(rows, seed)
    return np.sort(shuffled[test:]), np.sort(shuffled[:test])


def blind_folds(rows: int, count: int, seed: int) -> IntArray:
    """Return (n,) the fold, 0 … count - 1, in which each row is held out, independent of its label."""
    if rows < count:
        raise ScenarioError([f"data.folds: {count} folds need as many rows, and there are {rows}; use fewer folds."])
    return np.asarray(_blindly(rows, seed) % count)


def _blindly(rows: int, seed: int) -> IntArray:
    return np.random.default_rng([seed, 7]).permutation(rows)


def folds(labels: NDArray[np.str_], count: int, seed: int) -> IntArray:
    """Return (n,) the fold, 0 … count - 1, in which each row is held out; classes are spread evenly over the folds."""
    _, rarest, rows = _rarest(labels)
    if rows < count:
        raise ScenarioError(
            [
                f"data.folds: {count} folds need as many rows of each class; the rarest, {rarest!r}, has {rows}. "
                "Use fewer folds, add rows of it, or set data.stratify = false."
            ]
        )
    random = np.random.RandomState(seed % _SEEDS)
    held_out, dealt = np.empty(len(labels), dtype=np.int64), 0
    _, first, class_of = np.unique(labels, return_index=True, return_inverse=True)
    for place in np.argsort(first):  # one class after the other, each going on where the one before ended
        members = class_of == place
        hands = np.sort((dealt + np.arange(members.sum())) % count)
        random.shuffle(hands)
        held_out[members], dealt = hands, dealt + len(hands)
    return held_out


def _rarest(labels: NDArray[np.str_]) -> tuple[int, str, int]:
    """Return the number of classes, the one with the fewest rows, and their number."""
    classes, counts = np.unique(labels, return_counts=True)
    return len(classes), str(classes[counts.argmin()]), int(counts.min())
