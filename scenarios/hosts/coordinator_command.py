"""`fedsvm coordinate`: a run over sites on other hosts, a description of their columns, or predictions of records."""

from __future__ import annotations

from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedsvm.algorithms.column_prediction import RECORDS
from fedsvm.federation.hosts import certificates
from fedsvm.scenarios.commands.exit_statuses import failing, interrupted_as
from fedsvm.scenarios.commands.options import (
    Changes,
    Debug,
    JsonLog,
    OptionalScenario,
    PrintJson,
    RunFolder,
    Unset,
    require_address,
    require_site_name,
    seconds,
)
from fedsvm.scenarios.commands.outputs import make_new, write_new
from fedsvm.scenarios.commands.presentation import (
    Presentation,
    command_line,
    interrupted_run,
    new_folder,
    show_json,
    show_summary,
)
from fedsvm.scenarios.console import Position, errors, log_as_json, say
from fedsvm.scenarios.interrupts import terminate_as_interrupted
from fedsvm.scenarios.report.live import EtaEstimator, PlainView
from fedsvm.scenarios.schema import spec
from fedsvm.scenarios.schema.errors import ScenarioError

if TYPE_CHECKING:
    from fedsvm.federation.federation import Federation
    from fedsvm.scenarios.hosts.coordination import JoinAddress

app = typer.Typer()


@app.command()
def coordinate(
    context: typer.Context,
    listen: Annotated[str, typer.Option(help="Address that sites connect to, such as tcp://0.0.0.0:7100.")],
    key: Annotated[Path, typer.Option(help="Secret key of the coordinator (NAME.key_secret).")],
    scenario: OptionalScenario = None,
    sites: Annotated[
        Path | None, typer.Option(help="Folder with the public keys of the sites (NAME.key). Others are refused.")
    ] = None,
    resumed: Annotated[
        Path | None, typer.Option("--resume", metavar="RUN_DIR", help="Resume a run whose coordinator ended.")
    ] = None,
    wait: Annotated[str, typer.Option(help="Maximum wait for all sites to join, such as 90s, 30m or 2h.")] = "1h",
    rejoin: Annotated[str, typer.Option(help="Maximum wait for a lost site to return (default: none).")] = "",
    describes: Annotated[
        bool,
        typer.Option("--describe", help="Describe the columns of the sites and train nothing (fedsvm describe)."),
    ] = False,
    predicts: Annotated[
        Path | None,
        typer.Option(
            "--predict", metavar="RUN_DIR", help="Predict new records of sites that have parts of this run's model."
        ),
    ] = None,
    receiver: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="With --predict: who gets them, a site or coordinator (default: the labels' site)."
        ),
    ] = None,
    records: Annotated[int, typer.Option(min=1, help="With --predict: maximum number of records.")] = RECORDS,
    changes: Changes = None,
    unset: Unset = None,
    folder: RunFolder = None,
    as_json: PrintJson = False,
    log_json: JsonLog = False,
    debug: Debug = False,
) -> None:
    """Run a scenario over sites on other hosts: wait until all have joined, then train."""
    terminate_as_interrupted()
    follower = _Follower()
    if log_json:
        log_as_json("coordinator", follower.position)
    shown = Presentation(show_json if as_json else show_summary, context.find_root().obj, as_json, debug)
    if resumed is not None:
        if scenario is not None or sites is not None or changes or unset or folder is not None or describes:
            raise ScenarioError(["--resume takes scenario, sites and folder from the run; remove the other options."])
        _resume(resumed, listen, key, wait, rejoin, shown, follower)
    elif predicts is not None:
        if scenario is not None or sites is None or changes or unset or describes:
            raise ScenarioError(["--predict needs --sites and takes all else from the run; remove the other options."])
        meeting = _meeting(listen, key, _admitted_in(sites), wait, rejoin)
        _predict(predicts, receiver, records, meeting, folder)
    elif scenario is None or sites is None:
        raise ScenarioError(["SCENARIO and --sites are needed, except with --resume and --predict."])
    elif receiver is not None or records != RECORDS:
        raise ScenarioError(["--receiver and --records are for --predict; remove them."])
    elif describes:
        meeting = _meeting(listen, key, _admitted_in(sites), wait, rejoin)
        _describe(scenario, changes or [], unset or [], meeting, folder, as_json=as_json)
    else:
        meeting = _meeting(listen, key, _admitted_in(sites), wait, rejoin)
        _coordinate(scenario, changes or [], unset or [], meeting, folder, shown, follower)


class _Follower:
    """The run that this process coordinates, for its log."""

    def __init__(self) -> None:
        self._federation: Federation | None = None

    def position(self) -> Position:
        """Return the run and its last round."""
        run = self._federation
        return (None, None) if run is None else (run.number.hex(), run.progress.round)

    def update(self, view: PlainView, federation: Federation) -> None:
        """Show progress in a view."""
        self._federation = federation
        view.update(federation, [])


def _coordinate(
    scenario: str,
    changes: list[str],
    unset: list[str],
    meeting: JoinAddress,
    folder: Path | None,
    shown: Presentation,
    follower: _Follower,
) -> None:
    """Wait for the sites of a meeting, run the scenario over them, and show its result."""
    from fedsvm.scenarios.hosts import coordination, host_scenario

    chosen = host_scenario.read(scenario, changes, list(meeting.admitted), unset)
    with coordination.listening(meeting) as endpoint:
        target = new_folder(chosen, folder)
        _invite(chosen, meeting, endpoint.address)
        plain = PlainView(errors, chosen.name, EtaEstimator.of(chosen))
        with interrupted_run(target):
            run = coordination.CoordinatedRun(
                chosen,
                meeting,
                endpoint,
                target,
                partial(say, "coordinator"),
                partial(follower.update, plain),
                version=version("fedsvm"),
                command=command_line(),
            )
            finished = run.begin(min_sites_chosen=spec.says_min_sites(scenario, changes, unset))
    shown.conclude(finished, target)


