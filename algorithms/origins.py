"""The origin of each array in a model file: what it is computed from, by which mechanism, and to how many digits.

An array that no table here names is taken to be the result of training, which is the most that it can be.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

Basis = Literal["agreed", "names", "statistics", "landmarks", "training", "scores"]
"""The basis of an array: the agreed settings and a public seed, names of columns and values of categories, the
statistics of columns, landmarks, all rows by training, or rows set apart."""

BASES: Mapping[str, Basis] = {
    **dict.fromkeys(("columns", "filled", "category"), "names"),
    **dict.fromkeys(("offset", "scale", "window", "filling"), "statistics"),
    **dict.fromkeys(("landmarks", "map"), "landmarks"),
    **dict.fromkeys(("features", "kernel", "gamma", "degree", "coef0", "dimensions", "scheme", "pairs"), "agreed"),
    **dict.fromkeys(("rho", "longest", "pitches", "shifts", "keys", "places"), "agreed"),
    **dict.fromkeys(("classes", "algorithm", "version", "scaling", "ranged", "ranges"), "agreed"),
    "calibration": "scores",
}

SCALE_DIGITS, ALL_DIGITS = 12, 16
"""Digits of agreed statistics, and of numbers as they are computed."""


@dataclass(frozen=True)
class ArrayOrigin:
    """The origin of an array of a model file.

    Parameters
    ----------
    array : str
    computed_from : str
    mechanism : str
        How it became public, and whether noise covers it.
    digits : int, optional
        Significant digits; None of whole numbers and text.
    """

    array: str
    computed_from: str
    mechanism: str
    digits: int | None


@dataclass(frozen=True)
class Mechanisms:
    """The ways in which a run made what is in its model file public.

    Parameters
    ----------
    scaling : str
        What agrees on scales: "secure-sums", "public-rows" or "sites".
    method : str
        The common scale: "standard", "minmax" or "none".
    statistics_privacy : float
        mu of noisy statistics; 0 of exact ones.
    landmarks : str, default ""
        How landmarks were made; empty without any.
    noise : str, default ""
        The mechanism of differential privacy that covers training; empty without one.
    is_statistics : bool, default False
        True if training makes the model of the statistics alone.
    objective_noise : float, default 0.0
        Size of the noise in the objective of training.
    """

    scaling: str
    method: str
    statistics_privacy: float
    landmarks: str = ""
    noise: str = ""
    is_statistics: bool = False
    objective_noise: float = 0.0

    def origin(self, array: str, values: np.ndarray[Any, Any]) -> ArrayOrigin:
        """Return the origin of an array."""
        basis = BASES.get(array, "training")
        computed_from, mechanism = self._of(basis)
        is_real = values.dtype.kind == "f" and basis not in ("agreed", "names")
        digits = SCALE_DIGITS if basis == "statistics" else ALL_DIGITS
        return ArrayOrigin(array, computed_from, mechanism, digits if is_real else None)

    def _of(self, basis: Basis) -> tuple[str, str]:
        if basis == "agreed":
            return "the scenario", "public"
        if basis == "names":
            return "names of columns, values of categories", "told to all sites, without noise"
        if basis == "statistics":
            return self._of_statistics()
        if basis == "landmarks":
            return "landmarks", self.landmarks or "the scenario"
        if basis == "scores":
            return "scores of rows set apart", "exact secure sums"
        return self._of_training()

    def _of_training(self) -> tuple[str, str]:
        if self.is_statistics and self.statistics_privacy:
            return "all rows of the sites", f"noisy release, mu {self.statistics_privacy:g}"
        whose = "the training records" if self.scaling == "sites" else "all training rows"
        if self.noise:
            return whose, f"differential privacy: {self.noise}"
        if not self.objective_noise:
            return whose, "training, without noise"
        noise = f"noise in the objective ({self.objective_noise:g}) and a little on the released weights"
        return whose, f"training, with {noise}"

    def _of_statistics(self) -> tuple[str, str]:
        if self.scaling == "public-rows":
            return "public rows or declared ranges", "public"
        if self.method == "none":
            return "nothing", "public"
        if self.statistics_privacy:
            return "all rows of the sites", f"noisy release, mu {self.statistics_privacy:g}"
        return "all training rows", "exact secure sums" if self.method == "standard" else "exact extremes"

    def summary(self, arrays: Mapping[str, Any]) -> str:
        """Return a line on the arrays of a model file."""
        return "; ".join(self._clauses(arrays))

    def _clauses(self, arrays: Mapping[str, Any]) -> Iterator[str]:
        if "offset" in arrays and self.method != "none":
            yield f"scale from {' by '.join(self._of('statistics'))}"
        if "landmarks" in arrays:
            yield "landmarks (see their line)"
        yield f"the rest from {' by '.join(self._of('training'))}"


def origins(arrays: Mapping[str, Any], mechanisms: Mechanisms) -> tuple[ArrayOrigin, ...]:
    """Return the origin of every array of a model file."""
    return tuple(mechanisms.origin(name, np.asarray(values)) for name, values in arrays.items())
