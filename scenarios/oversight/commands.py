"""`fedsvm explain`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from fedsvm.scenarios.commands.options import Changes, Names, Scenario, names_of
from fedsvm.scenarios.commands.outputs import write_new
from fedsvm.scenarios.console import out

app = typer.Typer()


@app.command()
def explain(
    scenario: Scenario,
    changes: Changes = None,
    names: Names = None,
    target: Annotated[Path | None, typer.Option("--html", help="Write the page as HTML to this file.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the page as JSON.")] = False,
) -> None:
    """Show what would leave a site in a run: values, sizes, receivers, numbers of orders, and who could undo it."""
    from fedsvm.scenarios.hosts.asked import read_asked
    from fedsvm.scenarios.oversight import explanation

    page = explanation.explain(*read_asked(scenario, changes or [], names_of(names)))
    if target is not None:
        write_new(target, explanation.rendered(page))
        print(target)
    elif as_json:
        print(json.dumps(page.to_fields(), indent=1))
    else:
        out.print(page.to_markdown(), end="", soft_wrap=True)
