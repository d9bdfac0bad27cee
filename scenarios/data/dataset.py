"""The data of a scenario, cut into what each site holds and what is kept for the test.

Where private rows choose nothing (`Algorithm.scaling` is "public-rows"), they do not choose this either: which rows are
public, tested on, held out by a fold and at which site follows from their number and the seed, and what the classes and
categories are from public rows. So one row that changes moves no other, and what noise covers of a model's training
it covers of all that lies between the source and the model.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedsvm.algorithms.data.columns import Schema
from fedsvm.algorithms.data.partition import held_out, site_partition
from fedsvm.algorithms.privacy.privacy_ledger import DataIdentity
from fedsvm.federation.arrays import FloatArray, IntArray
from fedsvm.scenarios.data import categories, file_join, label_classes, proposals, row_roles, sources, splits, text_form
from fedsvm.scenarios.data.built_in import COMPLETE
from fedsvm.scenarios.data.label_classes import ABOVE_MEDIAN, labels_of
from fedsvm.scenarios.data.tables import Dataset, Feature
from fedsvm.scenarios.schema.base import resolve
from fedsvm.scenarios.schema.data import ALL
from fedsvm.scenarios.schema.errors import ScenarioError, collect_problems, nearest
from fedsvm.scenarios.schema.policy import rules_at
from fedsvm.scenarios.schema.spec import Scenario


@dataclass(frozen=True)
class Rows:
    """numeric (n, p), categorical (n, q) text, labels (n,): +1 and -1, or numbers of more than two classes."""

    numeric: FloatArray
    categorical: NDArray[np.str_]
    labels: FloatArray

    def take(self, indices: IntArray | NDArray[np.bool_]) -> Rows:
        """Return only these rows."""
        return Rows(self.numeric[indices], self.categorical[indices], self.labels[indices])


@dataclass(frozen=True)
class SiteShard:
    """The data of one site: indices of rows, in its own order, names of columns, and whether it has the labels."""

    rows: IntArray
    columns: tuple[str, ...]
    labelled: bool = True


@dataclass(frozen=True)
class Sizes:
    """Rows and columns of the data, and how many rows are tested on, and public."""

    rows: int
    columns: int
    tested: int
    public: int


@dataclass(frozen=True)
class SiteSize:
    """The number of rows and columns of a site."""

    rows: int
    columns: int


@dataclass(frozen=True)
class FederatedDataset:
    """Everything about the data that a run needs.

    rows: all of them. names: of the sites. shards: of each site. folds: (n,), or (n, repeats), the fold that holds a
    row out, -1 for none. tests: indices of the test rows, one array per fold, or a single one. classes: negative, then
    positive, or all of more. weights (n,): of the rows; empty where all are 1. apart (n,): those that calibrate models;
    empty where none do. identifiers (n,): of the rows, where sites align them by these; empty otherwise. public:
    indices of the rows that are nobody's secret, and at no site. identity: of the source. candidates: records that
    whoever audits the run may think of, where declared or where the source has all that there can be.
    """

    rows: Rows
    numeric_columns: tuple[str, ...]
    categorical_columns: tuple[str, ...]
    classes: tuple[str, ...]
    names: tuple[str, ...]
    shards: tuple[SiteShard, ...]
    folds: IntArray
    tests: tuple[IntArray, ...]
    identifiers: NDArray[np.str_]
    public: IntArray
    warnings: tuple[str, ...]
    declared: Mapping[str, Sequence[str]]
    identity: DataIdentity
    candidates: Rows | None = None
    weights: FloatArray = field(default_factory=lambda: np.zeros(0))
    apart: NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, dtype=np.bool_))
    foreseen: tuple[str, ...] = ()

    @property
    def schema(self) -> Schema:
        """Names of all columns."""
        return Schema(self.numeric_columns, self.categorical_columns, self.declared)

    def training(self, fold: int | None, names: Sequence[str]) -> IntArray:
        """Return the indices of the rows that these sites train on while `fold` is held out."""
        held = np.sort(np.concatenate([self.shards[self.names.index(name)].rows for name in names]))
        held = held[~self.apart[held]] if len(self.apart) else held
        return held if fold is None else held[~held_out(self.folds[held], fold)]

    def test(self, fold: int | None) -> IntArray:
        """Return the indices of the test rows while `fold` is held out, or without folds."""
        return self.tests[fold or 0]

    @property
    def sizes(self) -> Sizes:
        """Return the sizes of the data."""
        columns = len(self.numeric_columns) + len(self.categorical_columns)
        return Sizes(len(self.rows.labels), columns, sum(len(rows) for rows in self.tests), len(self.public))

    def site_size(self, site: str) -> SiteSize:
        """Return the number of rows and columns of a site."""
        shard = self.shard(site)
        return SiteSize(len(shard.rows), len(shard.columns))

    def shard(self, site: str) -> SiteShard:
        """Return the data of a site."""
        return self.shards[self.names.index(site)]

    def write_partition(self, site: int, path: Path) -> None:
        """Write what one site holds to a file that only its owner may read."""
        held = self.shards[site]
        mine, columns = self.rows.take(held.rows), set(held.columns)
        numeric = [place for place, name in enumerate(self.numeric_columns) if name in columns]
        categorical = [place for place, name in enumerate(self.categorical_columns) if name in columns]
        site_partition(
            mine.numeric[:, numeric],
            mine.labels if held.labelled else None,
            names=[self.numeric_columns[place] for place in numeric],
            categorical=mine.categorical[:, categorical],
            categorical_names=[self.categorical_columns[place] for place in categorical],
            folds=self.folds[held.rows],
            identifiers=self.identifiers[held.rows].tolist() if len(self.identifiers) else None,
            weights=self.weights[held.rows] if len(self.weights) else None,
            apart=self.apart[held.rows] if len(self.apart) else None,
            classes=len(self.classes),
            may_be_sparse=held.labelled and set(self.numeric_columns) <= columns and not len(self.identifiers),
        ).write(str(path))


def prepare(scenario: Scenario, base_folder: Path) -> FederatedDataset:
    """Load the data, set the test rows apart, and deal the others to the sites.

    Raises ScenarioError, saying what to change, before any process is started.
    """
    settings = scenario.data
    joined = file_join.join(settings, base_folder)
    problems = list(joined.problems)
    if settings.label in joined.unusable:
        raise ScenarioError(problems)
    columns = set(joined.table.columns) - {settings.label, *settings.ignore}
    if problems and not columns:
        raise ScenarioError(problems)
    with collect_problems(problems):
        data = sources.choose(
            joined.table,
            label=settings.label,
            identifier=settings.identifier,
            weight=settings.weight,
            ignore=settings.ignore,
            missing=settings.missing,
            unlabeled=settings.unlabeled,
            classes=settings.classes,
        )
        if problems:
            _check_columns(scenario, data)
    if problems:
        raise ScenarioError(problems)
    return deal(scenario, data, base_folder)


def deal(scenario: Scenario, data: Dataset, base_folder: Path = Path()) -> FederatedDataset:
    """Set the test rows of loaded data apart, and deal the others to the sites. Raises ScenarioError."""
    settings = scenario.data
    if settings.permute_labels:
        shuffled = np.random.default_rng([scenario.seed, 10]).permutation(data.labels)
        data = replace(data, labels=shuffled)
    if scenario.data.public_source is not None:
        raise ScenarioError(["data.public_source: applies to runs across hosts; set rows apart by data.public."])
    public, private = row_roles.choose_public(scenario, data)
    data, choosing, classes = _choose_classes(scenario, data, public)
    labels = labels_of(data, classes)
    folds, tests = row_roles.choose_held_out(scenario, data, private)
    vertical = settings.partition == "vertical"
    shards = _deal_columns(scenario, data) if vertical else _deal_rows(scenario, data, private, tests)
    names = scenario.federation.site_names
    if settings.tested_at_sites:
        folds = row_roles.held_out_by_sites(scenario, labels, [shard.rows for shard in shards])
        tests = tuple(np.flatnonzero(held_out(folds, fold)) for fold in range(settings.models))
    algorithm, width = scenario.algorithm, _width(choosing, settings.categories)
    foreseen = algorithm.implementation.foreseen(algorithm.settings, len(private) - len(tests[0]), width, len(classes))
    return FederatedDataset(
        rows=rows_of(data.features, labels),
        numeric_columns=tuple(feature.name for feature in data.features if not feature.categorical),
        categorical_columns=tuple(feature.name for feature in data.features if feature.categorical),
        classes=classes,
        names=tuple(names),
        shards=shards,
        folds=folds,
        tests=tests,
        identifiers=_identifiers(scenario, data),
        public=public,
        warnings=(
            *label_classes.note_pooled_classes(choosing, classes),
            *_warnings(scenario, data, shards, labels, classes),
        ),
        declared=settings.categories,
        identity=DataIdentity.of(data.name, settings.label, [feature.name for feature in data.features]),
        candidates=_candidates(scenario, data, base_folder, classes),
        weights=data.weights,
        foreseen=tuple(foreseen),
        apart=row_roles.choose_calibrating(scenario, labels, private, tests),
    )


def _choose_classes(scenario: Scenario, data: Dataset, public: IntArray) -> tuple[Dataset, Dataset, tuple[str, ...]]:
    """Return the data with labels of these classes, the rows that may choose them, and the names of the classes.

    Raises ScenarioError for columns or classes that the scenario does not allow.
    """
    is_blind = row_roles.is_blind(scenario)
    choosing = data.take(public) if is_blind else data
    if scenario.data.positive == ABOVE_MEDIAN:
        data, choosing, classes = label_classes.halve(data, choosing, scenario.data)
        _check_columns(scenario, choosing)
    else:
        problems: list[str] = []
        with collect_problems(problems):
            classes = label_classes.classes_of(choosing, scenario.data, are_all=not is_blind)
        with collect_problems(problems):
            _check_columns(scenario, choosing)
        if problems:
            raise ScenarioError(problems)
    label_classes.require_able(scenario, data, classes)
    table = scenario.algorithm
    if problems := [f"algorithm.{said}." for said in table.implementation.class_problems(table.settings, classes)]:
        raise ScenarioError(problems)
    return data, choosing, classes


def _warnings(
    scenario: Scenario, data: Dataset, shards: Sequence[SiteShard], labels: FloatArray, classes: tuple[str, ...]
) -> Iterator[str]:
    """Yield warnings on the data. For private rows they do not depend on any single row."""
    if scenario.is_private:
        if scenario.data.missing == "drop":
            yield "Rows with missing values are left out, and nothing is promised of whether a row is one of them."
        elif scenario.data.unlabeled == "drop":
            yield "Rows without a label are removed, and privacy does not cover whether a row is one of them."
        return
    if data.table is not None:
        yield from text_form.notes(data.table.forms)
    if scenario.data.permute_labels:
        yield "Labels were dealt to other rows at random (data.permute_labels): any accuracy above chance is chance."
    if data.unlabeled:
        yield f"{data.unlabeled} rows without a label were left out."
    if data.dropped:
        yield f"{data.dropped} rows with missing values were left out."
    yield from categories.warnings(data, scenario.data.categories)
    names = scenario.federation.site_names
    if scenario.algorithm.implementation.scaling == "secure-sums":
        least = [rules_at(name, scenario.policy, names).min_cell for name in names]
        held = [(shard.rows, count) for shard, count in zip(shards, least, strict=True)]
        yield from categories.warn_unopened(data, held, scenario.data.categories)
    yield from splits.sites_without_a_class(names, [labels[held.rows] for held in shards], classes)
    if scenario.data.partition == "horizontal" and (scenario.data.sources or scenario.data.site):
        yield from _other_units(data, {name: held.rows for name, held in zip(names, shards, strict=True)})


def _other_units(data: Dataset, rows: Mapping[str, IntArray]) -> Iterator[str]:
    """Yield a sentence for each numeric column whose values are of another size at one site, given each site's rows."""
    for feature in data.features:
        if feature.categorical:
            continue
        if clause := proposals.other_unit({site: feature.values[held] for site, held in rows.items()}):
            yield f"Column {feature.name!r}: {clause}; {proposals.UNIT_ADVICE}."


