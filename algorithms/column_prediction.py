"""Decision values of new records, whose columns are at different sites, by a model that stays split among these.

It is a program of its own, which trains nothing. Each site has its part of a trained model and a file of new records.
The sites align the records, and sum their parts of the kernel between these and the support records. One party, the
receiver, gets decision values. A site that receives them opens the sums itself. If the coordinator receives them, it
opens sums of decision values. For kernels other than the linear one, the first site then opens the sums of kernels, and
so also has the decision values. With fewer than three sites the coordinator opens the sums of kernels.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedsvm.algorithms.data.vertical import Align, VerticalSite, align, alignment_script, max_squared_norm
from fedsvm.algorithms.features.kernel_expansion import KernelExpansion
from fedsvm.algorithms.features.kernels import squared_distances
from fedsvm.algorithms.features.partial_kernel import MIN_SITES_TO_OPEN, element_blocks
from fedsvm.federation.arrays import FloatArray
from fedsvm.federation.errors import FederationError, OrderRefused
from fedsvm.federation.federation import Federation
from fedsvm.federation.site.partition import Partition
from fedsvm.federation.site.private_file import replace_private
from fedsvm.federation.site.program import CHECKED, free, step
from fedsvm.federation.site.script import Script, maybe, repeat, seq
from fedsvm.federation.site.terms import Terms
from fedsvm.federation.transport.keys import COORDINATOR

NAME = "predict"
"""The program, as terms and policies call it."""

RECORDS = 1000
"""The default maximum number of records of one request."""

RULED = ("records", "receiver")
"""The settings that a site's policy can limit."""

OPENED_DISCLOSES = "kernel values of all columns together, between new records and the support records"


