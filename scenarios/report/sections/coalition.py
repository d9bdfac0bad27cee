"""The values that the declared coalition learns from single sums."""

from __future__ import annotations

from typing import Any

from fedsvm.scenarios.report.section import Section
from fedsvm.scenarios.run.audit import Finding


def _row(victim: Finding) -> list[Any]:
    error = "" if victim.max_error is None else f"{victim.max_error:.1e}"
    return [victim.site, victim.protocol, victim.step, victim.values, victim.recovered, error]


SECTION = Section(
    place=130,
    id="coalition",
    title="Coalition",
    heading="What the coalition learns from single sums",
    content=lambda run: {"rows": [_row(each) for each in run.result.collusion.victims] if run.result.collusion else []},
    template="""{{ grid(["site", "protocol", "step", "values", "recovered", "largest error"], rows) }}""",
)
