"""Write a secure sum, and check it: exactness, cost, lost parties, and who must collude to open it."""

import functools
import math

from fedsvm import Cost, SecureSum, check_sum
from fedsvm.federation.transport.keys import COORDINATOR
from fedsvm.protocols.arithmetic.fixed_point import add, subtract
from fedsvm.protocols.sums.secure_sum import RESIDUE_BYTES


def contribute(channel, vector):
    """Send the coordinator this site's vector, less the mask it gives away, plus the mask it receives."""
    ring, place = channel.sites, channel.sites.index(channel.me)
    mask = channel.random(vector.shape)
    channel.send(ring[(place + 1) % len(ring)], mask)
    received = channel.receive(ring[place - 1], vector.shape)
    channel.send(COORDINATOR, add(subtract(vector, mask), received))


def reveal(channel, shape):
    """Add what the sites send: every mask occurs twice, with opposite signs."""
    return functools.reduce(add, [channel.receive(site, shape) for site in channel.sites])


NEIGHBOR_MASK = SecureSum(
    name="neighbor-mask",
    contribute_residues=contribute,
    reveal_residues=reveal,
    cost_of=lambda sites, shape: Cost(2 * sites, 2, 2 * sites * math.prod(shape) * RESIDUE_BYTES),
    smallest_coalition=lambda sites: 2,  # the two neighbors, together with the coordinator
    min_sites=3,
)

for passed in check_sum(NEIGHBOR_MASK):
    print(passed)
# docs/own-protocol.md offers it to scenarios: an entry point of the group fedsvm.sums gives it a name.
