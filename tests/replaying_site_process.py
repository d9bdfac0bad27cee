"""Sites that carry out a round twice, with masks that are bound to no order: a difference of two sums is then bare."""

from __future__ import annotations

import sys

from fedsvm.federation.processes.forkserver import main
from fedsvm.federation.site import order_admission
from fedsvm.federation.site.program import Installation
from fedsvm.federation.site.site_policy import SitePolicy
from tests.broken_sums import ALL_SUMS
from tests.site_process import Drill
from tests.unbound_site_process import Unbound

if __name__ == "__main__":
    order_admission.OrderChain = Unbound  # type: ignore[attr-defined]
    SitePolicy.check_round = lambda *told: None  # type: ignore[method-assign]
    main(Installation({"drill": Drill}, ALL_SUMS), int(sys.argv[1]))
