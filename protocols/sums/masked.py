"""The masked sum: double masking with Shamir recovery, sparse for many sites.

Site u sends y_u = x_u + PRG(b_u) + sum_{v > u} PRG(s_uv) - sum_{v < u} PRG(s_uv) for its neighbours v. The pairwise
masks cancel in the sum. The own mask b_u protects a site that is declared missing and whose y_u arrives late. All
messages go to or come from the coordinator, so sites need no connections to each other:

    1. u -> coordinator: y_u, by chunks, and shares of b_u, each sealed for the neighbour that holds it
    2. if sites are missing, the coordinator names them, and the others send it the s_uv that they share with these;
       again with a longer list if more sites are lost meanwhile. Then the confirming sites (all, or 51 of more) each
       seal a digest of the whole list for every other site, once a round
    3. the coordinator forwards the sealed digests and shares, and the sites send it the shares of b_u of all sites in
       the sum

Keys are agreed once a run; the s_uv of a round are derived from them and open no other round. Up to 51 sites all are
neighbours of all; beyond, each has 50, see `neighbourhoods`, and the list is confirmed in every round.

Unlike in the first paper, pairwise seeds are never shared. The neighbours of a missing site give its pairwise seeds
themselves: each of them is either present, or is put on the list of missing sites before any b_u is opened. That takes
one share for each neighbour instead of two. No coalition of sites, however large, can open the pairwise mask between
two other sites.

Cost without dropouts, with m - 1 neighbours each: n messages for each chunk and 3 n more, 3 hops; n d limbs residues,
and for each site 6 (m - 1) words of sealed shares up, 7 m words down (the sealed shares, and the sites in the sum), and
4 m words of opened shares. Above 51 sites there are 2 hops and 153 + 2 n messages more: the list to 51 sites, from each
of these a digest of 6 words for each other site, and to each site these digests and the list.

Security. Against semi-honest parties, including the coordinator. For each peer and round, a site gives either the
pairwise seed or its share of the own mask, never both. It refuses a coordinator that

- names the site itself or a peer in both lists,
- returns a missing site to the sum,
- asks again after the shares were opened,
- leaves fewer sites in the sum than the threshold.

The threshold is a fraction of the neighbourhood that a site has when the run begins; it does not decrease when sites
drop. If all sites are neighbours, `min_sites` of the run must also be in the sum; otherwise they must be on the list.

If sites are missing, or a site does not see all others, it opens shares only after a threshold of the confirming sites
sealed the digest of the list that it received. Otherwise, with unequal lists that each have a threshold of sites, some
sites would open pairwise masks and others own masks, and the coordinator would learn the sum of few sites. So with few
enough colluders (see `DropoutThreshold`; 5 of more than 51 sites at the default threshold), the coordinator opens only
the sum of all sites on one list, whatever it asks. If the colluders are fewer than the threshold less one (u itself
opens a share of b_u), at least one honest neighbour opened a share of b_u and keeps its pairwise mask closed.

To learn the vector of a site in the sum takes the coordinator and all its neighbours. If y_u came late, it takes the
coordinator and `threshold` of them. Public keys come with the roster: a coordinator that lies about these is not
semi-honest.

References
----------
K. Bonawitz, V. Ivanov, B. Kreuter, A. Marcedone, H. B. McMahan, S. Patel, D. Ramage, A. Segal and K. Seth, "Practical
secure aggregation for privacy-preserving machine learning", CCS 2017: double masking.
J. H. Bell, K. A. Bonawitz, A. Gascón, T. Lepoint and M. Raykova, "Secure single-server aggregation with
(poly)logarithmic overhead", CCS 2020: neighbourhoods.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import numpy as np
from annotated_types import Gt, Le, doc
from numpy.typing import NDArray

from fedsvm.federation.arrays import Residues
from fedsvm.federation.channel.agreement import TAG_BYTES
from fedsvm.federation.channel.interface import Channel
from fedsvm.federation.errors import PeerDropped, StepRefused
from fedsvm.federation.transport.keys import COORDINATOR
from fedsvm.protocols.arithmetic import shamir
from fedsvm.protocols.arithmetic.fixed_point import accumulate, total_of
from fedsvm.protocols.arithmetic.flags import pack_flags, unpack_flags, word_count
from fedsvm.protocols.sums.consent import LIST, MISSING, OPEN, Consent
from fedsvm.protocols.sums.neighbourhoods import (
    MAX_NEIGHBOURS,
    DropoutThreshold,
    Neighbourhoods,
    neighbourhood,
    neighbourhoods,
)
from fedsvm.protocols.sums.plain import collect_chunks
from fedsvm.protocols.sums.ring import chunk_count, chunks
from fedsvm.protocols.sums.secure_sum import RESIDUE_BYTES, Cost, SecureSum

SECRET_WORDS = shamir.SECRET_WORDS // 2
"""Number of 64-bit words in a seed or a share."""

_SECRET_BYTES = RESIDUE_BYTES * SECRET_WORDS
_SEALED_BYTES = _SECRET_BYTES + TAG_BYTES

SEALED_WORDS = _SEALED_BYTES // RESIDUE_BYTES
"""Number of words in a sealed share."""

REQUEST_WORDS = 1 + SEALED_WORDS
"""Number of words in a coordinator's request about one site of a neighbourhood."""

