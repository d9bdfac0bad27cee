"""A first scenario for a table: what is in it decides what is written, and a comment says why."""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from fedsvm.algorithms.registry import DEFAULT_ALGORITHM
from fedsvm.federation.text import quoted
from fedsvm.scenarios.data import categories, sources
from fedsvm.scenarios.data.dataset import obvious_positive
from fedsvm.scenarios.data.joining import of_sites, require_sites, site_names
from fedsvm.scenarios.data.sources import Dataset, Table, gaps
from fedsvm.scenarios.schema.errors import ScenarioError
from fedsvm.scenarios.schema.federation import require_name
from fedsvm.scenarios.schema.protocol import hiding_sum

_SITE_NAME = re.compile(r"(.*[\W_])?(hospital|site|clinic|klinik|krankenhaus|cent(er|re)|institution|facility)", re.I)
_ROWS_PER_SITE = 10
"""A column with fewer, on average, names something else than sites."""

_MAX_SITES = 50
_MANY_ROWS, _FEW_ROWS = 1000, 200
_RARE = 0.2
"""A class with less than this share of the rows is weighted up."""


@dataclass(frozen=True)
class Draft:
    """The text of a scenario, and what it leaves to whoever reads it, in sentences."""

    text: str
    asks: tuple[str, ...]


def draft(
    path: Path, source: str | Mapping[str, str], label: str, *, site: str | None = None, positive: str | None = None
) -> Draft:
    """Return a scenario for `source`, to be written to `path`. Raises ScenarioError, saying what to change.

    source: one table, or the table of each site by its name. label: the column of the classes. site: of the names of
    sites; without it one that is called so, if there is one. positive: which class is +1; without it the one that is
    plain.
    """
    try:
        name = require_name(path.stem)
    except ValueError as error:
        raise ScenarioError([f"{path}: the name of the file, which becomes the scenario's, {error}."]) from None
    places = {} if isinstance(source, str) else source
    if places and site is not None:
        raise ScenarioError(["--site: each file of --data is a site's already; remove it."])
    table, apart = (sources.read(source, Path()), {}) if isinstance(source, str) else _of_sites(source, label)
    if label not in table.columns:
        raise ScenarioError([f"--label: {sources.lacks(table, label)}"])
    if site is not None and site not in table.columns:
        raise ScenarioError([f"--site: {sources.lacks(table, site)}"])
    by = site or _site_column(table, label)
    if by is not None and places:
        apart, by = {**apart, by: "says whose a row is, as the files do"}, None
    if by is not None:
        require_sites(table, by, "--site")
    data = sources.choose(
        table, label=label, ignore=[*apart, *([by] if by else [])], missing="mean", unlabeled="drop", classes=None
    )
    chosen = positive if positive is not None else obvious_positive(data.classes) if len(data.classes) == 2 else None
    if chosen is not None and chosen not in data.classes:
        raise ScenarioError([f"--positive: {chosen!r} is not a label of {data.name}; it has {quoted(data.classes)}."])
    lines = [
        f"# {data.rows} rows of {data.name}; `fedsvm new` wrote this, and all of it may be changed.",
        f"name = {_text(name)}",
        "seed = 1                   # of splits and clusterings; never of masks or keys",
        "",
        *_federation(table, by),
        "",
        *_data(path, source, table, data, label, by, chosen, apart),
        *_sources(path, places),
        "",
        *_algorithm(data),
        "",
        "[protocol]",
        f"sum = {_text(hiding_sum(_sites(table, by)))}               # fedsvm audit compares them",
    ]
    is_told = chosen is not None or len(data.classes) > 2
    asks = [] if is_told else [f"data.positive: say which of {quoted(data.classes)} is +1."]
    asks += [problem] if (problem := sources.spelling_problem(data, label)) else []
    left_out = (f"Column {name!r} is left out: {why}." for name, why in apart.items())
    doubts = (f"{name}: {form.doubt}" for name, form in table.forms.items() if form.doubt)
    used = replace(data, features=tuple(each for each in data.features if each.name not in _left_out(data, apart)))
    return Draft("\n".join([*lines, ""]), (*asks, *left_out, *doubts, *categories.warnings(used)))


def _of_sites(places: Mapping[str, str], label: str) -> tuple[Table, dict[str, str]]:
    """Return the rows of all sites, and the columns that some sites lack, with the reason to ignore them."""
    for name in places:
        try:
            require_name(name)
        except ValueError as error:
            raise ScenarioError([f"--data: the name of a site {error}."]) from None
    tables = {name: sources.read(place, Path()) for name, place in places.items()}
    named = dict.fromkeys(column for table in tables.values() for column in table.columns if column != label)
    lacking = {column: [name for name, table in tables.items() if column not in table.columns] for column in named}
    apart = {column: f"{quoted(sites)} has none" for column, sites in lacking.items() if sites}
    return of_sites(tables, set(apart)), apart


