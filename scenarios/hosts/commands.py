"""`fedsvm keys`, and what `fedsvm coordinate` and `fedsvm site` have to read before anything begins."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from pydantic import ValidationError

from fedsvm.algorithms.registry import ALGORITHMS, DEFAULT_ALGORITHM
from fedsvm.federation.hosts import certificates
from fedsvm.federation.hosts.messages import is_tcp
from fedsvm.federation.site.rules import SiteRules
from fedsvm.federation.text import visible
from fedsvm.scenarios.console import errors
from fedsvm.scenarios.schema.errors import ScenarioError
from fedsvm.scenarios.schema.federation import require_name

if TYPE_CHECKING:
    from fedsvm.federation.hosts.visit import Visit
    from fedsvm.scenarios.hosts.coordination import Meeting

keys_app = typer.Typer(no_args_is_help=True, help="Create and show the keys that identify parties on different hosts.")

policy_app = typer.Typer(no_args_is_help=True, help="Policies: files that say what a site allows.")

_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


@keys_app.command("new")
def new_key(
    name: Annotated[str, typer.Argument(help="The party's: a site's name, or coordinator.")],
    folder: Annotated[Path, typer.Option("--out", help="Folder for the two files.")] = Path(),
) -> None:
    """Make a key pair: NAME.key to show to the others, and NAME.key_secret to keep."""
    if name != "coordinator":
        _require_site_name("NAME", name)
    for path in certificates.create(folder, name):
        print(path)


@policy_app.command("template")
def policy_template(
    algorithm: Annotated[str, typer.Option(help="What the site is to train.")] = DEFAULT_ALGORITHM,
    name: Annotated[str, typer.Option(help="The site's.")] = "site",
) -> None:
    """Print a policy file to begin with; it is for fedsvm site --policy."""
    from fedsvm.scenarios.schema import policy

    if algorithm not in ALGORITHMS:
        raise ScenarioError([f"There is no algorithm {algorithm!r}; this installation has {', '.join(ALGORITHMS)}."])
    print(policy.template(algorithm, name), end="")


def say(who: str, sentence: str) -> None:
    """Print what happened, for who stands beside."""
    errors.print(f"{who}: {visible(sentence)}", soft_wrap=True)


def admitted_in(folder: Path) -> dict[str, bytes]:
    """The public keys of a folder, by the names of sites. Raises ScenarioError, and FederationError for keys."""
    admitted = certificates.admitted(folder)
    for name in admitted:
        _require_site_name(f"{folder}/{name}.key", name)
    return admitted


def meeting_of(listen: str, key: Path, admitted: dict[str, bytes], wait: str, rejoin: str = "") -> Meeting:
    """Where a coordinator waits, and for whom. Raises ScenarioError, and FederationError for its key."""
    from fedsvm.scenarios.hosts.coordination import Meeting

    _require_address("--listen", listen)
    return Meeting(
        certificates.read_secret(key),
        listen,
        admitted,
        seconds("--wait", wait),
        wait,
        seconds("--rejoin", rejoin) if rejoin else 0.0,
    )


def visit_of(
    coordinator: str,
    coordinator_key: Path,
    key: Path,
    data: str,
    listen: str,
    advertise: str,
    faults: list[str],
    wait: str,
    patience: str,
    keep: Path | None,
    policy: Path | None,
) -> Visit:
    """One site's part in a run that is yet to begin. Raises ScenarioError, and FederationError for keys."""
    from fedsvm.algorithms.site_process import INSTALLATION
    from fedsvm.federation.hosts.visit import Place, Visit
    from fedsvm.scenarios.hosts.holding import hold
    from fedsvm.scenarios.schema.policy import read_policy

    _require_address("--coordinator", coordinator)
    for option, address in {"--listen": listen, "--advertise": advertise}.items():
        if address:
            _require_address(option, address)
    if advertise and not listen:
        raise ScenarioError(["--advertise: is where others reach what --listen opens; add --listen."])
    certificate = certificates.read_secret(key)
    name = certificate.name
    place = Place(certificate, coordinator, certificates.read_public(coordinator_key), listen, advertise)
    kept = (keep if keep is not None else Path(f"{name}.npz")).resolve()
    return Visit(
        place,
        INSTALLATION,
        version("fedsvm"),
        lambda terms: hold(name, data, terms),
        lambda sentence: say(name, sentence),
        rules=SiteRules() if policy is None else read_policy(policy),
        settings={"model_path": str(kept)},
        faults=[_fault(name, number, text) for number, text in enumerate(faults, start=1)],
        wait_s=seconds("--wait", wait),
        patience_s=seconds("--patience", patience),
    )


def join_line(meeting: Meeting, address: str, *, direct: bool) -> str:
    """The line that every site has to run, with what only it knows in capitals. direct: sites reach each other."""
    port = address.rpartition(":")[2]
    reached = " --listen tcp://0.0.0.0:PORT --advertise tcp://NAME:PORT" if direct else ""
    return (
        f"fedsvm site --coordinator tcp://HOST:{port} --coordinator-key {meeting.certificate.name}.key "
        f"--key NAME.key_secret --data FILE{reached}"
    )


def seconds(option: str, text: str) -> float:
    """How long "90", "90s", "30m", "2h" or "1d" is. Raises ScenarioError for other text."""
    unit = _SECONDS.get(text[-1:])
    try:
        found = float(text[:-1] if unit else text) * (unit or 1.0)
    except ValueError:
        found = 0.0
    if not 0 < found <= 30 * _SECONDS["d"]:
        raise ScenarioError([f"{option}: must be a time such as 90s, 30m or 2h, at most 30d, got {text}."])
    return found


def _require_address(option: str, address: str) -> None:
    if not is_tcp(address):
        raise ScenarioError([f"{option}: must be an address such as tcp://north.example:7101, got {address}."])


def _require_site_name(what: str, name: str) -> None:
    try:
        require_name(name)
    except ValueError as error:
        raise ScenarioError([f"{what}: {error}."]) from error


def _fault(name: str, number: int, text: str) -> dict[str, Any]:
    """A kill or a stall that a site does to itself, as its program takes it. Raises ScenarioError for others."""
    from fedsvm.scenarios.schema import spec
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
