"""Artificial people with the attributes of the hybrid SVM paper's census: `made-census`, or `made-census:shift=1`.

A stand-in that needs no file: the numbers are drawn, and say nothing of anybody. The label is an income above the
median. With a shift, public rows are of other people, from whom private rows are never drawn: their age, education and
working hours are so many standard deviations higher, and what an income follows from is the same (covariate shift; what
the paper's section 6 asks for).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedsvm.federation.arrays import FloatArray
from fedsvm.scenarios.schema.errors import ScenarioError

NAME = "made-census"
PREFIX = f"{NAME}:"

ROWS = 30_000
_ROWS_ELSEWHERE = 3_000
_MAX_SHIFT = 3.0
_OPTION = f"{PREFIX}shift="


def read_shift(source: str) -> float:
    """Return the shift of a source such as "made-census:shift=0.5". Raises ScenarioError for anything else."""
    try:
        shift = float(source.removeprefix(_OPTION)) if source.startswith(_OPTION) else math.nan
    except ValueError:
        shift = math.nan
    if not abs(shift) <= _MAX_SHIFT:
        most = f"{_MAX_SHIFT:g}"
        raise ScenarioError(
            [f"data.source: {source!r} must be written {_OPTION}1, with a number from -{most} to {most}."]
        )
    return shift


def columns_by_name(shift: float | None = None) -> dict[str, NDArray[Any]]:
    """Return the columns and the label. With a shift, the rows from number `ROWS` on are of the other population."""
    people, income = _draw(np.random.default_rng(2014), ROWS, 0.0, None)
    middle = np.median(income)
    if shift is not None:
        others, other_income = _draw(np.random.default_rng([2014, 1]), _ROWS_ELSEWHERE, shift, income.mean())
        people = {name: np.concatenate([values, others[name]]) for name, values in people.items()}
        income = np.concatenate([income, other_income])
    return people | {"label": np.where(income > middle, "above", "below")}


def _draw(
    random: np.random.Generator, rows: int, shift: float, mean_income: float | None
) -> tuple[dict[str, FloatArray], FloatArray]:
    """Return the columns of people, and their incomes. mean_income: by which they own dwellings; None for their own."""
    age = np.clip(random.normal(42 + 14 * shift, 14, rows), 18, 90).round()
    education = np.clip(random.normal(12 + 3 * shift, 3, rows), 0, 20).round()
    gender = random.integers(0, 2, rows)
    status = np.where(random.random(rows) < 1 / (1 + np.exp((age - 30) / 6)), 0, 1 + (random.random(rows) < 0.25))
    single, married = status == 0, status == 1
    disability = random.random(rows) < 0.02 + 0.002 * np.maximum(age - 30, 0)
    hours = np.clip(random.normal(38 + 12 * shift, 12, rows) - 15 * disability - 20 * (age > 66), 0, 90).round()
    children = random.poisson(np.where(single, 0.1, 1.3))
    family = 1 + married + children
    here = np.minimum(random.exponential(9, rows), age).round()
    native = random.random(rows) < 0.85
    career = 30 - ((age - 50) / 8) ** 2  # income rises until fifty
    income = (
        0.9 * education + 0.12 * hours + 0.15 * career + 1.5 * gender + 1.2 * married - 2 * disability + 0.6 * native
    )
    income = income * np.exp(random.normal(0, 0.18, rows))
    middle = income.mean() if mean_income is None else mean_income
    owner = random.random(rows) < 1 / (1 + np.exp(-(income - middle) / 4 - (age - 40) / 20))
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
    return {name: values.astype(np.float64) for name, values in columns.items()}, income
