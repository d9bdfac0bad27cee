"""The state of a run that goes on: the models that were trained and evaluated, the time, and the errors."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fedsvm.algorithms.algorithm import Algorithm, TrainingReport
from fedsvm.algorithms.calibration import Calibration
from fedsvm.algorithms.privacy.accountant import PrivacyAccountant
from fedsvm.algorithms.site_scores import ClassScores, SiteScores
from fedsvm.federation.errors import FederationError
from fedsvm.scenarios.run.audit import CollusionReport, PartyAudit
from fedsvm.scenarios.run.metrics import BaselineMetrics, FoldMetrics, PooledFold
from fedsvm.scenarios.run.own_models import OwnModels
from fedsvm.scenarios.run.selection import FoldSelection

_OF_RUN = frozenset({"classes", "algorithm", "version", "scaling", "ranged", "ranges"})
"""The entries of model.npz besides the arrays of the model."""

SITE_MODELS = "sites"
"""The folder of a run in which each site keeps its own part of a vertical model."""
JOURNAL = "journal"
"""The folder of a run that has the parties' journals, each readable by its owner only."""
RECEIPTS, RECEIPT = "receipts", ".receipt"
"""The folder of a run that has the sites' receipts, and how their names end."""


def site_model(folder: Path, site: str) -> dict[str, NDArray[Any]]:
    """Return the part of a model that a site keeps in the folder of a run."""
    with np.load(folder / SITE_MODELS / f"{site}.npz") as part:
        return dict(part)


@dataclass(kw_only=True)
class ModelEvaluation:
    """The quality of one model, as far as it is known.

    test: on rows that it was not trained on. pooled: of a model of all data together. baselines: of other methods on
    the same rows. public: of a model of public rows alone, for models that spend privacy. at_sites: as the sites
    measure it on rows that they hold out. own: the sites' own models on the same rows. selection: how columns were
    chosen. warnings: sentences that a user should read.
    """

    test: FoldMetrics | None = None
    pooled: PooledFold | None = None
    baselines: dict[str, BaselineMetrics] | None = None
    public: BaselineMetrics | None = None
    at_sites: SiteScores | ClassScores | None = None
    own: OwnModels | None = None
    selection: FoldSelection | None = None
    warnings: Sequence[str] = ()


@dataclass(kw_only=True)
class Fold(ModelEvaluation):
    """One model, trained and evaluated. `fold` is None if there is only one.

    training: the report on its training. arrays: those of its file. calibration: of a calibrated model.
    """

    fold: int | None
    training: TrainingReport
    arrays: dict[str, Any]
    calibration: Calibration | None = None


@dataclass(frozen=True)
class Alignment:
    """The way in which sites found the records that all of them hold, and their number."""

    by: str
    records: int


@dataclass
class RunState:
    """The state of a run that goes on. It becomes a result however the run ends.

    accountant: of the releases of private models.
    """

    status: Literal["completed", "failed", "interrupted"] = "failed"
    error: str | None = None
    traceback: str = ""
    alignment: Alignment | None = None
    accountant: PrivacyAccountant | None = None
    warnings: list[str] = field(default_factory=list)
    collusion: CollusionReport | None = None
    audit: tuple[PartyAudit, ...] = ()
    folds: list[Fold] = field(default_factory=list)
    timing: dict[str, float] = field(default_factory=dict)

    def keep(self, fold: Fold, algorithm: Algorithm[Any, Any, Any]) -> None:
        """Keep a trained model. Raises FederationError if it reports figures that its algorithm does not declare."""
        if undeclared := fold.training.figures.keys() - algorithm.figures.keys():
            raise FederationError(
                f"A model of {algorithm.name} must not report {' or '.join(sorted(undeclared))}: `figures` of the "
                "algorithm does not name it."
            )
        if taken := _OF_RUN & fold.arrays.keys():
            raise FederationError(f"A model of {algorithm.name} must not call an array {' or '.join(sorted(taken))}.")
        self.folds.append(fold)

    @contextmanager
    def time_block(self, name: str, clock: Callable[[], float]) -> Iterator[None]:
        """Add the seconds of the block to `timing[name]`."""
        began = clock()
        try:
            yield
        finally:
            self.timing[name] = self.timing.get(name, 0.0) + clock() - began