class PredictionSite(VerticalSite):
    """The new records of one site, scaled, and its part of the model: see `prediction_partition`."""

    def __init__(self, site: str, partition: Partition, settings: Mapping[str, Any]) -> None:
        super().__init__(site, partition, settings)
        self._reference, self._dual_coef = partition.arrays["reference"], partition.arrays["dual_coef"]
        self._asked = self._opened = (0, 0)
        self._scores: dict[tuple[int, int], FloatArray] = {}

    @classmethod
    def script(cls, terms: Terms) -> Script:
        """Return the script: records are aligned, scored, and kept by name."""
        if terms.settings["kernel"] == "linear":
            scores = seq("partial_scores", maybe("score_opened"))
        else:
            of_coordinator = [maybe("scores_of_opened")] if terms.settings["receiver"] == COORDINATOR else []
            scores = repeat(seq("kernel_to_support", maybe("score_opened"), *of_coordinator))
        return alignment_script(terms, "longest", scores, "keep_answer")

    def check_receiver(self, step: str, receiver: str, sites: Sequence[str]) -> None:
        """Raise OrderRefused for a sum of another receiver than follows from the one that was agreed on."""
        opener = COORDINATOR
        if step in ("partial_scores", "kernel_to_support"):
            settings = self.terms.settings
            opener = _opener(settings["receiver"], sites, is_linear=settings["kernel"] == "linear")
        if receiver != opener:
            raise OrderRefused(f"a sum of step {step!r} must be opened by {opener}, got {receiver}")
        if opener != COORDINATOR and len(sites) < MIN_SITES_TO_OPEN:
            raise OrderRefused(f"of {len(sites)} sites none may open a sum, since it would learn the other's part")

    @property
    def _expansion(self) -> KernelExpansion:
        return KernelExpansion.from_settings(self.terms.settings, self._dual_coef)

    def _new_rows(self) -> FloatArray:
        """Return the records that all sites hold. Raises OrderRefused for more than were agreed on."""
        if len(self.order) > (most := self.terms.settings["records"]):
            raise OrderRefused(
                f"a request for {most} records or fewer was agreed on, and the sites have more in common"
            )
        return self.columns[self.order]

    def take_opened(self, total: FloatArray) -> None:
        """Keep a sum that this site received, and which records it is of."""
        super().take_opened(total)
        self._opened = self._asked

    @step(bound=math.inf)
    def longest(self) -> FloatArray:
        """Return the largest squared norm of a new record or a support record, in the columns of this site."""
        both = [(rows**2).sum(axis=1).max(initial=0.0) for rows in (self._new_rows(), self._reference)]
        return np.array(float(max(both)))

    @step(receiver="either")
    def partial_scores(self) -> FloatArray:
        """Return (n,) or (n, K): this site's part of the decision values, by a linear kernel."""
        rows = self._new_rows()
        self._asked = 0, len(rows)
        return np.asarray(rows @ (self._dual_coef @ self._reference).T)

    @step(
        receiver="either",
        told={
            "first, last": free("two whole numbers", "nothing; each block of the matrix is opened anyway"),
            "distances": CHECKED,
        },
    )
    def kernel_to_support(self, first: int, last: int, distances: bool) -> FloatArray:
        """Return (rows, s): this site's part of the kernel between some new records and the support records."""
        if distances != self._expansion.kernel.of_distances:
            raise OrderRefused("distances must be those that the agreed kernel is of")
        rows, self._asked = self._new_rows()[first:last], (first, last)
        return squared_distances(rows, self._reference) if distances else np.asarray(rows @ self._reference.T)

    @step(
        told={
            "opener": free("a site of the run", "nothing; only the opener has the sum"),
        }
    )
    def score_opened(self, opener: str) -> None:
        """Keep the decision values, without the intercept, if this site opened the sum."""
        if self.site == opener:
            found = self._expansion
            is_linear = found.kernel.name == "linear"
            self._scores[self._opened] = self.opened if is_linear else found.scores_of_sums(self.opened)

    @step(
        bound=math.inf,
        told={
            "opener": free("a site of the run", "nothing; only the opener has the sum"),
            "rows": free("a whole number", "nothing; only empty cells of the table change"),
        },
    )
    def scores_of_opened(self, opener: str, rows: int) -> FloatArray:
        """Return (rows,) or (rows, K): the scores of records whose kernel sums this site opened, otherwise zeros."""
        self.check_row_count(rows)
        return self._scores[self._opened] if self.site == opener else np.zeros(self._expansion.shape(rows))

    @step
    def keep_answer(self) -> None:
        """Write the identifiers of the records, in their common order, to the site's own file.

        A site that receives decision values adds them. The `setting` answer_path says where the file is. Without one,
        or if another site receives, nothing is written.
        """
        path, receiver = self.settings.get("answer_path"), self.terms.settings["receiver"]
        if not path or receiver not in (self.site, COORDINATOR):
            return
        named = self.partition.values.get("identifiers", [str(number + 1) for number in range(len(self.order))])
        kept: dict[str, Any] = {"records": np.array([named[place] for place in self.order], dtype=np.str_)}
        kept["called"] = np.array(self.terms.reading.get("identifier") or "row")
        if receiver == self.site:
            kept["classes"] = np.array(self.terms.settings["classes"], dtype=np.str_)
            kept["decisions"] = self._all_scores() + self._expansion.intercept
        replace_private(path, lambda file: np.savez(file, **kept))

    def _all_scores(self) -> FloatArray:
        """Return the scores of all records in their order. Raises OrderRefused unless each was opened once."""
        blocks = sorted(self._scores)
        if [0, *(last for _, last in blocks)] != [*(first for first, _ in blocks), len(self.order)]:
            raise OrderRefused("each record must be scored once, and is not")
        return np.concatenate([self._scores[block] for block in blocks])


def prediction_partition(
    rows: FloatArray,
    reference: FloatArray,
    dual_coef: FloatArray,
    columns: list[str],
    identifiers: list[str] | None = None,
) -> Partition:
    """Return the data of one site.

    Parameters
    ----------
    rows : (n, p) FloatArray
        The new records, scaled as the model's, in the columns of the site.
    reference : (s, p) FloatArray
        The support records.
    dual_coef : (s,) or (K, s) FloatArray
        Their coefficients.
    columns : list of str
        The names of the columns.
    identifiers : list of str, optional
        Of the new records, if they are aligned by these.
    """
    arrays = {
        "numeric": np.ascontiguousarray(rows),
        "codes": np.zeros((len(rows), 0), dtype=np.int64),
        "reference": np.ascontiguousarray(reference),
        "dual_coef": np.ascontiguousarray(dual_coef),
    }
    values: dict[str, Any] = {"numeric": columns, "categorical": [], "categories": []}
    return Partition(arrays, values if identifiers is None else values | {"identifiers": identifiers})


