"""The state of a run: the models trained and evaluated so far, the time, and the errors."""

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
"""The entries of model.npz in addition to the arrays of the model."""

SITE_MODELS = "sites"
"""The folder of a run with each site's own part of a vertical model."""
JOURNAL = "journal"
"""The folder of a run with the parties' journals, each readable only by its owner."""
RECEIPTS, RECEIPT = "receipts", ".receipt"
"""The folder of a run with the sites' receipts, and the ending of their names."""


def site_model(folder: Path, site: str) -> dict[str, NDArray[Any]]:
    """Return the part of a model that a site keeps in the folder of a run."""
    with np.load(folder / SITE_MODELS / f"{site}.npz") as part:
        return dict(part)


@dataclass(kw_only=True)
class ModelEvaluation:
    """The evaluation of one model. A part that is not known is None.

    Attributes
    ----------
    test : FoldMetrics, optional
        Measures on test rows.
    pooled : PooledFold, optional
        Measures of a model of pooled rows.
    baselines : dict of str to BaselineMetrics, optional
        Measures of other methods on the same rows.
    public : BaselineMetrics, optional
        For a model that spends privacy: measures of a model of public rows only.
    at_sites : SiteScores or ClassScores, optional
        The sites' scores of rows that they hold out.
    own : OwnModels, optional
        The sites' own models on the same rows.
    selection : FoldSelection, optional
        The selection of columns.
    warnings : sequence of str
        Sentences for the user.
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
    """One trained and evaluated model. `fold` is None if there is only one.

    training: the report on its training. arrays: the content of its file. calibration: None if it is not calibrated.
    """

    fold: int | None
    training: TrainingReport
    arrays: dict[str, Any]
    calibration: Calibration | None = None


@dataclass(frozen=True)
class Alignment:
    """The method by which sites aligned the records that all of them hold, and the number of these records."""

    by: str
    records: int


@dataclass
class RunState:
    """The state of a run, from which the result is made however the run ends.

    accountant: counts the releases of private models.
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
