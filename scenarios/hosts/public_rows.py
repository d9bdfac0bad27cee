"""Private training across hosts: columns, scale and features are from rows of the coordinator that all may see."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedsvm.algorithms.contract import Outline
from fedsvm.algorithms.data.classes import numbers
from fedsvm.algorithms.data.columns import Labelled, Schema
from fedsvm.algorithms.data.public_rows import PublicTask, public_columns
from fedsvm.algorithms.privacy.accountant import PrivacyAccountant
from fedsvm.algorithms.privacy.ledger import DataIdentity
from fedsvm.federation.errors import FederationError, StepRefused
from fedsvm.federation.hosts.visit import Held
from fedsvm.federation.site.partition import Partition
from fedsvm.scenarios.data.dataset import declared_classes
from fedsvm.scenarios.hosts.holding import hold
from fedsvm.scenarios.run.horizontal import noise_shares
from fedsvm.scenarios.run.terms import terms_of
from fedsvm.scenarios.schema.errors import ScenarioError
from fedsvm.scenarios.schema.spec import Scenario

_PUBLIC = "public"
"""What the file is called among those of sites."""


def read(scenario: Scenario) -> Held | None:
    """The coordinator's public rows, read as sites read theirs; None where the scenario names none.

    Raises ScenarioError for a file that cannot be read, or with too few rows for what is learnt from them.
    """
    if (file := scenario.data.public_source) is None:
        return None
    try:
        held = hold(_PUBLIC, file, terms_of(scenario))
    except StepRefused as error:
        raise ScenarioError([f"data.public_source: {error}"]) from error
    table = scenario.algorithm
    problems = list(table.implementation.problems(table.settings, Outline(held.rows, scenario.data.models)))
    labels = _labels(held.partition([column.name for column in held.columns]))
    if len(np.unique(labels)) < 2:
        problems.append(f"data.public_source: the {held.rows} rows of {Path(file).name} are of one class; have all")
    if problems:
        raise ScenarioError(
            [f"algorithm.{problem}." if "data." not in problem else f"{problem}." for problem in problems]
        )
    return held


def accountant_of(scenario: Scenario, columns: Sequence[str]) -> PrivacyAccountant:
    """The budget of a run, and the coordinator's ledger of what it is over: these sites' rows."""
    source = f"held by {', '.join(scenario.federation.site_names)}"
    identity = DataIdentity.of(source, scenario.data.label, columns)
    return PrivacyAccountant.within(scenario.algorithm.settings, identity)


def task_of(scenario: Scenario, public: Held, schema: Schema, accountant: PrivacyAccountant) -> PublicTask:
    """What a model is to be trained on. Raises FederationError where public rows have other columns than the sites."""
    order, mine = [*schema.numeric, *schema.categorical], {each.name: each.categorical for each in public.columns}
    if mine != {name: name in schema.categorical for name in order}:
        raise FederationError(
            f"The public rows of {scenario.data.public_source} have other columns than the sites, who have "
            f"{', '.join(order)}; mend the file, or have data.ignore leave the others out."
        )
    held = public.partition(order)
    numeric, texts, data = held.arrays["numeric"], _texts(held), scenario.data
    columns = public_columns(schema, numeric, texts, data.scale, data.ranges)
    rows = Labelled(columns.encode(numeric, texts), _labels(held))
    classes = len(declared_classes(data))
    return PublicTask(columns, rows, accountant, noise_shares(scenario), scenario.seed, classes=classes)


def _texts(held: Partition) -> NDArray[np.str_]:
    """(n, q) the categorical columns of a partition."""
    codes, categories = held.arrays["codes"], held.values["categories"]
    found = [np.array(values, dtype=np.str_)[codes[:, column]] for column, values in enumerate(categories)]
    return np.column_stack(found) if found else np.zeros((len(codes), 0), dtype=np.str_)


def _labels(held: Partition) -> NDArray[np.float64]:
    """(n,) of +1 and -1, or of more classes the number of each row's."""
    labels: NDArray[np.float64] = held.arrays["labels"]
    return labels[0] if len(labels) == 1 else numbers(labels).astype(np.float64)
