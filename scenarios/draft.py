"""A first scenario for a table, whose settings follow from the values, with comments that give the reasons."""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedsvm.algorithms.registry import DEFAULT_ALGORITHM
from fedsvm.federation.text import quote_names, visible
from fedsvm.scenarios.data import categories, file_join, sources
from fedsvm.scenarios.data.file_join import require_sites, site_names, without_summary_rows
from fedsvm.scenarios.data.harmonization import HarmonizedTables, harmonize, notes
from fedsvm.scenarios.data.label_classes import obvious_positive
from fedsvm.scenarios.data.rough_ranges import rough_ranges
from fedsvm.scenarios.data.sources import gaps
from fedsvm.scenarios.data.tables import Dataset, Table
from fedsvm.scenarios.schema.errors import ScenarioError
from fedsvm.scenarios.schema.federation import require_name
from fedsvm.scenarios.schema.protocol import hiding_sum

_SITE_NAME = re.compile(r"(.*[\W_])?(hospital|site|clinic|klinik|krankenhaus|cent(er|re)|institution|facility)", re.I)
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_ROWS_PER_SITE = 10
"""Minimum mean number of rows for each value of a column that names sites."""

_MAX_SITES = 50
_MANY_ROWS, _FEW_ROWS = 1000, 200
_ROWS_OF_LINEAR = 10_000
"""Up to so many rows, a linear SVM of pooled rows is trained too, which takes LIBSVM seconds."""
_LINEAR = 'baselines = ["libsvm-linear"]  # a linear SVM of all rows: a note says if a linear kernel does as well'
_MAX_LISTED = 8
"""Maximum number of columns with missing values that a line names."""

_MU = 0.5
"""The mu of noisy statistics."""

_SITES_OF_A_SUM = 3
"""The minimum number of sites of a sum in the policy template."""

_RARE = 0.2
"""Share of the rows below which classes are weighted."""


@dataclass(frozen=True)
class Draft:
    """The text of a scenario, and sentences on the decisions that remain and on doubtful values."""

    text: str
    asks: tuple[str, ...]


def draft(
    path: Path,
    source: str | Mapping[str, str],
    label: str,
    *,
    site: str | None = None,
    positive: str | None = None,
    ignore: Sequence[str] = (),
) -> Draft:
    """Return a scenario for a table.

    Parameters
    ----------
    path : Path
        The file to which the scenario will be written.
    source : str or mapping of str to str
        One table, or the table of each site by its name; some of these may be unreadable.
    label : str
        The column of the classes.
    site : str, optional
        The column of the names of sites; by default a column with such a name, if there is one.
    positive : str, optional
        The class that is +1; by default the obvious one of two, such as "yes".
    ignore : sequence of str, default ()
        Columns that are not used.

    Raises
    ------
    ScenarioError
        A name, a column or a class is invalid. The message says what to change.
    """
    places = {} if isinstance(source, str) else source
    name = _require_names(path, places, site)
    tables, unreadable = file_join.read_readable(places or {"": str(source)}, Path())
    _require_columns(tables, unreadable, label, site, ignore)
    first = next(iter(tables.values()))
    by = site or _site_column(first, label, ignore) if not places else None
    if by is not None:
        tables = {place: without_summary_rows(each, by, label) for place, each in tables.items()}
        require_sites(tables[next(iter(tables))], by, "--site")
    found = harmonize(tables, label, by, ignore)
    table, apart = found.table, dict(found.apart)
    if places and (column := _site_column(table, label, [*found.unmeasured, *apart])):
        apart[column] = "names the site of a row, as the files do"
    data = _choose_columns(table, label, [*found.unmeasured, *apart, *([by] if by else [])])
    chosen = _positive_class(data, positive)
    lines = [
        f"# {data.rows} rows of {data.name}; `fedsvm new` wrote this, and all of it may be changed.",
        f"name = {_text(name)}",
        "seed = 1                   # of splits and clusterings; never of masks or keys",
        "",
        *_federation(table, by, list(places)),
        "",
        *_data(path, source, table, data, label, by, chosen, {**found.unmeasured, **apart}),
        *_sources(path, places, unreadable),
        *_corrections(found),
        *_ranges(data),
        "",
        *_algorithm(data),
        "",
        "[compare]",
        "sites = true               # also trains each site's own model, to show what federating gains",
        *([_LINEAR] if data.rows <= _ROWS_OF_LINEAR else []),
        "",
        "[protocol]",
        f"sum = {_text(hiding_sum(len(places) or _sites(table, by)))}               # fedsvm audit compares them",
    ]
    lost = (f"{name}: {problem}" for name, problems in unreadable.items() for problem in problems)
    asks = [*lost, *found.asks, *_asks(data, label, chosen)]
    doubts = (f"{name}: {form.doubt}" for name, form in table.forms.items() if form.doubt)
    not_used = (f"Column {name!r} is left out: {why}." for name, why in apart.items())
    cut = _cut(first, table.rows) if by is not None else []
    return Draft("\n".join([*lines, ""]), (*asks, *cut, *not_used, *doubts, *notes(found), *categories.warnings(data)))


