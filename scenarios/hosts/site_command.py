"""`fedsvm site`: a site joins a run on other hosts, with the rows of its own file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from pydantic import ValidationError

from fedsvm.federation.hosts import certificates
from fedsvm.federation.site.rules import SiteRules
from fedsvm.scenarios.commands.exit_statuses import failing, interrupted_as
from fedsvm.scenarios.commands.options import CorrectionsFile, JsonLog, require_address, seconds
from fedsvm.scenarios.console import Position, log_as_json, say
from fedsvm.scenarios.interrupts import terminate_as_interrupted
from fedsvm.scenarios.schema.changes import fault_fields
from fedsvm.scenarios.schema.errors import ScenarioError

if TYPE_CHECKING:
    from fedsvm.federation.hosts.certificates import KeyCertificate
    from fedsvm.federation.hosts.site_session import SiteLocation, SiteSession
    from fedsvm.scenarios.schema.corrections import Corrections

app = typer.Typer()


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

    from fedsvm.scenarios.hosts import new_records, preflight, service
    from fedsvm.scenarios.schema.corrections import read_corrections
    from fedsvm.scenarios.schema.policy import read_policy

    terminate_as_interrupted()
    with failing(), interrupted_as("Interrupted; this site takes no part any more."):
        if serves and (policy is None or keep is not None or part is not None):
            raise ScenarioError(
                ["--serve: needs --policy, since nobody looks at each run, and no --keep and no --predict."]
            )
        rules = SiteRules() if policy is None else read_policy(policy)
        if rules.pinned and sites is None:
            raise ScenarioError([f"--policy: {policy} has pinned = true; add --sites, the folder of the sites' keys."])
        preflight.require_files(data, rules)
        place = _location(certificates.read_secret(key), coordinator, coordinator_key, sites, listen, advertise)
        sessions = _Sessions(
            place,
            data,
            part,
            read_corrections(own),
            rules,
            _private_folder(receipts),
            [_fault(place.certificate.name, number, text) for number, text in enumerate(faults or [], start=1)],
            seconds("--wait", wait),
            seconds("--patience", patience),
        )
        if log_json:
            log_as_json(sessions.name, sessions.position)
        if check:
            print(f"{sessions.name} is ready: {preflight.readiness(coordinator, data, sessions.corrections)}")
            return
        with threadpool_limits(1):  # as the sites of a simulation: sums come out the same
            if serves:
                service.serve(
                    lambda: sessions.new(Path(f"{sessions.name}-{datetime.now():%Y%m%dT%H%M%S}.npz")), sessions.tell
                )
            elif part is not None:
                new_records.answer(sessions.new(), keep or Path(f"{sessions.name}-predictions.csv"))
            else:
                sessions.new(keep or Path(f"{sessions.name}.npz")).take_part()


@dataclass
class _Sessions:
    """The runs of one site, one after the other.

    Parameters
    ----------
    place : SiteLocation
    data : str
        The site's file.
    part : Path, optional
        The file of its part of a model, if it predicts.
    corrections : Corrections, optional
        Those of its file.
    rules : SiteRules
        Those of its policy.
    receipts : Path
        The folder for its receipts.
    faults : sequence of dict
        Those that it does to itself.
    wait_s, patience_s : float
        See `SiteSession`.
    """

    place: SiteLocation
    data: str
    part: Path | None
    corrections: Corrections | None
    rules: SiteRules
    receipts: Path
    faults: Sequence[dict[str, Any]]
    wait_s: float
    patience_s: float
    _last: SiteSession | None = field(default=None, init=False)

    @property
    def name(self) -> str:
        """The site's name."""
        return self.place.certificate.name

    def position(self) -> Position:
        """Return the last run and its last round."""
        return (None, None) if self._last is None else self._last.position

    def tell(self, sentence: str) -> None:
        """Print a sentence on standard error, after the site's name."""
        say(self.name, sentence)

    def new(self, model: Path | None = None) -> SiteSession:
        """Return the next run of the site. model: the file for its part of the model, if it trains one."""
        from fedsvm.algorithms.site_process import INSTALLATION
        from fedsvm.federation.hosts.site_session import SiteSession
        from fedsvm.scenarios.hosts.new_records import hold_asked, rules_for

        self._last = SiteSession(
            self.place,
            INSTALLATION,
            version("fedsvm"),
            lambda terms: hold_asked(self.name, self.data, self.part, terms, self.corrections),
            self.tell,
            rules=self.rules if self.part is None else rules_for(self.rules),
            settings={} if model is None else {"model_path": str(model.resolve())},
            receipts=str(self.receipts),
            faults=self.faults,
            wait_s=self.wait_s,
            patience_s=self.patience_s,
        )
        return self._last


def _location(
    certificate: KeyCertificate,
    coordinator: str,
    coordinator_key: Path,
    sites: Path | None,
    listen: str,
    advertise: str,
) -> SiteLocation:
    """Return the addresses and keys of the site and its coordinator. Raises ScenarioError, and FederationError."""
    from fedsvm.federation.hosts.site_session import SiteLocation
    from fedsvm.federation.transport.addresses import is_wildcard

    for option, address in {"--coordinator": coordinator, "--listen": listen, "--advertise": advertise}.items():
        if address or option == "--coordinator":
            require_address(option, address)
    if advertise and not listen:
        raise ScenarioError(["--advertise: is where others reach what --listen opens; add --listen."])
    if is_wildcard(reached := advertise or listen):
        raise ScenarioError(
            [f"--advertise: must be an address that other sites can connect to, got {reached}; name this machine."]
        )
    return SiteLocation(
        certificate,
        coordinator,
        certificates.read_public(coordinator_key),
        listen,
        advertise,
        None if sites is None else certificates.read_pinned(sites),
        certificates.read_signing(coordinator_key),
    )


def _private_folder(receipts: Path) -> Path:
    """Make the folder of receipts if it is missing, and return it. Raises ScenarioError."""
    try:
        receipts.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise ScenarioError(
            [f"--receipts: {receipts} cannot be made: {error.strerror}; name another folder."]
        ) from error
    return receipts


def _fault(name: str, number: int, text: str) -> dict[str, Any]:
    """Return a kill or a stall that a site does to itself, as its program takes it. Raises ScenarioError for others."""
    from fedsvm.scenarios.schema.threats import FaultSpec

    given = fault_fields(text)
    try:
        fault = FaultSpec.model_validate({**given, "site": name})
    except ValidationError as error:
        said = "; ".join(each["msg"].removeprefix("Value error, ") for each in error.errors())
        raise ScenarioError([f"--fault {text}: {said}."]) from error
    if fault.on_links:
        raise ScenarioError([f"--fault {text}: a site can rehearse kill and stall; links are its network's."])
    return vars(fault.own(number))
