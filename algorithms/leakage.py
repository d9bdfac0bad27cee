"""Statements on the leakage of all sums of a run together, as the attacks of an audit measure it."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

Extent = Literal["every row", "every record", "some rows", "copies"]
"""A measure of recovery. Records are of a vertical partition, and copies are rows that equal a landmark."""

LISTED = "the possible records can be listed"

_RECOVERED: dict[Extent, str] = {
    "every row": "recover every row of the other sites",
    "every record": "recover the other sites' columns of every record",
    "some rows": "recover some rows",
    "copies": "recover rows that equal a landmark",
}


NAMES_ROWS = f"whoever holds the model file can name training rows if {LISTED}"


def limited_by_noise(mu: float, *, has_landmarks: bool, is_whole: bool = False) -> str:
    """Return a clause on what a model file shows whose scale, and landmarks if it has any, have the noise of mu.

    No test of a single row has an area under the curve above Phi(mu / sqrt(2)). is_whole: whether all arrays have it.
    """
    area = (1 + math.erf(mu / 2)) / 2
    if is_whole:
        return f"whoever holds the model file can tell a row with an AUC of {area:.2f} at most (mu {mu:g})"
    if not has_landmarks:
        noisy, rest = "scale", "no noise limits what its other arrays reveal"
    else:
        noisy = "scale and drawn landmarks"
        rest = "no such limit holds for its weights or for landmarks that are means with noise"
    return (
        f"whoever holds the model file can tell a row by its {noisy} with an AUC of {area:.2f} at most (mu {mu:g}), "
        f"and {rest}"
    )


@dataclass(frozen=True)
class Recovery:
    """The most that some parties recover from a whole run.

    Parameters
    ----------
    extent : {"every row", "every record", "some rows", "copies"}
        The most that an attack has recovered.
    given : str, default ""
        A clause on what the attack needs besides the run.
    otherwise : {"some rows", "copies"}, optional
        The most that an attack has recovered without that. None if no attack has recovered anything.
    """

    extent: Extent
    given: str = ""
    otherwise: Extent | None = None

    def without_copies(self) -> Recovery | None:
        """Return what is left if no row equals a landmark; None if nothing is."""
        if self.extent == "copies":
            return None
        return replace(self, otherwise=None) if self.otherwise == "copies" else self

    def __str__(self) -> str:
        """Return a phrase that follows "can"."""
        found = f"{_RECOVERED[self.extent]}{f' if {self.given}' if self.given else ''}"
        if self.otherwise is None:
            return found
        other = _RECOVERED[self.otherwise]
        return f"{found}, and {other.removeprefix('recover ') if found.startswith('recover ') else other} otherwise"


@dataclass(frozen=True)
class WholeRunLeakage:
    """The most that the coordinator recovers from a whole run, with one colluding site and alone, and others alone.

    Parameters
    ----------
    with_site : Recovery, optional
        By the coordinator and any one site together. None if no attack has recovered anything.
    alone : Recovery, optional
        By the coordinator alone. None if no attack has recovered anything: this is no proof.
    one_site : Recovery, optional
        By any one site alone. None if it was not analyzed.
    rows_named : bool
        Whether the model file names listed rows, by exact landmarks and the scale.
    support_named : bool
        Whether the model file names listed rows by exact weights.
    with_members : Recovery, optional
        By the coordinator and two of the three members of a committee, of algorithms that have one.
    """

    with_site: Recovery | None
    alone: Recovery | None = None
    one_site: Recovery | None = None
    rows_named: bool = False
    support_named: bool = False
    with_members: Recovery | None = None

    @property
    def is_file_named(self) -> bool:
        """True if the model file names listed rows."""
        return self.rows_named or self.support_named

    def with_rows_alone(self) -> WholeRunLeakage:
        """Return the same, with at least some rows for the coordinator alone."""
        if self.alone is None or self.alone.extent in ("copies", "some rows"):
            return replace(self, alone=Recovery("some rows"))
        return self

    def with_noisy_landmarks(self) -> WholeRunLeakage | None:
        """Return what is left if landmarks are no exact means of rows; None if nothing is."""
        found = (self.with_site, self.alone, self.one_site, self.with_members)
        with_site, alone, one_site, members = (None if each is None else each.without_copies() for each in found)
        if with_site is None and members is None:
            return None
        return WholeRunLeakage(with_site, alone, one_site, support_named=self.support_named, with_members=members)

    def __str__(self) -> str:
        """Return a clause with the parties as its subject."""
        members = f"the coordinator and two of the three committee members can {self.with_members}"
        clauses = [members] if self.with_members else []
        if self.alone is not None and self.alone == self.with_site:
            clauses.append(f"the coordinator, alone or with any one site, can {self.with_site}")
            clauses += [f"any one site alone can {self.one_site}"] if self.one_site else []
        else:
            clauses += [f"the coordinator and any one site together can {self.with_site}"] if self.with_site else []
            clauses += self._alone()
        clauses += [NAMES_ROWS] if self.is_file_named else []
        return "; ".join(clauses)

    def _alone(self) -> list[str]:
        """Return a clause on the coordinator alone and one on any site alone, or one on both if they are equal."""
        if self.alone is not None and self.alone == self.one_site:
            return [f"the coordinator alone, or any one site alone, can {self.alone}"]
        said = (("the coordinator", self.alone), ("any one site", self.one_site))
        return [f"{who} alone can {found}" for who, found in said if found]
