"""Tables as a first scenario takes them: with the corrections that they seem to need, and without unusable columns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from fedsvm.federation.text import quote_names
from fedsvm.scenarios.data import categories, corrections, file_join, proposals, sources
from fedsvm.scenarios.data.proposals import Parts, Spelling
from fedsvm.scenarios.data.sources import gaps
from fedsvm.scenarios.data.tables import Dataset, Feature, Table
from fedsvm.scenarios.schema.data import DataSpec


@dataclass(frozen=True)
class HarmonizedTables:
    """The rows of one table or of the files of sites, in one form.

    Parameters
    ----------
    table : Table
        All rows, corrected.
    renames : mapping
        By site, new names of its columns.
    codes : mapping
        By column, values that look like codes for a missing one, with the number of rows of each.
    spellings : mapping
        By column, values that seem to be others; those that are plain are replaced in `table`.
    single : mapping
        By column, categories that one site alone has after all corrections.
    sites : int
        The number of sites whose rows are known apart.
    units : mapping of str to str
        By column with numbers of another size at a site, the clause that says so.
    unmeasured : mapping of str to str
        By column that holds no measurements, such as an identifier, or that is not wanted, the reason.
    apart : mapping of str to str
        By column that sites cannot share, or that tells them apart, the reason.
    asks : tuple of str
        Sentences on what somebody has to decide.
    zeros : mapping
        By column, the number of zeros that may stand for missing values, and the least other number.
    """

    table: Table
    renames: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    codes: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    spellings: Mapping[str, list[Spelling]] = field(default_factory=dict)
    single: Mapping[str, list[str]] = field(default_factory=dict)
    sites: int = 1
    units: Mapping[str, str] = field(default_factory=dict)
    unmeasured: Mapping[str, str] = field(default_factory=dict)
    apart: Mapping[str, str] = field(default_factory=dict)
    asks: tuple[str, ...] = ()
    zeros: Mapping[str, tuple[int, float]] = field(default_factory=dict)


def harmonize(tables: Mapping[str, Table], label: str, by: str | None, ignored: Iterable[str]) -> HarmonizedTables:
    """Return tables in one form.

    Parameters
    ----------
    tables : mapping of str to Table
        The file of each site; a single table without a name.
    label : str
        The column of the classes, which some table has.
    by : str, optional
        The column of a single table that says which site a row is of.
    ignored : iterable of str
        Columns that are not wanted.
    """
    several = len(tables) > 1
    renames = _renames(tables, label) if several else {}
    source: dict[str, Any] = {"sources": dict.fromkeys(tables, "")} if several else {"source": ""}
    own = {"by_site": {site: {"rename": names} for site, names in renames.items()}}
    renamed = _correct(tables, {**source, **own})
    alike = [] if by is None else proposals.site_spellings(next(iter(renamed.values())).columns[by])
    if by is not None and alike:
        renamed = _correct(renamed, {**source, "recode": {by: {each.old: each.new for each in alike}}})
    without = [site for site, table in renamed.items() if label not in table.columns]
    asks = [
        f"data.sources: {site} has no column {label!r}; give the column's name there in data.by_site.{site}.rename."
        for site in without
    ]
    known = {site: table for site, table in renamed.items() if site not in without}
    places = set() if by is None else {by}
    unmeasured = {**dict.fromkeys(ignored, "not wanted")}
    unmeasured |= _identifying(known, {label, *unmeasured, *places})
    columns = _columns(known, by, {*unmeasured, *places})
    codes = {name: found for name, parts in columns.items() if (found := proposals.missing_codes(parts))}
    coded = _correct(known, {**source, "missing_values": {name: list(found) for name, found in codes.items()}})
    columns = _columns(coded, by, {*unmeasured, *places})
    listed = {name: proposals.spellings(parts, is_label=name == label) for name, parts in columns.items()}
    spellings = {name: each for name, each in listed.items() if each}
    plain = {name: {each.old: each.new for each in several if each.is_plain} for name, several in spellings.items()}
    spellings |= {by: alike} if by is not None and alike else {}
    one_form = _correct(coded, {**source, "recode": plain})
    table, apart, problems = _join_tables(one_form, label, set(unmeasured))
    columns = _columns(one_form, by, {label, *unmeasured, *apart, *places})
    for name, parts in columns.items():
        if clause := proposals.uniform(parts) or (proposals.revealing(parts) if len(parts) > 1 else ""):
            apart[name] = clause
    single = {name: alone for name, parts in columns.items() if (alone := proposals.single_site_values(parts))}
    sites = max(map(len, columns.values()), default=1)
    kept = {name: alone for name, alone in single.items() if name not in apart}
    units = {name: clause for name, parts in columns.items() if (clause := proposals.other_unit(parts))}
    zeros = {name: zero for name, parts in columns.items() if (zero := proposals.far_zeros(parts))}
    asks = [*asks, *problems]
    return HarmonizedTables(table, renames, codes, spellings, kept, sites, units, unmeasured, apart, tuple(asks), zeros)


def _correct(tables: Mapping[str, Table], settings: Mapping[str, Any]) -> dict[str, Table]:
    spec = DataSpec.model_validate(settings)
    return {site: corrections.correct(table, spec, site) for site, table in tables.items()}


def _renames(tables: Mapping[str, Table], label: str) -> dict[str, dict[str, str]]:
    """Return new names of columns that differ from those of most sites in capitals, blanks and marks alone."""
    names = Counter(name for table in tables.values() for name in table.columns)
    groups: dict[str, list[str]] = {}
    for name in names:
        groups.setdefault("".join(filter(str.isalnum, name.casefold())), []).append(name)
    found: dict[str, dict[str, str]] = {}
    for alike in groups.values():
        best = max(alike, key=lambda name: (name == label, names[name]))
        for site, table in tables.items():
            if len(here := [name for name in alike if name in table.columns]) == 1 and here[0] != best:
                found.setdefault(site, {})[here[0]] = best
    return found


def _columns(tables: Mapping[str, Table], by: str | None, without: set[str]) -> dict[str, Parts]:
    """Return the parts of each column, by site."""
    if by is not None:
        (table,) = tables.values()
        sites = sources.as_text(table.columns[by])
        rows = {site: np.flatnonzero(sites == site) for site in np.unique(sites).tolist()}
        return {
            name: {site: values[each] for site, each in rows.items()}
            for name, values in table.columns.items()
            if name not in without
        }
    named = dict.fromkeys(name for table in tables.values() for name in table.columns if name not in without)
    return {
        name: {site: table.columns[name] for site, table in tables.items() if name in table.columns} for name in named
    }


def _identifying(tables: Mapping[str, Table], without: set[str]) -> dict[str, str]:
    """Return columns that are identifiers or dates in some file, or empty in all, with the reason."""
    found: dict[str, str] = {}
    for table in tables.values():
        data = Dataset(table.name, (), sources.as_text(next(iter(table.columns.values()))), table=table)
        for name, values in table.columns.items():
            if name not in without and name not in found and (reason := _reason(data, Feature(name, values))):
                found[name] = reason
    for name, parts in _columns(tables, None, without).items():
        if all(gaps(values).all() for values in parts.values()):
            found[name] = "has no values"
    return found


def _reason(data: Dataset, feature: Feature) -> str:
    if gaps(feature.values).all():
        return ""
    if feature.categorical and categories.is_date([value for value in set(feature.values.tolist()) if value]):
        return "dates"
    return "looks like an identifier" if categories.looks_identifying(data, feature) else ""


def _join_tables(
    tables: Mapping[str, Table], label: str, ignored: set[str]
) -> tuple[Table, dict[str, str], tuple[str, ...]]:
    """Return the rows of all tables, the columns that not all can be used of, with the reason, and what to decide."""
    if len(tables) == 1 and "" in tables:
        return tables[""], {}, ()
    kinds = {site: table.columns[label].dtype.kind for site, table in tables.items()}
    as_text = {
        site: replace(table, columns={**table.columns, label: sources.as_text(table.columns[label])})
        if len(set(kinds.values())) > 1
        else table
        for site, table in tables.items()
    }
    lacking: dict[str, Any] = {}
    for name in dict.fromkeys(name for table in tables.values() for name in table.columns if name not in ignored):
        if sites := [site for site, table in tables.items() if name not in table.columns]:
            lacking[name] = f"{quote_names(sites)} {'has' if len(sites) == 1 else 'have'} none"
    joined = file_join.of_sites(as_text, {*ignored, *lacking})
    mixed = dict.fromkeys(joined.unusable, "holds numbers at some sites and text at others")
    problems = joined.problems
    if len(set(kinds.values())) > 1:
        problems = (*problems, *file_join.kind_problems("data.label", label, tables))
    return joined.table, {**lacking, **mixed}, problems


def notes(found: HarmonizedTables) -> Iterator[str]:
    """Yield sentences about codes for missing values, spellings, values of one site alone, and other units."""
    for name in dict.fromkeys([*found.codes, *found.spellings, *found.single]):
        yield from proposals.notes_of(name, found.codes.get(name, {}), found.spellings.get(name, []))
        if alone := found.single.get(name):
            yield (
                f"Column {name!r}: only one of {found.sites} sites uses {quote_names(alone)}; if they are other "
                f"spellings, add them to data.recode.{name}."
            )
    yield from (f"Column {name!r}: {clause}; {proposals.UNIT_ADVICE}." for name, clause in found.units.items())
    for name, (count, least) in found.zeros.items():
        yield (
            f"Column {name!r} has 0 in {count} rows, and no other value below {least:g}; if 0 stands for a missing "
            "value, see data.missing_values."
        )
