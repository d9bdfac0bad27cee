"""The report of a run as one page that needs nothing else: its head, its cards, and the sections of `sections`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from fedsvm.scenarios.report import template
from fedsvm.scenarios.report.cards import cards
from fedsvm.scenarios.report.run_plots import human_seconds
from fedsvm.scenarios.report.section import ReportedRun, find_sections
from fedsvm.scenarios.report.summary import release_remarks
from fedsvm.scenarios.run.result import RunResult, read_result, write_whole

NAME = "report.html"


def write_report(folder: Path) -> Path:
    """Write the report of the run in a folder, and say where.

    Raises ScenarioError if there is no run in it, and OSError if it cannot be written.
    """
    path, text = folder / NAME, render(folder)
    write_whole(path, lambda file: file.write(text.encode()))
    return path


def render(folder: Path) -> str:
    """Return the page of a run. Raises ScenarioError for a folder without a run."""
    result = read_result(folder)
    run = ReportedRun(folder, result)
    filled = [(section, section.content(run)) for section in find_sections()]
    collusion = result.collusion
    return template.render(
        "run.html.j2",
        result.scenario["name"],
        run=result,
        where=_where(result),
        ways_out=list(_ways_out(folder, result)),
        facts=list(_facts(result)),
        cards=cards(result),
        notes=[*result.warnings, *(collusion.remarks if collusion else ()), *release_remarks(result)],
        sections=[
            (section, template.render_part(section.template, content))
            for section, content in filled
            if any(content.values())
        ],
    )


def _facts(result: RunResult) -> Iterator[tuple[str, str]]:
    data, on = result.scenario["data"], result.environment
    size = f", {result.data.rows} rows x {result.data.columns} columns" if result.data else ""
    files = ", ".join(dict.fromkeys(data.get("sources", {}).values()))
    yield "data", f"{data['source'] or files}{size}"
    if result.model is not None:
        names = result.model.classes
        yield ("positive class", names[1]) if len(names) == 2 else ("classes", f"{len(names)}: {', '.join(names)}")
    yield "algorithm", f"{result.scenario['algorithm']['name']}, {result.scenario['protocol']['sum']} sums"
    if on.date:
        yield "date", on.date[:19].replace("T", " ")
    yield "took", human_seconds(result.timing.total_s)
    processors = f", {on.cpus} processors" if on.cpus else ""
    yield "on", f"fedsvm {on.fedsvm}, Python {on.python}, {on.system}{processors}"


def _where(result: RunResult) -> str:
    """Return how far an incomplete run came."""
    if (progress := result.progress) is None:
        return " before its sites were up"
    return f" in phase {progress.phase}, after {result.cost.rounds if result.cost else 0} rounds"


def _ways_out(folder: Path, result: RunResult) -> Iterator[str]:
    """Yield what to do about an incomplete run, in addition to its error."""
    if result.status == "completed":
        return
    for change in result.memberships:
        for site, why in change.left.items():
            if site not in str(result.error):
                yield f"{site} dropped out in phase {change.phase}: {why}."
    if result.scenario["federation"]["on_dropout"] == "abort" and any(each.left for each in result.memberships):
        yield 'Set federation.on_dropout = "continue" to continue without a site that drops out.'
    yield (
        f"{folder.name}/log.jsonl has a line for each completed round. Run it again with --debug to see a traceback."
    )
