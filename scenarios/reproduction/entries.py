"""The printed values, and the runs that reproduce them: the files in scenarios/papers, one per paper.

A file has a `name` ("Lu 2016"), a `title`, and entries: one for each table, figure and plot, also for those that cannot
be had, which say why. An entry has rows and columns, as the paper's table has them; a figure has a row for each place
of its horizontal axis, and a column for each curve. A cell is a run of a scenario, changed by what its entry, row,
column and the cell itself say, in this order, and a figure of the run's result, its measure.

Changes that many of them share have a name in the file's `settings`, and where one is written among changes it stands
for them.
"""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from string import Formatter
from typing import Annotated, Literal, Self

from pydantic import Field, ValidationError, model_validator

from fedsvm.scenarios.schema.base import Part
from fedsvm.scenarios.schema.errors import ScenarioError, nearest

FOLDER = Path(__file__).parent.parent / "papers"

Printed = float | Literal[""]
"""A value as a paper prints it; "" where it prints none."""

Kind = Literal["table", "figure", "drawing"]
Picture = Literal["lines", "points", "roc", "boxes", "sizes"]


class Column(Part):
    """A column of a table, or a curve of a figure."""

    name: str
    """As the paper calls it."""
    scenario: str = ""
    """Of its cells, where neither row nor entry say."""
    changes: list[str] = Field(default=[])
    """key.path=value, as of --set, in a file also names of `settings`."""
    measure: str = ""
    """The place of the figure in result.json, such as metrics.accuracy, or the name of a derived figure."""
    less: str = ""
    """Another column, whose value is taken away, seed by seed."""
    within: float | None = None
    """The tolerance of a value, in the entry's unit."""
    scale: float | None = None
    """The factor for figures of results, instead of the one that follows from the entry's unit."""
    better: Literal["higher", "lower", ""] = ""
    """The direction in which values are better than printed ones."""
    differs: bool = False
    """True if values are known to differ, in any row, for the entry's reason."""
    cannot: str = ""
    """Why it cannot be had."""
    drawn: bool = True
    """True if pictures show it."""
    full: bool = False
    """True if only --full has it."""


class Row(Part):
    """A row of a table, or a place of a figure's horizontal axis."""

    name: str
    at: float | None = None
    """The position on the axis."""
    scenario: str = ""
    changes: list[str] = Field(default=[])
    cells: dict[str, list[str]] = Field(default={})
    """Changes of single cells, by the names of their columns."""
    paper: list[Printed] = Field(default=[])
    """The printed values, one a column."""
    within: float | list[float] | None = None
    """In place of what columns say, for all of them or for each."""
    said: list[str] = Field(default=[])
    """Of this project's own values: where they are claimed, as "README.md: accuracy {accuracy:.2f} %", with names of
    columns where figures stand."""
    differs: dict[str, str] = Field(default={})
    """Columns whose value is known to differ, each with a reason of its own."""
    cannot: str = ""
    """Why it cannot be had."""
    sum_of: list[str] = Field(default=[])
    """Rows whose values are added up, seed by seed, in place of runs of its own."""
    deviation_of: str = ""
    """A row whose standard deviation over the seeds it is, in place of runs of its own."""
    note: str = ""
    full: bool | list[str] = False
    """True if only --full has it, or the columns that only --full has."""

    @property
    def derived_from(self) -> list[str]:
        """The rows that it follows from; none of a row with runs of its own."""
        return self.sum_of or ([self.deviation_of] if self.deviation_of else [])

    @property
    def figures(self) -> dict[str, str]:
        """Columns whose values are quoted in `said`, with the format of each."""
        parsed = (field for words in self.said for field in Formatter().parse(words))
        return {name: spec or "" for _, name, spec, _ in parsed if name is not None}


class FigureAxis(Part):
    """The horizontal axis of a figure, whose places are rows of one key's values."""

    label: str
    key: str = ""
    """Of the scenario, such as algorithm.landmarks."""
    values: list[float] = Field(default=[])
    full_values: list[float] = Field(default=[])
    """Those that --full alone has."""
    log: bool = False


class Claim(Part):
    """A statement about the values, tested in the language of `claims`."""

    text: str
    test: str
    differs: str = ""
    """Why it is known not to hold."""
    ours: bool = False
    """Of a paper's entry: whether this project says it, and the paper does not."""
    full: bool = False
    """True if only --full has enough runs to decide."""


