"""What a run asks of a site, in plain values, before anything is computed: a site takes part on these terms or not."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, Self

from fedsvm.federation.errors import Malformed

Routing = Literal["direct", "via-coordinator"]


@dataclass(frozen=True)
class Terms:
    """What a run asks of every site.

    Parameters
    ----------
    program : str
        What is trained: a program of the site's installation.
    settings : mapping
        Its settings, by name.
    sum_name : str
        The secure sum.
    sum_options : mapping of str to float
        Its options.
    min_sites : int
        With fewer sites the run ends.
    shown : tuple of str, default ()
        Steps whose value the settings have every site show the coordinator in the clear.
    gathers : tuple of str, default ()
        All steps whose value may be asked for in the clear, those among them.
    restartable : tuple of str, default ()
        Sites that may be started again in mid-run.
    routing : {"direct", "via-coordinator"}, default "direct"
        How sites reach each other.
    needs_pairwise_keys : bool, default False
        Whether sites agree on secrets two by two.
    releases : bool, default True
        Whether the coordinator gets the model, or the sites alone keep it.
    epsilon : float, optional
        What a run promises of single rows, by all models that it releases; None where it promises nothing.
    seed : int, default 0
        Of the experiment's generators; never of masks or noise.
    reading : mapping, default {}
        How what a site holds is read and dealt, for the floors above.
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
    reading: Mapping[str, Any] = field(default_factory=dict)

    def to_fields(self) -> dict[str, Any]:
        """Plain values for a message."""
        return asdict(self)

    @classmethod
    def from_fields(cls, fields: Mapping[str, Any]) -> Self:
        """What a message carried. Raises Malformed for other fields than these, or of other types."""
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
        return cls(**values)
