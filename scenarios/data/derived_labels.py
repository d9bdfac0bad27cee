"""Tables that are a file's with labels that papers tell apart and the file does not."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedsvm.scenarios.schema.errors import ScenarioError

_SAMPLES = 72
_T_CELL = [2, 3, 6, 9, 10, 11, 14, 23, 67]
"""Numbers of the samples of T-cell leukaemia: those that express CD3 (X04145_at) most."""
_BLOOD = [52, 62, 63, 64]
"""Numbers of the samples of acute myeloid leukemia from peripheral blood, the others of it from bone marrow."""


@dataclass(frozen=True)
class DerivedLabels:
    """A file in FEDSVM_DATA's folder, by its name, and what becomes of its labels (n,).

    labels raises ScenarioError for a file of other rows.
    """

    file: str
    labels: Callable[[NDArray[np.str_]], NDArray[np.str_]]

    def columns(self, read: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """Return the file's columns with other labels. Raises ScenarioError for a file with other columns or rows."""
        if "label" not in read:
            raise ScenarioError([f"data.source: {self.file} must have its classes in a column called label."])
        return {**read, "label": self.labels(read["label"].astype(np.str_))}


def _three_classes(labels: NDArray[np.str_]) -> NDArray[np.str_]:
    """Return labels of acute lymphoblastic leukemia of B and T cells and acute myeloid leukemia (Golub and others
    1999)."""
    places = np.array(_T_CELL) - 1
    if len(labels) != _SAMPLES or not (labels[places] == "ALL").all():
        raise ScenarioError(["data.source: leukemia must hold Golub's 72 samples in their order, with ALL and AML."])
    found = np.where(labels == "ALL", "ALL-B", labels).astype(np.str_)
    found[places] = "ALL-T"
    return found


def _four_classes(labels: NDArray[np.str_]) -> NDArray[np.str_]:
    """Return the three labels, with acute myeloid leukemia from peripheral blood apart from that of bone marrow."""
    found = _three_classes(labels)
    places = np.array(_BLOOD) - 1
    if not (labels[places] == "AML").all():
        raise ScenarioError(["data.source: leukemia must hold Golub's 72 samples in their order, with ALL and AML."])
    found = np.where(found == "AML", "AML-BM", found).astype(np.str_)
    found[places] = "AML-PB"
    return found


RELABELLED: Mapping[str, DerivedLabels] = {
    "leukemia_3c": DerivedLabels("leukemia", _three_classes),
    "leukemia_4c": DerivedLabels("leukemia", _four_classes),
}
"""By the names that sources have."""
