"""Counts of the rows that a site holds out, by the decision values of a model.

Sites test a model in this way if the terms say so; the coordinator receives sums of counts, and no decision value.
"""

from __future__ import annotations

import io
import json
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from fedsvm.algorithms.data.columns import LabeledRows
from fedsvm.algorithms.data.score_counts import MAX_BINS, count_scores, size_of
from fedsvm.federation.arrays import FloatArray
from fedsvm.federation.errors import OrderRefused
from fedsvm.federation.site.program import CHECKED, SitePart, free, step

if TYPE_CHECKING:
    from fedsvm.algorithms.data.horizontal import HorizontalSite


class Scorer(Protocol):
    """A model that computes decision values of rows; see `algorithm.Model`."""

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]], parts: Sequence[Mapping[str, NDArray[Any]]] = ()) -> Self:
        """Return the model in a file."""

    def decision_function(self, rows: FloatArray) -> FloatArray:
        """Return (n,) decision values of scaled rows (n, p)."""


class Evaluation(SitePart):
    """Counts of the rows that a site holds out, as a model scores them."""

    def __init__(self, site: HorizontalSite) -> None:
        self._site = site

    @step(
        told={
            "model": free(
                "a file of the agreed kind of model; with protocol.verify, of the weights that sites opened",
                "counts of the held-out rows by a model of its choice, which can name them",
            ),
            "bins, threshold, kept, classes": CHECKED,
        }
    )
    def score_counts(self, model: FloatArray, bins: int, threshold: float, kept: bool, classes: int = 2) -> FloatArray:
        """Return (4 + 2 bins,): counts of the held-out rows by decision value; more for more classes.

        See `score_counts`. Raises OrderRefused for another number of bins or classes than the site's own, for a
        threshold, since none is found by rows that sites hold out, and where `kept` differs from the agreed release.

        model: the bytes of its file, (n,) uint8. kept: whether this site has the part of it that scores.
        """
        self._check_kept(kept)
        site = self._site
        labels = site.partition.arrays["labels"][:, site.tested]
        held = max(2, len(labels))
        if bins != MAX_BINS:
            raise OrderRefused(f"bins must be {MAX_BINS}, got {bins!r}")
        if threshold != 0:
            raise OrderRefused(f"threshold must be 0, got {threshold!r}")
        if classes != held:
            raise OrderRefused(f"classes must be {held}, as in the labels of this site, got {classes!r}")
        if not labels.size:
            return np.zeros(size_of(classes, bins))
        return count_scores(self._decisions(model, kept=kept), labels, threshold, bins)

    @step(
        bound=math.inf,
        told={
            "model": free(
                "a file of the agreed kind of model; with protocol.verify, of the weights that sites opened",
                "ten sums over the held-out rows by a model of its choice and by the site's own",
            ),
            "kept": CHECKED,
        },
    )
    def own_model_counts(self, model: FloatArray, kept: bool) -> FloatArray:
        """Return (10,) the sums over the rows that are held out, by this site's own model and by the federated one.

        See `OwnCounts`. The own model is of this site's training rows alone. Raises OrderRefused where `kept` differs
        from the agreed release.

        model: the bytes of the federated model's file, (n,) uint8. kept: whether this site has the part of it that
        scores.
        """
        self._check_kept(kept)
        site = self._site
        every = site.partition.arrays["labels"]
        labels = every[0] if len(every) == 1 else every.argmax(axis=0).astype(np.float64)
        train, test = (
            LabeledRows(site.scaled, labels[site.training]),
            LabeledRows(site.rows_tested, labels[site.tested]),
        )
        names = tuple(map(str, site.terms.reading.get("classes") or range(max(2, len(every)))))
        federated = self._decisions(model, kept=kept) if len(test.rows) else np.zeros(0)
        settings = site.settings_type(**site.terms.settings)
        return site.compare_own(settings, train, test, names, site.weights, federated)

    def _check_kept(self, kept: bool) -> None:
        """Raise OrderRefused if `kept` differs from the agreed release."""
        releases = self._site.terms.releases
        if kept is not (not releases):
            raise OrderRefused(f"kept must be {json.dumps(not releases)}, as the agreed release says")

    def _decisions(self, model: FloatArray, *, kept: bool) -> FloatArray:
        """Return decision values of the rows that are held out."""
        with np.load(io.BytesIO(model.tobytes())) as file:
            arrays = dict(file)
        parts = []
        if kept:
            with np.load(self._site.settings["model_path"]) as file:
                parts.append(dict(file))
        scorer = self._site.model_type.from_arrays(arrays, parts)
        self._site.require_released(scorer)
        return scorer.decision_function(self._site.rows_tested)
