"""The command line.

Exit status: 0 done, 2 nothing was started, 3 the run failed or something could not be written, 130 interrupted.
"""

from __future__ import annotations

import copy
import functools
import json
import logging
import shlex
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer
from typer.main import get_command_name
from typer.models import CommandInfo

from fedsvm.algorithms.registry import ALGORITHMS
from fedsvm.algorithms.settings import settings
from fedsvm.federation.errors import FederationError
from fedsvm.federation.federation import SITES_LOGGER
from fedsvm.federation.processes.limits import refused_tasks_explained
from fedsvm.federation.text import visible
from fedsvm.scenarios import runs, sets
from fedsvm.scenarios.console import OutputLost, complain, errors, out, print_table
from fedsvm.scenarios.figures import human_bytes
from fedsvm.scenarios.hosts import commands as hosts
from fedsvm.scenarios.interrupts import terminate_as_interrupted
from fedsvm.scenarios.report.live import LiveView, PlainView, SilentView, View
from fedsvm.scenarios.report.summary import print_end, print_summary
from fedsvm.scenarios.run.folder import make_folder
from fedsvm.scenarios.schema import spec
from fedsvm.scenarios.schema.errors import ScenarioError

if TYPE_CHECKING:
    from fedsvm.protocols.analysis.survey import Cell
    from fedsvm.protocols.sums.contract import SecureSum
    from fedsvm.scenarios.forecast import Total
    from fedsvm.scenarios.run.result import RunResult
    from fedsvm.scenarios.run.runner import Finished

WRONG, FAILED, INTERRUPTED = 2, 3, 130
DEFAULT_AUDITED_SITES, MAX_AUDITED_SITES = 5, 10  # there are 2^n coalitions

app = typer.Typer(
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
)
scenarios_app = typer.Typer(invoke_without_command=True, help="List the catalogue, or show one of its files.")
app.add_typer(scenarios_app, name="scenarios")
data_app = typer.Typer(invoke_without_command=True, help="List data sets, or describe one.")
app.add_typer(data_app, name="data")
app.add_typer(sets.app, name="sets")
app.add_typer(runs.app, name="runs")
app.add_typer(hosts.keys_app, name="keys")
app.add_typer(hosts.policy_app, name="policy")


def _complete_scenario(incomplete: str) -> list[tuple[str, str]]:
    return [(name, line) for name, line in spec.catalogue().items() if name.startswith(incomplete)]


def _complete_data(incomplete: str) -> Iterable[str]:
    from fedsvm.scenarios.data import sources

    return [item.name for item in sources.available() if item.name.startswith(incomplete)]


def _complete_algorithm(incomplete: str) -> Iterable[str]:
    return [name for name in ALGORITHMS if name.startswith(incomplete)]


def _complete_sum(incomplete: str) -> Iterable[str]:
    from fedsvm.protocols.sums.registry import SUMS

    return [name for name in SUMS if name.startswith(incomplete)]


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"fedsvm {version('fedsvm')}")
        raise typer.Exit


_SCENARIO = typer.Argument(
    help="A TOML file, or the name of a scenario in the catalogue.", autocompletion=_complete_scenario
)


