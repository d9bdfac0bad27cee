"""Private training across hosts: columns, scale and features are from rows of the coordinator that all may see."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedsvm.algorithms.algorithm import Outline
from fedsvm.algorithms.data.classes import numbers
from fedsvm.algorithms.data.columns import Schema
from fedsvm.algorithms.data.partition import numbers_of
from fedsvm.federation.errors import FederationError, StepRefused
from fedsvm.federation.hosts.held_data import SiteData
from fedsvm.federation.site.partition import Partition
from fedsvm.scenarios.data.dataset import Rows
from fedsvm.scenarios.hosts.site_data import hold
from fedsvm.scenarios.run.offered_terms import terms_of
from fedsvm.scenarios.schema.errors import ScenarioError
from fedsvm.scenarios.schema.spec import Scenario

_PUBLIC = "public"
"""The name of the file among those of sites."""


def read(scenario: Scenario) -> SiteData | None:
    """Return the coordinator's public rows, read as sites read theirs, or None if the scenario names none.

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
        problems.append(
            f"data.public_source: the {held.rows} rows of {Path(file).name} have one class only; add the others"
        )
    if problems:
        raise ScenarioError(
            [f"algorithm.{problem}." if "data." not in problem else f"{problem}." for problem in problems]
        )
    return held


def in_columns(scenario: Scenario, public: SiteData | None, schema: Schema) -> Rows:
    """Return the public rows in the columns of the sites. Raises FederationError if they have other columns."""
    if public is None:
        raise AssertionError("a scenario without public rows trains by secure sums")
    order, mine = [*schema.numeric, *schema.categorical], {each.name: each.categorical for each in public.columns}
    if mine != {name: name in schema.categorical for name in order}:
        raise FederationError(
            f"The public rows of {Path(str(scenario.data.public_source)).name} have other columns than the sites, who "
            f"have {', '.join(order)}; fix the file, or add the others to data.ignore."
        )
    held = public.partition(order)
    return Rows(numbers_of(held)[:], _texts(held), _labels(held))


def _texts(held: Partition) -> NDArray[np.str_]:
    """Return (n, q) the categorical columns of a partition."""
    codes, categories = held.arrays["codes"], held.values["categories"]
    found = [np.array(values, dtype=np.str_)[codes[:, column]] for column, values in enumerate(categories)]
    return np.column_stack(found) if found else np.zeros((len(codes), 0), dtype=np.str_)


def _labels(held: Partition) -> NDArray[np.float64]:
    """Return (n,) +1 and -1, or with more classes the number of each row's class."""
    labels: NDArray[np.float64] = held.arrays["labels"]
    return labels[0] if len(labels) == 1 else numbers(labels).astype(np.float64)
