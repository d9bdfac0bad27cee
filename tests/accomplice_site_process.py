"""Sites of which one works with the coordinator: its secret key is one that the coordinator knows."""

from __future__ import annotations

import functools
import sys
from typing import Any

from fedsvm.federation.channel.agreement import KeyAgreement
from fedsvm.federation.processes import forkserver
from fedsvm.federation.site import site_start
from fedsvm.federation.site.assignment import Assignment
from fedsvm.federation.site.program import Installation
from tests.broken_sums import ALL_SUMS
from tests.site_process import Drill

ACCOMPLICE, KNOWN = "site-3", bytes(range(32))


def run_site(assignment: Assignment, *args: Any) -> None:
    if assignment.name == ACCOMPLICE:
        site_start.KeyAgreement = functools.partial(KeyAgreement, private=KNOWN)  # type: ignore[attr-defined, assignment]
    site_start.run_site(assignment, *args)


if __name__ == "__main__":
    forkserver.run_site = run_site  # type: ignore[attr-defined, assignment]
    forkserver.main(Installation({"drill": Drill}, ALL_SUMS), int(sys.argv[1]))
