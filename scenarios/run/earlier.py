"""Results of the version before this one: what schema 1 of result.json, and its log, call what schema 2 has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_FIGURES = ("bundles", "landmarks", "records_exposed", "rank", "support", "frequencies")
_PHRASES = {"public": "public rows alone", "private": "random features", "no_noise": "no noise"}
_MOVED = {"kernel_exchange": "kernel_exchange", "line_search": "line_search", "step": "line_search_step"}
_DIFFERENCE = "the difference of two sums"


def from_schema_1(old: Mapping[str, Any]) -> dict[str, Any]:
    """What a result.json of schema 1 holds, by the names of schema 2."""
    new = {**old, "schema": 2, "scenario": _scenario(old["scenario"])}
    if old["cost"] is not None:
        by_link = [{**link, "sender": link["from"], "receiver": link["to"]} for link in old["cost"]["by_link"]]
        new["cost"] = {**old["cost"], "aborted": old["cost"]["called_off"], "by_link": by_link}
    if old["model"] is not None:
        new["model"] = {**old["model"], **_training(old["model"])}
    if old["baselines"]:
        new["baselines"] = {
            name: {**old["baselines"][name], "phrase": phrase}
            for name, phrase in _PHRASES.items()
            if name in old["baselines"]
        }
    if old["privacy"] is not None:
        new["privacy"] = _privacy(old["privacy"])
    new["disclosures"] = [{**each, **_kind(each["form"])} for each in old["disclosures"]]
    return new


def event_from_schema_1(event: Mapping[str, Any]) -> dict[str, Any]:
    """A line of log.jsonl, by the names of schema 2."""
    return {**event, "aborted": event["called_off"]} if "called_off" in event else dict(event)


def _scenario(scenario: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of algorithms stood in [protocol], where no other key knew what they were of."""
    protocol = {key: value for key, value in scenario["protocol"].items() if key not in _MOVED}
    moved = {new: scenario["protocol"][old] for old, new in _MOVED.items() if old in scenario["protocol"]}
    return {**scenario, "protocol": protocol, "algorithm": {**scenario["algorithm"], **moved}}


def _training(model: Mapping[str, Any]) -> dict[str, Any]:
    figures = {name: model[name] for name in _FIGURES if model.get(name) is not None}
    if "rank" not in figures:
        return {"description": f"exact, {figures.get('support')} support records", "figures": figures}
    if "landmarks" not in figures:
        return {"description": f"{figures['rank']} features", "figures": figures}
    return {"description": f"{figures['landmarks']} landmarks, rank {figures['rank']}", "figures": figures}


def _privacy(privacy: Mapping[str, Any]) -> dict[str, Any]:
    made = {"drawn_by": privacy["drawn_by"], "lattice": privacy.get("lattice")}
    return {**privacy, **made, "releases": [{**release, **made} for release in privacy["releases"]]}


def _kind(form: str) -> dict[str, str]:
    if form in ("sum", "value"):
        return {"kind": form, "detail": ""}
    if form.startswith("parameter "):
        return {"kind": "parameter", "detail": form.removeprefix("parameter ")}
    return {"kind": "difference" if form.startswith(_DIFFERENCE) else "design", "detail": form}
