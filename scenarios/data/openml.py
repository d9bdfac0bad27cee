"""Tables of openml.org, by number, through scikit-learn, which keeps what it downloaded."""

from __future__ import annotations

import socket
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedsvm.scenarios.schema.errors import ScenarioError

PREFIX = "openml:"
LABEL = "label"
"""The local name of the column that OpenML calls the target."""

_SILENCE_S = 30.0
_SPARSE = "sparse_arff"


def read(source: str) -> dict[str, NDArray[Any]]:
    """Return the columns of "openml:ID", (n,) each: float64 with NaN, or text with "" for missing values.

    What was downloaded once is read from scikit-learn's cache (SCIKIT_LEARN_DATA, or scikit_learn_data at home),
    without a network. Raises ScenarioError, saying what to do.
    """
    bunch = _fetch(_number(source), source)
    if bunch.details.get("format", "").lower() == _SPARSE:
        raise ScenarioError([f"data.source: {source} is sparse; export it as an .svm file, and name that."])
    if bunch.target is None or np.ndim(bunch.target) != 1:
        raise ScenarioError([f"data.source: {source} has not one target column; export it, and name the file."])
    categories: Mapping[str, list[str | None]] = bunch.categories or {}
    columns = {
        str(name): _decode_categories(values, categories[name]) if name in categories else values.astype(np.float64)
        for name, values in zip(bunch.feature_names, np.asarray(bunch.data).T, strict=True)
    }
    if LABEL in columns:
        raise ScenarioError(
            [f"data.source: {source} has a column {LABEL!r} besides its target; export it and rename one."]
        )
    return columns | {LABEL: _label(np.asarray(bunch.target))}


def _number(source: str) -> int:
    text = source.removeprefix(PREFIX)
    if not text.isdecimal() or not text.isascii() or int(text) == 0:
        raise ScenarioError(
            [f"data.source: must be openml: and the data set's number, such as openml:61, got {source!r}."]
        )
    return int(text)


def _fetch(number: int, source: str) -> Any:
    from http.client import HTTPException
    from urllib.error import HTTPError, URLError

    from sklearn.datasets import fetch_openml  # slow to import, as these are

    try:
        with _deadline(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of retries, and of versions that are not active any more
            return fetch_openml(data_id=number, as_frame=False, parser="liac-arff", n_retries=1)
    except HTTPError as error:
        answer = f"openml.org answers {error.code} {error.reason}"
        raise ScenarioError([f"data.source: {source} cannot be had: {answer}; try again later."]) from error
    except IndexError as error:  # of scikit-learn, which looks a missing value up among the target's
        raise ScenarioError(
            [f"data.source: {source} has rows without a target; export it, and name the file."]
        ) from error
    except (OSError, HTTPException) as error:
        reason = error.reason if isinstance(error, URLError) else error
        raise ScenarioError(
            [
                f"data.source: {source} is not in scikit-learn's cache (SCIKIT_LEARN_DATA, or scikit_learn_data at "
                f"home), and cannot be had from openml.org ({reason}). Run once with a network, or copy that folder "
                "from a machine that had one."
            ]
        ) from error
    except ValueError as error:  # scikit-learn's own errors among them: no such number, a checksum that is wrong
        if "as_frame" in str(error):
            reason = "has columns of free text; export it, remove these, and name the file"
            raise ScenarioError([f"data.source: {source} {reason}."]) from error
        raise ScenarioError([f"data.source: {source} cannot be had: {str(error).rstrip('.')}."]) from error


@contextmanager
def _deadline() -> Iterator[None]:
    """Set a timeout for sockets opened in the context; scikit-learn sets none."""
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(_SILENCE_S)
    try:
        yield
    finally:
        socket.setdefaulttimeout(before)


def _decode_categories(codes: NDArray[Any], categories: list[str | None]) -> NDArray[np.str_]:
    """Return the text that numbers stand for; "" for missing values."""
    return np.array(["" if np.isnan(code) else str(categories[int(code)]) for code in codes.astype(np.float64)])


def _label(target: NDArray[Any]) -> NDArray[Any]:
    """Return numbers as they are, anything else as text."""
    if target.dtype.kind in "fiu":
        return target.astype(np.float64)
    return np.array(["" if value is None else str(value) for value in target], dtype=np.str_)
