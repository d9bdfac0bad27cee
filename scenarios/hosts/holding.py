"""What a site reads of its own file, on the terms that the coordinator offers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pydantic import ValidationError

from algorithms.data.partition import site_partition
from federation.arrays import FloatArray, IntArray
from federation.errors import StepRefused
from federation.hosts.lobby import Column
from federation.hosts.visit import Held
from federation.site.partition import Partition
from federation.site.terms import Terms
from scenarios.data import categories, joining, sources
from scenarios.data.dataset import declared_classes, labels_of, own_folds_of, require_declared, rows_of
from scenarios.data.sources import Dataset
from scenarios.schema.data import DataSpec
from scenarios.schema.errors import ScenarioError


def hold(name: str, file: str, terms: Terms) -> Held:
    """The rows of a file, read as a simulation reads one that `data.sources` names.

    Parameters
    ----------
    name : str
        The site's.
    file : str
        A .csv, .csv.gz, .svm or .parquet file, or the name of one in the folder of FEDSVM_DATA.
    terms : Terms
        The coordinator's.

    Raises
    ------
    StepRefused
        The file cannot be read, or has not what the terms name; the message says what to change.
    """
    try:
        settings = DataSpec.model_validate({**terms.reading, "sources": {name: file}})
        return _held(settings, name, terms.seed)
    except ScenarioError as error:
        raise StepRefused(" ".join(error.problems)) from error
    except ValidationError as error:
        keys = sorted({".".join(map(str, each["loc"])) or "data" for each in error.errors()})
        raise StepRefused(f"the terms say of the data what cannot be: see {', '.join(keys)}") from error


def _held(settings: DataSpec, name: str, seed: int) -> Held:
    data = sources.choose(
        joining.read_table(settings, Path()),
        label=settings.label,
        weight=settings.weight,
        ignore=settings.ignore,
        missing=settings.missing,
        min_classes=1,
    )
    categories.require_few(data, settings.categories, agreed=True)
    require_declared(data, settings.classes)
    columns = tuple(Column(each.name, each.categorical) for each in data.features)
    labels = labels_of(data, declared_classes(settings))
    folds = own_folds_of(settings, labels, name, seed)
    return Held(data.rows, columns, lambda order: _partition(data, labels, folds, order))


def _partition(data: Dataset, labels: FloatArray, folds: IntArray, order: Sequence[str]) -> Partition:
    """The rows with their columns in an order that all sites have."""
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
    )
