"""The rows that estimators take: arrays of numbers, and data frames with columns of text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import validate_data

from fedsvm.federation.arrays import FloatArray


@dataclass(frozen=True)
class Frame:
    """Rows as numeric columns (n, q) and columns of text (n, r), with the names of both."""

    numeric: FloatArray
    text: NDArray[np.str_]
    numeric_names: list[str]
    text_names: list[str]

    def __len__(self) -> int:
        return len(self.numeric)


def read(estimator: BaseEstimator, X: Any, *, reset: bool = True) -> Frame:
    """Return the rows of an array or a data frame; columns of a data frame that hold text stay text.

    Parameters
    ----------
    estimator : BaseEstimator
        Its number and names of features are set, or compared if `reset` is false.
    X : array-like or data frame of shape (n, p)
    reset : bool, default True

    Raises
    ------
    ValueError
        If only some rows of a column hold text, or if a number is missing.
    """
    text = _text_columns(X)
    if not text:
        rows = validate_data(estimator, X, dtype=np.float64, reset=reset)
        return Frame(rows, np.zeros((len(rows), 0), dtype=np.str_), _names(estimator, rows.shape[1]), [])
    validate_data(estimator, X, skip_check_array=True, reset=reset)
    numeric = {str(name): np.asarray(X[name], dtype=np.float64) for name in X.columns if str(name) not in text}
    for name, column in numeric.items():
        if not np.isfinite(column).all():
            raise ValueError(f"X: column {name!r} has NaN or infinite values; fill them, or remove their rows.")
    numbers = np.column_stack([np.zeros((len(X), 0)), *numeric.values()])
    return Frame(numbers, np.column_stack(list(text.values())), list(numeric), list(text))


def _text_columns(X: Any) -> dict[str, NDArray[np.str_]]:
    """Return the columns of a data frame that hold text, by name; none of anything that is not a data frame."""
    if not hasattr(X, "columns") or not hasattr(X, "__getitem__") or len(X) == 0:
        return {}
    text = {}
    for name in X.columns:
        values = np.asarray(X[name])
        is_text = [isinstance(value, str) and value != "" for value in values.tolist()]
        if not any(is_text):
            continue
        if not all(is_text):
            raise ValueError(
                f"X: column {name!r} must hold text in every row, got none in row {is_text.index(False)}; fill it, or "
                "remove the row."
            )
        text[str(name)] = values.astype(np.str_)
    return text


def _names(estimator: BaseEstimator, columns: int) -> list[str]:
    return [str(name) for name in getattr(estimator, "feature_names_in_", [f"x{j}" for j in range(columns)])]
