"""The plots of a run."""

from __future__ import annotations

from fedsvm.scenarios.report.run_plots import plots
from fedsvm.scenarios.report.section import Section

SECTION = Section(
    place=20,
    id="plots",
    title="Plots of the run",
    content=lambda run: {"plots": plots(run.result, run.log, run.ledger)},
    template="""<div class="charts">{% for chart in plots %}{{ figure(chart) }}{% endfor %}</div>""",
)
