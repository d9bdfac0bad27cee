"""The releases of a run, and what they spend of the privacy budget."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fedsvm.algorithms.privacy.accountant import Release
from fedsvm.scenarios.report.section import Card, Section
from fedsvm.scenarios.run.result import RunResult

_TEMPLATE = (
    """{{ grid(["released", "mechanism", "epsilon", "delta", "noise scale", "protects against"], rows, [0, 1, 5]) }}"""
)


def _row(release: Release) -> list[Any]:
    figures = [f"{figure:.3g}" for figure in (release.epsilon, release.delta, release.noise_scale)]
    return [release.what, release.mechanism, *figures, "; ".join(release.protects_against)]


def _cards(result: RunResult) -> Iterator[Card]:
    if result.privacy is not None:
        yield Card(30, "epsilon", f"{result.privacy.epsilon:g}", result.privacy.mechanism)


SECTION = Section(
    place=140,
    id="privacy",
    title="Privacy",
    heading="Privacy spent",
    content=lambda run: {"rows": [_row(each) for each in run.result.privacy.releases] if run.result.privacy else []},
    template=_TEMPLATE,
    cards=_cards,
)
