"""Sites whose masks and messages are bound to no order: with them, attacks of a lying coordinator succeed."""

from __future__ import annotations

import sys

from fedsvm.federation.control import Order
from fedsvm.federation.processes.forkserver import main
from fedsvm.federation.site import order_admission
from fedsvm.federation.site.chain import ChainRound, OrderChain
from fedsvm.federation.site.program import Installation
from tests.broken_sums import ALL_SUMS
from tests.site_process import Drill


class Unbound(OrderChain):
    """A chain without links."""

    def link_of(self, order: Order, number: int) -> ChainRound:
        return ChainRound(number, order.step, order.digest, b"")


if __name__ == "__main__":
    order_admission.OrderChain = Unbound  # type: ignore[attr-defined]
    main(Installation({"drill": Drill}, ALL_SUMS), int(sys.argv[1]))
