"""Parameters of estimators, checked and turned into plain numbers; each raises ValueError that says what is allowed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from numbers import Integral, Real
from typing import Any, NoReturn

import numpy as np

_SEEDS = 2**31


def refuse(name: str, value: Any, wanted: str) -> NoReturn:
    """Raise the ValueError of a parameter that is not what is wanted."""
    raise ValueError(f"{name}={value!r} will not do; it must be {wanted}.")


def finite(name: str, value: Any) -> float:
    """A finite number."""
    if isinstance(value, bool) or not isinstance(value, Real) or not math.isfinite(value):
        refuse(name, value, "a finite number")
    return float(value)


def positive(name: str, value: Any, below: float = math.inf) -> float:
    """A finite number above 0, and below a limit where there is one."""
    limit = f" and below {below:g}" if math.isfinite(below) else ""
    if isinstance(value, bool) or not isinstance(value, Real) or not 0 < float(value) < below:
        refuse(name, value, f"a number above 0{limit}")
    return float(value)


def whole(name: str, value: Any, least: int = 1) -> int:
    """A whole number."""
    if isinstance(value, bool) or not isinstance(value, Integral) or int(value) < least:
        refuse(name, value, f"a whole number from {least}")
    return int(value)


def choice(name: str, value: Any, choices: Sequence[str]) -> Any:
    """One of these words."""
    if not isinstance(value, str) or value not in choices:
        refuse(name, value, f"one of {', '.join(choices)}")
    return value


def share_or_count(name: str, value: Any) -> float:
    """A share of the rows above 0.0 and up to 1.0, as a float, or a count of them, as an int."""
    if isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= 1:
        return int(value)
    if isinstance(value, Real) and not isinstance(value, Integral) and 0 < float(value) <= 1:
        return float(value)
    refuse(name, value, "a share of the rows up to 1.0, or a whole number of them")


def auto_or_positive(name: str, value: Any, auto: float) -> float:
    """A number above 0, or what "auto" stands for."""
    if isinstance(value, str) and value == "auto":
        return auto
    if isinstance(value, str):
        refuse(name, value, 'a number above 0, or "auto"')
    return positive(name, value)


def seed_of(random_state: Any) -> int:
    """A number from 0 for the generators of an experiment: of an int itself, else drawn. Negative ones are refused."""
    if random_state is None:
        return int(np.random.default_rng().integers(_SEEDS))
    if isinstance(random_state, np.random.RandomState):
        return int(random_state.randint(_SEEDS))
    return whole("random_state", random_state, least=0)
