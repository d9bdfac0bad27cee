"""Names for the array types that cross module boundaries."""

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]
Residues = NDArray[np.uint64]
"""Integers modulo 2^64 (shape (1, d)) or 2^128 (shape (2, d), least significant limb first)."""
