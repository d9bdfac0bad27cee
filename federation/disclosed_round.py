"""The values that a round disclosed: the parameters sent to every site, and what the coordinator opened.

A run as a sequence of these is what its parties can look at afterwards: see `fedsvm.protocols.analysis.views`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class DisclosedRound:
    """One complete round.

    Attributes
    ----------
    number : int
        Of the run's rounds, from 1.
    step : str
        What the sites carried out.
    verb : {"run", "gather", "sum", "sum-at"}
        See `Order.verb`.
    receiver : str
        Who opened the sum; "" of what is none.
    sites : tuple of str
        Whose values are in what was opened, in ring order.
    parameters : mapping of str to Any
        Arrays and plain arguments of the step, as all sites were sent them.
    opened : FloatArray, mapping of site to FloatArray, or Any
        The sum, or each site's value where these were gathered; None where the coordinator opened nothing.
    """

    number: int
    step: str
    verb: str
    receiver: str
    sites: tuple[str, ...]
    parameters: Mapping[str, Any]
    opened: Any
