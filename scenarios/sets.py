"""`fedsvm sets`: set protocols and the scalar product over columns of files, each held by a site process of its own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import numpy as np
import typer
from numpy.typing import NDArray

from fedsvm.federation.arrays import FloatArray
from fedsvm.federation.text import visible
from fedsvm.scenarios.commands.exit_statuses import failing
from fedsvm.scenarios.commands.outputs import make_new
from fedsvm.scenarios.schema.errors import ScenarioError, nearest

if TYPE_CHECKING:
    from fedsvm.federation.federation import Federation
    from fedsvm.federation.site.partition import Partition

_MODULE, _PROGRAM = "fedsvm.algorithms.site_process", "sets"

T = TypeVar("T")
Files = Annotated[list[str], typer.Argument(metavar="FILE", help="Two files or more, one per site.")]
Column = Annotated[str, typer.Option("--column", help="Column to compare. Every file must have it.")]
Out = Annotated[
    Path | None,
    typer.Option("--out", help="Folder for the results: a file per party that learns items. It must not exist yet."),
]

app = typer.Typer()
sets_app = typer.Typer(
    no_args_is_help=True,
    help="Compare columns of several files without revealing their values.",
)
app.add_typer(sets_app, name="sets")


@sets_app.command()
def intersection(files: Files, column: Column, folder: Out = None) -> None:
    """Tell every site which of its values all sites hold.

    Values are compared as they are written.

    Each site learns which of its own values all others hold. The coordinator learns how many encrypted values any of
    the sites have in common, and no value. Everybody learns how many values each site holds. Sites that collude with
    the coordinator learn which of their own values, also guessed ones, are in another set.
    """
    from fedsvm.protocols.sets import program

    items = _items(files, column)
    if folder is not None:
        make_new(folder)

    def learn(federation: Federation) -> int:
        matched = program.intersection(federation)
        if folder is not None:
            federation.run("write_common", folder=str(folder.resolve()), column=column)
        return matched

    matched, cost = _run(_partitions(items), learn)
    print(f"intersection  {matched} values of {column!r} are in all {len(files)} files")
    for number, (file, values) in enumerate(zip(files, items, strict=True), start=1):
        where = f", in {folder}/site-{number}.csv" if folder is not None else ""
        print(f"site-{number}        {file}: learns which {matched} of its {len(values)} values all others hold{where}")
    print("coordinator   learns how many encrypted values any of the sites have in common, and no value")
    print(cost)


@sets_app.command()
def cardinality(files: Files, column: Column) -> None:
    """Count the values that all sites hold.

    Values are compared as they are written.

    No site learns anything about another's values. The coordinator learns how many encrypted values any
    of the sites have in common, and no value. Everybody learns how many values each site holds. Sites that collude with
    the coordinator learn which of their own values, also guessed ones, are in another set.
    """
    from fedsvm.protocols.sets import program

    items = _items(files, column)
    matched, cost = _run(_partitions(items), program.cardinality)
    print(f"cardinality   {matched} values of {column!r} are in all {len(files)} files")
    print("sites         learn nothing but how many values each of them holds")
    print("coordinator   learns how many encrypted values any of the sites have in common, and no value")
    print(cost)


@sets_app.command()
def union(files: Files, column: Column, folder: Out = None) -> None:
    """Reveal the values that any site holds, but not which site.

    Values are compared as they are written, and may have 63 bytes.

    The coordinator learns every value once, and so does the last site, which decrypts them. The first
    site learns how many sites hold each value, but not the value. Everybody learns how many values each site holds.
    """
    from fedsvm.protocols.sets import program
    from fedsvm.protocols.sets.union import MAX_ITEM_BYTES

    items = _items(files, column)
    if problems := [
        f"{file}: a value of column {column!r} must be of at most {MAX_ITEM_BYTES} bytes, got {size}: {value!r}."
        for file, values in zip(files, items, strict=True)
        for value in values
        if (size := len(value.encode())) > MAX_ITEM_BYTES
    ]:
        raise ScenarioError(problems)
    if folder is not None:
        make_new(folder)
    values, cost = _run(_partitions(items), program.union)
    print(f"union         {len(values)} values of {column!r} are in the {len(files)} files")
    if folder is None:
        print("\n".join(map(visible, values)))
        where = ""
    else:
        program.write_column(str(folder / "coordinator.csv"), column, values)
        where = f", in {folder}/coordinator.csv"
    print(f"coordinator   learns every value{where}, and not which site holds it; so does site-{len(files)}")
    print("site-1        learns how many sites hold each value, and not what it is")
    print(cost)


@sets_app.command("scalar-product")
def scalar_product(
    first: Annotated[str, typer.Argument(metavar="FILE", help="File of the first site.")],
    second: Annotated[
        str, typer.Argument(metavar="FILE", help="File of the second site, with the same rows in the same order.")
    ],
    column: Column,
) -> None:
    """Reveal only the scalar product of a column in one file and a column in another.

    The coordinator learns the product, the number of rows, and a power of two that bounds each site's numbers.
    Sites learn the number of rows and the larger of both powers. The coordinator together with one site learns the
    other's column. Whoever chooses one column can learn entries of the other, so the coordinator must not choose it.
    """
    from fedsvm.federation.site.partition import Partition
    from fedsvm.protocols.sets import program

    vectors = {"site-1": _numbers(first, column), "site-2": _numbers(second, column)}
    lengths = [len(vector) for vector in vectors.values()]
    if lengths[0] != lengths[1]:
        raise ScenarioError(
            [
                f"{first} and {second} must have rows of the same records in the same order, got {lengths[0]} and "
                f"{lengths[1]} rows."
            ]
        )
    partitions = {site: Partition({"vector": vector}) for site, vector in vectors.items()}
    product, cost = _run(partitions, program.product)
    print(f"product       {product:.15g} over {lengths[0]} rows of {column!r}")
    print("coordinator   learns the product, and a power of two that bounds each site's numbers")
    print("sites         learn the number of rows and the larger of both powers")
    print(cost)


def _run(partitions: Mapping[str, Partition], learn: Callable[[Federation], T]) -> tuple[T, str]:
    """Return what the coordinator learns, and a line on the cost. Ends with status 3 if the run fails."""
    from fedsvm.federation import report
    from fedsvm.federation.startup import local_federation
    from fedsvm.protocols.sums.plain import PLAIN

    with (
        failing(),
        local_federation(_MODULE, _PROGRAM, partitions, PLAIN, settings={"seed": 0}) as federation,
    ):
        value = learn(federation)
    cost = report.cost(federation)
    return value, (
        f"cost          {cost.rounds} rounds, {cost.hops} hops, {cost.messages} messages of "
        f"{cost.payload_bytes:,} bytes in all"
    )


def _partitions(items: Sequence[list[str]]) -> dict[str, Partition]:
    from fedsvm.federation.site.partition import Partition

    return {f"site-{number}": Partition({}, {"items": values}) for number, values in enumerate(items, start=1)}


def _items(files: Sequence[str], column: str) -> list[list[str]]:
    """Return the column of every file as it is written. Raises ScenarioError, for all files at once, unless it is a
    set."""
    if len(files) < 2:
        raise ScenarioError([f"There must be two files or more, got {len(files)}."])
    items: list[list[str]] = []
    problems: list[str] = []
    for file in files:
        try:
            values: list[str] = _column(file, column, text=True).tolist()
        except ScenarioError as error:
            problems += error.problems
            continue
        items.append(values)
        value, times = Counter(values).most_common(1)[0]
        if "" in values:
            row = values.index("") + 1
            problems.append(f"{file}: column {column!r} must have a value in every row, got none in row {row}.")
        elif times > 1:
            problems.append(
                f"{file}: no two rows may have the same value in column {column!r}, got {value!r} {times} times "
                f"({len(values) - len(set(values))} such rows in all); keep one row of each."
            )
    if problems:
        raise ScenarioError(problems)
    return items


def _numbers(file: str, column: str) -> FloatArray:
    """Return the column of a file as numbers. Raises ScenarioError if one is missing, infinite, or text."""
    values = _column(file, column, text=False)
    if values.dtype.kind != "f":
        raise ScenarioError([f"{file}: column {column!r} must be of numbers, got text such as {str(values[0])!r}."])
    wrong = np.flatnonzero(~np.isfinite(values))
    if wrong.size:
        row, value = wrong[0] + 1, values[wrong[0]]
        raise ScenarioError([f"{file}: column {column!r} must have finite numbers only, got {value} in row {row}."])
    return values


def _column(file: str, column: str, *, text: bool) -> NDArray[Any]:
    from fedsvm.scenarios.data import sources

    columns = sources.read_columns(file, Path(), text=[column] if text else [])
    if column not in columns:
        raise ScenarioError(
            [f"--column: {file} has no column {column!r}.{nearest(column, columns)} It has: {', '.join(columns)}."]
        )
    return columns[column]
