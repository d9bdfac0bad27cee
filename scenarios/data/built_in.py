"""The built-in data sets.

scikit-learn takes a second to import and is needed for some only, so it is imported where it is used.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedsvm.scenarios.data import sphere

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


CENSUS_ROWS = 30_000


def _made_census() -> dict[str, NDArray[Any]]:
    """Return artificial people with the attributes of the hybrid SVM paper's census; label: income above the median.

    A stand-in that needs no file: the numbers are drawn, and say nothing of anybody.
    """
    random = np.random.default_rng(2014)
    age = np.clip(random.normal(42, 14, CENSUS_ROWS), 18, 90).round()
    education = np.clip(random.normal(12, 3, CENSUS_ROWS), 0, 20).round()
    gender = random.integers(0, 2, CENSUS_ROWS)
    status = np.where(
        random.random(CENSUS_ROWS) < 1 / (1 + np.exp((age - 30) / 6)), 0, 1 + (random.random(CENSUS_ROWS) < 0.25)
    )
    single, married = status == 0, status == 1
    disability = random.random(CENSUS_ROWS) < 0.02 + 0.002 * np.maximum(age - 30, 0)
    hours = np.clip(random.normal(38, 12, CENSUS_ROWS) - 15 * disability - 20 * (age > 66), 0, 90).round()
    children = random.poisson(np.where(single, 0.1, 1.3))
    family = 1 + married + children
    here = np.minimum(random.exponential(9, CENSUS_ROWS), age).round()
    native = random.random(CENSUS_ROWS) < 0.85
    career = 30 - ((age - 50) / 8) ** 2  # income rises until fifty
    income = (
        0.9 * education + 0.12 * hours + 0.15 * career + 1.5 * gender + 1.2 * married - 2 * disability + 0.6 * native
    )
    income = income * np.exp(random.normal(0, 0.18, CENSUS_ROWS))
    owner = random.random(CENSUS_ROWS) < 1 / (1 + np.exp(-(income - income.mean()) / 4 - (age - 40) / 20))
    automobiles = random.poisson(np.clip(0.06 * income, 0.1, 4))
    columns = {
        "age": age,
        "gender": gender,
        "education": education,
        "disability": disability,
        "nationality": native,
        "working-hours": hours,
        "years-in-location": here,
        "owns-dwelling": owner,
        "family-size": family,
        "children": children,
        "automobiles": automobiles,
        "single": single,
        "married": married,
    }
    labels = np.where(income > np.median(income), "above", "below")
    return {name: values.astype(np.float64) for name, values in columns.items()} | {"label": labels}


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
    "made-census": _made_census,
    sphere.NAME: sphere.Sphere().columns_by_name,
}

COMPLETE = frozenset({"tic-tac-toe"})
"""All boards at which a game can end."""
