"""Tables of raw data: built-in ones, files, what lies in the folder that FEDSVM_DATA names, and openml.org's.

scikit-learn and pyarrow take a second to import and are needed for some sources only, so they are imported where
they are used.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedsvm.federation.arrays import FloatArray
from fedsvm.federation.text import list_names
from fedsvm.scenarios.data import files, openml
from fedsvm.scenarios.data.built_in import BUILT_IN, WITH_OPTIONS
from fedsvm.scenarios.data.derived_labels import RELABELLED
from fedsvm.scenarios.data.files import MISSING_MARKS, SUFFIXES
from fedsvm.scenarios.data.tables import Dataset, Feature, Table
from fedsvm.scenarios.data.text_form import TextForm
from fedsvm.scenarios.schema.errors import QuotingProblem, ScenarioError, collect_problems, nearest

FOLDER_VARIABLE = "FEDSVM_DATA"
_MAX_LISTED = 40
_MAX_SPELLINGS = 4
_MAX_GAPPY = 8


@dataclass(frozen=True)
class Available:
    """One data set that can be named. The figures are None for files, which are not read to be listed."""

    name: str
    rows: int | None
    columns: int | None
    classes: int | None
    place: str


def load(
    source: str,
    *,
    label: str,
    identifier: str | None = None,
    ignore: Sequence[str] = (),
    missing: str = "refuse",
    unlabeled: str = "refuse",
    classes: Collection[str] = (),
    base_folder: Path,
    form: TextForm | None = None,
) -> Dataset:
    """Return the table of `source`: built in, a path (from `base_folder`, or here), a name under FEDSVM_DATA, or
    "openml:ID".

    label: its label column. identifier: the column that tells its rows apart, no two the same. ignore: columns to leave
    out. missing: "refuse" or "drop" rows with missing values, or "mean", which keeps them. unlabeled: "refuse" or
    "drop" rows without a label. classes: labels that are declared, which may differ in capitals or blanks alone. form:
    what is told of how text is written. Raises ScenarioError, saying what to change.
    """
    table = read(source, base_folder, [identifier] if identifier is not None else [], form)
    return choose(
        table,
        label=label,
        identifier=identifier,
        ignore=ignore,
        missing=missing,
        unlabeled=unlabeled,
        classes=classes,
    )


def choose(
    table: Table,
    *,
    label: str,
    identifier: str | None = None,
    weight: str | None = None,
    ignore: Sequence[str] = (),
    missing: str = "refuse",
    unlabeled: str = "refuse",
    classes: Collection[str] | None = (),
    min_classes: int = 2,
) -> Dataset:
    """Return the part of a table to train on, by the arguments of `load`. Raises ScenarioError, saying what to change.

    weight: the column of what a row's loss is multiplied by. classes: None accepts every spelling of a label.
    min_classes: fewer must not be in the table.
    """
    _require_columns(table, {"label": label, "identifier": identifier, "weight": weight}, ignore)
    ignored, beside = set(ignore), {label, identifier, weight}
    columns = {name: values for name, values in table.columns.items() if name not in ignored}
    labeled = keep = ~gaps(table.columns[label])
    required = {name: values for name, values in columns.items() if missing != "mean" or name in beside}
    problems: list[str] = []
    with collect_problems(problems):
        _require_labels(table, label, labeled, drop="drop" in (missing, unlabeled))
    with collect_problems(problems):
        keep = labeled & _complete_rows(table, required, labeled, missing)
    with collect_problems(problems):
        _refuse_infinite(table, columns)
    with collect_problems(problems):
        weights = np.zeros(0) if weight is None else _weights(table, weight)[keep]
    if problems:
        raise ScenarioError(problems)
    if not keep.any():
        raise ScenarioError([_no_complete_row(table, required)])
    features = tuple(Feature(name, values[keep]) for name, values in columns.items() if name not in beside)
    if not features:
        raise ScenarioError([f"data.source: {table.name} has no column besides the label {label!r}."])
    dataset = Dataset(
        table.name,
        features,
        as_text(columns[label][keep]),
        dropped=int((labeled & ~keep).sum()),
        unlabeled=int((~labeled).sum()),
        sites=table.sites[keep] if len(table.sites) else table.sites,
        tested=table.tested[keep] if len(table.tested) else table.tested,
        elsewhere=table.elsewhere[keep] if len(table.elsewhere) else table.elsewhere,
        weights=weights,
        origin=np.flatnonzero(keep),
        table=table,
    )
    if identifier is not None:
        dataset = replace(dataset, identifiers=_distinct(table.name, identifier, as_text(columns[identifier][keep])))
    if len(dataset.classes) < min_classes:
        found = ", ".join(dataset.classes) or "none"
        raise ScenarioError(
            [f"data.label: column {label!r} of {table.name} has one class only ({found}); two are needed."]
        )
    if classes is not None and (problem := spelling_problem(dataset, label, classes)):
        raise ScenarioError([problem])
    return dataset


def read_columns(source: str, base_folder: Path, text: Collection[str] = ()) -> dict[str, NDArray[Any]]:
    """Return every column of `source`, (n,) each: float64 with NaN, or text with "" for missing values.

    text: columns that are text whatever they look like; of comma-separated files as it is written, so that 007 is not
    7, and of Parquet whole numbers and decimals with all their digits. Raises ScenarioError for a
    source that is not there or cannot be read.
    """
    return read(source, base_folder, text).columns


def available() -> list[Available]:
    """Return every built-in data set, and every file in the folder of FEDSVM_DATA unless a built-in one has its
    name."""
    listed = []
    for name, build in BUILT_IN.items():
        columns = build()
        labels = columns["label"]
        listed.append(Available(name, len(labels), len(columns) - 1, len(set(labels.tolist())), "built in"))
    found = _find_files()
    named = [(name, path) for name, path in found.items() if name not in BUILT_IN]
    named += [(name, found[each.file]) for name, each in RELABELLED.items() if name not in found and each.file in found]
    return listed + [Available(name, None, None, None, path.name) for name, path in sorted(named)]


def data_folder() -> Path | None:
    """Return the folder that FEDSVM_DATA names, if it is set."""
    named = os.environ.get(FOLDER_VARIABLE)
    return Path(named) if named else None


# Finding a source.


def check_folder() -> None:
    """Raise ScenarioError where FEDSVM_DATA is set and names no folder."""
    folder = data_folder()
    if folder is not None and not folder.is_dir():
        raise ScenarioError([f"{FOLDER_VARIABLE}: {folder} is no folder; set it to the folder of your files."])


def file_name(source: str) -> str:
    """Return the name, without suffix, of the file in FEDSVM_DATA's folder for a source without a path."""
    name = source.replace("-", "_")
    return RELABELLED[name].file if name in RELABELLED else source


