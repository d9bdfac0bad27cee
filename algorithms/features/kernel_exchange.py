"""Kernel matrices of columns that different sites hold, from the sites' parts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from fedsvm.algorithms.features.kernels import Kernel
from fedsvm.algorithms.features.partial_kernel import element_blocks, packed_size, row_blocks, unpack
from fedsvm.federation.arrays import FloatArray
from fedsvm.federation.federation import Federation

EXCHANGED = "kernel_rows"
"""The step in which kernel matrices go over the network."""


PLAIN_DISCLOSES = (
    "every site's own kernel matrix; inner products give that site's columns away up to a rotation, and exactly to "
    "whoever knows as many of its records as it has independent columns"
)


SUMMED_DISCLOSES = (
    "the kernel matrix of all columns together, which gives them away to whoever knows as many complete records as "
    "there are independent columns"
)


@dataclass(frozen=True)
class KernelExchange:
    """Kernel values of all columns together, from the sites' parts.

    how: by the secure sum, or plain. max_squared_norm: bounds the squared length of a record.
    """

    federation: Federation
    kernel: Kernel
    how: Literal["summed", "plain"]
    max_squared_norm: float

    def __call__(self, name: str, shape: Sequence[int], **terms: Any) -> FloatArray:
        """Return the kernel values that `name` computes parts of, of `shape`."""
        kernel, federation = self.kernel, self.federation
        terms["distances"] = kernel.of_distances
        if self.how == "plain":
            parts = federation.gather(name, shape=shape, **terms)
            federation.disclose("coordinator", name, PLAIN_DISCLOSES, shape)
            return kernel.of_sums(np.sum([parts[site] for site in federation.sites], axis=0))
        shown = PLAIN_DISCLOSES if federation.shows_inputs else SUMMED_DISCLOSES
        federation.disclose("coordinator", name, shown, shape)
        return kernel.of_sums(federation.sum(name, shape=shape, bound=4.0 * self.max_squared_norm, **terms))


def exchange_kernel(exchange: KernelExchange, rows: int) -> FloatArray:
    """Return the (n, n) kernel of the training records."""
    matrix = np.empty((rows, rows))
    for first, last in row_blocks(rows):
        packed = exchange(EXCHANGED, (packed_size(rows, first, last),), first=first, last=last)
        unpack(packed, first, last, matrix)
    return matrix


def against_reference(exchange: KernelExchange, rows: int, columns: int) -> FloatArray:
    """Return (rows, columns) the kernel between the training records and the reference records."""
    blocks = [
        exchange("reference_kernel", (last - first, columns), first=first, last=last, held_out=False)
        for first, last in element_blocks(rows, columns)
    ]
    return np.concatenate(blocks) if blocks else np.zeros((0, columns))