def _width(data: Dataset, declared: Mapping[str, Sequence[str]]) -> int:
    """Return the number of columns after each value of a categorical one has its own."""
    categorical = [feature for feature in data.features if feature.categorical]
    values = [declared.get(feature.name) or set(feature.values.tolist()) for feature in categorical]
    return len(data.features) - len(categorical) + sum(map(len, values))


def _candidates(scenario: Scenario, data: Dataset, base_folder: Path, classes: tuple[str, ...]) -> Rows | None:
    """Return the records that attackers can guess: the declared ones, or all that can exist."""
    settings = scenario.data
    declared = scenario.collusion.candidates if scenario.collusion is not None else None
    if declared is None and settings.source not in COMPLETE:
        return None
    if declared in (None, "source"):
        return rows_of(data.features, labels_of(data, classes))
    if settings.positive == ABOVE_MEDIAN:
        raise ScenarioError(
            [f'collusion.candidates: with data.positive = "{ABOVE_MEDIAN}" say "source", or name the label that is +1.']
        )
    beside = [name for name in (settings.site, settings.weight) if name is not None]
    listed = sources.load(
        str(declared),
        label=settings.label,
        ignore=[*settings.ignore, *beside],
        missing=settings.missing,
        unlabeled=settings.unlabeled,
        classes=settings.classes,
        base_folder=base_folder,
    )
    if [(each.name, each.categorical) for each in listed.features] != [(e.name, e.categorical) for e in data.features]:
        raise ScenarioError(
            [f"collusion.candidates: {declared} must have the columns of {data.name}, in the same order."]
        )
    return rows_of(listed.features, labels_of(listed, classes))