def is_there(source: str, base_folder: Path) -> bool:
    """Return whether a source can be found, without reading it. openml.org is not queried."""
    if source in BUILT_IN or source.startswith((*WITH_OPTIONS, openml.PREFIX)):
        return True
    return file_of(source, base_folder) is not None


def require_source(source: str, base_folder: Path) -> Path | None:
    """Return the file of a source, or None for one without a file. Raises ScenarioError if nothing can be found."""
    if file_of(source, base_folder) is None and is_there(source, base_folder):
        return None
    return _require_file(source, base_folder)


def file_of(source: str, base_folder: Path) -> Path | None:
    """Return the file of a source, if it has one."""
    if source in BUILT_IN:
        return None
    if source.endswith(SUFFIXES):
        return next((path for path in (base_folder / source, Path(source)) if path.is_file()), None)
    found, name = _find_files(), source.replace("-", "_")
    if name not in found and name in RELABELLED:
        return found.get(RELABELLED[name].file)
    return found.get(name)


def read(source: str, base_folder: Path, text: Collection[str] = (), form: TextForm | None = None) -> Table:
    """Return the table of `source` with every column; see `read_columns`."""
    table = _find(source, base_folder, text, form)
    named = {name: as_text(table.columns[name]) for name in text if name in table.columns}
    marked = {name: np.where(np.isin(values, MISSING_MARKS), "", values) for name, values in named.items()}
    return replace(table, columns=table.columns | marked)


def read_as_written(source: str, base_folder: Path, column: str, form: TextForm | None = None) -> Table:
    """Return the table with one column as it is written, without interpreting missing values."""
    table = _find(source, base_folder, [column], form)
    written = {column: as_text(table.columns[column])} if column in table.columns else {}
    return replace(table, columns=table.columns | written)


def _find(source: str, base_folder: Path, text: Collection[str], form: TextForm | None) -> Table:
    if source in BUILT_IN:
        return Table(source, BUILT_IN[source]())
    for prefix, make in WITH_OPTIONS.items():
        if source.startswith(prefix):
            return make(source)
    if source.startswith(openml.PREFIX):
        return Table(source, openml.read(source))
    table = _read_file(_require_file(source, base_folder), text, form)
    name = source.replace("-", "_")
    if not source.endswith(SUFFIXES) and name in RELABELLED and name not in _find_files():
        return replace(table, columns=RELABELLED[name].columns(table.columns))
    return table


