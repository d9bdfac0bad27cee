"""What a participant reads of its own file, on the terms of a task."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
from pydantic import ValidationError

from algorithms.data.partition import NO_FOLD, site_partition
from federation.errors import StepRefused
from federation.hosts.lobby import Column
from federation.hosts.visit import Held
from federation.site.partition import Partition
from federation.site.terms import Terms
from scenarios.data import joining, sources, splits
from scenarios.data.dataset import declared_classes, labels_of, require_declared, rows_of
from scenarios.data.sources import Dataset
from scenarios.hosts import holding as across_hosts
from scenarios.schema.data import DataSpec
from scenarios.schema.errors import ScenarioError


def hold(name: str, file: str, terms: Terms) -> Held:
    """The rows of a file, or its columns where participants hold columns of the same rows.

    Parameters
    ----------
    name : str
        The participant's, as a site.
    file : str
        See `scenarios.hosts.holding.hold`.
    terms : Terms
        The task's.

    Raises
    ------
    StepRefused
        The file cannot be read, or has not what the terms name; the message says what to change.
    """
    if terms.reading.get("partition") != "vertical":
        return across_hosts.hold(name, file, terms)
    try:
        settings = DataSpec.model_validate({**terms.reading, "source": file})
        return _columns_held(settings, name, terms.seed)
    except ScenarioError as error:
        raise StepRefused(" ".join(error.problems)) from error
    except ValidationError as error:
        keys = sorted({".".join(map(str, each["loc"])) or "data" for each in error.errors()})
        raise StepRefused(f"the terms say of the data what cannot be: see {', '.join(keys)}") from error


def _columns_held(settings: DataSpec, name: str, seed: int) -> Held:
    table, labelled = joining.read_table(settings, Path()), settings.label_site == name
    if not labelled:
        nobodys = np.full(table.rows, settings.positive)
        table = replace(table, columns={**table.columns, settings.label: nobodys})
    data = sources.choose(table, label=settings.label, ignore=settings.ignore, missing=settings.missing, min_classes=1)
    if data.rows < table.rows:
        raise StepRefused(
            f"{table.rows - data.rows} of its {table.rows} rows are incomplete, and leaving them out would move the "
            "others, which are told apart by their position; fill the gaps"
        )
    if labelled:
        require_declared(data, settings.classes)
    columns = tuple(Column(each.name, each.categorical) for each in data.features)
    return Held(data.rows, columns, lambda order: _partition(settings, data, seed, labelled=labelled))


def _partition(settings: DataSpec, data: Dataset, seed: int, *, labelled: bool) -> Partition:
    """The columns; rows are held out by their position alone, so that every participant holds out the same."""
    folds = np.full(data.rows, NO_FOLD)
    if settings.test_fraction:
        folds[splits.blind_test_split(data.rows, settings.test_fraction, seed)[1]] = 0
    labels = labels_of(data, declared_classes(settings))
    rows = rows_of(data.features, labels)
    return site_partition(
        rows.numeric,
        labels if labelled else None,
        names=[each.name for each in data.features if not each.categorical],
        categorical=rows.categorical,
        categorical_names=[each.name for each in data.features if each.categorical],
        folds=folds,
    )
