"""The values that a round disclosed: the parameters sent to every site, and what the coordinator opened.

Parties can examine a run afterwards as a sequence of these: see `fedsvm.protocols.analysis.views`.
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
        Who opened the sum; "" if the round has none.
    sites : tuple of str
        The sites whose values were opened, in ring order.
    parameters : mapping of str to Any
        Arrays and plain arguments of the step, as sent to all sites.
    opened : FloatArray, mapping of site to FloatArray, or Any
        The sum, or each site's gathered value; None if the coordinator opened nothing.
    """

    number: int
    step: str
    verb: str
    receiver: str
    sites: tuple[str, ...]
    parameters: Mapping[str, Any]
    opened: Any
