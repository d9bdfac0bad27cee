"""A description of the columns of all sites, over the sites of a scenario and without training."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from fedsvm.algorithms import SITE_MODULE
from fedsvm.algorithms.column_description import NAME, CategoricalColumn, ColumnDescription, NumericColumn, describe
from fedsvm.algorithms.data.columns import Schema
from fedsvm.algorithms.data.statistics_rounds import StatisticsPlan
from fedsvm.algorithms.registry import DEFAULT_ALGORITHM
from fedsvm.federation.federation import Federation
from fedsvm.federation.processes.launcher_cache import SPARE
from fedsvm.federation.site.rules import MIN_CELL
from fedsvm.federation.site.terms import Terms
from fedsvm.federation.startup import start_federation
from fedsvm.federation.text import quote_names
from fedsvm.scenarios.data import dataset
from fedsvm.scenarios.data.proposals import notes_of, spellings
from fedsvm.scenarios.figures import percent
from fedsvm.scenarios.report import template
from fedsvm.scenarios.run.injector import Injector
from fedsvm.scenarios.run.offered_terms import terms_of
from fedsvm.scenarios.run.starter import Starter
from fedsvm.scenarios.schema.errors import ScenarioError
from fedsvm.scenarios.schema.spec import Scenario

NUMERIC_HEAD = ("column", "known", "missing", "mean", "deviation", "5 %", "25 %", "50 %", "75 %", "95 %")
_LEGEND = (
    "Known: values that are not missing. Deviation: standard deviation. 5 % to 95 %: quantiles; 50 % is the median. "
    "Hidden: noise is too large, or there are too few values."
)
_CLIPPED = (
    "Mean and deviation are of values clipped to the agreed range of a column, or to a range that noisy counts give."
)
CATEGORICAL_HEAD = ("column", "known", "missing", "values")
_MAX_VALUES = 12


def describable(scenario: Scenario) -> Scenario:
    """Return the scenario with all rows at the sites, unfilled. Raises ScenarioError if it cannot be described."""
    data = scenario.data
    if data.partition == "vertical":
        raise ScenarioError(
            ["data.partition: must be horizontal; if sites hold columns, each can describe its own (data describe)."]
        )
    if scenario.is_private:
        raise ScenarioError(
            [
                f"algorithm.name: {scenario.algorithm.name} takes no statistics of private rows; describe them by "
                f"--set algorithm.name={DEFAULT_ALGORITHM} --set data.statistics_privacy=MU."
            ]
        )
    whole = {
        **{"folds": None, "repeats": 1, "test_fraction": 0.0, "tested_by": "sites", "calibration": 0.0, "rows": None},
        **{"missing": "mean", "missing_indicators": False},
    }
    without_committee = scenario.protocol.model_copy(update={"committee": None})
    return scenario.model_copy(
        update={"data": data.model_copy(update=whole), "faults": [], "protocol": without_committee}
    )


def terms_to_describe(scenario: Scenario) -> Terms:
    """Return the terms for every site, for a scenario that `describable` returned."""
    return replace(terms_of(scenario), program=NAME, settings={}, shown=(), gathers=(), releases=False)


def over(federation: Federation, scenario: Scenario, schema: Schema, classes: tuple[str, ...]) -> ColumnDescription:
    """Describe the columns of the sites of a federation."""
    plan = StatisticsPlan.of(terms_to_describe(scenario))
    return describe(federation, plan, schema, classes, scenario.seed, MIN_CELL)


def describe_simulation(scenario: Scenario, base: Path, folder: Path | None) -> ColumnDescription:
    """Describe the columns of a simulation.

    Parameters
    ----------
    scenario : Scenario
    base : Path
        The folder of its file.
    folder : Path or None
        An empty folder for the receipts of the sites.

    Raises
    ------
    ScenarioError
        The scenario or its data are wrong; nothing was started.
    FederationError
        A site failed or refused.
    """
    chosen = describable(scenario)
    rows = dataset.prepare(chosen, base)
    with (
        TemporaryDirectory() as unwanted,
        SPARE.take(SITE_MODULE) as launcher,
        Injector(chosen, launcher) as injector,
    ):
        starter = Starter(chosen, rows, launcher, injector, folder or Path(unwanted), audits_all=False)
        deployment = replace(starter.deployment(), terms=terms_to_describe(chosen))
        with start_federation(launcher, deployment, views=injector.view) as federation:
            federation.assemble()
            return over(federation, chosen, rows.schema, rows.classes)


# Presentation.


def numeric_lines(found: ColumnDescription) -> Iterator[tuple[str, ...]]:
    """Yield a line for each numeric column."""
    for each in found.numeric:
        moments = [_number(value) for value in (each.mean, each.deviation)]
        quantiles = [_number(value) for value in each.quantiles] if each.quantiles else ["hidden"] * 5
        yield each.name, _count(each.known), _missing(found, each.missing, "known"), *moments, *quantiles


def categorical_lines(found: ColumnDescription) -> Iterator[tuple[str, ...]]:
    """Yield a line for each categorical column."""
    for each in found.categorical:
        shown = [
            f"{value.value} ({_count(value.rows) if value.rows is not None else 'few'})"
            for value in each.values[:_MAX_VALUES]
        ]
        more = len(each.values) - len(shown)
        yield (
            each.name,
            _count(each.known),
            _missing(found, each.missing, "gaps"),
            ", ".join(
                [
                    *shown,
                    *([f"{more} more"] if more else []),
                    *([f"others ({_count(each.others)})"] if each.others else []),
                ]
            ),
        )


def class_line(found: ColumnDescription) -> str:
    """Return the number of rows, and of each class."""
    classes = ", ".join(
        f"{name} {_count(count) if count is not None else 'few'}" for name, count in found.classes.items()
    )
    return f"{_count(found.rows)} at {len(found.sites)} sites: {classes}"


def privacy_line(found: ColumnDescription) -> str:
    """Return a line on the noise that protects the rows."""
    if not found.mu:
        return "none: the sums are exact; data.statistics_privacy above 0 adds noise"
    rows = found.noise["classes"] * math.sqrt(len(found.classes))
    kinds = [("classes", "rows of a class"), ("known", "known numbers"), ("gaps", "missing categories")]
    kinds += [("categories", "rows of a category"), ("cells", "values in a twentieth of a column's range")]
    noise = ", ".join(f"{said} {found.noise[name]:.3g}" for name, said in kinds if name in found.noise)
    return f"mu {found.mu:g} for one row over all of this; standard deviation of the noise: rows {rows:.3g}, {noise}"


def notes(found: ColumnDescription) -> Iterator[str]:
    """Yield sentences about columns that may be wrong."""
    for numeric in found.numeric:
        yield from _numeric_notes(numeric, len(found.sites))
    for categorical in found.categorical:
        yield from _categorical_notes(categorical, len(found.sites))


def _numeric_notes(column: NumericColumn, sites: int) -> Iterator[str]:
    if column.mean is None:
        yield f"Column {column.name!r} has too few values, or noise hides its scale; declare its range in data.ranges."
    if column.far is not None:
        share, low, high = column.far
        yield (
            f"Column {column.name!r}: {percent(share, 1)} of its values lie far from the rest, between {low:g} and "
            f"{high:g}; if they stand for missing ones, see data.missing_values."
        )
    elif column.outside > 0 and column.low is not None and column.high is not None:
        yield (
            f"Column {column.name!r}: {percent(column.outside, 1)} of its values lie outside {column.low:g} to "
            f"{column.high:g}."
        )
    yield from _constant(column.name, column.constant_sites, sites)


def _categorical_notes(column: CategoricalColumn, sites: int) -> Iterator[str]:
    alone = [each.value for each in column.values if each.sites == 1]
    if alone and sites > 1:
        yield f"Column {column.name!r}: only one of {sites} sites uses {quote_names(alone)}."
    values = [each.value for each in column.values]
    counts = [max(1, round(each.rows or 1)) for each in column.values]
    yield from notes_of(column.name, {}, spellings({"": np.repeat(np.array(values, dtype=np.str_), counts)}))
    yield from _constant(column.name, column.constant_sites, sites)


def _constant(name: str, constant: int | None, sites: int) -> Iterator[str]:
    if constant:
        yield f"Column {name!r} has one value in all rows of {constant} of {sites} sites."


def page(found: ColumnDescription, name: str) -> str:
    """Return a self-contained HTML page. name: the name of the scenario."""
    return template.render(
        "description.html.j2",
        f"Columns of {name}",
        rows=class_line(found),
        privacy=privacy_line(found),
        numeric_head=NUMERIC_HEAD,
        numeric=list(numeric_lines(found)),
        categorical_head=CATEGORICAL_HEAD,
        categorical=list(categorical_lines(found)),
        legend=f"{_LEGEND} {_CLIPPED}" if found.mu else _LEGEND,
        notes=list(notes(found)),
    )


def to_json(found: ColumnDescription) -> str:
    """Return the text of description.json."""
    return json.dumps({**asdict(found), "notes": list(notes(found))}, indent=1, allow_nan=False) + "\n"


def _missing(found: ColumnDescription, share: float, kind: str) -> str:
    """Return the share of rows without a value, or an upper bound of it if noise hides it."""
    rows = found.noise["classes"] * math.sqrt(len(found.classes)) if kind == "known" else 0.0
    least = 2 * math.hypot(found.noise[kind], rows) / found.rows
    return percent(share, 1) if share >= least else f"below {percent(min(least, 1.0), 0)}"


def _count(rows: float) -> str:
    return f"{rows:.0f}"


def _number(value: float | None) -> str:
    return "hidden" if value is None else f"{value:.4g}"
