"""Columns and scale from public rows, so that nothing of the private ones is chosen by looking at them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from algorithms.data.encoding import known_one_hot
from algorithms.data.horizontal import HorizontalSite, Scale
from algorithms.data.vertical import scale_of
from federation.arrays import FloatArray
from federation.federation import Federation
from federation.site.program import step


class PubliclyScaledSite(HorizontalSite):
    """The rows of one site, in columns and on a scale that were chosen without it."""

    @step
    def encode_known(self, values: list[list[str]], offset: FloatArray, scale: FloatArray, fold: int) -> None:
        """Hold a fold out, turn categories that are public into 0/1 columns, ignore others, and scale all columns."""
        self.hold_out(fold)
        codes, categories = self.partition.arrays["codes"], self.partition.values["categories"]
        blocks = [known_one_hot(codes[:, j], categories[j], values[j]) for j in range(codes.shape[1])]
        self.encoded = np.hstack([self.partition.arrays["numeric"], *blocks])
        self.rescale(offset, scale)


def prepare(federation: Federation, values: Sequence[Sequence[str]], scale: Scale, fold: int) -> None:
    """Have the sites encode and scale their rows as the public ones are."""
    federation.run(
        "encode_known",
        remember=True,
        values=[list(each) for each in values],
        offset=scale.offset,
        scale=scale.scale,
        fold=fold,
    )


def scale_from_public(rows: FloatArray, method: str) -> Scale:
    """Offset and scale of each column of public rows (n, p): standard, minmax (to [-1, 1]) or none."""
    return Scale(*scale_of(rows, method))
