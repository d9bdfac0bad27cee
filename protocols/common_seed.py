"""A secret that all sites share and the coordinator does not know.

The first site draws 256 bits from the operating system's generator, and every site passes them on to its successor
over their own encrypted link. Sites use it to agree on something that the coordinator must not be able to undo, such
as who fills which row of a summed table.

Cost: n - 1 messages of 32 bytes, n - 1 hops. Passing on, instead of sending to all from one site, needs no connection
that a ring sum does not need anyway.

Security. Against semi-honest parties the coordinator learns nothing. Any site that colludes with it gives the secret
away, so nothing may rest on it but unlinkability from the coordinator.
"""

from __future__ import annotations

from federation.arrays import Residues
from federation.channel.contract import Channel

SHAPE = (1, 4)
"""Of the secret, as residues."""


def common_seed(channel: Channel) -> Residues:
    """A site's part; the coordinator has none.

    Parameters
    ----------
    channel : Channel

    Returns
    -------
    Residues of shape (1, 4)
        256 secret bits, the same at every site.
    """
    position = channel.sites.index(channel.me)
    seed = channel.random(SHAPE) if position == 0 else channel.receive(channel.sites[position - 1], SHAPE)
    if position + 1 < len(channel.sites):
        channel.send(channel.sites[position + 1], seed)
    return seed
