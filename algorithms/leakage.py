"""Statements of what all sums of a run together give away, as the attacks of an audit measure it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Extent = Literal["every row", "every record", "some rows", "members"]
"""A measure of recovery. Records are of a vertical partition; members are training rows among candidates."""

LISTED = "a list of the possible records"

_RECOVERED: dict[Extent, str] = {
    "every row": "recover every row of the other sites",
    "every record": "recover the other sites' columns of every record",
    "some rows": "recover some rows of the other sites",
    "members": "tell better than by chance which candidates are rows of the other sites",
}


@dataclass(frozen=True)
class Recovery:
    """The most that some parties recover from a whole run.

    Parameters
    ----------
    extent : {"every row", "every record", "some rows", "members"}
        The most that an attack has recovered.
    given : str, default ""
        A noun phrase for what the attack works from besides the run.
    otherwise : {"some rows"}, optional
        The most that an attack has recovered without that. None if no attack has recovered anything.
    """

    extent: Extent
    given: str = ""
    otherwise: Literal["some rows"] | None = None

    def __str__(self) -> str:
        """Return a phrase that follows "can"."""
        found = f"{_RECOVERED[self.extent]}{f' from {self.given}' if self.given else ''}"
        return f"{found}, and {self.otherwise} without it" if self.otherwise else found


@dataclass(frozen=True)
class WholeRunLeakage:
    """The most that the coordinator recovers from a whole run, with one colluding site and alone.

    Parameters
    ----------
    with_site : Recovery
        By the coordinator and any one site together.
    alone : Recovery, optional
        By the coordinator alone. None if no attack has recovered anything: this is no proof.
    """

    with_site: Recovery
    alone: Recovery | None = None

    def __str__(self) -> str:
        """Return a clause with the parties as its subject."""
        if self.alone == self.with_site:
            return f"the coordinator, alone or with any one site, can {self.with_site}"
        together = f"the coordinator and any one site together can {self.with_site}"
        return f"{together}; the coordinator alone can {self.alone}" if self.alone else together