class Entry(Part):
    """A table, a figure or a plot."""

    id: Annotated[str, Field(pattern=r"^[a-z]+-[a-z0-9.-]+$")]
    what: str
    """As it is called there: "table 3.2"."""
    page: str = ""
    """Of the printed paper."""
    title: str
    kind: Kind = "table"
    quantity: str = ""
    """The quantity of the values, as label of vertical axes."""
    unit: str = ""
    """Of all values; with % shares are multiplied by 100."""
    decimals: int = 2
    scenario: str = ""
    changes: list[str] = Field(default=[])
    measure: str = "metrics.accuracy"
    within: float | None = None
    better: Literal["higher", "lower", ""] = ""
    judged: bool = True
    """True if values get a verdict; seconds of other machines do not."""
    audit: bool = False
    """True if runs are attacked afterwards, as by fedsvm audit."""
    seeds: int = 1
    """The number of seeds of --quick, from 1 on."""
    full_seeds: int = 5
    quick_changes: list[str] = Field(default=[])
    """Of --quick alone: smaller runs."""
    column: list[Column] = Field(default=[])
    row: list[Row] = Field(default=[])
    axis: FigureAxis | None = None
    claim: list[Claim] = Field(default=[])
    pictures: list[Picture] = Field(default=[])
    """The kinds of pictures: curves over the axis, points over the rows' names, mean ROC curves, boxes of seeds or
    folds, and for each column accuracy by number of columns kept."""
    differs: str = ""
    """Why values differ in columns that say they may."""
    correction: str = ""
    """A sentence on what had to be interpreted in the paper."""
    draws: list[str] = Field(default=[])
    """Of a figure that draws tables of its paper once more: their ids, which have the verdicts."""
    whole: list[str] = Field(default=[])
    """Of a figure that draws a table of differences: the columns that it shows, without taking anything away."""
    cannot: str = ""
    """Why nothing of it can be had."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if [bool(self.cannot), bool(self.column), bool(self.draws)].count(True) != 1:
            raise ValueError(f"{self.id} must have columns, name tables in `draws`, or say in `cannot` why it has none")
        if bool(self.differs) != any(each.differs for each in self.column):
            raise ValueError(f"{self.id}: differs says why values of columns do that say `differs = true`: give both")
        names = [each.name for each in self.column]
        for row in self.rows:
            if row.paper and len(row.paper) != len(names):
                raise ValueError(f"{self.id}, {row.name}: {len(row.paper)} printed values for {len(names)} columns")
            left = row.full if isinstance(row.full, list) else []
            if unknown := [name for name in (*row.cells, *row.differs, *row.figures, *left) if name not in names]:
                raise ValueError(f"{self.id}, {row.name}: there is no column {unknown[0]!r}")
            if isinstance(row.within, list) and len(row.within) != len(names):
                raise ValueError(f"{self.id}, {row.name}: {len(row.within)} tolerances for {len(names)} columns")
            claimed = {name for name, value in zip(names, row.paper, strict=False) if value != ""}
            if row.said and claimed != row.figures.keys():
                raise ValueError(f"{self.id}, {row.name}: said must quote each of its values, and no others")
            for column, printed in zip(self.column, row.paper, strict=False):
                if (
                    printed != ""
                    and self.judged
                    and self.tolerance(row, column) is None
                    and not self.reason(row, column)
                ):
                    raise ValueError(f"{self.id}, {row.name}, {column.name}: within must say what counts as the same")
        own = {row.name for row in self.rows if not row.derived_from}
        if unknown := [name for row in self.rows for name in row.derived_from if name not in own]:
            raise ValueError(f"{self.id}: sum_of and deviation_of must name rows that have runs, got {unknown[0]!r}")
        if len({row.name for row in self.rows}) < len(self.rows) or len(set(names)) < len(names):
            raise ValueError(f"{self.id} has two rows or columns of one name")
        return self

    @model_validator(mode="after")
    def _check_less(self) -> Self:
        plain = [each.name for each in self.column if not each.less and not each.cannot]
        if unknown := [each.less for each in self.column if each.less and each.less not in plain]:
            raise ValueError(
                f"{self.id}: less must name a column that is measured and has none itself, got {unknown[0]!r}"
            )
        of_full = {each.name for each in self.column if each.full}
        if early := [each.name for each in self.column if each.less in of_full and not each.full]:
            raise ValueError(f"{self.id}, {early[0]}: what less names is --full's alone, and so must this be")
        return self

    @property
    def rows(self) -> list[Row]:
        """Its rows, those of the axis among them."""
        return [*self.row, *self._places()]

    def _places(self) -> Iterator[Row]:
        if self.axis is None or not self.axis.key:
            return
        for value in sorted([*self.axis.values, *self.axis.full_values]):
            number = f"{value:g}"
            changes, full = [f"{self.axis.key}={number}"], value in self.axis.full_values
            yield Row(name=number, at=value, changes=changes, full=full)

    def tolerance(self, row: Row, column: Column) -> float | None:
        """Return the tolerance of a cell's value."""
        if not self.judged:
            return None
        of_row = row.within[self.column.index(column)] if isinstance(row.within, list) else row.within
        return next((each for each in (of_row, column.within, self.within) if each is not None), None)

    def reason(self, row: Row, column: Column) -> str:
        """Return why a cell cannot be measured, or ""."""
        return row.cannot or column.cannot

    def reason_to_differ(self, row: Row, column: Column) -> str:
        """Return why a cell's value is known to differ from the printed one, or ""."""
        return row.differs.get(column.name, self.differs if column.differs else "")

    def is_left_to_full(self, row: Row, column: Column) -> bool:
        """Return whether --quick omits a cell."""
        return column.full or (column.name in row.full if isinstance(row.full, list) else row.full)

    def scenario_of(self, row: Row, column: Column) -> str:
        """Return the scenario of a cell; "" if none is named."""
        return row.scenario or column.scenario or self.scenario

    def changes_of(self, row: Row, column: Column, *, full: bool) -> tuple[str, ...]:
        """Return the changes of the scenario; the last change of a key counts."""
        smaller = [] if full else self.quick_changes
        return (*self.changes, *smaller, *row.changes, *column.changes, *row.cells.get(column.name, ()))

    @property
    def is_smaller_in_quick(self) -> bool:
        """True if --full's values are means of more runs, or of larger ones."""
        return self.full_seeds > self.seeds or bool(self.quick_changes)