def _deal_rows(
    scenario: Scenario, data: Dataset, private: IntArray, tests: tuple[IntArray, ...]
) -> tuple[SiteShard, ...]:
    """Deal disjoint rows with all columns."""
    random = np.random.default_rng([scenario.seed, 1])
    names = scenario.federation.site_names
    dealt = _draw_rows(scenario, private if scenario.data.folds is not None else np.setdiff1d(private, tests[0]))
    if len(data.sites):
        parts = splits.by_site(data.sites[dealt], names)
    else:
        parts = splits.horizontal(scenario.data.split, data.take(dealt), len(names), random)
    columns = tuple(feature.name for feature in data.features)
    return tuple(SiteShard(dealt[part], columns) for part in parts)


def _draw_rows(scenario: Scenario, rows: IntArray) -> IntArray:
    """Return the rows to train on: all, or as many as `data.rows` requests, whatever they contain. Raises
    ScenarioError."""
    wanted = scenario.data.rows
    if wanted is None:
        return rows
    count = round(wanted * len(rows)) if wanted <= 1 else round(wanted)
    if not len(scenario.federation.site_names) <= count <= len(rows):
        raise ScenarioError(
            [
                f"data.rows: {wanted:g} is {count} rows, of {len(rows)} that can be trained on; each of "
                f"{len(scenario.federation.site_names)} sites needs one."
            ]
        )
    return np.sort(np.random.default_rng([scenario.seed, 11]).permutation(rows)[:count])