_AT_ONCE = 1 << 12
"""Maximum number of residues of keystreams that are expanded before they are added. They fit the cache, and are smaller
than the 128 KiB above which glibc's malloc requests new pages from the system each time."""

_UNKNOWN = "the coordinator asks for something that the protocol does not know"

_PURPOSE = "masked sum"
_LIST_PURPOSE = "list of a masked sum"

Threshold = Annotated[float, Gt(0.5), Le(1), doc("For masked: share of each site's neighbors that must remain.")]

# The site's part.


def masked_contribute(fraction: float, channel: Channel, vector: Residues) -> None:
    """Run a site's part: send the masked vector and the sealed shares, then open the masks that the sum needs.

    Raises StepRefused if the coordinator asks for masks that would open the input of this site or of a peer.
    """
    group, confirming = neighbourhood(channel.sites, channel.me, channel.joint_seed())
    place = group.index(channel.me)
    before, behind = group[:place], group[place + 1 :]
    peers = (*before, *behind)
    threshold = DropoutThreshold(fraction, channel.run_sites).neighbourhood
    sees_all = len(group) == len(channel.sites)
    consent = Consent(channel.me, group, max(threshold, channel.min_sites) if sees_all else threshold)
    seeds = channel.shared_secrets(peers, _PURPOSE)
    coefficients = _draw(channel, threshold)
    shares = _secrets(shamir.split(coefficients, len(group)))
    plus, minus = [coefficients[0].tobytes(), *seeds[place:]], seeds[:place]
    # y = x + PRG(b) + sum_{v > u} PRG(s_uv) - sum_{v < u} PRG(s_uv)
    for part, chunk in enumerate(chunks(vector)):
        total = chunk.copy()
        _mask(channel, total, plus, minus, part)
        channel.send(COORDINATOR, total)
    sealed = channel.seal(dict(zip(peers, shares[:place] + shares[place + 1 :], strict=True)), _PURPOSE)
    channel.send(COORDINATOR, _words(sealed, SEALED_WORDS))
    while not consent.opened:
        stage, present, held = _request(channel, group)
        consent.agree(stage, present)
        if stage == LIST:
            listed, consent.listed = _list(channel, group, present)
            digests = {peer: consent.listed for peer in listed if peer != channel.me}
            channel.send(COORDINATOR, _words(channel.seal(digests, _LIST_PURPOSE), SEALED_WORDS))
        elif stage == MISSING:
            channel.send(
                COORDINATOR, _words([seed for peer, seed in zip(peers, seeds, strict=True) if peer in consent.missing])
            )
    if consent.missing or not sees_all:
        digest = _list(channel, group, present)[1]
        consent.confirm(digest, _confirmations(channel, confirming))
    opened = channel.unseal({peer: held[peer] for peer in peers if peer in present}, _PURPOSE)
    opened.insert(sum(peer in present for peer in before), shares[place])
    channel.send(COORDINATOR, _words(opened))


