"""The scenario of a run, to copy."""

from __future__ import annotations

import tomllib
from typing import Any

from fedsvm.scenarios.report.section import ReportedRun, Section
from fedsvm.scenarios.schema import spec
from fedsvm.scenarios.schema.errors import ScenarioError

_TEMPLATE = """{% if short %}<p>Keys that differ from the defaults:</p>
{{ copied("short-scenario", short) }}
<details><summary>With all defaults</summary>{{ copied("whole-scenario", scenario) }}</details>
{% else %}{{ copied("whole-scenario", scenario) }}{% endif %}"""


def _content(run: ReportedRun) -> dict[str, Any]:
    path = run.folder / "scenario.toml"
    scenario = path.read_text(encoding="utf-8") if path.is_file() else ""
    return {"scenario": scenario, "short": _without_defaults(scenario)} if scenario else {}


def _without_defaults(text: str) -> str:
    """Return a scenario without its defaults, empty if another version wrote it."""
    try:
        return spec.short_toml(spec.validate(tomllib.loads(text)))
    except (ScenarioError, ValueError):
        return ""


SECTION = Section(
    place=170, id="scenario", title="Scenario", heading="Scenario to copy", content=_content, template=_TEMPLATE
)
