"""Sites that open a masked sum by lists of dropouts that the other sites did not confirm."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from fedsvm.federation.processes.forkserver import main
from fedsvm.federation.site.program import Installation
from fedsvm.protocols.sums import masked
from fedsvm.protocols.sums.consent import Consent
from tests.broken_sums import ALL_SUMS
from tests.site_process import Drill


class Unconfirmed(Consent):
    """Consent to any list with a threshold of sites."""

    def confirm(self, listed: bytes, digests: Sequence[bytes]) -> None:
        """Compare nothing."""


if __name__ == "__main__":
    masked.Consent = Unconfirmed  # type: ignore[attr-defined]
    main(Installation({"drill": Drill}, ALL_SUMS), int(sys.argv[1]))