@app.callback()
def _options(
    wanted: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Federated support vector machines: run a protocol over real processes and see what it costs and reveals."""


@app.command()
def run(
    context: typer.Context,
    scenario: Annotated[str | None, _SCENARIO] = None,
    sites: Annotated[int | None, typer.Option(help="Number of sites, in place of the scenario's.")] = None,
    changes: Annotated[list[str] | None, typer.Option("--set", help="key.path=value; may be repeated.")] = None,
    faults: Annotated[
        list[str] | None, typer.Option("--fault", help="kind:key=value,…, such as kill:site=3,phase=train,round=5.")
    ] = None,
    folder: Annotated[Path | None, typer.Option("--out", help="Folder for the results; must not exist.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print result.json and nothing else.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print errors only.")] = False,
    tracker: Annotated[
        str | None,
        typer.Option("--track", help="mlflow: also write the run to ./mlruns, or MLFLOW_TRACKING_URI."),
    ] = None,
    journalled: Annotated[
        bool, typer.Option("--journal", help="Write every round down, so that the run can be resumed if it is killed.")
    ] = False,
    resumed: Annotated[
        Path | None,
        typer.Option("--resume", metavar="RUN_DIR", help="Go on with a run that was started with --journal."),
    ] = None,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of what failed.")] = False,
) -> None:
    """Run a scenario and write its results to a folder of their own."""
    show = functools.partial(_show, as_json=as_json, quiet=quiet)
    try:
        if resumed is not None:
            if scenario is not None or changes or faults or sites is not None or folder is not None or journalled:
                raise ScenarioError(["--resume: the run has its scenario and its folder; name nothing beside."])
            _resume(resumed, show, began=context.find_root().obj, silent=as_json or quiet, debug=debug)
            return
        if scenario is None:
            raise ScenarioError(["SCENARIO: is missing; name a TOML file or a scenario of the catalogue."])
        chosen, base = spec.read(scenario, overrides=changes or [], faults=faults or [], sites=sites)
        _run(
            chosen,
            base,
            folder,
            show,
            began=context.find_root().obj,
            silent=as_json or quiet,
            debug=debug,
            tracker=tracker,
            journalled=journalled,
        )
    except KeyboardInterrupt:
        complain("Interrupted before anything was started.")
        raise typer.Exit(INTERRUPTED) from None


def _show(result: RunResult, folder: Path, *, as_json: bool, quiet: bool) -> None:
    if as_json:
        print(result.to_json(), end="")
    elif not quiet and result.status == "completed":
        print_summary(out, result, folder)


def _run(
    chosen: spec.Scenario,
    base: Path,
    folder: Path | None,
    show: Callable[[RunResult, Path], None],
    *,
    began: float,
    silent: bool,
    debug: bool = False,
    audit: bool = False,
    tracker: str | None = None,
    journalled: bool = False,
) -> None:
    """Run a scenario, and show its result, given with its folder; whatever goes wrong is a sentence and a status."""
    terminate_as_interrupted()
    if tracker is not None:
        _check_tracker(tracker)
    logging.getLogger(SITES_LOGGER).addHandler(logging.NullHandler())  # the view shows what sites log
    with _view(chosen, silent=silent) as view:
        from fedsvm.scenarios.data import dataset  # half a second that only a run needs, and a terminal shows meanwhile
        from fedsvm.scenarios.data.located import located
        from fedsvm.scenarios.run import resume, runner  # half a second that only a run needs

        chosen = located(chosen, base)
        if journalled:
            resume.require_replayable(chosen)
        rows = dataset.prepare(chosen, base)
        target = _make_folder(chosen, folder)
        for sentence in () if silent else rows.foreseen:
            errors.print(f"note {visible(sentence)}", soft_wrap=True)
        try:
            view.launching({name: len(held.rows) for name, held in zip(rows.names, rows.shards, strict=True)})
            command = shlex.join(["fedsvm", *sys.argv[1:]])
            with resume.begun(target, chosen, base) if journalled else nullcontext() as journal:
                finished = runner.run(
                    chosen,
                    rows,
                    target,
                    view.update,
                    began=began,
                    audit=audit,
                    command=command,
                    journal=journal,
                )
        except KeyboardInterrupt:
            _end_interrupted(target)
    _conclude(finished, target, show, began=began, silent=silent, debug=debug, tracker=tracker)


def _resume(folder: Path, show: Callable[[RunResult, Path], None], *, began: float, silent: bool, debug: bool) -> None:
    """Go on with a run that was killed, and show its result."""
    from fedsvm.scenarios.data import dataset
    from fedsvm.scenarios.run import resume, runner

    terminate_as_interrupted()
    with resume.resumed(folder) as (journal, chosen, base), _view(chosen, silent=silent) as view:
        rows = dataset.prepare(chosen, base)
        try:
            view.launching({name: len(held.rows) for name, held in zip(rows.names, rows.shards, strict=True)})
            command = shlex.join(["fedsvm", *sys.argv[1:]])
            finished = runner.run(chosen, rows, folder, view.update, began=began, command=command, journal=journal)
        except KeyboardInterrupt:
            _end_interrupted(folder)
    _conclude(finished, folder, show, began=began, silent=silent, debug=debug)


def _conclude(
    finished: Finished,
    target: Path,
    show: Callable[[RunResult, Path], None],
    *,
    began: float,
    silent: bool,
    debug: bool = False,
    tracker: str | None = None,
) -> None:
    """Show what a run came to, and write its report; whatever went wrong is a sentence and a status."""
    try:
        unprinted = _unprinted(lambda: show(finished.result, target))
        summarised = time.monotonic()
        unwritten = _unreported(target) or unprinted  # when the summary is on the screen
        if tracker is not None:
            unwritten = _untracked(target, finished.result) or unwritten
    except KeyboardInterrupt:
        _end_interrupted(target)
    if finished.result.status != "completed":
        _report_failure(finished.result, finished.traceback if debug else "", target)
    if unwritten:
        complain(unwritten)
        _point_to(target)
        raise typer.Exit(FAILED)
    if not silent:
        print_end(out, time.monotonic() - began, time.monotonic() - summarised)


def _end_interrupted(folder: Path) -> NoReturn:
    complain(f"Interrupted; what is known of the run is in {folder}.")
    raise typer.Exit(INTERRUPTED) from None


def _unprinted(show: Callable[[], None]) -> str:
    """Show what a run came to; why that cannot be done, in a sentence, or ""."""
    try:
        show()
        sys.stdout.flush()
    except OutputLost as error:
        return f"Standard output cannot be written: {error}."
    return ""


@app.command()
def coordinate(
    context: typer.Context,
    listen: Annotated[str, typer.Option(help="Where sites connect to, such as tcp://0.0.0.0:7100.")],
    key: Annotated[Path, typer.Option(help="The coordinator's own key, NAME.key_secret.")],
    scenario: Annotated[str | None, _SCENARIO] = None,
    sites: Annotated[
        Path | None, typer.Option(help="Folder of the sites' public keys, NAME.key each: nobody else is let in.")
    ] = None,
    resumed: Annotated[
        Path | None, typer.Option("--resume", metavar="RUN_DIR", help="Go on with a run whose coordinator ended.")
    ] = None,
    wait: Annotated[str, typer.Option(help="How long to wait for all of them, such as 90s, 30m or 2h.")] = "1h",
    rejoin: Annotated[
        str, typer.Option(help="How long to wait for a site that ended or is silent; without it, not at all.")
    ] = "",
    changes: Annotated[list[str] | None, typer.Option("--set", help="key.path=value; may be repeated.")] = None,
    folder: Annotated[Path | None, typer.Option("--out", help="Folder for the results; must not exist.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print result.json and nothing else.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of what failed.")] = False,
) -> None:
    """Run a scenario over sites on other hosts, each with a file of its own: wait until they have joined, and train."""
    from fedsvm.scenarios.hosts import asking, coordination

    terminate_as_interrupted()
    show = functools.partial(_show, as_json=as_json, quiet=False)
    if resumed is not None:
        if scenario is not None or sites is not None or changes or folder is not None:
            raise ScenarioError(["--resume: the run has its scenario, its sites and its folder; name none beside."])
        began = context.find_root().obj
        _coordinate_again(resumed, listen, key, wait, rejoin, show, began=began, silent=as_json, debug=debug)
        return
    if scenario is None or sites is None:
        raise ScenarioError(["SCENARIO and --sites are needed, but with --resume."])
    meeting = hosts.meeting_of(listen, key, hosts.admitted_in(sites), wait, rejoin)
    chosen = asking.read(scenario, changes or [], list(meeting.admitted))
    with coordination.listening(meeting) as endpoint:
        target = _make_folder(chosen, folder)
        hosts.say("coordinator", f"listens at {endpoint.address} for {', '.join(meeting.admitted)}; each runs:")
        errors.print(
            f"  {hosts.join_line(meeting, endpoint.address, direct=chosen.protocol.routing == 'direct')}",
            soft_wrap=True,
        )
        plain = PlainView(errors, chosen.name)
        try:
            finished = coordination.coordinate(
                chosen,
                meeting,
                endpoint,
                target,
                lambda sentence: hosts.say("coordinator", sentence),
                lambda federation: plain.update(federation, []),
                min_sites_chosen=spec.says_min_sites(scenario, changes or []),
                version=version("fedsvm"),
                command=shlex.join(["fedsvm", *sys.argv[1:]]),
            )
        except KeyboardInterrupt:
            _end_interrupted(target)
    _conclude(finished, target, show, began=context.find_root().obj, silent=as_json, debug=debug)


def _coordinate_again(
    folder: Path,
    listen: str,
    key: Path,
    wait: str,
    rejoin: str,
    show: Callable[[RunResult, Path], None],
    *,
    began: float,
    silent: bool,
    debug: bool,
) -> None:
    """Take the place of a coordinator that ended, whose sites wait."""
    from fedsvm.scenarios.hosts import coordination
    from fedsvm.scenarios.run import resume
    from fedsvm.scenarios.run.runner import Run

    with resume.resumed(folder) as (journal, chosen, _):
        if "tickets" not in journal.header:
            raise ScenarioError([f"{folder} is a run on one machine; resume it by fedsvm run --resume."])
        meeting = hosts.meeting_of(listen, key, journal.header["admitted"], wait, rejoin)
        with coordination.listening(meeting) as endpoint:
            hosts.say("coordinator", f"listens at {endpoint.address} for {', '.join(journal.header['tickets'])}")
            plain = PlainView(errors, chosen.name)
            command = shlex.join(["fedsvm", *sys.argv[1:]])
            this = Run(chosen, coordination.dataset_of(chosen), folder, command)
            try:
                finished = coordination.go_on(
                    this,
                    journal,
                    meeting,
                    endpoint,
                    lambda sentence: hosts.say("coordinator", sentence),
                    lambda federation: plain.update(federation, []),
                    version=version("fedsvm"),
                )
            except KeyboardInterrupt:
                _end_interrupted(folder)
    _conclude(finished, folder, show, began=began, silent=silent, debug=debug)


@app.command()
def site(
    coordinator: Annotated[str, typer.Option(help="Where the coordinator listens, such as tcp://host:7100.")],
    coordinator_key: Annotated[Path, typer.Option(help="Its public key, coordinator.key.")],
    key: Annotated[Path, typer.Option(help="This site's own key, NAME.key_secret.")],
    data: Annotated[str, typer.Option(help="The file of this site's rows.")],
    policy: Annotated[Path | None, typer.Option(help="What this site allows: see fedsvm policy template.")] = None,
    listen: Annotated[str, typer.Option(help="Where other sites connect to, such as tcp://0.0.0.0:7101.")] = "",
    advertise: Annotated[str, typer.Option(help="Address other sites use to reach it, if not that of --listen.")] = "",
    wait: Annotated[str, typer.Option(help="How long to wait for a run to begin or be resumed: 90s, 30m, 2h.")] = "1h",
    patience: Annotated[str, typer.Option(help="How long the coordinator may be silent in mid-run.")] = "10m",
    faults: Annotated[
        list[str] | None, typer.Option("--fault", help="To rehearse: kill:phase=train,round=5, or a stall.")
    ] = None,
    keep: Annotated[
        Path | None, typer.Option(help="File for the part of the model that this site keeps; NAME.npz without it.")
    ] = None,
) -> None:
    """Take part in a run with the rows of one file, which stay here."""
    from threadpoolctl import threadpool_limits

    terminate_as_interrupted()
    try:
        visit = hosts.visit_of(
            coordinator, coordinator_key, key, data, listen, advertise, faults or [], wait, patience, keep, policy
        )
        with threadpool_limits(1):  # as the sites of a simulation: sums come out the same
            visit.take_part()
    except FederationError as error:
        complain(str(error))
        raise typer.Exit(FAILED) from None
    except KeyboardInterrupt:
        complain("Interrupted; this site takes no part any more.")
        raise typer.Exit(INTERRUPTED) from None


@app.command()
def hub(
    folder: Annotated[Path, typer.Option(help="Folder for the hub's key, database, runs, and mails.")],
    listen: Annotated[str, typer.Option(help="Address to listen at, such as 0.0.0.0:8000.")] = "127.0.0.1:8000",
    url: Annotated[str, typer.Option(help="Public address of the hub, such as https://hub.example.")] = "",
    smtp: Annotated[str, typer.Option(help="Mail server as host:port. Without it, mails are written to files.")] = "",
    sender: Annotated[str, typer.Option(help="Sender address of mails.")] = "fedsvm@localhost",
    database: Annotated[str, typer.Option(help="Database as an SQLAlchemy URL. Default: SQLite in the folder.")] = "",
    every: Annotated[float, typer.Option(help="Polling interval in seconds.", min=0.1, max=3600)] = 2.0,
    demo: Annotated[bool, typer.Option("--demo", help="Create an example task with built-in data.")] = False,
) -> None:
    """Run the task service: people create tasks and invite others by mail; each computes when it suits them."""
    from fedsvm.scenarios.hub import commands

    try:
        commands.serve(folder, listen, url, smtp, sender, database, every, demo=demo)
    except FederationError as error:
        complain(str(error))
        raise typer.Exit(FAILED) from None
    except KeyboardInterrupt:
        complain("Interrupted; participants can go on when the hub is started again.")
        raise typer.Exit(INTERRUPTED) from None


@app.command()
def join(
    link: Annotated[str, typer.Argument(help="Link of the invitation, in single quotes.")],
    data: Annotated[str, typer.Option(help="Your data file. It stays on this machine.")] = "",
    policy: Annotated[Path | None, typer.Option(help="Policy file of this site: see fedsvm policy template.")] = None,
    folder: Annotated[
        Path | None, typer.Option(help="Folder for state between visits (default: fedsvm-visits).")
    ] = None,
    watch: Annotated[bool, typer.Option("--watch", help="Stay until the task is over.")] = False,
    decline: Annotated[str | None, typer.Option(help="Decline or withdraw, with this reason.")] = None,
    wait: Annotated[str, typer.Option(help="How long to retry if the hub cannot be reached.")] = "60s",
) -> None:
    """Join a hub task: process pending work, then exit. Nobody else has to be online."""
    from threadpoolctl import threadpool_limits

    from fedsvm.scenarios.hub import commands

    terminate_as_interrupted()
    if not data and decline is None:
        raise ScenarioError(["--data: is missing; name your data file, or use --decline."])
    try:
        joining = commands.joining_of(link, data, policy, folder, watches=watch, wait_s=hosts.seconds("--wait", wait))
        with threadpool_limits(1):
            if decline is not None:
                joining.decline(decline)
            else:
                joining.visit()
    except FederationError as error:
        complain(str(error))
        raise typer.Exit(FAILED) from None
    except KeyboardInterrupt:
        complain("Interrupted; run the same command again to continue.")
        raise typer.Exit(INTERRUPTED) from None


@app.command("report")
def write_reports(
    run_folders: Annotated[
        list[Path], typer.Argument(metavar="RUN_DIR…", help="Folders of runs; of several, to compare.")
    ],
    target: Annotated[Path | None, typer.Option("--out", help="File to write, of several runs.")] = None,
) -> None:
    """Write the HTML report of a run anew, or compare several side by side."""
    from fedsvm.scenarios.report import comparison, page

    if len(run_folders) == 1 and target is None:
        print(page.write_report(run_folders[0]))
        return
    path = target or Path("comparison.html")
    _write_new(path, page.render(run_folders[0]) if len(run_folders) == 1 else comparison.render(run_folders))
    print(path)


@app.command()
def sweep(
    scenario: Annotated[str, _SCENARIO],
    vary: Annotated[list[str], typer.Option("--vary", help="key.path=v1,v2,…; may be repeated.")],
    changes: Annotated[list[str] | None, typer.Option("--set", help="key.path=value; may be repeated.")] = None,
    plots: Annotated[
        list[str] | None,
        typer.Option("--plot", help="measure:axis[:group], such as gap:round:algorithm.cut_groups."),
    ] = None,
    jobs: Annotated[int, typer.Option(min=1, help="Runs at a time.")] = 1,
    folder: Annotated[Path | None, typer.Option("--out", help="Folder of the sweep; sweeps/NAME without it.")] = None,
) -> None:
    """Run a grid of scenarios: a row for each run, as a table, CSV and plots. Run again, it does what is missing."""
    from fedsvm.scenarios.sweep import grid

    terminate_as_interrupted()
    axes = tuple(grid.Axis.read(each) for each in vary)
    named, _ = spec.read(scenario, overrides=changes or [])
    chosen = grid.Sweep(scenario, tuple(changes or []), axes, folder or Path("sweeps") / named.name)
    chosen.check()
    drawn = [grid.read_plot(each, axes, chosen.measures) for each in plots or []] or grid.default_plots(axes)
    chosen.prepare()
    try:
        chosen.run(
            jobs, lambda point, said: errors.print(f"{point.name} {said or 'done'}", soft_wrap=True, markup=False)
        )
    except KeyboardInterrupt:
        complain(f"Interrupted; the same command does what is missing in {chosen.folder}.")
        raise typer.Exit(INTERRUPTED) from None
    rows = chosen.write()
    charts = [chart for plot in drawn if (chart := chosen.draw(plot, rows)) is not None]
    chosen.write_page(charts)
    _print_sweep(rows, [axis.key for axis in axes])
    print(chosen.folder)
    if chosen.missing():
        complain(f"{len(chosen.missing())} of {len(chosen.points)} runs did not complete; sweep.csv says why.")
        raise typer.Exit(FAILED)


@app.command()
def reproduce(
    ids: Annotated[
        list[str] | None, typer.Argument(metavar="[ID…]", help="Such as lu-3.2 or que; all without any.")
    ] = None,
    full: Annotated[
        bool, typer.Option("--full/--quick", help="All rows and seeds, or few of them, for a look.")
    ] = False,
    jobs: Annotated[int, typer.Option(min=1, help="Runs at a time.")] = 1,
    folder: Annotated[Path, typer.Option("--out", help="Folder for runs, page and tables.")] = Path("reproduction"),
    listed: Annotated[bool, typer.Option("--list", help="List all there is, and run nothing.")] = False,
) -> None:
    """Repeat the measurements of four papers and of this project, and write a page with a verdict for each value.

    Run again, it does what is missing. Exit status 3: a run failed, or something differs that the papers' files do not
    say will.
    """
    from fedsvm.scenarios.reproduction import commands

    terminate_as_interrupted()
    chosen = commands.Chosen.of(ids or [], folder, full=full)
    if listed:
        print_table(chosen.table())
        return
    try:
        is_worse = chosen.reproduce(jobs)
    except KeyboardInterrupt:
        complain(f"Interrupted; the same command does what is missing in {folder}.")
        raise typer.Exit(INTERRUPTED) from None
    if is_worse:
        raise typer.Exit(FAILED)


def _print_sweep(rows: list[dict[str, Any]], keys: list[str]) -> None:
    shown = [*keys, "status", "accuracy", "rounds", "payload_bytes", "total_s"]
    head = tuple(name.rpartition(".")[2].removesuffix("_bytes").removesuffix("_s") for name in shown)
    print_table([head, *(tuple(_cell(row[name]) for name in shown) for row in rows)])


def _cell(value: Any) -> str:
    return "" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)


@app.command("predict-cost")
def predict_cost(
    scenario: Annotated[str, _SCENARIO],
    sites: Annotated[int, typer.Option(min=2, help="Number of sites to predict for.")],
    changes: Annotated[list[str] | None, typer.Option("--set", help="key.path=value; may be repeated.")] = None,
    measured: Annotated[
        str, typer.Option("--measure", metavar="N,N,…", help="Numbers of sites to run it with first, three or more.")
    ] = "5,20,60",
) -> None:
    """Predict the cost of a scenario with more sites than one machine can run, from small runs."""
    from fedsvm.scenarios import forecast

    terminate_as_interrupted()
    try:
        numbers = sorted({int(each) for each in measured.split(",")})
    except ValueError:
        raise ScenarioError([f"--measure {measured}: list numbers of sites, such as 5,20,60."]) from None
    forecast.check(sites, numbers)
    runs = []
    for number in numbers:
        try:
            runs.append(forecast.measure(scenario, number, changes or []))
        except KeyboardInterrupt:
            complain("Interrupted; nothing is kept of what was measured.")
            raise typer.Exit(INTERRUPTED) from None
        errors.print(f"{number} sites measured")
    totals = [run.total for run in runs]
    totals.append(forecast.predict(runs, forecast.secure_sum_of(scenario, changes or []), sites))
    counts, seconds = ("sites", "rounds", "hops", "messages"), ("launch", "rounds take", "between")
    head = ("", *counts, "payload", "wire", "orders", *seconds, "memory")
    print_table([head, *(_cost_row("predicted" if each is totals[-1] else "measured", each) for each in totals)])


def _cost_row(how: str, total: Total) -> tuple[str, ...]:
    carried = (human_bytes(each) for each in (total.payload_bytes, total.wire_bytes, total.control_bytes))
    seconds = (f"{each:.3g} s" for each in (total.launch_s, total.rounds_s, total.own_s))
    counts = (f"{total.sites}", f"{total.rounds}", f"{total.hops:.0f}", f"{total.messages:.0f}")
    return (how, *counts, *carried, *seconds, human_bytes(total.sites * total.site_bytes))


@app.command()
def predict(
    run_folder: Annotated[Path, typer.Argument(metavar="RUN_DIR", help="The folder of a run.")],
    rows: Annotated[
        str,
        typer.Argument(metavar="DATA", help="A file, or the name of a data set.", autocompletion=_complete_data),
    ],
    target: Annotated[Path | None, typer.Option("--out", help="File to write; standard output without it.")] = None,
    identifier: Annotated[
        str | None, typer.Option("--id", metavar="COLUMN", help="Column that rows are called by, in place of numbers.")
    ] = None,
) -> None:
    """Predict new rows with the model of a run: row, decision value and class, as comma-separated text."""
    from fedsvm.scenarios import predict

    predicted = predict.predict(run_folder, rows, identifier)
    text = "\n".join(predicted.lines()) + "\n"
    for doubt in predicted.doubts:
        errors.print(f"note {visible(rows)}: {visible(doubt)}", soft_wrap=True, markup=False)
    if target is None:
        print(text, end="")
    else:
        _write_new(target, text)


def _write_new(target: Path, text: str) -> None:
    try:
        with target.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise ScenarioError([f"{target} exists already; name a file that does not, or remove it."]) from None
    except OSError as error:
        raise ScenarioError([f"{target} cannot be written: {error.strerror}; name another."]) from error


@scenarios_app.callback()
def list_scenarios(context: typer.Context) -> None:
    """List the catalogue."""
    if context.invoked_subcommand is None:
        print_table(list(spec.catalogue().items()))


@scenarios_app.command("show")
def show_scenario(
    name: Annotated[str, typer.Argument(help="A name in the catalogue.", autocompletion=_complete_scenario)],
) -> None:
    """Print a catalogue file, ready to copy and edit."""
    print(spec.catalogue_text(name), end="")


@scenarios_app.command("keys")
def list_keys(
    name: Annotated[
        str | None, typer.Argument(help="An algorithm; all of them without it.", autocompletion=_complete_algorithm)
    ] = None,
) -> None:
    """List the keys of the [algorithm] table: what each may be, its default, and what it means."""
    if name is not None and name not in ALGORITHMS:
        raise ScenarioError([f"There is no algorithm {name!r}; this installation has {', '.join(ALGORITHMS)}."])
    for algorithm in [name] if name is not None else [known for known, _ in ALGORITHMS.loadable()]:
        out.print(f"{algorithm}: {ALGORITHMS[algorithm].summary}", soft_wrap=True)
        rows = [("key", "must be", "default", "meaning")]
        rows += [
            (key.name, key.requirement, "" if key.default is None else json.dumps(key.default), key.sentence)
            for key in settings(ALGORITHMS[algorithm].Settings)
        ]
        print_table(rows)
        out.print()


@app.command()
def schema() -> None:
    """Print the JSON schema of scenario files, for editors."""
    print(json.dumps(spec.json_schema(), indent=1))


@app.command()
def audit(
    context: typer.Context,
    scenario: Annotated[
        str | None,
        typer.Argument(
            help="A TOML file, or the name of a scenario in the catalogue; without it, single sums.",
            autocompletion=_complete_scenario,
        ),
    ] = None,
    sites: Annotated[int | None, typer.Option(min=3, help="Number of sites; of single sums 5 without it.")] = None,
    changes: Annotated[list[str] | None, typer.Option("--set", help="key.path=value; may be repeated.")] = None,
    folder: Annotated[
        Path | None, typer.Option("--out", help="Folder for the run, or for audit.json and audit.html of single sums.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the table as JSON and nothing else.")] = False,
) -> None:
    """Attack a whole run and show who recovers what; without a scenario, show which coalitions open a single sum.

    A scenario is run, and attacked as the coordinator alone, each site alone, and the coordinator with each site would.
    """
    if scenario is not None:
        _audit_run(scenario, sites, changes or [], folder, context.find_root().obj, as_json=as_json)
    elif changes:
        raise ScenarioError(["--set: is of a scenario; name one, or leave it out."])
    elif sites is not None and sites > MAX_AUDITED_SITES:
        raise ScenarioError([f"--sites: must be {MAX_AUDITED_SITES} at most, since there are 2^n coalitions."])
    else:
        _audit_sums(DEFAULT_AUDITED_SITES if sites is None else sites, folder, as_json=as_json)


def _audit_run(
    scenario: str, sites: int | None, changes: list[str], folder: Path | None, began: float, *, as_json: bool
) -> None:
    chosen, base = spec.read(scenario, overrides=changes, sites=sites)
    show = functools.partial(_show_audit, as_json=as_json)
    _run(chosen, base, folder, show, began=began, silent=as_json, audit=True)


def _show_audit(result: RunResult, folder: Path, *, as_json: bool) -> None:
    from fedsvm.scenarios.report import whole_run

    if as_json:
        print(json.dumps([asdict(each) for each in result.audit], indent=1))
    elif result.status == "completed":
        print_table([whole_run.HEAD, *whole_run.table(result.audit)])
        out.print(f"\nwhole run  {whole_run.line(result.audit)}", highlight=False, markup=False, soft_wrap=True)
        out.print(f"results    {folder}", highlight=False, markup=False, soft_wrap=True)


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


def _write_audit(folder: Path, cells: list[Cell], sums: list[SecureSum]) -> None:
    from fedsvm.scenarios.report import heat_map

    try:
        folder.mkdir(parents=True)
    except OSError as error:
        raise ScenarioError([f"--out: no folder {folder} can be made: {error.strerror}; name another."]) from error
    (folder / "audit.json").write_text(json.dumps([asdict(cell) for cell in cells], indent=1) + "\n")
    (folder / "audit.html").write_text(heat_map.page(cells, sums), encoding="utf-8")


@app.command("check-sum")
def check_sum(
    name: Annotated[
        str,
        typer.Argument(help="A secure sum, of this project or of another package.", autocompletion=_complete_sum),
    ],
) -> None:
    """Check a secure sum: exactness, stated cost, handling of lost sites, and stated secrecy."""
    from fedsvm.protocols.analysis import conformance
    from fedsvm.protocols.sums.registry import SUMS

    if name not in SUMS:
        raise ScenarioError([f"There is no secure sum {name!r}; this installation has {', '.join(SUMS)}."])
    try:
        for kept in conformance.check_sum(SUMS[name]()):
            print(f"{name}: {kept}")
    except (conformance.ConformanceError, FederationError) as error:
        complain(str(error))
        raise typer.Exit(FAILED) from None


@data_app.callback()
def list_data(context: typer.Context) -> None:
    """List the built-in data sets, and where others are looked for."""
    if context.invoked_subcommand is None:
        _list_data()


@data_app.command("describe")
def describe_data(
    source: Annotated[str, typer.Argument(help="A file, or the name of a data set.", autocompletion=_complete_data)],
    label: Annotated[str, typer.Option(help="The column of the classes.")] = "label",
    sites: Annotated[int, typer.Option(min=1, help="Into how many sites it would be split.")] = 5,
    split: Annotated[str, typer.Option(help="As data.split of a scenario: random, label-skew, …")] = "random",
    site: Annotated[str | None, typer.Option(help="The column that says whose a row is, in place of a split.")] = None,
) -> None:
    """Show a data set's columns, classes and missing values, and what sites would hold of it."""
    from fedsvm.scenarios.data import describe

    found = describe.describe(source, label, split, sites, Path(), site)
    out.print(f"{visible(source)}: {found.rows} rows, {found.width} columns\n")
    for table in (found.columns, found.classes, found.sites):
        print_table(table)
        out.print()
    for warning in found.warnings:
        out.print(f"note {visible(warning)}", soft_wrap=not out.is_terminal)


@app.command("new")
def new_scenario(
    target: Annotated[Path, typer.Argument(metavar="FILE.toml", help="The scenario to write.")],
    data: Annotated[
        list[str],
        typer.Option(
            help="A file, or the name of a data set; SITE=FILE for each site that has its own.",
            autocompletion=_complete_data,
        ),
    ],
    label: Annotated[str, typer.Option(help="The column of the classes.")] = "label",
    positive: Annotated[str | None, typer.Option(help="Which class is +1.")] = None,
    site: Annotated[str | None, typer.Option(help="The column that says whose a row is.")] = None,
) -> None:
    """Look at a data set, and write a first scenario for it, with comments."""
    from fedsvm.scenarios import draft

    if target.suffix != ".toml":
        raise ScenarioError([f"{target}: the name of a scenario ends in .toml."])
    made = draft.draft(target, _source(data), label, site=site, positive=positive)
    _write_new(target, made.text)
    for ask in made.asks:
        out.print(f"note {visible(ask)}", soft_wrap=True)
    print(target)


def _source(data: list[str]) -> str | dict[str, str]:
    """One source, or those of sites by their names. Raises ScenarioError."""
    if len(data) == 1 and ("=" not in data[0] or Path(data[0]).is_file()):
        return data[0]
    named = dict(each.partition("=")[::2] for each in data)
    if len(named) < len(data) or not all(named.values()) or len(named) < 2:
        raise ScenarioError(
            ["--data: name one table, or of each site its file, such as --data north=n.csv --data south=s.csv."]
        )
    return named


def _list_data() -> None:
    from fedsvm.scenarios.data import sources  # needs pyarrow and scikit-learn

    rows: list[tuple[str, ...]] = [("name", "rows", "columns", "classes", "where")]
    for item in sources.available():
        figures = [str(figure) if figure is not None else "" for figure in (item.rows, item.columns, item.classes)]
        rows.append((item.name, *figures, item.place))
    print_table(rows)
    folder = sources.data_folder()
    place = str(folder) if folder else "is not set"
    out.print(f"{sources.FOLDER_VARIABLE} {place}: files there can be named without path and ending.")


def app_for(asked: list[str]) -> typer.Typer:
    """The application with the one command that is asked for, where one is: to make all ready takes 50 ms."""
    named = [command for command in app.registered_commands if [_name_of(command)] == asked]
    if not named:
        return app
    only = copy.copy(app)
    only.registered_commands, only.registered_groups = named, []
    return only


def _name_of(command: CommandInfo) -> str:
    """What a command is called on the command line."""
    return command.name or (get_command_name(command.callback.__name__) if command.callback else "")


def main(began: float) -> None:
    """Run the command line, given when that was asked for; every error ends in a sentence and an exit status."""
    try:
        try:
            with refused_tasks_explained():
                app_for(sys.argv[1:2])(obj=began)
        finally:
            sys.stdout.flush()
    except OutputLost as error:
        if not error.reader_left:
            complain(f"Standard output cannot be written: {error}.")
        sys.exit(FAILED)
    except ScenarioError as error:
        for problem in error.problems:
            complain(problem)
        sys.exit(WRONG)
    except OSError as error:
        complain(f"{error.filename or 'A file'} cannot be read or written: {error.strerror}.")
        sys.exit(FAILED)
    except FederationError as error:  # before any run: of a sum of another package that cannot be loaded
        complain(str(error))
        sys.exit(WRONG)


def _view(chosen: spec.Scenario, *, silent: bool) -> View:
    if silent:
        return SilentView()
    return LiveView(errors, chosen) if errors.is_terminal else PlainView(errors, chosen.name)


def _make_folder(chosen: spec.Scenario, folder: Path | None) -> Path:
    try:
        return make_folder(chosen, folder)
    except FileExistsError:
        raise ScenarioError([f"--out: {folder} exists already; name a folder that does not, or remove it."]) from None
    except OSError as error:
        raise ScenarioError([f"--out: no folder for the results can be made: {error}."]) from error


def _unreported(folder: Path) -> str:
    """Write the report of a run that is over; why it cannot be written, if it cannot."""
    from fedsvm.scenarios.report import page

    try:
        page.write_report(folder)
    except (OSError, MemoryError, ImportError, ScenarioError) as error:  # libraries that find no memory do not load
        return f"The report cannot be written ({error}); fedsvm report {folder} writes it when that has changed."
    return ""


def _check_tracker(tracker: str) -> None:
    from fedsvm.scenarios import track

    track.check(tracker)


def _untracked(folder: Path, result: RunResult) -> str:
    """Write a run that is over to the tracker; why that cannot be done, if it cannot."""
    from fedsvm.scenarios import track

    try:
        track.track(folder, result)
    except Exception as error:  # noqa: BLE001 - whatever a store may raise, the run is over and written
        return f"The run cannot be written to the tracker ({error}); all of it is in {folder}."
    return ""


def _point_to(folder: Path) -> None:
    if (folder / "result.json").is_file():
        errors.print(f"What is known of the run is in {visible(str(folder))}.", soft_wrap=True)


def _report_failure(result: RunResult, trace: str, folder: Path) -> None:
    if trace:
        errors.print(trace)
    complain(str(result.error))
    _point_to(folder)
    raise typer.Exit(INTERRUPTED if result.status == "interrupted" else FAILED)