def _mask(channel: Channel, total: Residues, plus: Sequence[bytes], minus: Sequence[bytes], part: int) -> None:
    """Add the keystreams of some secrets to a part of a vector, and subtract those of others, in place."""
    at_once = max(1, _AT_ONCE // total.size)
    for secrets, sign in ((plus, 1), (minus, -1)):
        for first in range(0, len(secrets), at_once):
            accumulate(total, total_of(channel.expand(secrets[first : first + at_once], total.shape, part)), sign)


def _request(channel: Channel, group: tuple[str, ...]) -> tuple[int, frozenset[str], dict[str, bytes]]:
    """Return the coordinator's request, the members of the group in the sum, and the sealed shares of these."""
    rows = channel.receive(COORDINATOR, (len(group), REQUEST_WORDS))
    stage = int(rows[group.index(channel.me), 1])
    if stage not in (MISSING, OPEN, LIST):
        raise StepRefused(_UNKNOWN)
    held = _take_flagged(group, rows)
    return stage, frozenset(held), held


def _take_flagged(sites: tuple[str, ...], rows: Residues) -> dict[str, bytes]:
    """Return the forwarded content of each site whose flag is 1. Raises StepRefused for a flag other than 0 and 1."""
    flags = rows[:, 0].tolist()
    if not set(flags) <= {0, 1}:
        raise StepRefused(_UNKNOWN)
    held = zip(sites, flags, _cut(rows[:, 1:].tobytes(), _SEALED_BYTES), strict=True)
    return {site: sealed for site, flag, sealed in held if flag}


def _list(channel: Channel, group: tuple[str, ...], present: frozenset[str]) -> tuple[list[str], bytes]:
    """Receive the list of all sites in the sum, and return it and its digest. Raises StepRefused if it has too few, or
    differs in the group."""
    words = channel.receive(COORDINATOR, (word_count(len(channel.sites)),))
    flags = unpack_flags(words, len(channel.sites))
    listed = [site for site, flag in zip(channel.sites, flags, strict=True) if flag]
    if frozenset(listed).intersection(group) != present:
        raise StepRefused("the coordinator names other sites in the sum than in its list; nothing was opened")
    if len(listed) < channel.min_sites:
        raise StepRefused(
            f"{len(listed)} of {len(channel.sites)} sites are in the sum and {channel.min_sites} must be; "
            "nothing was opened"
        )
    return listed, hashlib.blake2b(words.tobytes(), digest_size=_SECRET_BYTES).digest()


def _confirmations(channel: Channel, confirming: tuple[str, ...]) -> list[bytes]:
    """Receive the digests of the list that the confirming sites sealed for this one."""
    sealed = _take_flagged(confirming, channel.receive(COORDINATOR, (len(confirming), REQUEST_WORDS)))
    return channel.unseal({peer: digest for peer, digest in sealed.items() if peer != channel.me}, _LIST_PURPOSE)


def _draw(channel: Channel, count: int) -> shamir.Elements:
    """Draw (count, 8) numbers, uniform below the prime of the secret sharing."""
    drawn = channel.random((count, SECRET_WORDS)).view(np.uint32)
    while (beyond := drawn >= shamir.PRIME).any():
        drawn = np.where(beyond, channel.random((count, SECRET_WORDS)).view(np.uint32), drawn)
    return drawn


# The coordinator's part.


def masked_reveal(fraction: float, channel: Channel, shape: tuple[int, int]) -> Residues:
    """Run the coordinator's part: return the sum of the vectors of all sites that are present to the end of step 2.

    Raises PeerDropped if too few sites remain; nothing is revealed then.
    """
    graph = neighbourhoods(channel.sites, channel.joint_seed())
    threshold = DropoutThreshold(fraction, channel.run_sites).neighbourhood
    masked, whole = collect_chunks(channel, shape)
    sealed = channel.collect(dict.fromkeys(whole, (graph.members.shape[1] - 1, SEALED_WORDS)))
    present, plus, minus = _settle(channel, graph, threshold, frozenset(sealed))
    confirmations: dict[str, Residues] = {}
    holders = present
    if len(present) < len(channel.sites) or graph.members.shape[1] < len(channel.sites):
        confirmations = _confirm_list(channel, graph, threshold, present)
        holders = list(confirmations)
    minus += _own_seeds(channel, graph, threshold, present, holders, sealed, confirmations)
    total = np.zeros(shape, dtype=np.uint64)
    for part, (chunk, of_part) in enumerate(zip(chunks(total), masked, strict=True)):
        for site in present:
            accumulate(chunk, of_part[site])
        _mask(channel, chunk, plus, minus, part)
    return total


def _settle(
    channel: Channel, graph: Neighbourhoods, threshold: int, present: frozenset[str]
) -> tuple[list[str], list[bytes], list[bytes]]:
    """Return the sites in the sum, and the seeds of masks between them and the missing: those to add, and those to
    subtract."""
    while True:
        there = _there(channel, graph, threshold, present)
        staying = [site for site in channel.sites if site in present]
        if len(staying) == len(channel.sites):
            return staying, [], []
        missing = {site: [peer for peer in graph.all[site] if peer not in present] for site in staying}
        asked = [site for site in staying if missing[site]]
        rows = requests(graph, MISSING, there)
        for site in asked:
            channel.send(site, rows[graph.numbers[site]])
        answers = channel.collect({site: (len(missing[site]), SECRET_WORDS) for site in asked})
        if len(answers) == len(asked):
            plus: list[bytes] = []
            minus: list[bytes] = []
            for site in asked:
                for peer, seed in zip(missing[site], _secrets(answers[site]), strict=True):
                    (minus if graph.numbers[peer] > graph.numbers[site] else plus).append(seed)
            return staying, plus, minus
        present -= frozenset(asked) - answers.keys()


def _confirm_list(
    channel: Channel, graph: Neighbourhoods, threshold: int, present: Sequence[str]
) -> dict[str, Residues]:
    """Collect the digests of the list of sites in the sum. Return those sealed for each site that is asked for shares.

    A site that should confirm and is late is in the sum, but is asked for nothing more in this round. Raises
    PeerDropped if the others are fewer than `min_sites`, or than the threshold in a neighborhood or of those that
    confirm.
    """
    confirming, there = graph.confirming, np.isin(channel.sites, present)
    asked = [site for site in present if site in confirming]
    rows, packed = requests(graph, LIST, there), pack_flags(there)
    for site in asked:
        channel.send(site, rows[graph.numbers[site]])
        channel.send(site, packed)
    answers = channel.collect(dict.fromkeys(asked, (len(present) - 1, SEALED_WORDS)))
    holders = [site for site in present if site in answers or site not in confirming]
    _there(channel, graph, threshold, frozenset(holders))
    _require(len(answers), threshold, "confirming sites")
    sealed = np.zeros((len(present), len(confirming), REQUEST_WORDS), dtype=np.uint64)
    for place, site in enumerate(confirming):
        if site in answers:
            others = np.arange(len(present)) != present.index(site)
            sealed[others, place, 0] = 1
            sealed[others, place, 1:] = answers[site]
    return {site: sealed[present.index(site)] for site in holders}


def _own_seeds(
    channel: Channel,
    graph: Neighbourhoods,
    threshold: int,
    present: Sequence[str],
    holders: Sequence[str],
    sealed: Mapping[str, Residues],
    confirmations: Mapping[str, Residues],
) -> list[bytes]:
    """Return the seeds of the own masks of the sites in the sum, from the shares that the holders among them open.

    confirmations: the sealed digests of the list for each holder, if the list needs to be confirmed.
    """
    members, at, count = graph.members, graph.place_at, len(channel.sites)
    numbers = [graph.numbers[site] for site in present]
    there = np.zeros(count, dtype=bool)
    there[numbers] = True
    # a site seals a share for each other site of its neighborhood, and holds those that they sealed: row place_at
    by_owner = np.zeros((*members.shape, SEALED_WORDS), dtype=np.uint64)
    theirs = there[:, None] & (members != np.arange(count)[:, None])
    by_owner[theirs] = np.concatenate([sealed[site] for site in present])
    rows = requests(graph, OPEN, there, by_owner[members, at])
    for site in holders:
        channel.send(site, rows[graph.numbers[site]])
        if site in confirmations:
            channel.send(site, pack_flags(there))
            channel.send(site, confirmations[site])
    sizes = there[members].sum(axis=1).tolist()
    answers = channel.collect({site: (sizes[graph.numbers[site]], SECRET_WORDS) for site in holders})
    answered = np.array([site in answers for site in channel.sites])
    opened = answered[:, None] & there[members]
    shares = np.zeros((*members.shape, SECRET_WORDS), dtype=np.uint64)
    if answers:
        shares[opened] = np.concatenate(list(answers.values()))
    # ordered by owner: its neighbours, in order, are the holders of its shares
    known, shares = opened[members, at], shares[members, at].view(np.uint32)
    by_holders: dict[tuple[int, ...], list[int]] = {}
    for site, number in zip(present, numbers, strict=True):
        places = np.flatnonzero(known[number])
        _require(len(places), threshold, f"shares of {site}")
        by_holders.setdefault(tuple(places[:threshold].tolist()), []).append(number)
    seeds: list[bytes] = []
    for holding, owners in by_holders.items():
        of_owners = shares[np.ix_(owners, holding)]
        seeds += _secrets(shamir.combine(tuple(place + 1 for place in holding), of_owners))
    return seeds


def requests(graph: Neighbourhoods, stage: int, there: NDArray[np.bool_], held: Residues | None = None) -> Residues:
    """Return the coordinator's requests: which sites it counts in the sum, and, to open them, the shares sealed for
    each.

    Parameters
    ----------
    graph : Neighbourhoods
    stage : int
        One of the three.
    there : array of bool of shape (n,)
        Whether each site is in the sum.
    held : Residues of shape (n, m, 6), optional
        The shares that the others of each neighbourhood sealed for the site; zeros for sites that are not in the sum.

    Returns
    -------
    Residues of shape (n, m, 7)
        For each site, one row for each site of its neighbourhood: whether it is in the sum, and the share of its own
        mask. The row of the site itself has the stage instead of a share.
    """
    rows = np.zeros((*graph.members.shape, REQUEST_WORDS), dtype=np.uint64)
    rows[..., 0] = there[graph.members]
    if held is not None:
        rows[..., 1:] = held
    rows[np.arange(len(rows)), graph.place, 1] = stage
    return rows


def _there(channel: Channel, graph: Neighbourhoods, threshold: int, present: frozenset[str]) -> NDArray[np.bool_]:
    """Return which sites are in the sum, by number. Raises PeerDropped if too few of a neighborhood are left."""
    if not present:
        raise PeerDropped("no site is left in the masked sum")
    _require(len(present), channel.min_sites, "sites")
    there = np.array([site in present for site in channel.sites])
    for number, left in enumerate(there[graph.members].sum(axis=1).tolist()):
        if there[number]:
            _require(left, threshold, f"sites around {channel.sites[number]}")
    return there


def _require(left: int, needed: int, what: str) -> None:
    if left < needed:
        raise PeerDropped(f"{left} {what} are left and a masked sum needs {needed}; nothing was revealed")


def _words(secrets: Sequence[bytes], words: int = SECRET_WORDS) -> Residues:
    return np.frombuffer(b"".join(secrets), dtype=np.uint64).reshape(len(secrets), words)


def _secrets(rows: NDArray[np.unsignedinteger[Any]]) -> list[bytes]:
    """Return the rows of an array as secrets."""
    return _cut(rows.tobytes(), _SECRET_BYTES)


def _cut(content: bytes, size: int) -> list[bytes]:
    return [content[start : start + size] for start in range(0, len(content), size)]


def masked_cost(sites: int, shape: tuple[int, int]) -> Cost:
    """Return the cost without dropouts: input and sealed shares up, sealed shares and present sites down, opened
    shares up. Where not all are neighbours also the list, its digests from the confirming sites, and both to all.
    """
    limbs, length = shape
    members = min(sites, MAX_NEIGHBOURS + 1)
    messages = (chunk_count(length) + 3) * sites
    words = sites * (limbs * length + SEALED_WORDS * (members - 1) + (REQUEST_WORDS + SECRET_WORDS) * members)
    if members == sites:
        return Cost(messages, hops=3, payload_bytes=words * RESIDUE_BYTES)
    request, listed = REQUEST_WORDS * members, word_count(sites)
    words += members * (request + listed + SEALED_WORDS * (sites - 1)) + sites * (listed + request)
    return Cost(messages + 3 * members + 2 * sites, hops=5, payload_bytes=words * RESIDUE_BYTES)


def masked(threshold: Threshold = 0.66) -> SecureSum:
    """Return the protocol, which needs two sites.

    Parameters
    ----------
    threshold : float, default 0.66
        The fraction of a site's neighbourhood that must remain, above 0.5 and at most 1.

    Returns
    -------
    SecureSum

    Raises
    ------
    ValueError
        The threshold is not in this range.
    """
    if not isinstance(threshold, int | float) or not 0.5 < threshold <= 1:
        raise ValueError(f"threshold must be above 0.5 and at most 1, got {threshold!r}")
    return SecureSum(
        "masked",
        functools.partial(masked_contribute, threshold),
        functools.partial(masked_reveal, threshold),
        masked_cost,
        smallest_coalition=lambda sites: min(sites - 1, MAX_NEIGHBOURS),
        min_sites=2,
        needs_pairwise_keys=True,
        options={"threshold": threshold},
        min_remaining=lambda sites: DropoutThreshold(threshold, sites).run,
        withstands=lambda sites: DropoutThreshold(threshold, sites).colluders_withstood,
        sends_to=lambda me, sites: (COORDINATOR,),
    )
