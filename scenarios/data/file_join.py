"""Tables of several files as one: each site's own, and that of the test rows, with columns matched by name."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedsvm.federation.columns import deviations
from fedsvm.federation.text import list_names
from fedsvm.scenarios.data import corrections, sources
from fedsvm.scenarios.data.notation import is_number
from fedsvm.scenarios.data.sources import gaps
from fedsvm.scenarios.data.tables import Table
from fedsvm.scenarios.data.text_form import TextForm
from fedsvm.scenarios.schema.corrections import Corrections
from fedsvm.scenarios.schema.data import DataSpec
from fedsvm.scenarios.schema.errors import ScenarioError

_WAY_OUT = "give the column one name in all files (data.by_site), or add such columns to data.ignore"


@dataclass(frozen=True)
class JoinedRows:
    """Return all rows that a scenario names, those of the test last, and what is wrong with them.

    unusable: columns that cannot be used as they are, and that the table is without. problems: sentences about them,
    and about keys that name no column.
    """

    table: Table
    unusable: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()


def read_table(settings: DataSpec, base_folder: Path, own: Corrections | None = None) -> Table:
    """Return all rows that a scenario names, those of the test last. Raises ScenarioError, saying what to change.

    own: corrections that come before those of the scenario.
    """
    joined = join(settings, base_folder, own)
    if joined.problems:
        raise ScenarioError(joined.problems)
    return joined.table


def join(settings: DataSpec, base_folder: Path, own: Corrections | None = None) -> JoinedRows:
    """Return the rows of all files below each other, in the form of the scenario.

    own: corrections that come before those of the scenario.

    Raises ScenarioError, with everything that is wrong, for files that cannot be read, or rows without a site.
    """
    form = TextForm(settings.separator, settings.decimal, settings.encoding)
    text = [settings.identifier] if settings.identifier is not None else []
    named = settings.sources or {"": str(settings.source)}
    tables = read_all(named, base_folder, form, text if not settings.sources else [])
    problems: list[str] = []
    if own is not None:
        first = DataSpec.model_validate({"source": "", **own.model_dump()})
        problems += corrections.unknown_columns(tables, first)
        tables = {name: corrections.correct(table, first) for name, table in tables.items()}
    problems += corrections.unknown_columns(tables, settings)
    ignored = set(settings.ignore)
    if settings.sources:
        corrected = {site: corrections.correct(table, settings, site) for site, table in tables.items()}
        joined = of_sites(corrected, ignored)
    elif settings.site is not None:
        table = corrections.rename(tables[""], settings)
        table = _by_column(corrections.correct_column(table, settings, settings.site), settings.site, settings)
        joined = JoinedRows(corrections.correct_pooled(table, settings))
    else:
        joined = JoinedRows(corrections.correct(tables[""], settings))
    if settings.test_source is not None:
        test = corrections.correct(sources.read(settings.test_source, base_folder, form=form), settings)
        whole = _with_test(joined.table, test, settings)
        unusable = (*joined.unusable, *whole.unusable)
        joined = JoinedRows(whole.table, unusable, (*joined.problems, *whole.problems))
    return replace(joined, problems=(*problems, *joined.problems))


def read_all(
    named: Mapping[str, str], base_folder: Path, form: TextForm | None = None, text: Sequence[str] = ()
) -> dict[str, Table]:
    """Return the tables of several sources by the same names. Raises ScenarioError for all that cannot be read."""
    tables, unreadable = read_readable(named, base_folder, form, text)
    if unreadable:
        raise ScenarioError([problem for problems in unreadable.values() for problem in problems])
    return tables


def read_readable(
    named: Mapping[str, str], base_folder: Path, form: TextForm | None = None, text: Sequence[str] = ()
) -> tuple[dict[str, Table], dict[str, tuple[str, ...]]]:
    """Return the tables of the sources that can be read, and the problems of the others, by the same names."""
    tables: dict[str, Table] = {}
    unreadable: dict[str, tuple[str, ...]] = {}
    for name, source in named.items():
        try:
            tables[name] = sources.read(source, base_folder, text, form)
        except ScenarioError as error:
            unreadable[name] = tuple(error.problems)
    return tables, unreadable


def of_sites(tables: Mapping[str, Table], ignored: set[str]) -> JoinedRows:
    """Return the rows of all sites, in the order of their tables.

    ignored: columns that need not be in all of them.
    """
    names = np.array(list(tables), dtype=np.str_)
    joined = _stack("data.sources", tables, ignored)
    sites = np.repeat(names, [each.rows for each in tables.values()])
    return replace(joined, table=replace(joined.table, sites=sites))


def _by_column(table: Table, column: str, settings: DataSpec) -> Table:
    """Return the table without the column that names each row's site, and with the sites."""
    if column not in table.columns:
        raise ScenarioError([f"data.site: {sources.lacks(table, column)}"])
    if column in (settings.label, settings.identifier, *settings.ignore):
        raise ScenarioError([f"data.site: {column!r} is the label, the identifier, or ignored; name another column."])
    table = without_summary_rows(table, column, settings.label)
    require_sites(table, column, "data.site")
    values = table.columns[column]
    others = {name: each for name, each in table.columns.items() if name != column}
    return replace(table, columns=others, sites=site_names(sources.as_text(values)))


