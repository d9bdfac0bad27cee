"""`fedsvm explain` and `fedsvm receipt`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from fedsvm.federation.text import visible
from fedsvm.scenarios.commands.exit_statuses import FAILED
from fedsvm.scenarios.commands.options import Changes, Names, Scenario, Unset, names_of
from fedsvm.scenarios.commands.outputs import write_new
from fedsvm.scenarios.console import out

app = typer.Typer()


@app.command()
def explain(
    scenario: Scenario,
    changes: Changes = None,
    unset: Unset = None,
    names: Names = None,
    target: Annotated[Path | None, typer.Option("--html", help="Write the page as HTML to this file.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the page as JSON.")] = False,
) -> None:
    """Show what would leave a site in a run: values, sizes, receivers, numbers of orders, and who could undo it."""
    from fedsvm.scenarios.hosts.terms_preview import read_asked
    from fedsvm.scenarios.oversight import explanation

    page = explanation.explain(*read_asked(scenario, changes or [], names_of(names), unset or []))
    if target is not None:
        write_new(target, explanation.render_page(page))
        print(target)
    elif as_json:
        print(json.dumps(page.to_fields(), indent=1))
    else:
        out.print(page.to_markdown(), end="", soft_wrap=True)


@app.command()
def receipt(
    path: Annotated[Path, typer.Argument(metavar="PATH", help="A receipt, or a folder with receipts such as a run's.")],
    other: Annotated[
        Path | None, typer.Argument(metavar="OTHER", help="The receipt of another site of the run, to compare.")
    ] = None,
    site: Annotated[str | None, typer.Option(help="The one site to show, of a folder with several.")] = None,
    keys: Annotated[
        Path | None, typer.Option(help="Folder with public keys (NAME.key) that signatures must be of.")
    ] = None,
    target: Annotated[Path | None, typer.Option("--html", help="Write the page as HTML to this file.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the receipts as JSON.")] = False,
) -> None:
    """Show what left a site in a run, to whom and in what form; compare the receipts of two sites.

    The exit status is 3 if a receipt was changed or is not closed, or if two sites had different orders.
    """
    from fedsvm.federation.hosts import certificates
    from fedsvm.scenarios.oversight import receipt_comparison, receipts

    known = None if keys is None else certificates.read_pinned(keys)
    if other is not None:
        records = [receipts.only(path, site, known), receipts.only(other, None, known)]
        comparison = receipt_comparison.compare(*records)
    else:
        records, comparison = receipts.select_receipts(path, site, known), None
    if target is not None:
        write_new(target, receipt_comparison.render_page(records, comparison))
        print(target)
    elif as_json:
        said = comparison.to_fields() if comparison else [record.to_fields() for record in records]
        print(json.dumps(said, indent=1))
    else:
        pages = [comparison.to_text()] if comparison else [record.to_text() for record in records]
        out.print(visible("\n".join(pages), keep="\n"), end="", soft_wrap=True)
    if (comparison and comparison.differences) or not (comparison or all(record.is_whole for record in records)):
        raise typer.Exit(FAILED)
