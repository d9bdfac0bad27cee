"""The log records of sites."""

from __future__ import annotations

from fedsvm.scenarios.report.section import ReportedRun, Section


def _rows(run: ReportedRun) -> list[list[str]]:
    logged = (event for event in run.log if event["event"] == "site_log")
    return [[each[key] for key in ("site", "round", "level", "logger", "text")] for each in logged]


SECTION = Section(
    place=70,
    id="logged",
    title="Site logs",
    content=lambda run: {"rows": _rows(run)},
    template="""{{ grid(["site", "round", "level", "logger", "text"], rows, [0, 2, 3, 4], [4], stack=true) }}""",
)
