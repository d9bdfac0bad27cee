"""The data that a site contributes to a run, and the terms in words for its operator."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedsvm.federation.site.partition import Partition
from fedsvm.federation.site.terms import Terms


@dataclass(frozen=True)
class HeldColumn:
    """A column that a site holds."""

    name: str
    categorical: bool


@dataclass(frozen=True)
class SiteData:
    """The data that a site contributes.

    Parameters
    ----------
    rows : int
        The number of its rows.
    columns : tuple of HeldColumn
        Its columns, in the order of its file.
    partition : callable
        Returns its partition, given the names of the columns in the order that all sites use.
    """

    rows: int
    columns: tuple[HeldColumn, ...]
    partition: Callable[[Sequence[str]], Partition]


def describe_terms(terms: Terms, defaults: Mapping[str, Any] | None) -> str:
    """Return a summary of the terms of a run, for a site's operator.

    defaults: the default settings of the program; settings with their default value are not listed.
    """
    options = ", ".join(f"{name} = {value}" for name, value in terms.sum_options.items())
    listed = [
        f"{name} = {json.dumps(value)}"
        for name, value in terms.settings.items()
        if defaults is None or name not in defaults or defaults[name] != value
    ]
    if len(listed) < len(terms.settings):
        listed.append("defaults otherwise" if listed else "default settings")
    settings = f" ({', '.join(listed)})" if listed else ""
    release = "the coordinator gets the model" if terms.releases else "the sites alone keep its weights"
    committee = f"; committee {', '.join(terms.committee)}" if terms.committee else ""
    return (
        f"{terms.program}{settings}; {terms.sum_name} sums{f' ({options})' if options else ''} of "
        f"{terms.min_sites} sites or more{committee}; {release}"
    )
