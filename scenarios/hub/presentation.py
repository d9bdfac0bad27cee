"""The words in which pages describe a task: what it discloses, its progress, its participants, and its results."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from fedsvm.algorithms.data.vertical import COORDINATOR_SEES
from fedsvm.algorithms.site_process import INSTALLATION
from fedsvm.federation.site.program import step_methods
from fedsvm.scenarios.figures import area_gain, percent, percent_range, points
from fedsvm.scenarios.hub import task_form
from fedsvm.scenarios.hub.database import Participant, Task
from fedsvm.scenarios.hub.offered import offered_terms, readable_scenario
from fedsvm.scenarios.oversight.receipts import fingerprint
from fedsvm.scenarios.report.summary import interval
from fedsvm.scenarios.run.own_models import OwnModels
from fedsvm.scenarios.run.result import RunResult
from fedsvm.scenarios.schema.policy import template

_SHAPE = re.compile(r"^(?:\((?:[^()]|\([^()]*\))*\)(?:,? or [^:(]*)?:?\s*)+(?:the )?")
"""The shapes of arrays with which a step's docstring may begin, such as "(2, p + 1):"."""
_OF_SITE = re.compile(r"\b[Tt]his site('s)?\b")
_PHASES = {
    "launch": "starting",
    "setup": "preparing the data",
    "landmarks": "choosing landmarks",
    "select": "selecting columns",
    "train": "training",
    "evaluate": "testing the model",
    "describe": "describing columns",
}
_STATES = {"inviting": "waiting for participants", "cancelled": "canceled"}
_AFTERWARDS = {
    ("completed", "joined"): "finished",
    ("failed", "joined"): "took part",
    ("cancelled", "joined"): "had joined",
    ("expired", "joined"): "took part",
    ("failed", "invited"): "did not answer",
    ("cancelled", "invited"): "did not answer",
    ("expired", "invited"): "did not answer",
}
"""The names of a participant's states when the task is over, by both states."""


def policy_for(who: Participant) -> str:
    """Return a policy file for a participant to edit, for the algorithm that its task trains; "" for other tasks."""
    scenario = readable_scenario(who.task) if who.task.kind == task_form.TRAIN else None
    return "" if scenario is None else template(scenario.algorithm.name, who.site)


@dataclass(frozen=True)
class DisclosedValues:
    """The values that a task discloses, in sentences: those that are summed, and those that each site shows."""

    algorithm: str
    summary: str
    sum: str
    hides_values: bool
    sums: list[str]
    values: list[str]
    trains: bool
    mu: float
    releases: bool
    committee: str
    label: str
    label_site: str
    receiver: str
    identifier: str
    compared: str


@dataclass(frozen=True)
class ModelMeasure:
    """A measure of a trained model, with a sentence that explains it, and its 95 % confidence interval if known."""

    name: str
    value: str
    meaning: str
    interval: str = ""


def disclosures_of(task: Task) -> DisclosedValues | None:
    """Return what a task discloses, from the steps of its algorithm; None if this version refuses its scenario."""
    if (scenario := readable_scenario(task)) is None:
        return None
    terms = offered_terms(task)
    program = INSTALLATION.programs[terms.program]
    ordered = program.script(terms).steps
    methods = {name: method for name, method in sorted(step_methods(program).items()) if name in ordered}
    with_value = [
        name for name, method in methods.items() if method.__annotations__.get("return") not in (None, "None")
    ]
    summed = [methods[name] for name in with_value if name not in terms.gathers]
    return DisclosedValues(
        algorithm=terms.program,
        summary=task_form.summary_of(terms.program),
        sum=terms.sum_name,
        hides_values=scenario.protocol.secure_sum.discloses == "sum",
        sums=[_describe_sum(sentence_of(method)) for method in summed],
        values=[sentence_of(methods[name]) for name in terms.gathers if name in methods],
        trains=task.kind == task_form.TRAIN,
        mu=scenario.data.statistics_privacy if task.kind == task_form.DESCRIBE else 0.0,
        releases=terms.releases,
        committee=", ".join(terms.committee),
        label=str(terms.reading.get("label", "")),
        label_site=str(terms.reading.get("label_site", "")),
        receiver=str(terms.settings.get("receiver", "")),
        identifier=str(terms.reading.get("identifier") or ""),
        compared=COORDINATOR_SEES,
    )


def is_split(task: Task) -> bool:
    """Return whether every participant keeps a part of the model that a task trains."""
    return task.kind == task_form.TRAIN and is_over_columns(task)


def is_over_columns(task: Task) -> bool:
    """Return whether the participants of a task hold columns."""
    scenario = readable_scenario(task)
    return scenario is not None and task_form.is_vertical(scenario.algorithm.name)