def _deal_columns(scenario: Scenario, data: Dataset) -> tuple[SiteShard, ...]:
    """Deal disjoint columns, of all rows or most of them. With identifiers, every site has an order of its own."""
    settings, names = scenario.data, scenario.federation.site_names
    random = np.random.default_rng([scenario.seed, 2])
    holds = splits.overlapping(data.rows, len(names), settings.overlap, random)
    label_site = None if settings.label_site == ALL else resolve(settings.label_site, names)
    shards = []
    for name, columns, held in zip(names, splits.vertical(settings.split, data, names), holds, strict=True):
        rows = np.flatnonzero(held)
        shuffled = random.permutation(rows) if settings.align == "identifier" else rows
        shards.append(SiteShard(shuffled, columns, label_site in (None, name)))
    return tuple(shards)


def _identifiers(scenario: Scenario, data: Dataset) -> NDArray[np.str_]:
    """Return the identifiers of the source. If it has none and sites align by them, rows are numbered."""
    wanted = scenario.data.align == "identifier" and scenario.data.identifier is None
    return np.array([f"record-{row + 1}" for row in range(data.rows)]) if wanted else data.identifiers


def _check_columns(scenario: Scenario, data: Dataset) -> None:
    """Raise ScenarioError for columns that do not have the declared values, or that are not used as they are."""
    settings, problems = scenario.data, list[str]()
    with collect_problems(problems):
        _check_declared(data, settings.categories)
    with collect_problems(problems):
        agreed = scenario.algorithm.implementation.scaling == "secure-sums"
        categories.require_few(data, settings.categories, agreed=agreed)
    with collect_problems(problems):
        _check_ranges(data, [name for name in settings.ranges if name not in settings.ignore])
    if problems:
        raise ScenarioError(problems)


def _check_declared(data: Dataset, declared: dict[str, list[str]]) -> None:
    problems = []
    columns = {feature.name: feature for feature in data.features}
    for name, values in declared.items():
        feature = columns.get(name)
        if feature is None or not feature.categorical:
            problems.append(f"data.categories.{name}: {data.name} has no categorical column of that name.")
        elif missing := sorted(set(feature.values.tolist()) - {*values, ""}):
            problems.append(f"data.categories.{name}: add {', '.join(map(repr, missing[:8]))}, which the data hold.")
    if problems:
        raise ScenarioError(problems)


def _check_ranges(data: Dataset, ranged: Sequence[str]) -> None:
    numeric = [feature.name for feature in data.features if not feature.categorical]
    unknown = [name for name in ranged if name not in numeric]
    if unknown:
        raise ScenarioError(
            [f"data.ranges.{n}: {data.name} has no numeric column of that name.{nearest(n, numeric)}" for n in unknown]
        )


def rows_of(features: Sequence[Feature], labels: FloatArray) -> Rows:
    """Return columns side by side, numbers and text separately; labels (n,)."""
    numeric: Sequence[FloatArray] = [f.values.astype(np.float64) for f in features if not f.categorical]
    categorical = [f.values.astype(np.str_) for f in features if f.categorical]
    return Rows(
        np.column_stack(numeric) if numeric else np.zeros((len(labels), 0)),
        np.column_stack(categorical) if categorical else np.zeros((len(labels), 0), dtype="<U1"),
        labels,
    )