def _site_column(table: Table, label: str) -> str | None:
    """Return the column whose name and number of values suggest that it names sites."""
    for name, values in table.columns.items():
        if name != label and _SITE_NAME.fullmatch(name):
            count = len(np.unique(values[~gaps(values)]))
            if 2 <= count <= min(_MAX_SITES, len(values) // _ROWS_PER_SITE):
                return name
    return None


def _sites(table: Table, by: str | None) -> int:
    """Return the number of sites."""
    if len(table.sites):
        return len(np.unique(table.sites))
    if by is not None:
        return len(np.unique(table.columns[by]))
    return 5 if table.rows >= _FEW_ROWS else 3


def _federation(table: Table, by: str | None) -> list[str]:
    if len(table.sites):
        names = list(dict.fromkeys(table.sites.tolist()))
        return ["[federation]", f"names = {json.dumps(names)}  # each has a file of its own, see data.sources"]
    if by is None:
        return ["[federation]", f"sites = {_sites(table, by)}                  # rows are dealt to them at random"]
    named = sorted(set(site_names(sources.as_text(table.columns[by])).tolist()))
    return ["[federation]", f"names = {json.dumps(named)}  # of column {_text(by)}"]


def _data(
    path: Path,
    source: str | Mapping[str, str],
    table: Table,
    data: Dataset,
    label: str,
    by: str | None,
    positive: str | None,
    apart: Mapping[str, str],
) -> Iterator[str]:
    yield "[data]"
    if isinstance(source, str):
        yield f"source = {_text(_place(path, source))}"
    for name, form in table.forms.items():
        of = f"{name}: " if len(table.forms) > 1 else ""
        yield f"# {of}read as {form}; separator, decimal and encoding would say otherwise"
        if form.doubt:
            yield f"# to be looked at: {of}{form.doubt}"
    if any(form.thousands for form in table.forms.values()):
        yield 'decimal = ","              # points stand between thousands, also where no comma shows it'
    yield from _classes(data, label, positive)
    if by is not None:
        yield f"site = {_text(by)}  # whose a row is"
    if reasons := _left_out(data, apart):
        said = "; ".join(f"{name}: {reason}" for name, reason in reasons.items())
        yield f"ignore = {json.dumps(list(reasons), ensure_ascii=False)}  # {said}"
    yield from (f"# to be fixed first: {mistake}" for mistake in categories.mistakes(data))
    if data.unlabeled:
        yield f'unlabeled = "drop"         # rows without a label are removed: {data.unlabeled}'
    used = [feature for feature in data.features if feature.name not in reasons]
    missing = {feature.name: int(gaps(feature.values).sum()) for feature in used}
    if incomplete := {name: count for name, count in missing.items() if count}:
        said = ", ".join(f"{name} {count}" for name, count in list(incomplete.items())[:8])
        yield f'missing = "mean"           # filled with means over all sites, by secure sums; missing are: {said}'
        yield "missing_indicators = false # true: a column of 0 and 1 says where"
    yield 'scale = "standard"         # by secure sums'
    if data.rows >= _FEW_ROWS:
        yield "test_fraction = 0.2"
    else:
        yield "folds = 5                  # few rows: each is tested on once"


def _classes(data: Dataset, label: str, positive: str | None) -> Iterator[str]:
    """Yield the lines about the label and its classes."""
    yield f"label = {_text(label)}"
    if positive is not None:
        others = quoted([name for name in data.classes if name != positive])
        yield f"positive = {_text(positive)}  # which label is +1; {others} is -1"
    elif len(data.classes) > 2:
        yield f"# all of {quoted(data.classes)} are told apart; to tell one from the others, say it in the next line"
        yield f"# positive = {_text(data.classes[0])}"
    else:
        yield f"# which of {quoted(data.classes)} is +1? Say it in the next line, and take its # away"
        yield f"# positive = {_text(data.classes[0])}"
    if sources.spelling_problem(data, label):
        yield "# some labels differ in capitals or blanks alone; if they are different classes, take away the next #"
        yield f"# classes = {json.dumps(data.classes, ensure_ascii=False)}"


def _place(path: Path, source: str) -> str:
    """Return the path of a source relative to the scenario at `path`."""
    return os.path.relpath(source, path.resolve().parent) if Path(source).is_file() else source


def _sources(path: Path, places: Mapping[str, str]) -> Iterator[str]:
    if places:
        yield ""
        yield "[data.sources]             # a file for each site; columns are matched by their names"
        yield from (f"{_key(name)} = {_text(_place(path, place))}" for name, place in places.items())


def _key(name: str) -> str:
    """Return a name as a key of TOML, in quotes if it has a dot."""
    return _text(name) if "." in name else name


def _left_out(data: Dataset, apart: Mapping[str, str]) -> dict[str, str]:
    """Return columns that are no measurements, or that some sites lack, each with the reason."""
    reasons = dict(apart)
    for feature in data.features:
        if gaps(feature.values).all():
            reasons[feature.name] = "has no values"
        elif feature.categorical and categories.is_date([value for value in set(feature.values.tolist()) if value]):
            reasons[feature.name] = "dates"
        elif categories.looks_identifying(data, feature):
            reasons[feature.name] = "looks like an identifier"
    return reasons


def _algorithm(data: Dataset) -> Iterator[str]:
    rarest, count = min(Counter(data.labels.tolist()).items(), key=lambda each: each[1])
    yield f"[algorithm]                # fedsvm scenarios keys {DEFAULT_ALGORITHM} lists what else there is"
    yield f"name = {_text(DEFAULT_ALGORITHM)}"
    yield 'kernel = "rbf"'
    yield "C = 1.0"
    yield 'gamma = "auto"'
    if data.rows > _MANY_ROWS:
        yield "landmarks = 200"
    else:
        yield "landmarks = 0.25           # a quarter as many as training rows"
    yield "min_cluster_size = 3       # each landmark is the mean of 3 rows or more: a share above 1/3 cannot be met"
    if len(data.classes) == 2 and count < _RARE * data.rows:
        share = 100 * count / data.rows
        yield f'class_weight = "balanced"  # {rarest!r} is {share:.1f} % of the rows; without it few would be called so'


def _text(value: str) -> str:
    return json.dumps(value, ensure_ascii=False)
