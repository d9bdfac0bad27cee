"""The interface of the sections of a run's page.

A section is one module of `sections`: its place, its title, its content, its template and its cards. The page finds it.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from fedsvm.scenarios.report import sections
from fedsvm.scenarios.report.message_flow import read_ledger
from fedsvm.scenarios.run.log import read_log
from fedsvm.scenarios.run.result import RunResult


@dataclass(frozen=True)
class ReportedRun:
    """The files of a run, each read when a section first needs it."""

    folder: Path
    result: RunResult

    @cached_property
    def log(self) -> list[dict[str, Any]]:
        """The events of the run."""
        return read_log(self.folder)

    @cached_property
    def ledger(self) -> list[dict[str, Any]]:
        """The rows of the ledger."""
        return read_ledger(self.folder / "ledger.parquet")

    @property
    def sites(self) -> list[str]:
        """The names of the sites."""
        return [site.name for site in self.result.sites]


@dataclass(frozen=True)
class Card:
    """A figure at the head of the page and in notebooks. place: its order among all cards."""

    place: int
    name: str
    value: str
    beside: str


@dataclass(frozen=True)
class Section:
    """A section of a run's page.

    Parameters
    ----------
    place : int
        Its order on the page.
    id : str
        The anchor of its heading.
    title : str
        Its name in the table of contents.
    content : callable
        Returns the variables of the template. Where all of them are empty, the page has no such section.
    template : str
        Jinja's, with the macros of parts.html.j2. The default is a table of `head` and `rows`.
    heading : str, default ""
        Its heading, if it is not the title.
    cards : callable, optional
        Returns its cards, also where the page has no such section.
    """

    place: int
    id: str
    title: str
    content: Callable[[ReportedRun], Mapping[str, Any]]
    template: str = "{{ grid(head, rows) }}"
    heading: str = ""
    cards: Callable[[RunResult], Iterable[Card]] = lambda result: ()


def find_sections() -> list[Section]:
    """Return the section of each module of `sections`, in the order of the page."""
    names = [module.name for module in pkgutil.iter_modules(sections.__path__)]
    found: list[Section] = [importlib.import_module(f"{sections.__name__}.{name}").SECTION for name in names]
    return sorted(found, key=lambda section: section.place)