def _describe(
    scenario: str,
    changes: list[str],
    unset: list[str],
    meeting: JoinAddress,
    folder: Path | None,
    *,
    as_json: bool,
) -> None:
    """Wait for the sites of a meeting, and show a description of their columns."""
    from fedsvm.scenarios import description
    from fedsvm.scenarios.commands import describe
    from fedsvm.scenarios.hosts import coordination, host_description, host_scenario

    chosen = description.describable(host_scenario.read(scenario, changes, list(meeting.admitted), unset))
    if folder is not None:
        make_new(folder)
    with failing(), interrupted_as("Interrupted; nothing was described."), coordination.listening(meeting) as endpoint:
        _invite(chosen, meeting, endpoint.address)
        found = host_description.describe(
            chosen,
            meeting,
            endpoint,
            partial(say, "coordinator"),
            min_sites_chosen=spec.says_min_sites(scenario, changes, unset),
            version=version("fedsvm"),
        )
    if folder is not None:
        describe.write(found, chosen.name, folder)
    describe.show(found, as_json=as_json)


def _predict(run: Path, receiver: str | None, records: int, meeting: JoinAddress, folder: Path | None) -> None:
    """Wait for the sites of a split model, and ask them for decision values of new records."""
    from fedsvm.scenarios.column_prediction import read_split_model
    from fedsvm.scenarios.hosts import coordination, prediction

    model = read_split_model(run)
    request, meeting = model.request(receiver, records), prediction.meeting_of(model, meeting)
    if folder is not None:
        make_new(folder)
    tell = partial(say, "coordinator")
    with (
        failing(),
        interrupted_as("Interrupted; nothing was predicted."),
        coordination.listening(meeting) as endpoint,
    ):
        _invite(model.scenario, meeting, endpoint.address, " --predict NAME.npz")
        answer = prediction.predict(model, request, meeting, endpoint, tell, version=version("fedsvm"))
    tell(f"{request.receiver} has the predictions of {answer.records} records")
    if answer.decisions is not None:
        rows = [str(number) for number in range(1, answer.records + 1)]
        text = "\n".join([*model.predictions(answer.decisions, ("row", rows)).lines(), ""])
        if folder is None:
            print(text, end="")
        else:
            write_new(folder / "predictions.csv", text)


def _invite(chosen: spec.Scenario, meeting: JoinAddress, address: str, more: str = "") -> None:
    """Print where the coordinator listens, and the command of every site. more: options of it."""
    say("coordinator", f"listens at {address} for {', '.join(meeting.admitted)}; each runs:")
    errors.print(f"  {_join_line(meeting, address, direct=chosen.protocol.routing == 'direct')}{more}", soft_wrap=True)


def _resume(
    folder: Path, listen: str, key: Path, wait: str, rejoin: str, shown: Presentation, follower: _Follower
) -> None:
    """Take the place of a coordinator that ended, whose sites wait."""
    from fedsvm.scenarios.hosts import coordination
    from fedsvm.scenarios.run import resume
    from fedsvm.scenarios.run.result import RESULT, read_result

    tell = partial(say, "coordinator")
    if (folder / RESULT).is_file() and read_result(folder).status == "completed":
        raise ScenarioError([f"{folder} is completed; nothing is left to resume."])
    with resume.reopen_journal(folder, tell) as (journal, chosen, _):
        if "tickets" not in journal.header:
            raise ScenarioError([f"{folder} is a run on one machine; resume it by fedsvm run --resume."])
        meeting = _meeting(listen, key, journal.header["admitted"], wait, rejoin)
        with coordination.listening(meeting) as endpoint:
            say("coordinator", f"listens at {endpoint.address} for {', '.join(journal.header['tickets'])}")
            plain = PlainView(errors, chosen.name, EtaEstimator.of(chosen))
            with failing(), interrupted_run(folder):
                run = coordination.CoordinatedRun(
                    chosen,
                    meeting,
                    endpoint,
                    folder,
                    tell,
                    partial(follower.update, plain),
                    version=version("fedsvm"),
                    command=command_line(),
                )
                finished = run.go_on(journal)
    shown.conclude(finished, folder)


def _admitted_in(folder: Path) -> dict[str, bytes]:
    """Return the public keys of a folder, by the names of sites. Raises ScenarioError, and FederationError for keys."""
    admitted = certificates.read_admitted(folder)
    for name in admitted:
        require_site_name(f"{folder}/{name}.key", name)
    return admitted


def _meeting(listen: str, key: Path, admitted: dict[str, bytes], wait: str, rejoin: str) -> JoinAddress:
    """Return where a coordinator waits, and for whom. Raises ScenarioError, and FederationError for its key."""
    from fedsvm.scenarios.hosts.coordination import JoinAddress

    require_address("--listen", listen)
    return JoinAddress(
        certificates.read_secret(key),
        listen,
        admitted,
        seconds("--wait", wait),
        wait,
        seconds("--rejoin", rejoin) if rejoin else 0.0,
    )


def _join_line(meeting: JoinAddress, address: str, *, direct: bool) -> str:
    """Return the command of every site, with what only it knows in capitals. direct: sites reach each other."""
    port = address.rpartition(":")[2]
    reached = " --listen tcp://0.0.0.0:PORT --advertise tcp://NAME:PORT" if direct else ""
    return (
        f"fedsvm site --coordinator tcp://HOST:{port} --coordinator-key {meeting.certificate.name}.key "
        f"--key NAME.key_secret --data FILE{reached}"
    )