def algorithms_by_partition() -> list[tuple[str, list[tuple[str, str]]]]:
    """Return what tasks can do, with a sentence each, by what participants hold.

    The first of each partition is the recommended one.
    """
    named = [(name, task_form.summary_of(name)) for name in task_form.askable()]
    describe, summary = task_form.DESCRIBE, task_form.summary_of(task_form.DESCRIBE)
    columns, rows = "Different columns of the same records", "The same columns of different records"
    return [
        (columns, [each for each in named if task_form.is_vertical(each[0])]),
        (rows, [*(each for each in named if not task_form.is_vertical(each[0])), (describe, summary)]),
    ]


def phase_of(task: Task) -> str:
    """Return what the coordinator of a running task is doing."""
    phase = str(task.progress["phase"])
    return _PHASES.get(phase, phase)


def task_state(task: Task) -> str:
    """Return what the state of a task is called."""
    return _STATES.get(task.state, task.state)


def participant_state(who: Participant, task: Task) -> str:
    """Return what the state of a participant is called, which depends on whether the task is over."""
    return _AFTERWARDS.get((task.state, who.state), who.state)


def fingerprints_of(task: Task, signing_key: bytes) -> list[tuple[str, str]]:
    """Return each party with the fingerprint of its keys, as in the participants' receipts.

    Parameters
    ----------
    task : Task
    signing_key : bytes
        The public key by which the hub signs its orders.
    """
    joined = [(each.site, [each.public_key, each.agreement_key]) for each in task.participants]
    of_sites = [(site, [key.hex() for key in keys if key is not None]) for site, keys in joined]
    return [
        ("the hub, which signs orders", fingerprint([signing_key.hex()])),
        *((site, fingerprint(keys)) for site, keys in of_sites if len(keys) == 2),
    ]


def measures_of(result: RunResult) -> Iterator[ModelMeasure]:
    """Return the measures of a finished run's model on records that it was not trained on."""
    found, whole = result.metrics, result.metrics or result.at_sites
    if whole is None:
        return
    intervals = {} if found is None else {name: interval(found, name) for name in found.intervals}
    correct = "Share of test records whose class is predicted correctly."
    yield ModelMeasure("Accuracy", percent(whole.accuracy, 1), correct, intervals.get("accuracy", ""))
    if found is not None and found.majority_accuracy is not None:
        always = "Accuracy of always predicting the more frequent class, for comparison."
        yield ModelMeasure("Baseline accuracy", percent(found.majority_accuracy, 1), always)
    if whole.auc is not None:
        area = "Area under the ROC curve: 0.5 is chance, 1 is perfect ranking."
        yield ModelMeasure("AUC", f"{whole.auc:.3f}", area, intervals.get("auc", ""))
    if result.own_models is not None:
        yield from _own_measures(result.own_models)
    if found is None:
        return
    for name, share, meaning in (
        ("Sensitivity", found.sensitivity, "Share of positive records that the model finds."),
        ("Specificity", found.specificity, "Share of negative records that the model recognizes."),
        ("PPV", found.ppv, "Share of records predicted positive that are positive."),
        ("NPV", found.npv, "Share of records predicted negative that are negative."),
    ):
        if share is not None:
            yield ModelMeasure(name, percent(share, 1), meaning, intervals.get(name.lower(), ""))


def _own_measures(own: OwnModels) -> Iterator[ModelMeasure]:
    """Return the accuracy of the participants' own models on the same records, and what training together gains."""

    def within(name: str, written: Callable[[float, float], str]) -> str:
        found = own.intervals.get(name)
        return "" if found is None else written(found.low, found.high)

    alone = "Accuracy of models that participants train on their records alone, on the same test records."
    yield ModelMeasure("Own models", percent(own.accuracy, 1), alone, within("accuracy", percent_range))
    gained = "Accuracy of the common model less that of own models, in percentage points. Both decide at 0."
    in_points = within("accuracy_gain", lambda low, high: f"{points(low)} to {points(high)}")
    yield ModelMeasure("Gain in accuracy", points(own.accuracy_gain), gained, in_points)
    if own.auc_gain is not None:
        ranked = "AUC of the common model less that of own models."
        in_areas = within("auc_gain", lambda low, high: f"{area_gain(low)} to {area_gain(high)}")
        yield ModelMeasure("Gain in AUC", area_gain(own.auc_gain), ranked, in_areas)


def sentence_of(method: Callable[..., Any]) -> str:
    """Return the sentence in which a step's docstring describes its value, without what only developers need."""
    docstring = (method.__doc__ or method.__name__).strip()
    said = " ".join(docstring.partition("\n\n")[0].split()).removeprefix("Return ").removeprefix("the ")
    text = _SHAPE.sub("", said).partition(". ")[0].partition("; see ")[0].partition(": see ")[0]
    text = _OF_SITE.sub(r"the participant\1", text)
    return _capitalize(text.rstrip(" .:;").replace("`", "")) + "."


def _describe_sum(sentence: str) -> str:
    """Return what the sum of parts is, given a sentence on one part."""
    return _capitalize(sentence.removeprefix("The participant's part of ").removeprefix("the "))


def _capitalize(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}"
