"""The installation whose sums are measured: sites that hold nothing, and give as many numbers as are asked for."""

from __future__ import annotations

import sys

import numpy as np

from federation.arrays import FloatArray
from federation.processes.forkserver import main
from federation.site.program import Installation, SiteProgram, step
from protocols.sums.registry import SUMS


class Numbers(SiteProgram):
    """A step that computes nothing, so that a round is what the round costs."""

    @step
    def numbers(self, length: int) -> FloatArray:
        """(length,) of ones."""
        return np.ones(length)


if __name__ == "__main__":
    main(Installation({"numbers": Numbers}, SUMS), int(sys.argv[1]))