def _require_file(source: str, base_folder: Path) -> Path:
    """Return the file of a source that has one. Raises ScenarioError."""
    if (path := file_of(source, base_folder)) is not None:
        return path
    if source.endswith(SUFFIXES):
        if any(map(os.path.lexists, (base_folder / source, Path(source)))):
            raise ScenarioError([f"data.source: {source!r} is no file, but a folder or a device; name a file."])
        folders = dict.fromkeys(str(folder.resolve()) for folder in (base_folder, Path()))
        raise ScenarioError([f"data.source: there is no file {source!r} in {' or '.join(folders)}."])
    found = _find_files()
    raise ScenarioError(
        [
            f"data.source: {source!r} is neither a file (*{', *'.join(SUFFIXES)}), "
            f"nor found {_describe_search(found)}, nor built in ({', '.join(BUILT_IN)}), "
            f"nor {openml.PREFIX}ID.{nearest(source, [*BUILT_IN, *found])}"
        ]
    )


def _read_file(path: Path, text: Collection[str], form: TextForm | None) -> Table:
    columns, read_as = files.read(path, text, form=form)
    return Table(path.name, columns, forms={} if read_as is None else {path.name: read_as})


def _describe_search(found: dict[str, Path]) -> str:
    """Return where names were searched, and which were found."""
    folder = data_folder()
    if folder is None:
        return f"(set {FOLDER_VARIABLE} to the folder of your files)"
    if not folder.is_dir():
        return f"in {FOLDER_VARIABLE} ({folder} is no folder)"
    return f"in {folder} ({', '.join(sorted(found)) or 'which holds no such files'})"


def _find_files() -> dict[str, Path]:
    """Return the files in the folder of FEDSVM_DATA by name, hyphens as underscores."""
    folder = data_folder()
    if folder is None or not folder.is_dir():
        return {}
    named: dict[str, Path] = {}
    for path, suffix in itertools.product(sorted(folder.iterdir()), SUFFIXES):
        if path.name.endswith(suffix):
            named.setdefault(path.name.removesuffix(suffix).replace("-", "_"), path)
    return named


# Checking what was read.


def _distinct(source: str, column: str, identifiers: NDArray[np.str_]) -> NDArray[np.str_]:
    """Return the identifiers if all are different."""
    names, counts = np.unique(identifiers, return_counts=True)
    if len(names) < len(identifiers):
        name = names[counts > 1][0]
        rows = np.flatnonzero(identifiers == name)[:2] + 1
        raise ScenarioError(
            [
                QuotingProblem(
                    f"data.identifier: column {column!r} of {source} has {str(name)!r} in rows {rows[0]} and {rows[1]} "
                    f"({len(identifiers) - len(names)} such in all); keep one row of each, or name another column.",
                    f"data.identifier: column {column!r} has a value in several rows",
                )
            ]
        )
    return identifiers


def spelled_alike(values: Iterable[str], declared: Collection[str] = ()) -> list[list[str]]:
    """Return groups of values that differ in capitals or blanks alone, except groups that are declared as a whole."""
    spellings: dict[str, list[str]] = {}
    for value in values:
        spellings.setdefault(value.strip().casefold(), []).append(value)
    return [alike for alike in spellings.values() if len(alike) > 1 and not set(alike) <= set(declared)]


def spelling_problem(data: Dataset, label: str, declared: Collection[str] = ()) -> str:
    """Return a sentence about labels that differ in capitals or blanks alone and are not declared; "" without any."""
    if not (several := spelled_alike(data.classes, declared)):
        return ""
    shown = "; ".join(
        " and ".join(f"{name!r} ({data.place(int(np.argmax(data.labels == name)))})" for name in names)
        for names in several[:_MAX_SPELLINGS]
    )
    more = f"; and {len(several) - _MAX_SPELLINGS} more" if len(several) > _MAX_SPELLINGS else ""
    return QuotingProblem(
        f"data.label: column {label!r} of {data.name} has labels that differ in capitals or blanks alone: "
        f"{shown}{more}; give each class one spelling in all files, or list every class in data.classes if these are "
        "different classes.",
        f"data.label: column {label!r} has labels that differ in capitals or blanks alone",
    )


def lacks(table: Table, name: str) -> str:
    """Return a sentence for a column that a table does not have."""
    columns = list_names(list(table.columns), _MAX_LISTED)
    return f"{table.name} has no column {name!r}.{nearest(name, table.columns)} It has: {columns}."


def lacking(key: str, table: Table, name: str) -> str:
    """Return a problem for a column that a key names and a table does not have.

    In a file without a line of names the first row would be listed as the columns, so others read the name alone.
    """
    return QuotingProblem(f"{key}: {lacks(table, name)}", f"{key}: the file of the site has no column {name!r}")


def _weights(table: Table, column: str) -> FloatArray:
    """Return (n,) numbers from 0, NaN if missing. Raises ScenarioError for others."""
    values = table.columns[column]
    if values.dtype.kind != "f" or (wrong := values < 0).any() or not (values > 0).any():
        found = f"{values[wrong][0]:g}" if values.dtype.kind == "f" and wrong.any() else "text, or zeros alone"
        said = f"data.weight: column {column!r} must hold numbers from 0, some above it"
        raise ScenarioError([QuotingProblem(f"{said}, got {found}.", said)])
    return np.asarray(values, dtype=np.float64)


