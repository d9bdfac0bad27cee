"""A secret that all sites share and the coordinator does not know.

The first site draws 256 bits from the operating system's generator, and sends them to all others (`ring_broadcast`).
Sites use the secret for choices that must stay hidden from the coordinator, such as which site fills which row of a
summed table.

Cost: n - 1 messages of 32 bytes, n - 1 hops.

Security. With semi-honest parties, the coordinator learns nothing. Any site that colludes with it reveals the secret,
so it may only protect unlinkability from the coordinator.
"""

from __future__ import annotations

from fedsvm.federation.arrays import Residues
from fedsvm.federation.channel.interface import Channel
from fedsvm.protocols.ring_broadcast import broadcast_ring

SHAPE = (1, 4)
"""Shape of the secret, as residues."""


def common_seed(channel: Channel) -> Residues:
    """Run a site's part; the coordinator has none.

    Parameters
    ----------
    channel : Channel

    Returns
    -------
    Residues of shape (1, 4)
        256 secret bits, the same at every site.
    """
    first = channel.sites[0]
    return broadcast_ring(channel, first, channel.random(SHAPE) if channel.me == first else None, SHAPE)
