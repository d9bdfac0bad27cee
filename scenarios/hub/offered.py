"""The scenario and the terms of a stored task."""

from __future__ import annotations

import tomllib

from fedsvm.federation.site.terms import Terms
from fedsvm.scenarios.hub import task_form
from fedsvm.scenarios.hub.database import Task
from fedsvm.scenarios.schema import spec
from fedsvm.scenarios.schema.errors import ScenarioError
from fedsvm.scenarios.schema.spec import Scenario


def scenario_text(task: Task) -> Scenario:
    """Return the scenario of a task."""
    return spec.validate(tomllib.loads(task.scenario))


def readable_scenario(task: Task) -> Scenario | None:
    """Return the scenario of a task; None if this version refuses it."""
    try:
        return scenario_text(task)
    except ScenarioError:
        return None


def reason_of(error: ScenarioError) -> str:
    """Return the reason why a task cannot go on whose stored scenario this version refuses."""
    return f"This version of the hub refuses the scenario of the task; create a new one. {' '.join(error.problems)}"


def offered_terms(task: Task) -> Terms:
    """Return the terms that participants of a task are offered."""
    return task_form.terms(scenario_text(task), task.kind) if task.asks is None else Terms.from_fields(task.asks)
