"""Files of different sites in one form: columns renamed, codes for gaps removed, values spelled alike, one unit."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from math import nan
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedsvm.federation.text import list_names
from fedsvm.scenarios.data import sources
from fedsvm.scenarios.data.notation import plain_number
from fedsvm.scenarios.data.tables import Table
from fedsvm.scenarios.schema.corrections import Corrections
from fedsvm.scenarios.schema.data import DataSpec
from fedsvm.scenarios.schema.errors import ScenarioError

_Rows = NDArray[np.bool_]
_Units = Sequence[tuple[_Rows, list[float]]]


def correct(table: Table, settings: DataSpec, site: str | None = None) -> Table:
    """Return one file's table in the form of the scenario.

    Parameters
    ----------
    table : Table
        As it was read; columns that `data.identifier` names are text and stay it.
    settings : DataSpec
        Their keys for all files, and those of `by_site`.
    site : str, optional
        The site whose file it is.

    Raises
    ------
    ScenarioError
        Two columns would have one name.
    """
    own = settings.by_site.get(site or "", Corrections())
    renamed = _rename(table, {**settings.rename, **own.rename})
    return _correct_values(renamed, settings, [(own, np.ones(table.rows, dtype=np.bool_))])


def correct_pooled(table: Table, settings: DataSpec) -> Table:
    """Return the table of all sites, whose rows say which site they are of, with each site's own corrections."""
    own = [(each, table.sites == site) for site, each in settings.by_site.items()]
    others = ~np.isin(table.sites, list(settings.by_site))
    return _correct_values(table, settings, [*own, (Corrections(), others)])


def correct_column(table: Table, settings: DataSpec, column: str) -> Table:
    """Return the table with one column corrected as that of every site is."""
    rows = np.ones(table.rows, dtype=np.bool_)
    return _with_column(table, settings, column, [(Corrections(), rows)])


def correct_as_in_run(table: Table, data: Mapping[str, Any], site: str | None) -> Table:
    """Return the table of new rows in the form that a run, given its [data] table, brought its files into.

    Raises ScenarioError for a site that the run did not have.
    """
    keys = {key: data[key] for key in ("rename", "missing_values", "recode", "convert", "by_site") if data.get(key)}
    if site is None:
        return correct(table, DataSpec.model_validate({**keys, "source": table.name, "by_site": {}}))
    own = keys.get("by_site", {})
    if site not in own:
        there = f"has them for {list_names(list(own))}" if own else "has none for any site"
        raise ScenarioError([f"--site: the run has no data.by_site for {site!r}, it {there}; remove it or name one."])
    return correct(table, DataSpec.model_validate({**keys, "sources": {site: table.name}}), site)


def rename(table: Table, settings: DataSpec) -> Table:
    """Return the table with the names that `data.rename` gives. Raises ScenarioError for a name given twice."""
    return _rename(table, settings.rename)


def unknown_columns(tables: dict[str, Table], settings: DataSpec) -> Iterator[str]:
    """Yield a sentence for each column that a key names and no file has, given the files as they were read.

    The tables have the names of sites, where sites have files of their own.
    """
    new_names = {new for each in [settings, *settings.by_site.values()] for new in each.rename.values()}
    for key, names in settings.columns().items():
        for name in names:
            if key != "rename" and name in new_names:
                continue
            if all(name not in table.columns for table in tables.values()):
                yield sources.lacking(f"data.{key}", next(iter(tables.values())), name)
    for site, own in settings.by_site.items():
        table = tables.get(site, tables.get(""))
        if table is None:  # another host's
            continue
        known = {*settings.rename.values(), *own.rename.values(), *table.columns}
        for key, names in own.columns().items():
            for name in names:
                if name not in (table.columns if key == "rename" else known):
                    yield sources.lacking(f"data.by_site.{site}.{key}", table, name)


