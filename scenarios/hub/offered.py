"""The scenario and the terms of a stored task."""

from __future__ import annotations

import tomllib

from fedsvm.federation.site.terms import Terms
from fedsvm.scenarios.hub import task_form
from fedsvm.scenarios.hub.database import Task
from fedsvm.scenarios.schema import spec
from fedsvm.scenarios.schema.spec import Scenario


def scenario_text(task: Task) -> Scenario:
    """Return the scenario of a task."""
    return spec.validate(tomllib.loads(task.scenario))


def offered_terms(task: Task) -> Terms:
    """Return the terms that participants of a task are offered."""
    return task_form.terms(scenario_text(task), task.kind) if task.asks is None else Terms.from_fields(task.asks)
