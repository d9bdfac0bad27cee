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
        The number of the round in the run, from 1.
    step : str
        The step that the sites carried out.
    verb : {"run", "gather", "sum", "sum-at"}
        See `Order.verb`.
    receiver : str
        The party that opened the sum; "" if the round has none.
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
