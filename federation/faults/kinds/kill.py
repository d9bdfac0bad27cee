"""The death of a site's process."""

from __future__ import annotations

from collections.abc import Mapping
from signal import SIGKILL
from typing import Any

from fedsvm.federation.faults.fault_kind import FaultKey, SiteFault


class Kill(SiteFault):
    """The end of a site's process, which may be started again."""

    name = "kill"
    sentence = "the site's process; `rejoin` starts it again."
    keys = frozenset({"site", "message"})
    own_keys = (FaultKey("rejoin", bool, False, "For kill: start the site again."),)
    signal = SIGKILL
    ends_process = True

    @classmethod
    def restarts(cls, terms: Mapping[str, Any]) -> bool:
        """Return whether the site is started again."""
        return bool(terms["rejoin"])


KIND = Kill
