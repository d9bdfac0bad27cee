"""The sites of a run: their data, and what they used."""

from __future__ import annotations

from typing import Any

from fedsvm.scenarios.figures import human_bytes
from fedsvm.scenarios.report.run_plots import human_seconds
from fedsvm.scenarios.report.section import Section
from fedsvm.scenarios.run.result import SiteResult


def _row(site: SiteResult) -> list[Any]:
    own = human_bytes(site.unique_memory_bytes) if site.unique_memory_bytes else ""
    spent = human_seconds(site.cpu_s) if site.cpu_s is not None else ""
    return [site.name, site.status, site.rows, site.columns, spent, own]


SECTION = Section(
    place=60,
    id="sites",
    title="Sites",
    content=lambda run: {"rows": [_row(site) for site in run.result.sites]},
    template="""{{ grid(["site", "status", "rows", "columns", "CPU time", "own memory"], rows) }}""",
)
