"""The data that a site reads from its own file, on the terms that the coordinator offers."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from fedsvm.algorithms.data.partition import NO_FOLD, site_partition
from fedsvm.federation.arrays import FloatArray, IntArray
from fedsvm.federation.errors import SEE_SITE, StepRefused
from fedsvm.federation.hosts.held_data import HeldColumn, SiteData
from fedsvm.federation.site.partition import Partition
from fedsvm.federation.site.terms import Terms
from fedsvm.scenarios.data import categories, file_join, sources, splits
from fedsvm.scenarios.data.dataset import rows_of
from fedsvm.scenarios.data.label_classes import declared_classes, labels_of, require_declared
from fedsvm.scenarios.data.row_roles import own_folds_of
from fedsvm.scenarios.data.tables import Dataset, Table
from fedsvm.scenarios.schema.corrections import Corrections
from fedsvm.scenarios.schema.data import ALL, DataSpec
from fedsvm.scenarios.schema.errors import ScenarioError, shared_problem


def hold(name: str, file: str, terms: Terms, corrections: Corrections | None = None) -> SiteData:
    """Return the rows of a file, or its columns if sites hold columns of the same records.

    It is read as a simulation reads one that `data.sources` names.

    Parameters
    ----------
    name : str
        The site's.
    file : str
        A .csv, .csv.gz, .svm or .parquet file, or the name of one in the folder of FEDSVM_DATA.
    terms : Terms
        The coordinator's.
    corrections : Corrections, optional
        The site's own, which come before those of the terms.

    Raises
    ------
    StepRefused
        The file cannot be read, or has not what the terms name; the message says what to change.
    """
    is_vertical = terms.reading.get("partition") == "vertical"
    own = {"source": file} if is_vertical else {"sources": {name: file}}
    with reading_explained():
        said = {key: value for key, value in terms.reading.items() if key != "compare_sites"}
        settings = DataSpec.model_validate({**said, **own})
        table = file_join.read_table(settings, Path(), corrections)
        return (_columns_held if is_vertical else _hold_columns)(settings, table, name, terms.seed)


@contextmanager
def reading_explained() -> Iterator[None]:
    """Turn errors of a file, or of terms about it, into StepRefused, which quotes nothing to others."""
    try:
        yield
    except ScenarioError as error:
        shared = "; ".join(dict.fromkeys(map(shared_problem, error.problems)))
        raise StepRefused(" ".join(error.problems), f"{shared}; {SEE_SITE}") from error
    except ValidationError as error:
        keys = sorted({".".join(map(str, each["loc"])) or "data" for each in error.errors()})
        raise StepRefused(f"the terms have impossible values of {', '.join(keys)}") from error


def _hold_columns(settings: DataSpec, table: Table, name: str, seed: int) -> SiteData:
    data = sources.choose(
        table,
        label=settings.label,
        weight=settings.weight,
        ignore=[column for column in settings.ignore if column in table.columns],
        missing=settings.missing,
        unlabeled=settings.unlabeled,
        classes=settings.classes,
        min_classes=1,
    )
    categories.require_few(data, settings.categories, agreed=True)
    require_declared(data, settings.classes)
    columns = tuple(HeldColumn(each.name, each.categorical) for each in data.features)
    labels = labels_of(data, declared_classes(settings))
    folds = own_folds_of(settings, labels, name, seed)
    classes = len(declared_classes(settings))
    return SiteData(data.rows, columns, lambda order: _partition(data, labels, folds, order, classes))


def _partition(data: Dataset, labels: FloatArray, folds: IntArray, order: Sequence[str], classes: int) -> Partition:
    """Return the rows with their columns in an order that all sites share."""
    features = sorted(data.features, key=lambda feature: order.index(feature.name))
    rows = rows_of(features, labels)
    return site_partition(
        rows.numeric,
        rows.labels,
        names=[each.name for each in features if not each.categorical],
        categorical=rows.categorical,
        categorical_names=[each.name for each in features if each.categorical],
        folds=folds,
        weights=data.weights if len(data.weights) else None,
        classes=classes,
        may_be_sparse=True,
    )


# Columns of the same records.


def _columns_held(settings: DataSpec, table: Table, name: str, seed: int) -> SiteData:
    labelled = settings.label_site in (name, ALL)
    if not labelled:
        nobodys = np.full(table.rows, settings.positive or settings.classes[0])
        table = replace(table, columns={**table.columns, settings.label: nobodys})
    data = sources.choose(
        table,
        label=settings.label,
        identifier=settings.identifier,
        ignore=[name for name in settings.ignore if name in table.columns],
        missing=settings.missing,
        unlabeled=settings.unlabeled,
        classes=settings.classes,
        min_classes=1,
    )
    if data.rows < table.rows and settings.align == "position":
        raise StepRefused(
            f"{table.rows - data.rows} of its {table.rows} rows are incomplete, and leaving them out would move the "
            "others, which are told apart by their position; fill the gaps",
            "some of its rows are incomplete, and rows are aligned by position; fill the gaps",
        )
    if labelled:
        require_declared(data, settings.classes)
    columns = tuple(HeldColumn(each.name, each.categorical) for each in data.features)
    return SiteData(data.rows, columns, lambda order: _columns_partition(settings, data, seed, labelled=labelled))


def _columns_partition(settings: DataSpec, data: Dataset, seed: int, *, labelled: bool) -> Partition:
    """Return the columns. All sites hold out the same records."""
    labels = labels_of(data, declared_classes(settings))
    rows = rows_of(data.features, labels)
    return site_partition(
        rows.numeric,
        labels if labelled else None,
        names=[each.name for each in data.features if not each.categorical],
        categorical=rows.categorical,
        categorical_names=[each.name for each in data.features if each.categorical],
        folds=_agreed_folds(settings, data, seed),
        identifiers=data.identifiers.tolist() if settings.align == "identifier" else None,
        classes=len(declared_classes(settings)),
    )


def _agreed_folds(settings: DataSpec, data: Dataset, seed: int) -> IntArray:
    """Return (n,), or (n, repeats), the fold in which each record is held out, the same at every site.

    It follows from identifiers, or from positions. Labels decide nothing, since most sites have none.
    """
    by_identifier, count = settings.align == "identifier", settings.folds
    if count is not None:
        dealt = [
            repeat * count
            + (
                (_lots(data.identifiers, f"{seed} {repeat}") % np.uint64(count)).astype(np.int64)
                if by_identifier
                else splits.blind_folds(data.rows, count, seed + repeat)
            )
            for repeat in range(settings.repeats)
        ]
        return dealt[0] if len(dealt) == 1 else np.column_stack(dealt)
    folds = np.full(data.rows, NO_FOLD)
    if by_identifier:
        folds[_lots(data.identifiers, f"{seed}") / 2.0**64 < settings.test_fraction] = 0
    elif settings.test_fraction:
        folds[splits.blind_test_split(data.rows, settings.test_fraction, seed)[1]] = 0
    return folds


def _lots(identifiers: NDArray[np.str_], salt: str) -> NDArray[np.uint64]:
    """Return (n,) a number for each identifier, the same at every site."""
    digests = [hashlib.sha256(f"{salt} {identifier}".encode()).digest() for identifier in identifiers.tolist()]
    return np.array([int.from_bytes(digest[:8], "big") for digest in digests], dtype=np.uint64)
