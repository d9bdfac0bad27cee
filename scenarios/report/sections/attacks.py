"""The result of attacks on the whole run."""

from __future__ import annotations

from fedsvm.scenarios.report import whole_run
from fedsvm.scenarios.report.section import Section

SECTION = Section(
    place=120,
    id="audit",
    title="Audit",
    heading="What attackers recover from the whole run",
    content=lambda run: {"head": whole_run.HEAD, "rows": whole_run.table(run.result.audit)} if run.result.audit else {},
    template="{{ grid(head, rows, [0, 1, 2]) }}",
)
