"""What is said of a trained model in a result, whatever trained it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Figures:
    """None is what does not apply, or what noise does not cover.

    objective, lower_bound, gap: the certificate. bundles: of cuts; each change of membership begins a new one. sites:
    those over whose rows or columns all of this holds. records_exposed: landmarks that are a single row's copy. rank:
    of the features. support: of an exact kernel machine, its support records. frequencies, fit_error: of Fourier
    features, how many there are, and the error of equation 6 as drawn and as fitted.
    """

    objective: float | None
    lower_bound: float | None
    gap: float | None
    converged: bool
    iterations: int | None
    sites: tuple[str, ...]
    bundles: int | None = None
    landmarks: int | None = None
    records_exposed: int | None = None
    rank: int | None = None
    support: int | None = None
    frequencies: int | None = None
    fit_error: Mapping[str, float] | None = None

    def to_fields(self) -> dict[str, Any]:
        """Plain values for a result."""
        return asdict(self) | {"sites": list(self.sites)}
