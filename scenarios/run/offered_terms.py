"""The terms that a scenario offers every site, as plain values that each site compares with its policy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

from fedsvm.algorithms.algorithm import Premises
from fedsvm.algorithms.data.conditions import Conditions
from fedsvm.algorithms.remarks import Remark
from fedsvm.federation.site.program import open_steps
from fedsvm.federation.site.terms import Terms
from fedsvm.scenarios.schema.base import resolve
from fedsvm.scenarios.schema.data import ALL
from fedsvm.scenarios.schema.spec import Scenario

_READING = (
    "label",
    "positive",
    "negative",
    "classes",
    "weight",
    "ignore",
    "missing",
    "unlabeled",
    "missing_indicators",
    "scale",
    "statistics_privacy",
    "ranges",
    "separator",
    "decimal",
    "encoding",
    "categories",
    "tested_by",
    "test_fraction",
    "calibration",
    "folds",
    "repeats",
)
"""The keys of the [data] table that a site needs to read and split its data, and to know the steps of its columns."""

_CORRECTIONS = ("missing_values", "recode", "rename", "convert", "by_site")
"""The keys of corrections, sent if a scenario has them."""

_READING_COLUMNS = ("partition", "align", "identifier")
"""The additional keys for sites that hold columns of the same records."""


def resolve_settings(scenario: Scenario, *, latency_s: float = 0.0) -> tuple[Any, tuple[Remark, ...]]:
    """Return the algorithm's settings with each "auto" resolved, and remarks on the choice.

    latency_s: the latency of messages in seconds, if it is higher than in the scenario.
    """
    table, data = scenario.algorithm, scenario.data
    classes = max(2, len(data.classes)) if data.positive is None else 2
    rows = round(data.rows) if data.rows is not None and data.rows > 1 else None
    conditions = conditions_of(scenario)
    conditions = replace(conditions, latency_s=max(latency_s, conditions.latency_s))
    federation = scenario.federation
    premises = Premises(
        federation.sites,
        classes,
        data.models,
        conditions,
        rows,
        statistics_privacy=data.statistics_privacy,
        min_sites=federation.min_sites if federation.min_sites > 1 else None,
    )
    resolved: tuple[Any, tuple[Remark, ...]] = table.implementation.resolve_settings(table.settings, premises)
    return resolved


def conditions_of(scenario: Scenario) -> Conditions:
    """Return the network conditions that are known before the run."""
    network, chosen = scenario.network, Conditions(scenario.protocol.secure_sum)
    if network is None:
        return chosen
    slow = replace(chosen, latency_s=network.latency_ms / 1000)
    return slow if network.bandwidth_mbit is None else replace(slow, bytes_per_s=network.bandwidth_mbit * 125_000)


def terms_of(scenario: Scenario, *, restartable: Sequence[str] = ()) -> Terms:
    """Return the terms for every site. restartable: sites that may be restarted during the run."""
    table, protocol, data = scenario.algorithm, scenario.protocol.secure_sum, scenario.data
    settings, _ = resolve_settings(scenario)
    shown = table.implementation.shown_steps(settings)
    said = data.model_dump(mode="json", exclude_none=True)
    reading = {key: said[key] for key in _READING if key in said}
    reading |= {key: said[key] for key in _CORRECTIONS if said[key]}
    if not data.stratify:
        reading["stratify"] = False
    if scenario.compare.sites and data.tested_at_sites:
        reading["compare_sites"] = True
    if data.partition == "vertical":
        holder = data.label_site if data.label_site == ALL else resolve(data.label_site, scenario.federation.site_names)
        reading |= {**{key: said[key] for key in _READING_COLUMNS if key in said}, "label_site": holder}
    return Terms(
        program=table.name,
        settings=asdict(settings),
        sum_name=protocol.name,
        sum_options=dict(protocol.options),
        min_sites=scenario.min_sites,
        shown=shown,
        gathers=tuple(sorted({*open_steps(table.implementation.Site), *shown})),
        restartable=tuple(restartable),
        routing=scenario.protocol.routing,
        needs_pairwise_keys=protocol.needs_pairwise_keys,
        releases=getattr(settings, "release", "everyone") == "everyone",
        epsilon=settings.epsilon * data.models if scenario.is_private else None,
        seed=scenario.seed,
        committee=scenario.committee,
        reading=reading,
    )
