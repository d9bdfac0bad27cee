"""The terms of a run in plain values. A site accepts or declines them before anything is computed."""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, Self

from fedsvm.federation.errors import Malformed

Routing = Literal["direct", "via-coordinator"]

_COMMITTEE = 3
"""Number of members. A site with two roles alone would know as much as two members together."""


@dataclass(frozen=True)
class Terms:
    """The terms that a run asks every site to accept.

    Parameters
    ----------
    program : str
        Program of the site's installation that is trained.
    settings : mapping
        Its settings, by name.
    sum_name : str
        The secure sum.
    sum_options : mapping of str to float
        Its options.
    min_sites : int
        Minimum number of sites; with fewer the run ends.
    shown : tuple of str, default ()
        Steps whose value every site shows the coordinator in the clear under these settings.
    gathers : tuple of str, default ()
        All steps whose value may be gathered in the clear; it includes `shown`.
    restartable : tuple of str, default ()
        Sites that may be restarted during the run.
    routing : {"direct", "via-coordinator"}, default "direct"
        Route of messages between sites.
    needs_pairwise_keys : bool, default False
        True if each pair of sites agrees on secrets.
    releases : bool, default True
        True if the coordinator receives the model, False if only the sites keep it.
    epsilon : float, optional
        Privacy budget for single rows, over all models that the run releases; None if the run is not private.
    seed : int, default 0
        Seed of the experiment's generators; masks and noise never use it.
    committee : tuple of str, default ()
        The members of every committee: two that hold shares, then the dealer. Empty: sites draw them in each round.
    reading : mapping, default {}
        Options for reading and splitting the site's data, used by the floors above.
    """

    program: str
    settings: Mapping[str, Any]
    sum_name: str
    sum_options: Mapping[str, float]
    min_sites: int
    shown: tuple[str, ...] = ()
    gathers: tuple[str, ...] = ()
    restartable: tuple[str, ...] = ()
    routing: Routing = "direct"
    needs_pairwise_keys: bool = False
    releases: bool = True
    epsilon: float | None = None
    seed: int = 0
    committee: tuple[str, ...] = ()
    reading: Mapping[str, Any] = field(default_factory=dict)

    def to_fields(self) -> dict[str, Any]:
        """Return plain values for a message."""
        return asdict(self)

    @functools.cached_property
    def content(self) -> bytes:
        """The bytes that represent these terms in digests and signatures."""
        return json.dumps(self.to_fields(), sort_keys=True, default=str).encode()

    @classmethod
    def from_fields(cls, fields: Mapping[str, Any]) -> Self:
        """Return the terms in a message. Raises Malformed for other fields than these, or of other types."""
        plain = cls("", {}, "", {}, 1)
        known = vars(plain)
        if fields.keys() != known.keys():
            raise Malformed(f"the terms must be {sorted(known)}, got {sorted(map(str, fields))}")
        values: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in fields.items()
        }
        if type(values["epsilon"]) is int:
            values["epsilon"] = float(values["epsilon"])
        for name, value in values.items():
            if type(value) is not type(known[name]) and not (name == "epsilon" and isinstance(value, float)):
                raise Malformed(f"{name} of the terms must be {type(known[name]).__name__}, got {value!r:.80}")
        if values["epsilon"] is not None and not 0 < values["epsilon"] < math.inf:  # NaN is above no budget
            raise Malformed(f"epsilon of the terms must be a finite number above 0, got {values['epsilon']!r}")
        if (members := values["committee"]) and not _are_committee(members):
            raise Malformed(f"committee of the terms must be {_COMMITTEE} different sites or none, got {members!r:.80}")
        return cls(**values)


def _are_committee(members: tuple[Any, ...]) -> bool:
    """Return whether these are as many different names as a committee has."""
    return len(members) == _COMMITTEE == len({name for name in members if isinstance(name, str)})
