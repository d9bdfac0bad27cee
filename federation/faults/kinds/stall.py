"""A site's process that stops for a while."""

from __future__ import annotations

from signal import SIGSTOP

from fedsvm.federation.faults.fault_kind import SiteFault


class Stall(SiteFault):
    """A stop of a site's process, for some seconds or for ever."""

    name = "stall"
    sentence = "the process stops for `for_s` seconds (without it for ever)."
    keys = frozenset({"site", "message", "for_s"})
    signal = SIGSTOP


KIND = Stall
