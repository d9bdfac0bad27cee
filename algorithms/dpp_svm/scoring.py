"""Scores of held-out records, by sums of the sites' parts."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedsvm.algorithms.dpp_svm.model import DppModel
from fedsvm.algorithms.features.partial_kernel import MIN_SITES_TO_OPEN, element_blocks
from fedsvm.federation.arrays import FloatArray
from fedsvm.federation.federation import Federation

OPENED_DISCLOSES = "kernel values of all columns together, between records held out and the support records"


def decision_values(federation: Federation, model: DppModel, rows: int) -> FloatArray:
    """Return (n,) or (n, K) decision values of the n = `rows` records that the sites hold out.

    With a linear kernel the coordinator learns only the scores. With another, one party must see the sums over sites
    before they become kernel values. That is the first site. With fewer than three sites it is the coordinator, since a
    site would learn the other's part.
    """
    if model.kernel.name == "linear":
        largest_sum = float(np.abs(model.dual_coef).sum(axis=-1).max())  # of a class's absolute coefficients
        bound = max(1.0, largest_sum * model.max_squared_norm)
        return federation.sum("partial_scores", shape=_of_rows(model, rows), bound=bound) + model.intercept
    blocks = [
        _scores(federation, model, first, last) for first, last in element_blocks(rows, model.dual_coef.shape[-1])
    ]
    return np.concatenate(blocks) + model.intercept if blocks else np.zeros(_of_rows(model, 0))


def _of_rows(model: DppModel, rows: int) -> tuple[int, ...]:
    """Return the shape of the scores of this many rows."""
    return (rows, *model.dual_coef.shape[:-1])


def _scores(federation: Federation, model: DppModel, first: int, last: int) -> FloatArray:
    """Return the scores of held-out records `first` to `last`, without the intercept."""
    shape, bound = (last - first, model.dual_coef.shape[-1]), 4.0 * model.max_squared_norm
    terms: dict[str, Any] = {"first": first, "last": last, "held_out": True, "distances": model.kernel.of_distances}
    if len(federation.sites) < MIN_SITES_TO_OPEN:
        sums: FloatArray = federation.sum("reference_kernel", shape=shape, bound=bound, **terms)
        federation.disclose("coordinator", "reference_kernel", OPENED_DISCLOSES, shape)
        return np.asarray(model.kernel.of_sums(sums) @ model.dual_coef.T)
    opener = federation.sites[0]
    federation.sum("reference_kernel", receiver=opener, shape=shape, bound=bound, **terms)
    federation.disclose(opener, "reference_kernel", OPENED_DISCLOSES, shape)
    of_rows = _of_rows(model, last - first)
    return federation.sum("scores_of_opened", shape=of_rows, bound=np.inf, opener=opener, rows=last - first)