def without_summary_rows(table: Table, site: str, label: str) -> Table:
    """Return the table without rows at its end that have neither a site nor a label, such as totals."""
    if label not in table.columns:
        return table
    described = ~_blank(table.columns[site]) | ~_blank(table.columns[label])
    rows = int(np.flatnonzero(described).max(initial=-1)) + 1
    if not 0 < rows < table.rows:
        return table
    return replace(table, columns={name: values[:rows] for name, values in table.columns.items()})


def _blank(values: NDArray[Any]) -> NDArray[np.bool_]:
    """Return which values are missing or blank."""
    return np.asarray(np.char.str_len(np.char.strip(values)) == 0 if values.dtype.kind == "U" else gaps(values))


def require_sites(table: Table, column: str, key: str) -> None:
    """Raise ScenarioError, which names some rows, where a column does not say of each row whose it is."""
    blank = _blank(table.columns[column])
    if blank.any():
        places = [table.place(int(row)) for row in np.flatnonzero(blank)]
        raise ScenarioError(
            [
                f"{key}: column {column!r} of {table.name} has no value in {list_names(places)}; "
                "every row must be of a site: fill these in, leave the rows out, or rename the column if it names no "
                "sites."
            ]
        )


def site_names(values: NDArray[np.str_]) -> NDArray[np.str_]:
    """Return (n,) the values of a column as valid site names: other characters become hyphens. Raises ScenarioError."""
    named: dict[str, str] = {}
    for value in np.unique(values).tolist():
        plain = unicodedata.normalize("NFKD", value).encode("ascii", "ignore").decode()
        name = re.sub(r"[^A-Za-z0-9._-]+", "-", plain).strip("-._") or "site"
        if name in named.values():
            other = next(known for known, taken in named.items() if taken == name)
            raise ScenarioError([f"data.site: {other!r} and {value!r} would both be called {name!r}; rename one."])
        named[value] = name
    return np.array([named[value] for value in values.tolist()], dtype=np.str_)


def _with_test(table: Table, test: Table, settings: DataSpec) -> JoinedRows:
    """Return the rows of a table and, below them, those to test on, which are of no site."""
    columns = {name: each for name, each in test.columns.items() if name != settings.site}
    tables = {table.name: table, test.name: replace(test, columns=columns)}
    joined = _stack("data.test_source", tables, set(settings.ignore))
    whole = joined.table
    sites = np.concatenate([table.sites, np.full(test.rows, "")]) if len(table.sites) else table.sites
    tested = np.arange(whole.rows) >= table.rows
    return replace(joined, table=replace(whole, name=table.name, sites=sites, tested=tested))


def _stack(key: str, tables: Mapping[str, Table], ignored: set[str]) -> JoinedRows:
    """Return the rows of tables below each other, in the columns that all of them have, of one kind each."""
    columns = {
        name: dict.fromkeys((each for each in table.columns if each not in ignored), False)
        for name, table in tables.items()
    }
    found = deviations(columns)
    if len(tables) == 2 and found:  # what one of them has, the other lacks: both sentences would say the same
        found.pop(next(iter(tables)))
    problems = [f"{key}: {name} {said}; {_WAY_OUT}." for name, said in found.items()]
    everywhere = [name for name in next(iter(columns.values())) if all(name in each for each in columns.values())]
    of_kind = {name: list(kind_problems(key, name, tables)) for name in everywhere}
    problems += [said for each in of_kind.values() for said in each]
    used = [name for name, each in of_kind.items() if not each]
    rows = sum(table.rows for table in tables.values())
    unused = {name: np.full(rows, "") for table in tables.values() for name in table.columns if name in ignored}
    table = Table(
        name=", ".join(table.name for table in tables.values()),
        columns={**unused, **{name: _column(name, tables) for name in used}},
        parts=tuple(part for table in tables.values() for part in table.parts or [(table.name, table.rows)]),
        forms={name: form for table in tables.values() for name, form in table.forms.items()},
    )
    named = dict.fromkeys(name for each in columns.values() for name in each)
    return JoinedRows(table, tuple(name for name in named if name not in used), tuple(problems))


def _column(name: str, tables: Mapping[str, Table]) -> NDArray[Any]:
    """Return one column of all tables. A table without values for it does not decide between numbers and text."""
    kind = next(iter(_kinds(name, tables).values()), "f")
    return np.concatenate([_convert(table.columns[name], kind) for table in tables.values()])


def _kinds(name: str, tables: Mapping[str, Table]) -> dict[str, str]:
    """Return whether a column holds numbers ("f") or text ("U"), by each table that has values of it."""
    columns = {source: table.columns[name] for source, table in tables.items()}
    return {source: values.dtype.kind for source, values in columns.items() if not gaps(values).all()}


def kind_problems(key: str, name: str, tables: Mapping[str, Table]) -> Iterator[str]:
    """Yield a sentence for a column that holds numbers in some tables and text in others."""
    kinds = _kinds(name, tables)
    if len(set(kinds.values())) < 2:
        return
    text, numbers = ([source for source, kind in kinds.items() if kind == each] for each in "Uf")
    values = tables[text[0]].columns[name].tolist()
    odd = next((row for row, value in enumerate(values) if value and not is_number(value)), 0)
    yield (
        f"{key}: column {name!r} holds numbers at {list_names(numbers)} and text at {list_names(text)} "
        f"({values[odd]!r} in {tables[text[0]].place(odd)}); "
        "fix the column, translate its values by data.recode, or add it to data.ignore."
    )


def _convert(values: NDArray[Any], kind: str) -> NDArray[Any]:
    if values.dtype.kind == kind:
        return values
    return np.full(len(values), np.nan) if kind == "f" else np.full(len(values), "")
