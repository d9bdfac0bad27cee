"""`fedsvm hub` and `fedsvm join`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedsvm.federation.site.rules import SiteRules
from fedsvm.scenarios.commands.exit_statuses import failing, interrupted_as
from fedsvm.scenarios.commands.options import CorrectionsFile, JsonLog, seconds
from fedsvm.scenarios.console import log_as_json, say
from fedsvm.scenarios.interrupts import terminate_as_interrupted
from fedsvm.scenarios.schema.errors import ScenarioError

_STATE = Path("fedsvm-visits")

app = typer.Typer()


@app.command()
def hub(
    folder: Annotated[Path, typer.Option(help="Folder for the hub's key, database, runs, and mails.")],
    listen: Annotated[str, typer.Option(help="Address to listen on, such as 0.0.0.0:8000.")] = "127.0.0.1:8000",
    url: Annotated[str, typer.Option(help="Public address of the hub, such as https://hub.example.")] = "",
    smtp: Annotated[str, typer.Option(help="Mail server as host:port. Without it, mails are written to files.")] = "",
    sender: Annotated[str, typer.Option(help="Sender address of mails.")] = "fedsvm@localhost",
    database: Annotated[str, typer.Option(help="Database as an SQLAlchemy URL. Default: SQLite in the folder.")] = "",
    every: Annotated[float, typer.Option(help="Polling interval in seconds.", min=0.1, max=3600)] = 2.0,
    demo: Annotated[bool, typer.Option("--demo", help="Create an example task with built-in data.")] = False,
    admin: Annotated[
        list[str] | None, typer.Option(help="Address of an administrator, who sees and cancels all tasks; repeatable.")
    ] = None,
    maker: Annotated[
        list[str] | None,
        typer.Option(help="Address or @domain of users who can create tasks; repeatable. Default: every user."),
    ] = None,
    pyodide: Annotated[
        Path | None,
        typer.Option(help="Folder of a Pyodide distribution, by which participants can take part in their browsers."),
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Check the hub that runs at --url or --listen, then exit.")
    ] = False,
    log_json: JsonLog = False,
) -> None:
    """Run the task service: users create tasks and invite others by mail. Participants need not be online together."""
    from fedsvm.scenarios.hub.health_check import require_health
    from fedsvm.scenarios.hub.server import serve

    if log_json:
        log_as_json("hub")
    if check:
        with failing():
            require_health(url or f"http://{listen}")
        return
    with failing(), interrupted_as("Interrupted; participants can continue when the hub is started again."):
        serve(folder, listen, url, smtp, sender, database, every, admin or (), maker or (), pyodide, demo=demo)


@app.command()
def join(
    link: Annotated[str, typer.Argument(help="Link of the invitation, in single quotes.")],
    data: Annotated[str, typer.Option(help="Your data file. It stays on this machine.")] = "",
    policy: Annotated[Path | None, typer.Option(help="Policy file of this site: see fedsvm policy template.")] = None,
    own: CorrectionsFile = None,
    folder: Annotated[
        Path | None, typer.Option(help="Folder for state between visits (default: fedsvm-visits).")
    ] = None,
    sites: Annotated[
        Path | None, typer.Option(help="Folder of the participants' public keys, NAME.key; refuse others.")
    ] = None,
    predict: Annotated[
        Path | None, typer.Option(help="Your part of the model (model.npz), in a task that predicts new records.")
    ] = None,
    watch: Annotated[bool, typer.Option("--watch", help="Stay connected until the task ends.")] = False,
    decline: Annotated[str | None, typer.Option(help="Decline the invitation or withdraw, with this reason.")] = None,
    wait: Annotated[str, typer.Option(help="Maximum time to retry if the hub cannot be reached.")] = "60s",
) -> None:
    """Join a hub task: process pending work, then exit. Nobody else has to be online."""
    from threadpoolctl import threadpool_limits

    from fedsvm.federation.hosts import certificates
    from fedsvm.scenarios.hosts.new_records import rules_for
    from fedsvm.scenarios.hub.participation import InvitationLink, TaskParticipation
    from fedsvm.scenarios.schema.corrections import read_corrections
    from fedsvm.scenarios.schema.policy import read_policy

    terminate_as_interrupted()
    if not data and decline is None:
        raise ScenarioError(["--data: is missing; name your data file, or use --decline."])
    with failing(), interrupted_as("Interrupted; run the same command again to continue."):
        invitation = InvitationLink.read(link)
        rules = SiteRules() if policy is None else read_policy(policy)
        joining = TaskParticipation(
            invitation,
            data,
            rules if predict is None else rules_for(rules),
            folder if folder is not None else _STATE / invitation.folder,
            lambda sentence: say("join", sentence),
            watch,
            seconds("--wait", wait),
            read_corrections(own),
            None if sites is None else certificates.read_pinned(sites),
            predict,
        )
        with threadpool_limits(1):
            if decline is not None:
                joining.decline(decline)
            else:
                joining.visit()
