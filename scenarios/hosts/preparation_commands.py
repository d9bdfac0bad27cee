"""`fedsvm keys` and `fedsvm policy`: the files that operators prepare before a run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from fedsvm.algorithms.registry import ALGORITHMS, DEFAULT_ALGORITHM
from fedsvm.federation.hosts import certificates
from fedsvm.scenarios.commands.exit_statuses import FAILED
from fedsvm.scenarios.commands.options import (
    Changes,
    CorrectionsFile,
    Names,
    Scenario,
    Unset,
    names_of,
    require_site_name,
)
from fedsvm.scenarios.schema.errors import ScenarioError

app = typer.Typer()
keys_app = typer.Typer(no_args_is_help=True, help="Create the key pairs that identify the coordinator and sites.")
app.add_typer(keys_app, name="keys")
policy_app = typer.Typer(no_args_is_help=True, help="Create or check a policy file, which limits what a site allows.")
app.add_typer(policy_app, name="policy")


@keys_app.command("new")
def new_key(
    name: Annotated[str, typer.Argument(help="Name of the party: a site's name, or coordinator.")],
    folder: Annotated[Path, typer.Option("--out", help="Folder for the two key files.")] = Path(),
) -> None:
    """Create a key pair: NAME.key to share, and NAME.key_secret to keep secret."""
    if name != "coordinator":
        require_site_name("NAME", name)
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
    from fedsvm.scenarios.schema.corrections import read_corrections
    from fedsvm.scenarios.schema.policy import read_policy

    if policy is None or context.args:
        usage = "fedsvm policy check SCENARIO --policy FILE [--data FILE]"
        raise ScenarioError([f"--policy: must name the policy file, together with one scenario; write {usage}."])
    if own is not None and data is None:
        raise ScenarioError(["--corrections: needs --data, the file that they correct."])
    chosen, terms = read_asked(scenario, changes or [], names_of(names), unset or [])
    refused = refusals(read_policy(policy), terms, data, read_corrections(own))
    if as_json:
        print(json.dumps({"allowed": not refused, "refused": refused, "rows_checked": data is not None}, indent=1))
    elif refused:
        print(f"{policy} refuses {chosen.name}:", *(f"- {reason}" for reason in refused), sep="\n")
    else:
        unchecked = "" if data is not None else "; rows and columns were not checked (--data)"
        print(f"{policy} allows {chosen.name}{unchecked}")
    if refused:
        raise typer.Exit(FAILED)
