"""The sum by additive shares at a few helper sites, whose shares are seeds instead of vectors.

Every site masks its vector with one keystream for each helper. The helpers add up the keystreams, and the coordinator
subtracts their totals. A site sends once and is finished, so a lost site costs nothing:

    1. u -> coordinator: y_u = x_u + sum_h PRG(s_uh), by chunks; a helper adds a mask of its own instead of PRG(s_hh)
    2. coordinator -> each helper: the sites whose y_u arrived
    3. each helper h -> coordinator: the sum of PRG(s_uh) over these sites, with its own mask, by chunks

The seed s_uh is a secret of u and h that is fresh in every round. Nobody sends it. The helpers are the sites with the
smallest hashes of their names. A coordinator that follows the protocol cannot choose them; one that pretends that sites
left changes who they are.

Cost without dropouts, with k helpers and c chunks: (n + k) c + k messages, 3 hops, (n + k) d residues, and n / 64 words
of a list for each helper. A lost helper ends the attempt, and the round is repeated with other helpers.

Security. Against semi-honest parties, including the coordinator. A keystream of an honest helper hides the vector of
every site in the sum, and a helper's own mask hides its vector. To learn the vector of a site takes the coordinator and
all k helpers. A helper answers one list in a round. It refuses a list without itself, and one of fewer sites than the
run requires or of at most half of the sites that the run began with. If helpers receive different lists, the masks do
not cancel, and the coordinator obtains noise. The vector of a site that arrives late stays masked, because no helper
opens its keystream.

References
----------
H. Corrigan-Gibbs and D. Boneh, "Prio: private, robust, and scalable computation of aggregate statistics", NSDI 2017:
additive shares at a few servers, and seeds in place of shares.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Sequence
from typing import Annotated

import numpy as np
from annotated_types import Ge, Le, doc

from fedsvm.federation.arrays import Residues
from fedsvm.federation.channel.interface import Channel
from fedsvm.federation.errors import PeerDropped, StepRefused
from fedsvm.federation.transport.keys import COORDINATOR
from fedsvm.protocols.arithmetic.fixed_point import accumulate, add, total_of
from fedsvm.protocols.arithmetic.flags import pack_flags, unpack_flags, word_count
from fedsvm.protocols.sums.plain import collect_chunks
from fedsvm.protocols.sums.ring import chunk_count, chunks
from fedsvm.protocols.sums.secure_sum import MAX_PARTS, RESIDUE_BYTES, Cost, SecureSum, require_whole_number

Helpers = Annotated[int, Ge(2), Le(MAX_PARTS), doc("For additive-shares: number of sites that help to open each sum.")]

_PURPOSE = "additive shares"

_AT_ONCE = 1 << 12
"""Maximum number of residues of keystreams that are expanded before they are added: they fit the processor's cache."""


@functools.lru_cache(maxsize=4)
def helpers_of(sites: tuple[str, ...], count: int) -> tuple[str, ...]:
    """Return the helpers among some sites.

    Parameters
    ----------
    sites : tuple of str
        The sites of a round, in ring order.
    count : int
        k.

    Returns
    -------
    tuple of k str
        In ring order.
    """
    everyone = hashlib.sha256(" ".join(sorted(sites)).encode()).digest()
    ranked = sorted(sites, key=lambda site: hashlib.sha256(everyone + site.encode()).digest())
    chosen = frozenset(ranked[:count])
    return tuple(site for site in sites if site in chosen)


def additive_contribute(helpers: int, channel: Channel, vector: Residues) -> None:
    """Run a site's part: send the masked vector, and at a helper also the total of its keystreams.

    Raises StepRefused at a helper if the coordinator asks for a sum of too few sites, or for one without the helper.
    """
    chosen = helpers_of(channel.sites, helpers)
    seeds = [_seeds(channel, helper, [helper])[0] for helper in chosen if helper != channel.me]
    own = channel.random(vector.shape) if channel.me in chosen else None
    masks = chunks(np.zeros_like(vector) if own is None else own)
    for part, (chunk, mask) in enumerate(zip(chunks(vector), masks, strict=True)):
        channel.send(COORDINATOR, _with_keystreams(channel, add(chunk, mask), seeds, part))
    if own is None:
        return
    present = _present(channel)
    seeds = _seeds(channel, channel.me, [site for site in present if site != channel.me])
    for part, mask in enumerate(chunks(own)):
        channel.send(COORDINATOR, _with_keystreams(channel, mask.copy(), seeds, part))


