"""Which site holds which rows, which rows are kept for the test, and which fold holds each out."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from federation.arrays import FloatArray, IntArray
from scenarios.datasets import Dataset
from scenarios.problems import ScenarioError, nearest

BY_FEATURE = "by-feature:"
SIZES = "sizes:"
_SIZES = re.compile(r"sizes:\s*\[\s*\d+(\s*,\s*\d+)*\s*\]")


def horizontal(split: str, data: Dataset, sites: int, random: np.random.Generator) -> list[IntArray]:
    """Indices of the rows of each site: disjoint, and all rows together.

    random: dealt evenly. label-skew: sorted by label and cut into equal blocks, so that sites are left with one
    class. by-feature:NAME: sorted by that column and cut where its values change, into parts as equal as that
    allows. sizes:[a, b, …]: dealt at random in these sizes. Raises ScenarioError.
    """
    if data.rows < sites:
        raise ScenarioError(
            [f"federation.sites: {sites} sites cannot share {data.rows} training rows; use fewer sites."]
        )
    if split == "random":
        return [np.sort(part) for part in np.array_split(random.permutation(data.rows), sites)]
    if split == "label-skew":
        shuffled = random.permutation(data.rows)
        by_label = shuffled[np.argsort(data.labels[shuffled], kind="stable")]
        return [np.sort(part) for part in np.array_split(by_label, sites)]
    if split.startswith(BY_FEATURE):
        return _by_feature(split.removeprefix(BY_FEATURE), data, sites)
    return _by_size(sizes_of(split), data.rows, sites, random)


def sizes_of(split: str) -> list[int]:
    """The sizes in "sizes:[a, b, …]". Raises ValueError for anything else."""
    if not _SIZES.fullmatch(split):
        raise ValueError("sizes are written sizes:[10, 20, 30]")
    return [int(size) for size in re.findall(r"\d+", split)]


def _by_feature(name: str, data: Dataset, sites: int) -> list[IntArray]:
    feature = next((feature for feature in data.features if feature.name == name), None)
    numeric = [feature.name for feature in data.features if not feature.categorical]
    if feature is None or feature.categorical:
        raise ScenarioError(
            [f"data.split: {data.name} has no numeric column {name!r} to split by.{nearest(name, numeric)}"]
        )
    values = np.sort(feature.values)
    # A cut goes before the first row whose value is larger than that of the last row of an equal share.
    ends = [values[(data.rows * (i + 1)) // sites - 1] for i in range(sites - 1)]
    part_of = np.searchsorted(np.array(ends), feature.values, side="left")
    parts = [np.flatnonzero(part_of == site) for site in range(sites)]
    if any(len(part) == 0 for part in parts):
        distinct = len(np.unique(values))
        raise ScenarioError(
            [f"data.split: column {name!r} has too few distinct values ({distinct}) for {sites} sites to have rows."]
        )
    return parts


def _by_size(sizes: Sequence[int], rows: int, sites: int, random: np.random.Generator) -> list[IntArray]:
    if len(sizes) != sites:
        raise ScenarioError([f"data.split: {len(sizes)} sizes are given for {sites} sites."])
    if sum(sizes) != rows:
        raise ScenarioError([f"data.split: the sizes add up to {sum(sizes)}, but there are {rows} training rows."])
    return [np.sort(part) for part in np.split(random.permutation(rows), np.cumsum(sizes)[:-1])]


def sites_without_a_class(
    names: Sequence[str], signs_of_site: Sequence[FloatArray], classes: tuple[str, str]
) -> list[str]:
    """A sentence for each site that lacks a class. PAN-SVM trains on sums over sites and can do with such sites."""
    return [
        f"{name} holds no row of class {classes[int(signs[0] < 0)]!r}."
        for name, signs in zip(names, signs_of_site, strict=True)
        if len(np.unique(signs)) == 1
    ]


def test_split(labels: NDArray[np.str_], fraction: float, seed: int) -> tuple[IntArray, IntArray]:
    """(training, test) indices with `fraction` of each class in the test; all for training when it is 0."""
    from sklearn.model_selection import train_test_split  # noqa: PLC0415 - slow to import

    everything = np.arange(len(labels))
    if fraction == 0:
        return everything, everything[:0]
    try:
        train, test = train_test_split(everything, test_size=fraction, random_state=seed, stratify=labels)
    except ValueError as error:
        raise ScenarioError([f"data.test_fraction: {fraction} leaves too few rows of a class: {error}"]) from error
    return np.sort(train), np.sort(test)


def folds(labels: NDArray[np.str_], count: int, seed: int) -> IntArray:
    """(n,) the fold, 0 … count - 1, in which each row is held out; classes are spread evenly over the folds."""
    from sklearn.model_selection import StratifiedKFold  # noqa: PLC0415 - slow to import

    rarest = min(np.unique(labels, return_counts=True)[1])
    if rarest < count:
        raise ScenarioError([f"data.folds: {count} folds need as many rows of each class; the rarest has {rarest}."])
    held_out = np.empty(len(labels), dtype=np.int64)
    splitter = StratifiedKFold(count, shuffle=True, random_state=seed)
    for fold, (_, test) in enumerate(splitter.split(labels, labels)):
        held_out[test] = fold
    return held_out
