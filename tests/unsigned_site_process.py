"""Sites that take every signature for the coordinator's: with them, a forged order succeeds."""

from __future__ import annotations

import sys

from fedsvm.federation.processes.forkserver import main
from fedsvm.federation.site import signed
from fedsvm.federation.site.program import Installation
from tests.broken_sums import ALL_SUMS
from tests.site_process import PROGRAMS

if __name__ == "__main__":
    signed.is_signed = lambda *of: True  # type: ignore[attr-defined]
    main(Installation(PROGRAMS, ALL_SUMS), int(sys.argv[1]))