def additive_reveal(helpers: int, channel: Channel, shape: tuple[int, int]) -> Residues:
    """Run the coordinator's part: return the sum over all sites whose vectors arrived.

    Raises PeerDropped if a helper is lost, or too few sites remain; nothing is revealed then.
    """
    chosen = helpers_of(channel.sites, helpers)
    masked, whole = collect_chunks(channel, shape)
    if len(whole) < (fewest := _least_present(channel)):
        raise PeerDropped(f"{len(whole)} sites are left and a sum by additive shares needs {fewest}")
    flags = pack_flags(np.isin(channel.sites, whole))
    for helper in chosen:
        channel.send(helper, flags)
    total = np.zeros(shape, dtype=np.uint64)
    for chunk, of_part in zip(chunks(total), masked, strict=True):
        for site in whole:
            accumulate(chunk, of_part[site])
        for helper in chosen:
            accumulate(chunk, channel.receive(helper, chunk.shape), -1)
    return total


def additive_cost(helpers: int, sites: int, shape: tuple[int, int]) -> Cost:
    """Return the cost without dropouts: masked vectors, lists for the helpers, and their totals."""
    limbs, length = shape
    count = chunk_count(length)
    return Cost(
        messages=(sites + helpers) * count + helpers,
        hops=3 if count else 1,
        payload_bytes=((sites + helpers) * limbs * length + helpers * word_count(sites)) * RESIDUE_BYTES,
    )


def additive_shares(helpers: Helpers = 3) -> SecureSum:
    """Return the protocol, which needs more sites than helpers.

    Parameters
    ----------
    helpers : int, default 3
        k, from 2.

    Returns
    -------
    SecureSum

    Raises
    ------
    ValueError
        `helpers` is not a whole number from 2.
    """
    require_whole_number("helpers", helpers, 2)
    return SecureSum(
        "additive-shares",
        functools.partial(additive_contribute, helpers),
        functools.partial(additive_reveal, helpers),
        functools.partial(additive_cost, helpers),
        smallest_coalition=lambda sites: helpers,
        min_sites=helpers + 1,
        needs_pairwise_keys=True,
        options={"helpers": helpers},
        min_remaining=_majority_of,
        withstands=lambda sites: helpers - 1,
        sends_to=lambda me, sites: (COORDINATOR,),
    )


def _majority_of(sites: int) -> int:
    """Return the number of sites in the smallest majority."""
    return sites // 2 + 1


def _least_present(channel: Channel) -> int:
    """Return the minimum number of sites in a sum: a majority of the run's, and as many as the run requires."""
    return max(_majority_of(channel.run_sites), channel.min_sites)


def _seeds(channel: Channel, helper: str, peers: Sequence[str]) -> list[bytes]:
    """Return the seeds that a site shares with a helper, or a helper with some sites."""
    return channel.shared_secrets(peers, f"{_PURPOSE} at {helper}")


def _present(channel: Channel) -> list[str]:
    """Return the sites that the coordinator counts in the sum. Raises StepRefused if a helper must not open it."""
    count = len(channel.sites)
    flags = unpack_flags(channel.receive(COORDINATOR, (word_count(count),)), count)
    present = [site for site, flag in zip(channel.sites, flags, strict=True) if flag]
    if channel.me not in present:
        raise StepRefused("it is asked to help with a sum that it is not in; nothing was opened")
    if len(present) < (fewest := _least_present(channel)):
        raise StepRefused(f"{len(present)} of {count} sites are in the sum and {fewest} must be; nothing was opened")
    return present


def _with_keystreams(channel: Channel, total: Residues, seeds: Sequence[bytes], part: int) -> Residues:
    """Add a part of the keystreams of some seeds to a part of a vector, in place, and return it."""
    at_once = max(1, _AT_ONCE // total.size)
    for first in range(0, len(seeds), at_once):
        accumulate(total, total_of(channel.expand(seeds[first : first + at_once], total.shape, part)))
    return total
