"""A task that describes the columns of all participants and trains nothing."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

from fedsvm.federation.errors import FederationError
from fedsvm.federation.federation import Federation
from fedsvm.scenarios import description
from fedsvm.scenarios.hosts.sources import RowsAtHosts
from fedsvm.scenarios.run.result import write_whole

PAGE, VALUES = "description.html", "description.json"
"""The result, as a page and as JSON, in the folder of the task."""

CarryOut = Callable[[Callable[[Federation], None]], None]
"""Is given work, and does it over the federation of the participants."""

_LOGGER = logging.getLogger(__name__)


def describe(source: RowsAtHosts, folder: Path, carry_out: CarryOut) -> str | None:
    """Describe columns, and write the description to a folder. Return why this failed; None if it did not.

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

    try:
        carry_out(work)
        name = source.scenario.name
        page, values = description.page(found[0], name).encode(), description.to_json(found[0]).encode()
        write_whole(folder / PAGE, lambda file: file.write(page))
        write_whole(folder / VALUES, lambda file: file.write(values))
    except FederationError as error:
        return str(error)
    except Exception as error:
        _LOGGER.exception("a description failed")
        return f"An internal error: {type(error).__name__}: {error}."
    return None
