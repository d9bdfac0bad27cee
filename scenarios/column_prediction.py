"""Predictions of new records by a model that stays split among the sites that hold columns."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedsvm.algorithms import SITE_MODULE
from fedsvm.algorithms.algorithm import VerticalModel
from fedsvm.algorithms.column_prediction import NAME, PredictionSite, Request, ask, prediction_partition
from fedsvm.algorithms.data.classes import predict_class
from fedsvm.algorithms.features.kernel_expansion import KernelExpansion
from fedsvm.algorithms.features.partial_kernel import MIN_SITES_TO_OPEN
from fedsvm.algorithms.registry import ALGORITHMS
from fedsvm.federation.arrays import FloatArray
from fedsvm.federation.site.partition import Partition
from fedsvm.federation.site.program import open_steps
from fedsvm.federation.site.terms import Terms
from fedsvm.federation.text import quote_names
from fedsvm.federation.transport.keys import COORDINATOR
from fedsvm.scenarios.predict import Predictions
from fedsvm.scenarios.run.offered_terms import terms_of
from fedsvm.scenarios.run.outcome import SITE_MODELS
from fedsvm.scenarios.run.result import read_result
from fedsvm.scenarios.saved_model import read_arrays
from fedsvm.scenarios.schema import spec
from fedsvm.scenarios.schema.base import resolve
from fedsvm.scenarios.schema.data import ALL
from fedsvm.scenarios.schema.errors import ScenarioError
from fedsvm.scenarios.schema.spec import Scenario

_OF_TRAINING = ("folds", "repeats", "test_fraction", "tested_by", "calibration")
"""The keys for reading data that apply to test rows."""


@dataclass(frozen=True)
class SplitModel:
    """A model in parts: the coordinator has the coefficients, and every site its columns of the support records.

    Attributes
    ----------
    scenario : Scenario
        The scenario of its run.
    sites : tuple of str
        The sites that have parts of it, in ring order.
    expansion : KernelExpansion
    classes : (K,) array of str
        Names of the classes.
    version : str
        The version of fedsvm that trained it.
    """

    scenario: Scenario
    sites: tuple[str, ...]
    expansion: KernelExpansion
    classes: NDArray[np.str_]
    version: str

    def request(self, receiver: str | None, records: int) -> Request:
        """Return a request for decision values of new records.

        Parameters
        ----------
        receiver : str, optional
            The party that receives them: a site or "coordinator". By default the site of the labels, or the coordinator
            if there are only two sites.
        records : int
            The maximum number of records.

        Raises
        ------
        ScenarioError
            The receiver is not a party, or it is one of two sites, which would learn the other's part.
        """
        hides, parties = len(self.sites) >= MIN_SITES_TO_OPEN, [*self.sites, COORDINATOR]
        named = receiver or (self._label_site if hides else COORDINATOR)
        if named not in parties:
            raise ScenarioError([f"--receiver: must be one of {quote_names(parties)}, got {named!r}."])
        if named != COORDINATOR and not hides:
            raise ScenarioError(
                [f"--receiver: of {len(self.sites)} sites, each would learn the other's part; name {COORDINATOR!r}."]
            )
        return Request(self.expansion, named, records, self.scenario.data.align, tuple(self.classes.tolist()))

    @property
    def _label_site(self) -> str:
        """The site that holds the labels; the first one of several."""
        named = self.scenario.data.label_site
        return (None if named == ALL else resolve(named, self.scenario.federation.site_names)) or self.sites[0]

    def terms(self, request: Request) -> Terms:
        """Return the terms that every site is offered."""
        trained = terms_of(self.scenario)
        return replace(
            trained,
            program=NAME,
            settings=request.to_settings(),
            min_sites=len(self.sites),
            shown=(),
            gathers=open_steps(PredictionSite),
            releases=False,
            reading={
                **{key: value for key, value in trained.reading.items() if key not in _OF_TRAINING},
                "align": request.align,
            },
        )

    def predictions(self, decisions: FloatArray, called: tuple[str, list[str]]) -> Predictions:
        """Return decision values as predictions. called: see `Predictions`."""
        return predictions(decisions, self.classes, called, self.version)


def predictions(
    decisions: FloatArray, classes: NDArray[np.str_], called: tuple[str, list[str]], version: str = ""
) -> Predictions:
    """Return decision values of new records as predictions of these classes."""
    predicted = classes[predict_class(decisions, 0.0)]
    return Predictions(decisions, predicted, called, classes=tuple(classes.tolist()), version=version)


def read_split_model(folder: Path) -> SplitModel:
    """Return the coordinator's file of a run whose sites have parts of the model.

    Raises ScenarioError if there is none, or if sites cannot be asked for its decision values.
    """
    result, path = read_result(folder), folder / "scenario.toml"
    if result.model is None:
        raise ScenarioError([f"The run in {folder} has no model: {result.error}"])
    arrays = read_arrays(folder / "model.npz")
    algorithm = ALGORITHMS[str(arrays["algorithm"])] if str(arrays.get("algorithm")) in ALGORITHMS else None
    kind = None if algorithm is None else algorithm.Model
    expansion = kind.expansion_of(arrays) if kind is not None and issubclass(kind, VerticalModel) else None
    if expansion is None:
        raise ScenarioError(
            [
                f"The model in {folder} is not split among sites that hold columns, so there is nothing to ask them; "
                "use fedsvm predict."
            ]
        )
    try:
        scenario = spec.validate(tomllib.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError) as error:
        raise ScenarioError([f"{path} cannot be read: {error}; use the folder that the run wrote."]) from error
    version = str(arrays.get("version", result.environment.fedsvm))
    return SplitModel(scenario, result.model.sites, expansion, arrays["classes"], version)


def ask_sites(folder: Path, scaled: FloatArray) -> FloatArray:
    """Return decision values of scaled rows, which site processes on this machine compute by secure sums.

    Parameters
    ----------
    folder : Path
        The folder of a run, with the sites' parts of its model.
    scaled : (n, p) FloatArray
        Scaled rows. The columns are those of the first site, then those of the second, and so on.

    Raises
    ------
    ScenarioError
        The model is not split.
    FederationError
        A site failed.
    """
    from fedsvm.federation.startup import local_federation

    model = read_split_model(folder)
    parts = {site: read_arrays(folder / SITE_MODELS / f"{site}.npz") for site in model.sites}
    ends = np.cumsum([len(part["columns"]) for part in parts.values()])[:-1]
    partitions = {
        site: part_with(part, np.ascontiguousarray(rows))
        for (site, part), rows in zip(parts.items(), np.split(scaled, ends, axis=1), strict=True)
    }
    request = replace(model.request(COORDINATOR, len(scaled)), align="position")
    scenario = model.scenario
    with local_federation(
        SITE_MODULE,
        NAME,
        partitions,
        scenario.protocol.secure_sum,
        settings={"seed": scenario.seed},
        terms=model.terms(request),
        round_timeout_s=scenario.federation.round_timeout_s,
    ) as federation:
        decisions = ask(federation, request).decisions
    if decisions is None:
        raise AssertionError("the coordinator is the receiver")
    return decisions


def part_with(part: Mapping[str, NDArray[Any]], rows: FloatArray, identifiers: list[str] | None = None) -> Partition:
    """Return the data of a site: its part of a model, and scaled new records in its columns."""
    return prediction_partition(rows, part["reference"], part["dual_coef"], part["columns"].tolist(), identifiers)