class Paper(Part):
    """A paper, with all that it shows."""

    name: str
    title: str
    ours: bool = False
    """True if these are claims of this project instead of a paper."""
    settings: dict[Annotated[str, Field(pattern=r"^[a-z0-9-]+$")], list[str]] = Field(default={})
    """Changes that entries share, by name."""
    entry: list[Entry]

    @model_validator(mode="after")
    def _check(self) -> Self:
        tables = {entry.id for entry in self.entry if entry.column}
        if unknown := [name for entry in self.entry for name in entry.draws if name not in tables]:
            raise ValueError(f"draws must name an entry of the same file that has columns, got {unknown[0]!r}")
        for entry in self.entry:
            there = {column.name for each in self.entry if each.id in entry.draws for column in each.column}
            if unknown := [name for name in entry.whole if name not in there]:
                raise ValueError(f"{entry.id}: whole must name columns of what it draws, got {unknown[0]!r}")
        return self


@functools.cache
def papers(folder: Path = FOLDER) -> Mapping[str, Paper]:
    """Return all papers by file name. Raises ScenarioError for a file that cannot be read."""
    found = {path.stem: read(path) for path in sorted(folder.glob("*.toml"))}
    ids = [entry.id for paper in found.values() for entry in paper.entry]
    if twice := sorted({each for each in ids if ids.count(each) > 1}):
        raise ScenarioError([f"{folder}: two entries are called {twice[0]}."])
    return found


def read(path: Path) -> Paper:
    """Return the content of a paper's file, with named settings expanded. Raises ScenarioError, saying what is
    wrong."""
    try:
        paper = Paper.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
        return paper.model_copy(update={"entry": [_written_out(each, paper.settings) for each in paper.entry]})
    except ValidationError as error:
        places = [(".".join(str(part) for part in each["loc"]), each["msg"]) for each in error.errors()]
        raise ScenarioError([f"{path.name}: {place}: {said}." for place, said in places]) from None
    except tomllib.TOMLDecodeError as error:
        raise ScenarioError([f"{path.name} is not valid TOML: {error}."]) from None
    except ValueError as error:
        raise ScenarioError([f"{path.name}: {error}."]) from None


def _written_out(entry: Entry, settings: Mapping[str, list[str]]) -> Entry:
    """Return an entry with named changes expanded. Raises ValueError for an unknown name."""

    def changes(shared: list[str]) -> list[str]:
        if unknown := [each for each in shared if "=" not in each and each not in settings]:
            raise ValueError(f"{entry.id}: {unknown[0]!r} is no key=value, and there is no such name in settings")
        return [change for each in shared for change in settings.get(each, [each])]

    def of_row(row: Row) -> Row:
        cells = {name: changes(each) for name, each in row.cells.items()}
        return row.model_copy(update={"changes": changes(row.changes), "cells": cells})

    return entry.model_copy(
        update={
            "changes": changes(entry.changes),
            "quick_changes": changes(entry.quick_changes),
            "column": [each.model_copy(update={"changes": changes(each.changes)}) for each in entry.column],
            "row": [of_row(each) for each in entry.row],
        }
    )


def entries(folder: Path = FOLDER) -> dict[str, tuple[Paper, Entry]]:
    """Return every entry by its id, with its paper."""
    return {entry.id: (paper, entry) for paper in papers(folder).values() for entry in paper.entry}


def select_ids(ids: list[str], known: Sequence[str]) -> list[str]:
    """Return the ids that are meant: all without any, and for the beginning of an id all that continue it.

    Raises ScenarioError for one that there is not.
    """
    if not ids:
        return list(known)
    found, problems = [], []
    for each in ids:
        meant = [name for name in known if name == each or name.startswith(f"{each}-")]
        if not meant:
            problems.append(f"There is no entry {each!r}.{nearest(each, known)} fedsvm reproduce --list has them all.")
        found += meant
    if problems:
        raise ScenarioError(problems)
    return [name for name in known if name in found]