def _require_columns(table: Table, named: Mapping[str, str | None], ignore: Sequence[str]) -> None:
    """Raise ScenarioError for names of columns that are not there, or that stand for two things.

    named: columns with a part of their own, by their keys, the label first.
    """
    problems = []
    wanted = [(f"data.{key}", name) for key, name in named.items() if name is not None]
    for key, name in [*wanted, *(("data.ignore", name) for name in ignore)]:
        if name not in table.columns:
            problems.append(lacking(key, table, name))
    (_, label), *others = wanted
    if label in ignore:
        problems.append(f"data.ignore: {label!r} is the label and cannot be ignored.")
    for key, name in others:
        if name in (label, *ignore):
            problems.append(f"{key}: {name!r} is the label, or ignored; name another column.")
    if problems:
        raise ScenarioError(problems)


def _require_labels(table: Table, label: str, labeled: NDArray[np.bool_], *, drop: bool) -> None:
    """Raise ScenarioError if no row has a label, or if some have none and are not dropped."""
    unlabeled = np.flatnonzero(~labeled)
    if len(unlabeled) == table.rows:
        said = f"data.label: column {label!r} of {table.name} has no value in any row; fill it in."
        raise ScenarioError([QuotingProblem(said, f"data.label: column {label!r} has no value in any row")])
    if len(unlabeled) and not drop:
        raise ScenarioError(
            [
                QuotingProblem(
                    f"data.unlabeled: column {label!r} has no value in {table.place(int(unlabeled[0]))} (rows without "
                    f'a label: {len(unlabeled)}); fill it in, or set unlabeled = "drop" to remove such rows.',
                    f"data.unlabeled: column {label!r} has rows without a value",
                )
            ]
        )


def _complete_rows(
    table: Table, columns: dict[str, NDArray[Any]], labeled: NDArray[np.bool_], missing: str
) -> NDArray[np.bool_]:
    """Return which rows have a value in each of these columns.

    Raises ScenarioError if labeled rows have gaps and are not to be dropped.
    """
    where_missing = {column: gaps(values) & labeled for column, values in columns.items()}
    incomplete = np.logical_or.reduce(list(where_missing.values()))
    if incomplete.any() and missing != "drop":
        row = int(incomplete.argmax())
        column = next(column for column, where in where_missing.items() if where[row])
        count = sum(int(where.sum()) for where in where_missing.values())
        raise ScenarioError(
            [
                QuotingProblem(
                    f"data.missing: {table.name} has no value in {table.place(row)}, column {column!r} ({count} "
                    'missing in all); fill them, or set missing = "drop" to leave such rows out.',
                    f"data.missing: column {column!r} has rows without a value",
                )
            ]
        )
    return np.asarray(~incomplete)


def _no_complete_row(table: Table, columns: dict[str, NDArray[Any]]) -> str:
    """Return a sentence for a table with gaps in every row: in which columns, most gaps first."""
    missing = sorted(((int(gaps(values).sum()), name) for name, values in columns.items()), reverse=True)
    said = [f"{name!r} lacks {count}" for count, name in missing if count]
    more = f" and {len(said) - _MAX_GAPPY} more columns" if len(said) > _MAX_GAPPY else ""
    return QuotingProblem(
        f"data.missing: none of the {table.rows} rows of {table.name} is complete: {', '.join(said[:_MAX_GAPPY])}{more}"
        '; leave such columns out by data.ignore, or fill gaps by missing = "mean".',
        "data.missing: no row has a value in every column",
    )


def gaps(values: NDArray[Any]) -> NDArray[np.bool_]:
    """Return (n,) where a column has no value."""
    return np.asarray(values == "" if values.dtype.kind == "U" else np.isnan(values))


def _refuse_infinite(table: Table, columns: dict[str, NDArray[Any]]) -> None:
    for column, values in columns.items():
        if values.dtype.kind == "f" and np.isinf(values).any():
            row = int(np.isinf(values).argmax())
            raise ScenarioError(
                [
                    QuotingProblem(
                        f"data.source: {table.name} has an infinite value in {table.place(row)}, column {column!r}; "
                        "replace it.",
                        f"data.source: column {column!r} has an infinite value",
                    )
                ]
            )


def as_text(values: NDArray[Any]) -> NDArray[np.str_]:
    """Return a column as text: 1 instead of 1.0; "" for a missing value."""
    if values.dtype.kind == "U":
        return values
    numbers = [float(value) for value in values]
    return np.array(["" if np.isnan(x) else str(int(x)) if x.is_integer() else str(x) for x in numbers], dtype=np.str_)