def _choose_columns(table: Table, label: str, ignore: Sequence[str]) -> Dataset:
    """Return the labeled rows of a table without some columns."""
    return sources.choose(
        table,
        label=label,
        ignore=[each for each in ignore if each in table.columns],
        missing="mean",
        unlabeled="drop",
        classes=None,
        min_classes=1,
    )


def _positive_class(data: Dataset, positive: str | None) -> str | None:
    """Return the class that is +1: the named one, or the obvious one of two. Raises ScenarioError for another name."""
    if positive is None:
        return obvious_positive(data.classes) if len(data.classes) == 2 else None
    if positive not in data.classes:
        raise ScenarioError(
            [f"--positive: {positive!r} is not a label of {data.name}; it has {quote_names(data.classes)}."]
        )
    return positive


def _cut(read: Table, rows: int) -> list[str]:
    """Return a sentence about the rows that were removed at the end of a table, if any. rows: those that are left."""
    if read.rows == rows:
        return []
    said = "row has" if read.rows - rows == 1 else f"{read.rows - rows} rows have"
    verb = "is" if read.rows - rows == 1 else "are"
    return [f"{read.name}: the last {said} neither a site nor a label and {verb} left out."]


def _require_names(path: Path, places: Mapping[str, str], site: str | None) -> str:
    """Return the name of the scenario. Raises ScenarioError for invalid names, and for two ways to name sites."""
    problems = []
    if places and site is not None:
        problems.append("--site: each file of --data already belongs to a site; remove this option.")
    for key, name in [(f"{path}: the name of the file, which becomes the scenario's,", path.stem)] + [
        ("--data: the name of a site", name) for name in places
    ]:
        try:
            require_name(name)
        except ValueError as error:
            problems.append(f"{key} {error}.")
    if problems:
        raise ScenarioError(problems)
    return path.stem


def _require_columns(
    tables: Mapping[str, Table],
    unreadable: Mapping[str, Sequence[str]],
    label: str,
    site: str | None,
    ignore: Sequence[str],
) -> None:
    """Raise ScenarioError for columns that options name and no table has; it includes problems of unreadable files."""
    lost = [problem for problems in unreadable.values() for problem in problems]
    if not tables:
        raise ScenarioError(lost)
    named = [
        ("--label", label),
        *([("--site", site)] if site is not None else []),
        *(("--ignore", each) for each in ignore),
    ]
    first = next(iter(tables.values()))
    problems = [
        f"{option}: {sources.lacks(first, name)}"
        for option, name in named
        if all(name not in table.columns for table in tables.values())
    ]
    if label in ignore:
        problems.append(f"--ignore: {label!r} is the label and cannot be ignored.")
    if problems:
        raise ScenarioError([*lost, *problems])


def _asks(data: Dataset, label: str, positive: str | None) -> Iterator[str]:
    """Yield sentences on the decisions that remain about the label."""
    if len(data.classes) < 2:
        yield f"data.label: column {label!r} has one class only ({quote_names(data.classes)}); two are needed."
    elif positive is None and len(data.classes) == 2:
        yield f"data.positive: say which of {quote_names(data.classes)} is +1."
    if problem := sources.spelling_problem(data, label):
        yield problem


