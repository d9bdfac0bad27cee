"""An algorithm over site programs in this process: what sites compute and the coordinator makes of it, without sockets.

A federation's rounds are exact sums whatever carries them, which other tests show over real processes. Here the same
programs and the same training run as often as a comparison of many data sets needs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import numpy as np

from federation.arrays import FloatArray
from federation.federation import Progress
from federation.site.program import SiteProgram

T = TypeVar("T")


class InProcessFederation:
    """The verbs that algorithms use, over programs by site; see `Federation`."""

    def __init__(self, programs: Mapping[str, SiteProgram]) -> None:
        self.programs = programs
        self.sites = tuple(programs)
        self.progress = Progress()

    def gather(self, step: str, *, shape: Sequence[int], **params: Any) -> dict[str, FloatArray]:
        """Every site's value."""
        values = {site: program.find_step(step)(**params) for site, program in self.programs.items()}
        return {site: np.asarray(value, dtype=np.float64).reshape(shape) for site, value in values.items()}

    def sum(self, step: str, *, shape: Sequence[int], bound: float, **params: Any) -> FloatArray:
        """The sum of the sites' values."""
        return np.asarray(np.sum(list(self.gather(step, shape=shape, **params).values()), axis=0))

    def run(self, step: str, *, remember: bool = False, **params: Any) -> None:
        """A step at every site."""
        for program in self.programs.values():
            program.find_step(step)(**params)

    def log_metrics(self, **figures: float) -> None:
        """Nobody looks."""

    def until_stable(self, stage: Callable[[], T]) -> T:
        """A stage, once."""
        return stage()

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Any phase."""
        yield
