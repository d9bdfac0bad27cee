"""Class moments over the sites: the one sum that every method of choosing columns begins with."""

from __future__ import annotations

import math

import numpy as np

from fedsvm.algorithms.selection.filters import ClassMoments
from fedsvm.algorithms.settings import MAX_COUNT
from fedsvm.federation.errors import FederationError
from fedsvm.federation.federation import Federation
from fedsvm.federation.transport.keys import COORDINATOR

MIN_OF_CLASS = 3
"""Rows of a class over all sites that its sums may be told of."""

MOMENTS = "class means and variances of every column: rows of each class, sums and sums of squares"


def class_moments(federation: Federation, columns: int, classes: int = 2) -> ClassMoments:
    """Return the moments of all rows, after checking that no class is so small that its sums would reveal rows.

    Raises FederationError for one that is, and MembershipChanged where sites leave or join.
    """
    sizes = np.rint(federation.sum("class_sizes", shape=(classes,), bound=float(MAX_COUNT)))
    if sizes.min() < MIN_OF_CLASS:
        raise FederationError(
            f"A class must have {MIN_OF_CLASS} rows or more over all sites to choose columns by, got "
            f"{int(sizes.min())}: its sums would reveal them. Add rows of this class."
        )
    packed = federation.sum("class_moments", shape=(classes, 2 * columns + 1), bound=math.inf)
    federation.disclose(COORDINATOR, "class_moments", MOMENTS, packed.shape)
    return ClassMoments.unpack(packed)