def _site_column(table: Table, label: str, without: Collection[str]) -> str | None:
    """Return the column whose name and number of values suggest that it has the names of sites, or None."""
    for name, values in table.columns.items():
        if name not in (label, *without) and _SITE_NAME.fullmatch(name):
            count = len(np.unique(values[~gaps(values)]))
            if 2 <= count <= min(_MAX_SITES, len(values) // _ROWS_PER_SITE):
                return name
    return None


def _sites(table: Table, by: str | None) -> int:
    """Return the number of sites."""
    if by is not None:
        return len(np.unique(table.columns[by]))
    return 5 if table.rows >= _FEW_ROWS else 3


def _federation(table: Table, by: str | None, names: list[str]) -> Iterator[str]:
    yield "[federation]"
    if names:
        count = len(names)
        yield f"names = {json.dumps(names)}  # each has a file of its own, see data.sources"
    elif by is None:
        count = _sites(table, by)
        yield f"sites = {count}                  # rows are dealt to them at random"
    else:
        named = sorted(set(site_names(sources.as_text(table.columns[by])).tolist()))
        count = len(named)
        yield f"names = {json.dumps(named)}  # of column {_text(by)}"
    if count >= _SITES_OF_A_SUM:
        yield f"min_sites = {_SITES_OF_A_SUM}              # the run ends with fewer, as careful sites demand"


def _data(
    path: Path,
    source: str | Mapping[str, str],
    table: Table,
    data: Dataset,
    label: str,
    by: str | None,
    positive: str | None,
    reasons: Mapping[str, str],
) -> Iterator[str]:
    yield "[data]"
    if isinstance(source, str):
        yield f"source = {_text(_place(path, source))}"
    for name, form in table.forms.items():
        of = f"{name}: " if len(table.forms) > 1 else ""
        yield f"# {of}read as {form}; to change this, set separator, decimal or encoding"
        if form.doubt:
            yield f"# to be looked at: {of}{form.doubt}"
    forms = table.forms.values()
    if any(form.thousands for form in forms) and all(form.decimal == "," for form in forms):
        yield 'decimal = ","              # points stand between thousands, also where no comma shows it'
    yield from _classes(data, label, positive)
    if by is not None:
        yield f"site = {_text(by)}  # whose a row is"
    if reasons:
        said = "; ".join(f"{name}: {reason}" for name, reason in reasons.items())
        yield f"ignore = {json.dumps(list(reasons), ensure_ascii=False)}  # {said}"
    yield from (f"# to be fixed first: {mistake}" for mistake in categories.mistakes(data))
    if data.unlabeled:
        yield f'unlabeled = "drop"         # rows without a label are removed: {data.unlabeled}'
    missing = {feature.name: int(gaps(feature.values).sum()) for feature in data.features}
    if incomplete := {name: count for name, count in missing.items() if count}:
        said = ", ".join(f"{name} {count}" for name, count in list(incomplete.items())[:_MAX_LISTED])
        said += f" and {len(incomplete) - _MAX_LISTED} more columns" if len(incomplete) > _MAX_LISTED else ""
        yield f'missing = "mean"           # filled with means over all sites, by secure sums; rows without: {said}'
        yield "missing_indicators = false # true: a column of 0 and 1 says where"
    yield 'scale = "standard"         # by secure sums'
    yield f"statistics_privacy = {_MU:g}   # mu of the noise in scale and landmarks, so that they name no row"
    if data.rows >= _FEW_ROWS:
        yield "test_fraction = 0.2"
    else:
        yield "folds = 5                  # few rows: each is tested on once"


def _classes(data: Dataset, label: str, positive: str | None) -> Iterator[str]:
    """Yield the lines about the label and its classes."""
    yield f"label = {_text(label)}"
    if positive is not None:
        others = quote_names([name for name in data.classes if name != positive])
        yield f"positive = {_text(positive)}  # which label is +1; {others} is -1"
    elif len(data.classes) > 2:
        names = quote_names(data.classes)
        yield f"# all of {names} are separate classes; to train one against the rest, name it in the next line"
        yield f"# positive = {_text(data.classes[0])}"
    else:
        yield f"# which of {quote_names(data.classes)} is +1? Name it in the next line, and remove its #"
        yield f"# positive = {_text(data.classes[0])}"
    if sources.spelling_problem(data, label):
        yield "# some labels differ in capitals or blanks alone; if they are different classes, take away the next #"
        yield f"# classes = {json.dumps(data.classes, ensure_ascii=False)}"


def _place(path: Path, source: str) -> str:
    """Return the path of a source relative to the scenario at `path`."""
    return os.path.relpath(source, path.resolve().parent) if Path(source).is_file() else source


def _sources(path: Path, places: Mapping[str, str], unreadable: Mapping[str, Sequence[str]]) -> Iterator[str]:
    if places:
        yield ""
        yield "[data.sources]             # a file for each site; columns are matched by their names"
        for name, place in places.items():
            yield from (f"# to be fixed first: {visible(problem)}" for problem in unreadable.get(name, ()))
            yield f"{_key(name)} = {_text(_place(path, place))}"


def _key(name: str) -> str:
    """Return a name as a TOML key, in quotes unless it is a bare key."""
    return name if _BARE_KEY.fullmatch(name) else _text(name)


def _corrections(found: HarmonizedTables) -> Iterator[str]:
    """Yield the tables that harmonize the files."""
    if found.codes or found.zeros:
        head = "[data.missing_values]      # they look like codes; remove those that are values"
        yield from ("", head if found.codes else "# [data.missing_values]")
        for name, codes in found.codes.items():
            said = ", ".join(f"{code} in {count} rows" for code, count in codes.items())
            yield f"{_key(name)} = [{', '.join(map(_plain, codes))}]  # {said}"
        for name, (count, least) in found.zeros.items():
            yield f"# {_key(name)} = [0]  # 0 in {count} rows, and no other value below {least:g}"
    for name, spellings in found.spellings.items():
        head = f"[data.recode.{_key(name)}]"
        yield from ("", head if any(each.is_plain for each in spellings) else f"# {head}")
        for each in spellings:
            off = "" if each.is_plain else "# "
            yield f"{off}{_text(each.old)} = {_text(each.new)}  # {each.rows} rows; {each.why}"
    for site, names in found.renames.items():
        yield from ("", f"[data.by_site.{_key(site)}.rename]")
        yield from (f"{_text(old)} = {_text(new)}" for old, new in names.items())


def _ranges(data: Dataset) -> Iterator[str]:
    """Yield the table of the ranges of numeric columns."""
    if ranges := rough_ranges(data.features):
        yield from ("", "[data.ranges]              # lowest and highest values, to which noisy statistics clip")
        yield "# They are rounded outward from the files that `fedsvm new` has read. Ranges are public: replace them by"
        yield "# those of the data dictionary. For exact statistics remove them and set statistics_privacy = 0."
        yield from (f"{_key(name)} = [{low:.12g}, {high:.12g}]" for name, (low, high) in ranges.items())


def _plain(value: str) -> str:
    """Return a value as TOML: a whole number unquoted, others in quotes."""
    return value if re.fullmatch(r"-?[1-9]\d*", value) else _text(value)


def _algorithm(data: Dataset) -> Iterator[str]:
    rarest, count = min(Counter(data.labels.tolist()).items(), key=lambda each: each[1])
    yield f"[algorithm]                # fedsvm scenarios keys {DEFAULT_ALGORITHM} lists all settings"
    yield f"name = {_text(DEFAULT_ALGORITHM)}"
    yield "# compare with --set algorithm.kernel=linear --set algorithm.features=identity: no landmarks, few messages"
    yield 'kernel = "rbf"'
    yield "C = 1.0"
    yield 'gamma = "auto"'
    if data.rows > _MANY_ROWS:
        yield "landmarks = 200"
    else:
        yield "landmarks = 0.25           # a quarter as many as training rows"
    yield "min_cluster_size = 3       # least rows of a landmark that is a mean of rows; allows a share of 1/3 at most"
    if len(data.classes) == 2 and count < _RARE * data.rows:
        share = 100 * count / data.rows
        yield f'class_weight = "balanced"  # {rarest!r} is {share:.1f} % of the rows; without it few would be predicted'


def _text(value: str) -> str:
    return json.dumps(value, ensure_ascii=False)
