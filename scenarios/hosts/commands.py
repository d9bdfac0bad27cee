"""`fedsvm coordinate`, `fedsvm site`, `fedsvm keys` and `fedsvm policy`."""

from __future__ import annotations

import json
from datetime import datetime
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from pydantic import ValidationError

from fedsvm.algorithms.column_prediction import RECORDS
from fedsvm.algorithms.registry import ALGORITHMS, DEFAULT_ALGORITHM
from fedsvm.federation.hosts import certificates
from fedsvm.federation.hosts.messages import is_tcp
from fedsvm.federation.site.rules import SiteRules
from fedsvm.scenarios.commands.exit_statuses import FAILED, failing, interrupted_as
from fedsvm.scenarios.commands.options import (
    Changes,
    CorrectionsFile,
    Debug,
    JsonLog,
    Names,
    OptionalScenario,
    PrintJson,
    RunFolder,
    Scenario,
    Unset,
    names_of,
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
from fedsvm.scenarios.schema.federation import require_name

if TYPE_CHECKING:
    from fedsvm.federation.federation import Federation
    from fedsvm.federation.hosts.site_session import Visit
    from fedsvm.scenarios.hosts.coordination import JoinAddress

app = typer.Typer()
keys_app = typer.Typer(no_args_is_help=True, help="Create the key pairs that identify the coordinator and sites.")
app.add_typer(keys_app, name="keys")
policy_app = typer.Typer(no_args_is_help=True, help="Create or check a policy file, which limits what a site allows.")
app.add_typer(policy_app, name="policy")


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
            finished = coordination.coordinate(
                chosen,
                meeting,
                endpoint,
                target,
                lambda sentence: say("coordinator", sentence),
                partial(follower.update, plain),
                min_sites_chosen=spec.says_min_sites(scenario, changes, unset),
                version=version("fedsvm"),
                command=command_line(),
            )
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
    from fedsvm.scenarios.run.runner import Run

    tell = partial(say, "coordinator")
    with resume.reopen_journal(folder, tell) as (journal, chosen, _):
        if "tickets" not in journal.header:
            raise ScenarioError([f"{folder} is a run on one machine; resume it by fedsvm run --resume."])
        meeting = _meeting(listen, key, journal.header["admitted"], wait, rejoin)
        with coordination.listening(meeting) as endpoint:
            say("coordinator", f"listens at {endpoint.address} for {', '.join(journal.header['tickets'])}")
            plain = PlainView(errors, chosen.name, EtaEstimator.of(chosen))
            with interrupted_run(folder):
                finished = coordination.go_on(
                    Run(chosen, coordination.dataset_of(chosen), folder, command_line()),
                    journal,
                    meeting,
                    endpoint,
                    tell,
                    partial(follower.update, plain),
                    version=version("fedsvm"),
                )
    shown.conclude(finished, folder)


def _admitted_in(folder: Path) -> dict[str, bytes]:
    """Return the public keys of a folder, by the names of sites. Raises ScenarioError, and FederationError for keys."""
    admitted = certificates.read_admitted(folder)
    for name in admitted:
        _require_site_name(f"{folder}/{name}.key", name)
    return admitted


def _meeting(listen: str, key: Path, admitted: dict[str, bytes], wait: str, rejoin: str) -> JoinAddress:
    """Return where a coordinator waits, and for whom. Raises ScenarioError, and FederationError for its key."""
    from fedsvm.scenarios.hosts.coordination import JoinAddress

    _require_address("--listen", listen)
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


@app.command()
def site(
    coordinator: Annotated[str, typer.Option(help="Address of the coordinator, such as tcp://host:7100.")],
    coordinator_key: Annotated[Path, typer.Option(help="Public key of the coordinator (coordinator.key).")],
    key: Annotated[Path, typer.Option(help="Secret key of this site (NAME.key_secret).")],
    data: Annotated[str, typer.Option(help="Data file of this site. It stays on this machine.")],
    policy: Annotated[Path | None, typer.Option(help="Policy file of this site: see fedsvm policy template.")] = None,
    own: CorrectionsFile = None,
    sites: Annotated[
        Path | None, typer.Option(help="Folder with the public keys of the other sites (NAME.key). Others are refused.")
    ] = None,
    listen: Annotated[str, typer.Option(help="Address to listen on for other sites, such as tcp://0.0.0.0:7101.")] = "",
    advertise: Annotated[
        str, typer.Option(help="Address other sites use to reach this one, if different from --listen.")
    ] = "",
    wait: Annotated[str, typer.Option(help="Maximum wait for a run to start or resume: 90s, 30m, 2h.")] = "1h",
    patience: Annotated[str, typer.Option(help="Maximum silence of the coordinator during a run.")] = "10m",
    faults: Annotated[
        list[str] | None,
        typer.Option("--fault", help="Test a failure of this site: kill:phase=train,round=5, or stall."),
    ] = None,
    receipts: Annotated[Path, typer.Option(help="Folder for this site's receipt (fedsvm receipt).")] = Path(),
    keep: Annotated[
        Path | None,
        typer.Option(
            help="File for this site's part of the model (default: NAME.npz, with --serve NAME-TIME.npz), or with "
            "--predict for predictions (NAME-predictions.csv)."
        ),
    ] = None,
    part: Annotated[
        Path | None,
        typer.Option("--predict", help="Predict the new records of --data with this file, the site's part of a model."),
    ] = None,
    serves: Annotated[bool, typer.Option("--serve", help="Take part in every run that the policy allows.")] = False,
    check: Annotated[
        bool, typer.Option("--check", help="Check keys, policy, data and the coordinator's address, then exit.")
    ] = False,
    log_json: JsonLog = False,
) -> None:
    """Join a run as a site, with the rows of one file. The rows stay here."""
    from threadpoolctl import threadpool_limits

    from fedsvm.algorithms.site_process import INSTALLATION
    from fedsvm.federation.hosts.site_session import SiteLocation, Visit
    from fedsvm.scenarios.hosts import new_records, preflight, service
    from fedsvm.scenarios.schema.corrections import Corrections
    from fedsvm.scenarios.schema.own_file import read_table_file
    from fedsvm.scenarios.schema.policy import read_policy

    terminate_as_interrupted()
    with failing(), interrupted_as("Interrupted; this site takes no part any more."):
        _require_address("--coordinator", coordinator)
        for option, address in {"--listen": listen, "--advertise": advertise}.items():
            if address:
                _require_address(option, address)
        if advertise and not listen:
            raise ScenarioError(["--advertise: is where others reach what --listen opens; add --listen."])
        _make_folder(receipts)
        certificate = certificates.read_secret(key)
        name = certificate.name
        visits: list[Visit] = []
        if log_json:
            log_as_json(name, lambda: visits[-1].position if visits else (None, None))
        if serves and (policy is None or keep is not None or part is not None):
            raise ScenarioError(
                ["--serve: needs --policy, since nobody looks at each run, and no --keep and no --predict."]
            )
        rules = SiteRules() if policy is None else read_policy(policy)
        corrections = None if own is None else read_table_file("--corrections", own, Corrections)
        if rules.pinned and sites is None:
            raise ScenarioError([f"--policy: {policy} has pinned = true; add --sites, the folder of the sites' keys."])
        place = SiteLocation(
            certificate,
            coordinator,
            certificates.read_public(coordinator_key),
            listen,
            advertise,
            None if sites is None else certificates.read_pinned(sites),
            certificates.read_signing(coordinator_key),
        )
        if check:
            print(f"{name} is ready: {preflight.readiness(coordinator, data, corrections)}")
            return

        def new_visit() -> Visit:
            kept = (
                keep
                if keep is not None
                else Path(f"{name}-{datetime.now():%Y%m%dT%H%M%S}.npz" if serves else f"{name}.npz")
            )
            visit = Visit(
                place,
                INSTALLATION,
                version("fedsvm"),
                lambda terms: new_records.hold_asked(name, data, part, terms, corrections),
                lambda sentence: say(name, sentence),
                rules=rules if part is None else new_records.rules_for(rules),
                settings={"model_path": str(kept.resolve())},
                receipts=str(receipts),
                faults=[_fault(name, number, text) for number, text in enumerate(faults or [], start=1)],
                wait_s=seconds("--wait", wait),
                patience_s=seconds("--patience", patience),
            )
            visits[:] = [visit]
            return visit

        with threadpool_limits(1):  # as the sites of a simulation: sums come out the same
            if serves:
                service.serve(new_visit, lambda sentence: say(name, sentence))
            elif part is not None:
                new_records.answer(new_visit(), keep or Path(f"{name}-predictions.csv"))
            else:
                new_visit().take_part()


def _fault(name: str, number: int, text: str) -> dict[str, Any]:
    """Return a kill or a stall that a site does to itself, as its program takes it. Raises ScenarioError for others."""
    from fedsvm.scenarios.schema.threats import FaultSpec

    given = spec.fault_fields(text)
    try:
        fault = FaultSpec.model_validate({**given, "site": name})
    except ValidationError as error:
        said = "; ".join(each["msg"].removeprefix("Value error, ") for each in error.errors())
        raise ScenarioError([f"--fault {text}: {said}."]) from error
    if fault.on_links:
        raise ScenarioError([f"--fault {text}: a site can rehearse kill and stall; links are its network's."])
    return vars(fault.own(number))


@keys_app.command("new")
def new_key(
    name: Annotated[str, typer.Argument(help="Name of the party: a site's name, or coordinator.")],
    folder: Annotated[Path, typer.Option("--out", help="Folder for the two key files.")] = Path(),
) -> None:
    """Create a key pair: NAME.key to share, and NAME.key_secret to keep secret."""
    if name != "coordinator":
        _require_site_name("NAME", name)
    for path in certificates.create(folder, name):
        print(path)


@policy_app.command("template")
def policy_template(
    algorithm: Annotated[str, typer.Option(help="Algorithm that the site may train.")] = DEFAULT_ALGORITHM,
    name: Annotated[str, typer.Option(help="Name of the site.")] = "site",
) -> None:
    """Print a commented policy file to edit and pass to fedsvm site --policy."""
    from fedsvm.scenarios.schema import policy

    if algorithm not in ALGORITHMS:
        raise ScenarioError([f"There is no algorithm {algorithm!r}; this installation has {', '.join(ALGORITHMS)}."])
    print(policy.template(algorithm, name), end="")


@policy_app.command("check", context_settings={"allow_extra_args": True})
def check_policy(
    context: typer.Context,
    scenario: Scenario,
    policy: Annotated[Path | None, typer.Option(help="The policy file.")] = None,
    data: Annotated[str | None, typer.Option(help="The site's file, to check rows and columns too.")] = None,
    own: CorrectionsFile = None,
    changes: Changes = None,
    unset: Unset = None,
    names: Names = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the answer as JSON.")] = False,
) -> None:
    """List what a policy would refuse in a run, and why. Exit with status 3 if it refuses anything."""
    from fedsvm.scenarios.hosts.preflight import refusals
    from fedsvm.scenarios.hosts.terms_preview import read_asked
    from fedsvm.scenarios.schema.corrections import Corrections
    from fedsvm.scenarios.schema.own_file import read_table_file
    from fedsvm.scenarios.schema.policy import read_policy

    if policy is None or context.args:
        usage = "fedsvm policy check SCENARIO --policy FILE [--data FILE]"
        raise ScenarioError([f"--policy: must name the policy file, beside one scenario; write {usage}."])
    if own is not None and data is None:
        raise ScenarioError(["--corrections: needs --data, the file that they correct."])
    corrections = None if own is None else read_table_file("--corrections", own, Corrections)
    chosen, terms = read_asked(scenario, changes or [], names_of(names), unset or [])
    refused = refusals(read_policy(policy), terms, data, corrections)
    if as_json:
        print(json.dumps({"allowed": not refused, "refused": refused, "rows_checked": data is not None}, indent=1))
    elif refused:
        print(f"{policy} refuses {chosen.name}:", *(f"- {reason}" for reason in refused), sep="\n")
    else:
        unchecked = "" if data is not None else "; rows and columns were not checked (--data)"
        print(f"{policy} allows {chosen.name}{unchecked}")
    if refused:
        raise typer.Exit(FAILED)


def _require_address(option: str, address: str) -> None:
    if not is_tcp(address):
        raise ScenarioError([f"{option}: must be an address such as tcp://north.example:7101, got {address}."])


def _make_folder(receipts: Path) -> None:
    """Make the folder of receipts if it is missing. Raises ScenarioError."""
    try:
        receipts.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise ScenarioError(
            [f"--receipts: {receipts} cannot be made: {error.strerror}; name another folder."]
        ) from error


def _require_site_name(what: str, name: str) -> None:
    try:
        require_name(name)
    except ValueError as error:
        raise ScenarioError([f"{what}: {error}."]) from error
