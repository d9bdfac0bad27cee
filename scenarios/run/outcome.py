"""What is known of a run while it goes on."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

from fedsvm.algorithms.calibration import Calibration
from fedsvm.algorithms.contract import Algorithm, Model, TrainingReport
from fedsvm.algorithms.privacy.accountant import PrivacyReport
from fedsvm.algorithms.site_scores import ClassScores, SiteScores
from fedsvm.federation.errors import FederationError
from fedsvm.federation.federation import Federation
from fedsvm.scenarios.run.audit import CollusionReport, PartyAudit
from fedsvm.scenarios.run.metrics import BaselineMetrics, FoldMetrics, PooledFold
from fedsvm.scenarios.run.selection import FoldSelection

_OF_RUN = frozenset({"classes", "algorithm"})
"""What model.npz says beside the arrays of the model."""

SITE_MODELS = "sites"
"""The folder of a run in which each site keeps its own part of a vertical model."""


@dataclass
class Fold:
    """One model, trained and tested. `fold` is None when there is only one.

    training: what is known of it. arrays: its file. pooled: what all data together would have given. baselines: other
    methods on the same rows. public: of models that spend privacy, what public rows alone give. at_sites: what the
    sites found by themselves. calibration: of a model that was calibrated. selection: how columns were chosen.
    """

    fold: int | None
    training: TrainingReport
    arrays: dict[str, Any]
    test: FoldMetrics | None
    pooled: PooledFold | None
    baselines: dict[str, BaselineMetrics] | None = None
    public: BaselineMetrics | None = None
    at_sites: SiteScores | ClassScores | None = None
    calibration: Calibration | None = None
    selection: FoldSelection | None = None


@dataclass(frozen=True)
class Alignment:
    """How sites found the records that all of them hold, and how many these are."""

    by: str
    records: int


@dataclass
class Outcome:
    """What is known of a run so far; it is written down on every path."""

    status: Literal["completed", "failed", "interrupted"] = "failed"
    error: str | None = None
    traceback: str = ""
    alignment: Alignment | None = None
    privacy: PrivacyReport | None = None
    warnings: list[str] = field(default_factory=list)
    collusion: CollusionReport | None = None
    audit: tuple[PartyAudit, ...] = ()
    folds: list[Fold] = field(default_factory=list)
    timing: dict[str, float] = field(default_factory=dict)

    def keep(self, fold: Fold, algorithm: Algorithm[Any, Any, Any]) -> None:
        """Take in a tested model. Raises FederationError for one that says what its algorithm does not announce."""
        if undeclared := fold.training.figures.keys() - algorithm.figures.keys():
            raise FederationError(
                f"A model of {algorithm.name} must not report {' or '.join(sorted(undeclared))}: `figures` of the "
                "algorithm does not name it."
            )
        if taken := _OF_RUN & fold.arrays.keys():
            raise FederationError(f"A model of {algorithm.name} must not call an array {' or '.join(sorted(taken))}.")
        self.folds.append(fold)

    @contextmanager
    def timed(self, name: str) -> Iterator[None]:
        """Add the seconds within to `name`."""
        began = time.monotonic()
        try:
            yield
        finally:
            self.timing[name] = self.timing.get(name, 0.0) + time.monotonic() - began


def trained(model: Model) -> TrainingReport:
    """What is known of a model's training. Raises FederationError for one that says nothing."""
    if model.training is None:
        raise FederationError(f"{type(model).__name__} must come from `fit` with a TrainingReport, got none.")
    return model.training


def log_fold(federation: Federation, fold: int | None, training: TrainingReport) -> None:
    """Have the log say how far training came in the end, which its last iteration may not, and of which fold it was."""
    last = {"iteration": training.iterations, "objective": training.objective, "gap": training.gap}
    known = {name: float(value) for name, value in last.items() if value is not None}
    if fold is not None:
        known["fold"] = fold
    if known:
        federation.log_metrics(**known)
