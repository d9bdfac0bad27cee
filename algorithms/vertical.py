"""Vertical partitions: every site holds other columns of the same rows, in the same order.

A site owns its columns, so it scales them by itself; nothing has to be agreed for that.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from federation.arrays import FloatArray
from federation.partition import Partition
from federation.program import SiteHalf, step


class VerticalSite(SiteHalf):
    """The columns of one site.

    The partition's arrays are `numeric` (n, p), `labels` (n,) of +1 and -1 where the site holds them and of length 0
    where not, and `folds` (n,): the fold in which a row is held out, -1 for none.
    """

    def __init__(self, site: str, partition: Partition, settings: Mapping[str, Any]) -> None:
        super().__init__(site, partition, settings)
        self.columns: FloatArray = partition.arrays["numeric"]
        self.training = np.ones(len(self.columns), dtype=bool)
        self.rows = self.columns

    @step
    def prepare_fold(self, fold: int, scale: str) -> None:
        """Hold the rows of a fold out, and scale all by the training rows: standard, minmax (to [-1, 1]) or none."""
        self.training = self.partition.arrays["folds"] != fold
        kept = self.columns[self.training]
        if scale == "standard":
            offset, spread = kept.mean(axis=0), kept.std(axis=0)
        elif scale == "minmax":
            low, high = kept.min(axis=0), kept.max(axis=0)
            offset, spread = (high + low) / 2, (high - low) / 2
        else:
            offset, spread = np.zeros(kept.shape[1]), np.ones(kept.shape[1])
        self.rows = (self.columns - offset) / np.where(spread > 0, spread, 1.0)

    @step
    def labels_of_training(self) -> FloatArray:
        """(n,) labels of the training rows, zeros where another site holds them."""
        labels = self.partition.arrays["labels"]
        return np.asarray(labels[self.training] if len(labels) else np.zeros(int(self.training.sum())))

    @step
    def longest(self) -> FloatArray:
        """The largest squared length of a row's part, from which bounds on later sums follow."""
        return np.array(float((self.rows**2).sum(axis=1).max(initial=0.0)))
