"""The built-in data sets.

scikit-learn takes a second to import and is needed for some only, so it is imported where it is used.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedsvm.scenarios.data import census, sphere
from fedsvm.scenarios.data.tables import Table
from fedsvm.scenarios.schema.errors import ScenarioError

SQUARES = tuple(f"{row}-{column}" for row in ("top", "middle", "bottom") for column in ("left", "middle", "right"))
_LINES = [(0, 1, 2), (3, 4, 5), (6, 7, 8), (0, 3, 6), (1, 4, 7), (2, 5, 8), (0, 4, 8), (2, 4, 6)]


def _wins(board: str, player: str) -> bool:
    return any(board[a] == board[b] == board[c] == player for a, b, c in _LINES)


def _final_boards() -> list[str]:
    """Return every board at which a game can end, x moving first, sorted."""
    final: set[str] = set()
    going_on = {"b" * 9}
    for player in itertools.islice(itertools.cycle("xo"), 9):
        moves = itertools.product(going_on, range(9))
        after = {board[:i] + player + board[i + 1 :] for board, i in moves if board[i] == "b"}
        over = {board for board in after if _wins(board, player)}
        final |= over
        going_on = after - over
    return sorted(final | going_on)


def _tic_tac_toe() -> dict[str, NDArray[Any]]:
    """Return all 958 boards at which tic-tac-toe can end; positive if x, who moves first, has won."""
    boards = _final_boards()
    columns = {name: np.array([board[square] for board in boards]) for square, name in enumerate(SQUARES)}
    return columns | {"label": np.array(["positive" if _wins(board, "x") else "negative" for board in boards])}


def _marks_of_tic_tac_toe(source: str) -> Table:
    """Return the boards with a column of 0 and 1 for each mark that a square can have. Raises ScenarioError."""
    if source != MARKS:
        raise ScenarioError([f"data.source: {source!r} must be written {MARKS}."])
    boards = _tic_tac_toe()
    marked = {f"{name}={mark}": (boards[name] == mark).astype(np.float64) for name in SQUARES for mark in "box"}
    return Table(source, marked | {"label": boards["label"]})


def _shifted_census(source: str) -> Table:
    columns = census.columns_by_name(census.read_shift(source))
    return Table(source, columns, elsewhere=np.arange(len(columns["label"])) >= census.ROWS)


def _from_scikit_learn(loader: str) -> Callable[[], dict[str, NDArray[Any]]]:
    def build() -> dict[str, NDArray[Any]]:
        import sklearn.datasets

        bunch = getattr(sklearn.datasets, loader)()
        names = [str(name).replace(" ", "-") for name in bunch.feature_names]
        columns = {name: np.asarray(bunch.data[:, j], dtype=np.float64) for j, name in enumerate(names)}
        return columns | {"label": np.array([str(bunch.target_names[t]) for t in bunch.target])}

    return build


BUILT_IN: dict[str, Callable[[], dict[str, NDArray[Any]]]] = {
    "tic-tac-toe": _tic_tac_toe,
    "wdbc": _from_scikit_learn("load_breast_cancer"),
    "wine": _from_scikit_learn("load_wine"),
    "iris": _from_scikit_learn("load_iris"),
    "digits": _from_scikit_learn("load_digits"),
    census.NAME: census.columns_by_name,
    sphere.NAME: sphere.Sphere().columns_by_name,
}

MARKS = "tic-tac-toe:marks"

WITH_OPTIONS: dict[str, Callable[[str], Table]] = {
    "tic-tac-toe:": _marks_of_tic_tac_toe,
    census.PREFIX: _shifted_census,
    sphere.PREFIX: lambda source: Table(source, sphere.Sphere.read(source).columns_by_name()),
}
"""Tables by sources that have options, by what these sources begin with."""

COMPLETE = frozenset({"tic-tac-toe"})
"""All boards at which a game can end."""