@dataclass(frozen=True)
class Request:
    """A request for decision values.

    Parameters
    ----------
    model : KernelExpansion
    receiver : str
        The party that gets them: a site, or "coordinator".
    records : int
        The maximum number of records.
    align : {"identifier", "position"}
    classes : tuple of str
        Names of the classes, for the receiver.
    """

    model: KernelExpansion
    receiver: str
    records: int
    align: Align
    classes: tuple[str, ...]

    def to_settings(self) -> dict[str, Any]:
        """Return the settings of the terms that sites agree to."""
        asked = {"receiver": self.receiver, "records": self.records, "classes": list(self.classes)}
        return {**self.model.to_settings(), **asked}


@dataclass(frozen=True)
class Answer:
    """The number of records, and (n,) or (n, K) decision values if the coordinator received them."""

    records: int
    decisions: FloatArray | None


def ask(federation: Federation, request: Request) -> Answer:
    """Ask the sites for decision values of the records that all of them hold. The rounds are of phase "predict".

    Raises FederationError if the sites have no record in common, or more than the request allows.
    """
    with federation.phase("predict"):
        federation.require_all_sites("Its columns are in the model, and no other site has them.")
        records = align(federation, request.align)
        if records > request.records:
            raise FederationError(
                f"The sites have {records} records in common, more than the {request.records} of this request; ask for "
                "more (--records), or have the sites remove some."
            )
        decisions = _decisions(federation, request, records)
        federation.run("keep_answer")
    return Answer(records, decisions)


def _decisions(federation: Federation, request: Request, records: int) -> FloatArray | None:
    """Return decision values if the coordinator receives them."""
    model, receiver = request.model, request.receiver
    longest = max_squared_norm(federation)
    if model.kernel.name == "linear":
        bound, shape = max(1.0, model.largest * longest), model.shape(records)
        found = _sum(federation, "partial_scores", receiver, shape=shape, bound=bound)
        return None if found is None else found + model.intercept
    opener = _opener(receiver, federation.sites, is_linear=False)
    blocks = [
        _scores(federation, request, opener, first, last, bound=4.0 * longest)
        for first, last in element_blocks(records, model.dual_coef.shape[-1])
    ]
    return np.concatenate(blocks) + model.intercept if receiver == COORDINATOR else None


def _opener(receiver: str, sites: Sequence[str], *, is_linear: bool) -> str:
    """Return the party that opens the sums from which decision values follow, by the party that receives these."""
    if receiver == COORDINATOR and not is_linear and len(sites) >= MIN_SITES_TO_OPEN:
        return sites[0]
    return receiver


def _scores(
    federation: Federation, request: Request, opener: str, first: int, last: int, *, bound: float
) -> FloatArray:
    """Return the decision values of some records without the intercept; empty if a site receives them."""
    model, rows = request.model, last - first
    shape = (rows, model.dual_coef.shape[-1])
    terms = {"first": first, "last": last, "distances": model.kernel.of_distances}
    sums = _sum(federation, "kernel_to_support", opener, shape=shape, bound=bound, **terms)
    federation.disclose(opener, "kernel_to_support", OPENED_DISCLOSES, shape)
    if sums is not None:
        return model.scores_of_sums(sums)
    if request.receiver == opener:
        return np.zeros(model.shape(0))
    return federation.sum("scores_of_opened", shape=model.shape(rows), bound=math.inf, opener=opener, rows=rows)


def _sum(
    federation: Federation, name: str, opener: str, *, shape: tuple[int, ...], bound: float, **terms: Any
) -> FloatArray | None:
    """Run a sum, and return it if the coordinator opens it. A site that opens it is ordered to keep decision values."""
    if opener == COORDINATOR:
        opened: FloatArray = federation.sum(name, shape=shape, bound=bound, **terms)
        return opened
    federation.sum(name, receiver=opener, shape=shape, bound=bound, **terms)
    federation.run("score_opened", opener=opener)
    return None
