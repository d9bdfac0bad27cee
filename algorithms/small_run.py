"""The steps of a run of pan-svm at one site of four rows, without sockets.

The process that sites are forked from runs them first. Sites then share what Python writes when code runs for the
first time, which would otherwise be pages of each site's own.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np

from fedsvm.algorithms.data.partition import site_partition
from fedsvm.algorithms.features.kernels import Kernel
from fedsvm.algorithms.features.nystrom import NystromMap
from fedsvm.algorithms.optimization.interior_point import NewtonRequest, Scales
from fedsvm.algorithms.optimization.path_rounds import RoundOrder
from fedsvm.algorithms.pan_svm import PanSettings, PanSite
from fedsvm.federation.arrays import FloatArray
from fedsvm.federation.channel.memory import InMemoryNetwork, MemoryChannel
from fedsvm.federation.site.rules import ANYTHING
from fedsvm.federation.site.terms import Terms

_SITE = "warm-up"
_VALUES = ["a", "b"]
_ROWS = site_partition(
    np.eye(4, 2), np.ones(4), names=["x0", "x1"], categorical=np.array([["a"], ["b"]] * 2), categorical_names=["x2"]
)
_SETTINGS = asdict(PanSettings(landmarks=2, max_landmarks=2, masking="congruence"))
_TERMS = Terms("pan-svm", _SETTINGS, "ring", {}, 1, reading={"scale": "standard", "statistics_privacy": 0.5})


def run_steps() -> FloatArray:
    """Run each step of an interior point in landmarks once, and return the last sums."""
    site = PanSite.under_terms(_SITE, _ROWS, {"seed": 0}, _TERMS, ANYTHING, lambda: None)
    channel = MemoryChannel(InMemoryNetwork((_SITE,)), _SITE)

    def take(step: str, **arguments: Any) -> Any:
        return site.run_step(step, channel, arguments)

    take("category_tables", columns=[0], slots=3, salt="")
    take("encode", values=[_VALUES])
    take("noisy_statistics", ends=np.array([[-1.0, -1.0], [1.0, 1.0]]))
    take("row_count")
    take("rescale", offset=np.zeros(4), scale=np.ones(4))
    moments = {"mean": np.zeros(2), "covariance": np.eye(2), "noise": np.zeros((2, 2)), "gaps": np.zeros(0)}
    take("describe_rows", rows=4.0, frequencies=[[0.5, 0.5]], low=-np.ones(2), high=np.ones(2), **moments)
    take("explained_shares")
    take("receive_map", **NystromMap(Kernel("rbf", 0.25), site.drawn.points(2), np.eye(2)).to_fields())
    take("squared_norms")
    take("begin_path", prior=np.zeros(2), price=1.0, lever=1.0, masking="congruence")
    take("share_path", holders=[_SITE])
    for iteration in (1, 2):
        request = NewtonRequest(0, np.zeros(3), 1.0, keep=True, still=iteration == 1, scales=Scales(*[128.0] * 5))
        sums: FloatArray = take("newton", **vars(RoundOrder.of(iteration, [request], 4)))
        site.work_ahead()
    take("released", keep=np.ones(1), constants=np.zeros(1, dtype=int), holder=_SITE)
    return sums
