"""Small tables for tests."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from fedsvm.federation.arrays import FloatArray
from fedsvm.scenarios.data import sources


def tic_tac_toe() -> tuple[FloatArray, FloatArray]:
    """The 958 final boards as 27 columns of 0 and 1, and labels of +1 and -1."""
    data = sources.load("tic-tac-toe", label="label", base_folder=Path())
    columns = [feature.values == mark for feature in data.features for mark in "box"]
    return np.column_stack(columns).astype(np.float64), np.where(data.labels == "positive", 1.0, -1.0)
