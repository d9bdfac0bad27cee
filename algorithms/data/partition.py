"""The names of the arrays and values in a site's partition.

numeric (n, p) and codes (n, q): the columns; codes count the values that `categories` lists for each categorical one.
In place of numeric, rows whose numbers are mostly 0 have starts, places and values; see `SparseRows`.
weights (n,): of rows, only where they have some. apart (n,): 1 of rows that are never trained on, but calibrate what
was trained, only where there are such. labels: of two classes (1, n) of +1 and -1, of more (K, n), each class against
the others; (0, n) where other sites hold them. folds (n,) or (n, repeats): the fold in which a row is held out, -1 for
none. Values: `numeric` and `categorical`, the names of the columns; `categories`; `identifiers` of the rows, where
positions do not tell which are the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedsvm.algorithms.data.classes import one_against_rest
from fedsvm.algorithms.data.sparse_rows import Numbers, SparseRows, is_sparse
from fedsvm.federation.arrays import FloatArray, IntArray
from fedsvm.federation.errors import OrderRefused
from fedsvm.federation.site.partition import Partition

NO_FOLD = -1
"""The fold of a row that no fold holds out."""


def held_out(folds: IntArray, fold: int) -> NDArray[np.bool_]:
    """Return (n,) which rows a fold holds out, from the folds (n,) or, with repeated cross-validation, (n, repeats)."""
    return np.asarray((folds.reshape(len(folds), -1) == fold).any(axis=1))


def agreed_folds(reading: Mapping[str, Any]) -> int:
    """Return how many folds sites hold out in a run on these terms; 0 where they hold out none."""
    if reading.get("folds"):
        return int(reading["folds"]) * int(reading.get("repeats", 1))
    return int(bool(reading.get("test_fraction")) and reading.get("tested_by") == "sites")


def require_agreed(fold: int | None, folds: int) -> None:
    """Raise OrderRefused for a fold that is none of so many, and for holding out none where there are some."""
    if (fold is not None or folds) and not (type(fold) is int and 0 <= fold < folds):
        raise OrderRefused(f"fold must be one of the {folds} that were agreed on")


def rows_and_columns(partition: Partition) -> tuple[int, list[str]]:
    """Return the number of rows of a partition, and the names of its columns."""
    return len(numbers_of(partition)), [*partition.values["numeric"], *partition.values["categorical"]]


def numbers_of(partition: Partition) -> Numbers:
    """Return the numeric columns (n, p) of a partition."""
    arrays = partition.arrays
    if "numeric" in arrays:
        return arrays["numeric"]
    return SparseRows(arrays["starts"], arrays["places"], arrays["values"], len(partition.values["numeric"]))


def _arrays_of(numbers: Numbers) -> dict[str, NDArray[Any]]:
    """Return the arrays of `numbers_of`."""
    if isinstance(numbers, SparseRows):
        return {"starts": numbers.starts, "places": numbers.places, "values": numbers.values}
    return {"numeric": np.ascontiguousarray(numbers)}


def site_partition(
    numeric: FloatArray,
    labels: FloatArray | None,
    *,
    names: Sequence[str],
    categorical: NDArray[np.str_] | None = None,
    categorical_names: Sequence[str] = (),
    folds: IntArray | None = None,
    identifiers: Sequence[str] | None = None,
    weights: FloatArray | None = None,
    apart: NDArray[np.bool_] | None = None,
    classes: int = 2,
    may_be_sparse: bool = False,
) -> Partition:
    """Return the data of one site.

    Parameters
    ----------
    numeric : (n, p) numeric columns.
    labels : (n,) of +1 and -1, or numbers of more than two classes; None where other sites hold them.
    names, categorical_names : of the columns.
    categorical : (n, q) text.
    folds : (n,), or (n, repeats), the fold in which a row is held out, -1 for none; None for none at all.
    identifiers : of the rows, where sites align them by these.
    weights : (n,) from 0, by which a row's loss is multiplied; None where none is.
    apart : (n,) which rows are not trained on, but calibrated by; None where none is.
    classes : how many there are.
    may_be_sparse : whether numeric columns whose numbers are mostly 0 are held as `SparseRows`.
    """
    count = len(numeric)
    columns = [np.unique(column, return_inverse=True) for column in (categorical.T if categorical is not None else ())]
    codes = np.column_stack([codes for _, codes in columns]) if columns else np.zeros((count, 0))
    arrays = {
        **_arrays_of(SparseRows.of(numeric) if may_be_sparse and is_sparse(numeric) else numeric),
        "codes": codes.astype(np.int64),
        "labels": np.zeros((0, count)) if labels is None else one_against_rest(labels, classes),
        "folds": np.full(count, NO_FOLD) if folds is None else folds,
    }
    if apart is not None:
        arrays["apart"] = apart.astype(np.int64)
    if weights is not None:
        arrays["weights"] = np.ascontiguousarray(weights)
    values = {
        "numeric": list(names),
        "categorical": list(categorical_names),
        "categories": [categories.tolist() for categories, _ in columns],
    }
    return Partition(arrays, values if identifiers is None else values | {"identifiers": list(identifiers)})
