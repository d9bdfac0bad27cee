"""A task that describes the columns of all participants and trains nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from fedsvm.federation.federation import Federation
from fedsvm.scenarios import description
from fedsvm.scenarios.hosts.sources import RowsAtHosts
from fedsvm.scenarios.run.result import write_whole

PAGE, VALUES = "description.html", "description.json"
"""The result, as a page and as JSON, in the folder of the task."""

CarryOut = Callable[[Callable[[Federation], None]], None]
"""Is given work, and does it over the federation of the participants."""


def describe(source: RowsAtHosts, folder: Path, carry_out: CarryOut) -> None:
    """Describe columns, and write the description to a folder.

    Parameters
    ----------
    source : RowsAtHosts
        The rows of the participants that joined.
    folder : Path
    carry_out : callable
        See `CarryOut`.
    """
    found = []

    def work(federation: Federation) -> None:
        federation.assemble(need_all=False)
        found.append(description.over(federation, source.scenario, source.schema, source.classes))

    carry_out(work)
    name = source.scenario.name
    page, values = description.page(found[0], name).encode(), description.to_json(found[0]).encode()
    write_whole(folder / PAGE, lambda file: file.write(page))
    write_whole(folder / VALUES, lambda file: file.write(values))