def _rename(table: Table, names: dict[str, str]) -> Table:
    wanted = [names.get(name, name) for name in table.columns]
    if len(set(wanted)) < len(wanted):
        twice = next(name for name in wanted if wanted.count(name) > 1)
        raise ScenarioError(
            [f"data.rename: {table.name} would have two columns {twice!r}; name another, or remove one by data.ignore."]
        )
    return replace(table, columns=dict(zip(wanted, table.columns.values(), strict=True)))


def _correct_values(table: Table, settings: DataSpec, groups: Sequence[tuple[Corrections, _Rows]]) -> Table:
    for name in table.columns:
        table = _with_column(table, settings, name, groups)
    return table


def _with_column(table: Table, settings: DataSpec, name: str, groups: Sequence[tuple[Corrections, _Rows]]) -> Table:
    """Return the table with one column corrected: for each group of rows, its own corrections come first."""
    values = table.columns.get(name)
    if values is None:
        return table
    changes = [
        (rows, [*settings.codes(name), *own.codes(name)], {**settings.recode.get(name, {}), **own.recode.get(name, {})})
        for own, rows in groups
    ]
    units = [(rows, unit) for own, rows in groups if (unit := own.convert.get(name) or settings.convert.get(name))]
    if not units and not any(codes or spellings for _, codes, spellings in changes):
        return table
    decimals = {form.decimal or "." for form in table.forms.values()} or {"."}
    for rows, codes, _ in changes:
        values = _without_codes(values, rows, codes, decimals)
    if any(spellings for _, _, spellings in changes):
        values = _recode(values, [(rows, spellings) for rows, _, spellings in changes])
    if name != settings.identifier:
        values = _as_numbers(values, decimals)
    if units:
        values = _convert(table, name, values, units)
    return replace(table, columns={**table.columns, name: values})


def _without_codes(
    values: NDArray[Any], rows: _Rows, codes: Collection[str], decimals: Collection[str]
) -> NDArray[Any]:
    numbers = {number for code in codes if (number := plain_number(code, ".")) is not None}
    if values.dtype.kind == "f":
        return np.where(rows & np.isin(values, list(numbers)), nan, values)
    written = {
        value
        for value in np.unique(values).tolist()
        if value.strip() in codes or any(plain_number(value, decimal) in numbers for decimal in decimals)
    }
    return np.where(rows & np.isin(values, list(written)), "", values)


def _recode(values: NDArray[Any], changes: Sequence[tuple[_Rows, dict[str, str]]]) -> NDArray[np.str_]:
    texts = sources.as_text(values).tolist()
    for rows, spellings in changes:
        for row in np.flatnonzero(rows) if spellings else ():
            value = texts[row]
            texts[row] = spellings.get(value, spellings.get(value.strip(), value))
    return np.array(texts, dtype=np.str_)


def _convert(table: Table, name: str, values: NDArray[Any], units: Sequence[tuple[_Rows, list[float]]]) -> NDArray[Any]:
    """Return a column with the numbers of each group of rows in another unit. Raises ScenarioError for text."""
    if values.dtype.kind == "U":
        text = next((value for value in values.tolist() if value and plain_number(value, ".") is None), values[0])
        raise ScenarioError(
            [
                f"data.convert: column {name!r} of {table.name} has text ({text!r}); fix it, or list it in "
                "data.missing_values."
            ]
        )
    for rows, (factor, addend) in units:
        values = np.where(rows, factor * values + addend, values)
    return values


def _as_numbers(values: NDArray[Any], decimals: Collection[str]) -> NDArray[Any]:
    """Return a column of text as numbers, if after corrections it holds nothing but numbers and gaps."""
    if values.dtype.kind != "U" or not (values != "").any():
        return values
    numbers = {}
    for value in np.unique(values).tolist():
        found = (plain_number(value, decimal) for decimal in (*decimals, "."))
        numbers[value] = next((number for number in found if number is not None), None) if value else nan
    if None in numbers.values():
        return values
    return np.array([numbers[value] for value in values.tolist()], dtype=np.float64)
