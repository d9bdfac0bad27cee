"""A task that predicts new records by the model of a completed task, whose participants hold columns."""

from __future__ import annotations

from pathlib import Path

from fedsvm.algorithms.column_prediction import RECORDS, ask
from fedsvm.algorithms.features.partial_kernel import MIN_SITES_TO_OPEN
from fedsvm.federation.federation import Federation
from fedsvm.federation.site.terms import Terms
from fedsvm.scenarios.column_prediction import read_split_model
from fedsvm.scenarios.hub.description_task import CarryOut
from fedsvm.scenarios.schema.errors import ScenarioError


def prediction_terms(folder: Path) -> Terms:
    """Return the terms of a request for predictions by the model in a task's folder: the label site receives them.

    Raises ScenarioError if the model is not split, or is of so few sites that the hub would have to open the sums.
    """
    model = read_split_model(folder)
    if len(model.sites) < MIN_SITES_TO_OPEN:
        raise ScenarioError(
            [
                f"A task predicts for {MIN_SITES_TO_OPEN} participants or more, and the model has {len(model.sites)}; "
                f"use fedsvm coordinate --predict {folder}."
            ]
        )
    return model.terms(model.request(None, RECORDS))


def predict(folder: Path, asked: Terms, carry_out: CarryOut) -> None:
    """Ask the participants for decision values, which one of them receives.

    Parameters
    ----------
    folder : Path
        That of the task which trained the model.
    asked : Terms
        The terms that participants agreed to.
    carry_out : callable
        See `CarryOut`.
    """
    model = read_split_model(folder)
    request = model.request(str(asked.settings["receiver"]), int(asked.settings["records"]))

    def work(federation: Federation) -> None:
        federation.assemble()
        ask(federation, request)

    carry_out(work)
