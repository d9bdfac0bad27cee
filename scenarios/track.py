"""Export of runs to an experiment tracker: the scenario as parameters, figures by round as metrics, and files."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from fedsvm.scenarios.report.comparison import MEASURES, figure
from fedsvm.scenarios.run.log import read_log
from fedsvm.scenarios.run.result import RunResult
from fedsvm.scenarios.schema.errors import ScenarioError

TRACKERS = ("mlflow",)
_STORE = "mlruns"
_MAX_VALUE = 500
"""Maximum number of characters of a parameter in MLflow."""

_ARTEFACTS = ("result.json", "scenario.toml", "report.html", "log.jsonl", "ledger.parquet", "model.npz")
_STATUS = {"completed": "FINISHED", "failed": "FAILED", "interrupted": "KILLED"}


def check(tracker: str) -> None:
    """Raise ScenarioError for a tracker that is unknown or not installed."""
    if tracker not in TRACKERS:
        raise ScenarioError([f"--track: must be {' or '.join(TRACKERS)}, got {tracker!r}."])
    try:
        _client()
    except ImportError as error:
        raise ScenarioError([f"--track {tracker}: needs a package ({error}); pip install 'fedsvm[mlflow]'."]) from None


def _client() -> Any:
    """Return the client of the store in MLFLOW_TRACKING_URI, or of files in ./mlruns."""
    os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")  # from version 3.7 on it otherwise requires a database
    from mlflow.tracking import MlflowClient

    return MlflowClient(tracking_uri=os.environ.get("MLFLOW_TRACKING_URI") or Path(_STORE).absolute().as_uri())


def track(folder: Path, result: RunResult) -> str:
    """Write a finished run to MLflow, in an experiment named after its scenario, and return its key there.

    Raises OSError, and exceptions of MLflow.
    """
    client = _client()
    name = str(result.scenario["name"])
    experiment = client.get_experiment_by_name(name)
    identity = experiment.experiment_id if experiment is not None else client.create_experiment(name)
    run = client.create_run(identity, run_name=folder.name, tags={"fedsvm.version": result.environment.fedsvm})
    key = str(run.info.run_id)
    for parameter, value in _parameters(result.scenario):
        client.log_param(key, parameter, value[:_MAX_VALUE])
    for event in read_log(folder):
        if event["event"] == "figures":
            for metric in event.keys() - {"event", "at_s", "round", "fold"}:
                client.log_metric(key, metric, event[metric], step=event["round"])
    for metric, measure in MEASURES.items():
        if (value := figure(result, measure)) is not None:
            client.log_metric(key, f"final.{metric}", float(value))
    for file in _ARTEFACTS:
        if (folder / file).is_file():
            client.log_artifact(key, str(folder / file))
    client.set_terminated(key, status=_STATUS[result.status])
    return key


def _parameters(table: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, str]]:
    """Yield the keys of a scenario by path, with their values as text."""
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from _parameters(value, f"{before}{key}.")
        elif value is not None:
            yield f"{before}{key}", value if isinstance(value, str) else json.dumps(value)
