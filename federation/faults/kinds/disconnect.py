"""Connections of a site that are reset and refused."""

from __future__ import annotations

from fedsvm.federation.faults.fault_kind import LinkFault


class Disconnect(LinkFault):
    """A reset of the connections of a site, and of each new one."""

    name = "disconnect"
    sentence = "connections of the site are reset and refused."
    keys = frozenset({"site", "for_s", "direction"})
    resets_connections = True


KIND = Disconnect
