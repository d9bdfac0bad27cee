"""Bytes of a site that take longer."""

from __future__ import annotations

from typing import Annotated

from annotated_types import Ge, Gt, Le

from fedsvm.federation.faults.fault_kind import FaultKey, LinkFault

_MAX_MS = 1e8


class Delay(LinkFault):
    """A longer latency of the links of a site."""

    name = "delay"
    sentence = "`delay_ms` more on the site's links."
    keys = frozenset({"site", "for_s", "direction"})
    own_keys = (
        FaultKey(
            "delay_ms",
            Annotated[float, Ge(0), Le(_MAX_MS), Gt(0)] | None,
            None,
            "For delay: the delay of bytes in milliseconds.",
            missing="delay_ms, the extra milliseconds",
        ),
    )

    def extra_ms(self, size: int) -> float:
        """Return the milliseconds that are added to the latency of some bytes."""
        self.delayed_bytes += size
        return float(self.terms["delay_ms"])


KIND = Delay
