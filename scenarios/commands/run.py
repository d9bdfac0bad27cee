"""`fedsvm run`, `fedsvm audit` and `fedsvm check-sum`."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedsvm.federation.record import SITES_LOGGER
from fedsvm.federation.text import visible
from fedsvm.scenarios.commands.exit_statuses import FAILED, failing, interrupted_as
from fedsvm.scenarios.commands.options import (
    Changes,
    Debug,
    OptionalScenario,
    PrintJson,
    RunFolder,
    Unset,
    complete_scenario,
    complete_sum,
)
from fedsvm.scenarios.commands.outputs import make_new
from fedsvm.scenarios.commands.presentation import (
    Presentation,
    command_line,
    interrupted_run,
    new_folder,
    show_json,
    show_nothing,
    show_summary,
)
from fedsvm.scenarios.console import complain, errors, out, print_table, say
from fedsvm.scenarios.interrupts import terminate_as_interrupted
from fedsvm.scenarios.schema import spec
from fedsvm.scenarios.schema.errors import ScenarioError

if TYPE_CHECKING:
    from fedsvm.protocols.analysis.survey import CoalitionCount
    from fedsvm.protocols.sums.secure_sum import SecureSum
    from fedsvm.scenarios.run.result import RunResult

DEFAULT_AUDITED_SITES, MAX_AUDITED_SITES = 5, 10  # there are 2^n coalitions

app = typer.Typer()


@app.command()
def run(
    context: typer.Context,
    scenario: OptionalScenario = None,
    sites: Annotated[int | None, typer.Option(help="Number of sites (default: the scenario's).")] = None,
    changes: Changes = None,
    unset: Unset = None,
    faults: Annotated[
        list[str] | None,
        typer.Option("--fault", help="Inject a fault, such as kill:site=3,phase=train,round=5. Repeatable."),
    ] = None,
    folder: RunFolder = None,
    as_json: PrintJson = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print errors only.")] = False,
    tracker: Annotated[
        str | None,
        typer.Option("--track", help="Also write the run to MLflow (./mlruns or MLFLOW_TRACKING_URI)."),
    ] = None,
    journaled: Annotated[
        bool, typer.Option("--journal", help="Record every round, so that a killed run can be resumed.")
    ] = False,
    resumed: Annotated[
        Path | None,
        typer.Option("--resume", metavar="RUN_DIR", help="Resume a run that was started with --journal."),
    ] = None,
    debug: Debug = False,
) -> None:
    """Run a scenario and write the results to a new folder."""
    show = show_json if as_json else show_nothing if quiet else show_summary
    shown = Presentation(show, context.find_root().obj, as_json or quiet, debug, tracker is not None)
    with interrupted_as("Interrupted before anything was started."):
        if tracker is not None:
            from fedsvm.scenarios import track

            track.check(tracker)
        if resumed is not None:
            if (
                scenario is not None
                or changes
                or unset
                or faults
                or sites is not None
                or folder is not None
                or journaled
            ):
                raise ScenarioError(["--resume takes scenario and folder from the run; remove the other options."])
            _resume(resumed, shown)
        elif scenario is None:
            raise ScenarioError(["SCENARIO: is missing; name a TOML file or a scenario of the catalogue."])
        else:
            chosen, base = _read(scenario, changes, unset, shown, faults=faults or [], sites=sites)
            _run(chosen, base, folder, shown, journaled=journaled)


def _read(
    scenario: str,
    changes: list[str] | None,
    unset: list[str] | None,
    shown: Presentation,
    *,
    faults: Sequence[str] = (),
    sites: int | None = None,
) -> tuple[spec.Scenario, Path]:
    """Return a scenario with its changes, and its folder. Print which settings of another algorithm are removed."""
    read = spec.read(scenario, overrides=changes or [], unset=unset or [], faults=faults, sites=sites)
    removed = spec.removed_settings(scenario, changes or [], unset or [])
    if removed and not shown.is_silent:
        name = read[0].algorithm.name
        errors.print(f"note {name} does not take {', '.join(removed)} as the file sets it; removed", soft_wrap=True)
    return read


def _run(
    chosen: spec.Scenario,
    base: Path,
    folder: Path | None,
    shown: Presentation,
    *,
    audit: bool = False,
    journaled: bool = False,
) -> None:
    """Run a scenario that was read from the folder `base`, and show its result."""
    terminate_as_interrupted()
    logging.getLogger(SITES_LOGGER).addHandler(logging.NullHandler())  # the view shows what sites log
    with shown.view(chosen) as view:
        from fedsvm.scenarios.data import dataset  # half a second that only a run needs, and a terminal shows meanwhile
        from fedsvm.scenarios.data.site_column import resolve_site_names
        from fedsvm.scenarios.run import resume, runner  # half a second that only a run needs

        chosen = resolve_site_names(chosen, base)
        if journaled:
            resume.require_replayable(chosen)
        rows = dataset.prepare(chosen, base)
        target = new_folder(chosen, folder)
        for sentence in () if shown.is_silent else rows.foreseen:
            errors.print(f"note {visible(sentence)}", soft_wrap=True)
        with interrupted_run(target):
            view.launching({name: len(held.rows) for name, held in zip(rows.names, rows.shards, strict=True)})
            with resume.begin_journal(target, chosen, base) if journaled else nullcontext() as journal:
                finished = runner.run(
                    chosen,
                    rows,
                    target,
                    view.update,
                    began=shown.began,
                    audit=audit,
                    command=command_line(),
                    journal=journal,
                )
    shown.conclude(finished, target)


def _resume(folder: Path, shown: Presentation) -> None:
    """Resume a run that was killed, and show its result."""
    from fedsvm.scenarios.data import dataset
    from fedsvm.scenarios.run import resume, runner

    terminate_as_interrupted()

    def tell(sentence: str) -> None:
        if not shown.is_silent:
            say(str(folder), sentence)

    with resume.reopen_journal(folder, tell) as (journal, chosen, base), shown.view(chosen) as view:
        rows = dataset.prepare(chosen, base)
        with interrupted_run(folder):
            view.launching({name: len(held.rows) for name, held in zip(rows.names, rows.shards, strict=True)})
            finished = runner.run(
                chosen, rows, folder, view.update, began=shown.began, command=command_line(), journal=journal
            )
    shown.conclude(finished, folder)


@app.command()
def audit(
    context: typer.Context,
    scenario: Annotated[
        str | None,
        typer.Argument(
            help="Scenario file (TOML), or name from the catalogue; the folder of a run to compare with a second one. "
            "Without it, audit single sums.",
            autocompletion=complete_scenario,
        ),
    ] = None,
    second: Annotated[
        Path | None, typer.Argument(metavar="[RUN_DIR]", help="Folder of a second run, to compare with the first.")
    ] = None,
    sites: Annotated[int | None, typer.Option(min=3, help="Number of sites (default for single sums: 5).")] = None,
    changes: Changes = None,
    unset: Unset = None,
    folder: Annotated[
        Path | None, typer.Option("--out", help="Folder for the run, or for audit.json and audit.html.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print only the table, as JSON.")] = False,
) -> None:
    """Attack a whole run and show who recovers what. Without a scenario, show which coalitions open a single sum.

    Attackers: the coordinator, each site, the coordinator with each site, and the holder of the model file.

    With the folders of two runs, the attacker holds both model files.
    """
    if scenario is not None and second is not None:
        if sites is not None or changes or unset or folder is not None:
            raise ScenarioError(["Two finished runs cannot be changed; remove all options except --json."])
        _audit_pair(Path(scenario), second, as_json=as_json)
    elif scenario is not None:
        show = _show_audit_json if as_json else _show_audit
        shown = Presentation(show, context.find_root().obj, as_json)
        chosen, base = _read(scenario, changes, unset, shown, sites=sites)
        _run(chosen, base, folder, shown, audit=True)
    elif changes or unset:
        raise ScenarioError(["--set: applies to a scenario; name one, or remove the option."])
    elif sites is not None and sites > MAX_AUDITED_SITES:
        raise ScenarioError([f"--sites: must be {MAX_AUDITED_SITES} at most, since there are 2^n coalitions."])
    else:
        _audit_sums(DEFAULT_AUDITED_SITES if sites is None else sites, folder, as_json=as_json)


def _audit_pair(first: Path, second: Path, *, as_json: bool) -> None:
    """Attack the model files of two runs, and show the row that they reveal."""
    from fedsvm.scenarios import two_runs

    found = two_runs.audit_pair(first, second)
    if as_json:
        print(json.dumps(asdict(found), indent=1))
        return
    out.print(f"{two_runs.ATTACK}  {found.recovered} rows recovered: {visible(found.said)}", soft_wrap=True)
    if found.row:
        row = ", ".join(f"{name} = {value:.6g}" for name, value in found.row.items())
        out.print(f"row                 {visible(row)}", soft_wrap=True)


def _show_audit_json(result: RunResult, folder: Path) -> None:
    print(json.dumps([asdict(each) for each in result.audit], indent=1))


def _show_audit(result: RunResult, folder: Path) -> None:
    from fedsvm.scenarios.report import whole_run
    from fedsvm.scenarios.report.summary import print_named

    if result.status == "completed":
        print_table([whole_run.HEAD, *whole_run.table(result.audit)])
        out.print()
        print_named(out, [("whole run", whole_run.line(result.audit)), ("results", str(folder))])


def _audit_sums(sites: int, folder: Path | None, *, as_json: bool) -> None:
    from fedsvm.protocols.analysis.survey import standard_sums, survey
    from fedsvm.scenarios.report import heat_map

    sums = standard_sums(sites)
    cells = list(survey(sums, sites))
    if folder is not None:
        _write_audit(folder, cells, sums)
    if as_json:
        print(json.dumps([asdict(cell) for cell in cells], indent=1))
    else:
        out.print(heat_map.table(cells))


def _write_audit(folder: Path, cells: list[CoalitionCount], sums: list[SecureSum]) -> None:
    from fedsvm.scenarios.report import heat_map

    make_new(folder)
    (folder / "audit.json").write_text(json.dumps([asdict(cell) for cell in cells], indent=1) + "\n")
    (folder / "audit.html").write_text(heat_map.page(cells, sums), encoding="utf-8")


@app.command("check-sum")
def check_sum(
    name: Annotated[
        str,
        typer.Argument(help="Name of a secure sum, built in or from a plugin.", autocompletion=complete_sum),
    ],
) -> None:
    """Check a secure sum: exactness, stated cost, lost sites, and stated secrecy."""
    from fedsvm.protocols.analysis import sum_conformance
    from fedsvm.protocols.sums.registry import SUMS

    if name not in SUMS:
        raise ScenarioError([f"There is no secure sum {name!r}; this installation has {', '.join(SUMS)}."])
    with failing():
        try:
            for kept in sum_conformance.check_sum(SUMS[name]()):
                print(f"{name}: {kept}")
        except sum_conformance.ConformanceError as error:
            complain(str(error))
            raise typer.Exit(FAILED) from None
