"""The masked sum: double masking with Shamir recovery, sparse for many sites.

Site u sends y_u = x_u + PRG(b_u) + sum_{v > u} PRG(s_uv) - sum_{v < u} PRG(s_uv) for its neighbours v. The pairwise
masks cancel in the sum; the own mask b_u protects a site that is given up and whose y_u comes in late. Everybody talks
to the coordinator only, so no two sites need a connection:

    1. u -> coordinator: y_u, and shares of b_u, each sealed for the neighbour that holds it
    2. if sites are missing, the coordinator names them, and the others give it the s_uv they have in common with them;
       again with a longer list if one of those is lost meanwhile
    3. the coordinator hands on the sealed shares, and the sites give it the shares of b_u of all that are in the sum

Keys are agreed once a run; the s_uv of a round are derived from them and open no other round. Up to 51 sites all are
neighbours of all; beyond, each has 50, the nearest on a circle in an order hashed from the names of all sites.

What differs from the first paper: the pairwise seeds are never shared. Those of a missing site are given by its
neighbours themselves, each of which lives, or joins the list of the missing before any b_u is opened. That takes one
share a neighbour instead of two, and no coalition of sites, however many, can open the pairwise masks between two
others.

Cost without dropouts, with m - 1 neighbours each: 4 n messages and 3 hops; n d limbs residues, and for each site
6 (m - 1) words of sealed shares up, 7 m words down (the sealed shares, and who is in), and 4 m words of opened ones.

Security. Against semi-honest parties, coordinator included. For one peer and round a *site* gives either the pairwise
seed or its share of the own mask, never both; it refuses a coordinator that names itself or a peer in both lists, takes
a missing site back, asks after the shares were opened, or leaves fewer than the threshold in the sum. So whatever a
coordinator asks, with fewer colluders than the threshold at least one honest neighbour opened a share of b_u, and keeps
its pairwise mask closed. To learn the vector of a site in the sum takes the coordinator and all its neighbours; of a
site whose y_u came late, the coordinator and `threshold` of them. Public keys come with the roster: a coordinator that
lies about these is not semi-honest.

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
import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from cryptography.hazmat.primitives.ciphers.aead import AESGCM, ChaCha20Poly1305

from federation.arrays import IntArray, Residues
from federation.channel.contract import Channel
from federation.errors import PeerDropped, StepRefused
from federation.transport.keys import COORDINATOR
from protocols.arithmetic import shamir
from protocols.arithmetic.fixed_point import accumulate, add
from protocols.sums.contract import RESIDUE_BYTES, Cost, SecureSum

MAX_NEIGHBOURS = 50
"""Of a site; all others, where there are no more."""

SECRET_WORDS, SEALED_WORDS = 4, 6
"""Of 64 bits: in a seed or share, and in a share that is sealed (with 16 bytes of authentication)."""

_SECRET_BYTES = RESIDUE_BYTES * SECRET_WORDS

REQUEST_WORDS = 1 + SEALED_WORDS
"""In what a coordinator says of one site of a neighbourhood."""

_NONCE = bytes(12)
"""Every share is sealed with a key of its own, derived for one round and holder, so that its nonce may be constant; so
is what the keys of a pair are made of."""

_ZEROS = bytes(96)

DEFAULT_THRESHOLD = 0.66
"""The fraction of a neighbourhood that must remain."""

MISSING, OPEN = 0, 1
"""What a coordinator asks for: seeds in common with the missing, or shares of the own masks of the others."""


# What all parties know.


class Neighbourhoods:
    """Each site and its neighbours; who is in whose neighbourhood is mutual.

    Parameters
    ----------
    sites : tuple of str
        In ring order.
    """

    def __init__(self, sites: tuple[str, ...]) -> None:
        self._sites = sites
        self._circle: list[str] = []
        if len(sites) > MAX_NEIGHBOURS + 1:
            everyone = hashlib.sha256(" ".join(sites).encode()).digest()
            self._circle = sorted(sites, key=lambda site: hashlib.sha256(everyone + site.encode()).digest())
            self._turn = {site: number for number, site in enumerate(self._circle)}
            self._place = {site: number for number, site in enumerate(sites)}

    def of(self, site: str) -> tuple[str, ...]:
        """The neighbourhood of a site, in ring order, the site itself included."""
        if not self._circle:
            return self._sites
        offsets = range(-MAX_NEIGHBOURS // 2, MAX_NEIGHBOURS // 2 + 1)
        around = (self._circle[(self._turn[site] + step) % len(self._circle)] for step in offsets)
        return tuple(sorted(around, key=self._place.__getitem__))

    @functools.cached_property
    def all(self) -> dict[str, tuple[str, ...]]:
        """The neighbourhood of every site."""
        return {site: self.of(site) for site in self._sites}

    @functools.cached_property
    def places(self) -> dict[str, dict[str, int]]:
        """Of every site, where in its neighbourhood who is."""
        return {site: {peer: place for place, peer in enumerate(group)} for site, group in self.all.items()}

    @functools.cached_property
    def routes(self) -> dict[str, tuple[IntArray, IntArray]]:
        """Where the shares are that are sealed for a site: the numbers of their owners, and the rows at these.

        Its neighbours are the owners, in order; a site seals for all of its neighbourhood but itself, in order.
        """
        numbers, places = {site: number for number, site in enumerate(self._sites)}, self.places
        return {
            site: (
                np.array([numbers[owner] for owner in group if owner != site]),
                np.array(
                    [
                        places[owner][site] - (places[owner][site] > places[owner][owner])
                        for owner in group
                        if owner != site
                    ]
                ),
            )
            for site, group in self.all.items()
        }


@functools.lru_cache(maxsize=1)
def neighbourhoods(sites: tuple[str, ...]) -> Neighbourhoods:
    """Those of a round's sites, kept for the next round.

    Parameters
    ----------
    sites : tuple of str
        In ring order.

    Returns
    -------
    Neighbourhoods
    """
    return Neighbourhoods(sites)


@functools.lru_cache(maxsize=1)
def neighbourhood(sites: tuple[str, ...], site: str) -> tuple[str, ...]:
    """That of one site, kept for the next round, without those of the others: a site has no use for these.

    Parameters
    ----------
    sites : tuple of str
        In ring order.
    site : str

    Returns
    -------
    tuple of str
        In ring order, the site itself included.
    """
    return Neighbourhoods(sites).of(site)


def threshold_of(fraction: float, members: int) -> int:
    """How many of a neighbourhood must remain, two at least.

    Parameters
    ----------
    fraction : float
        Which part of it must.
    members : int
        How many there are.

    Returns
    -------
    int
    """
    return max(2, math.ceil(fraction * members - 1e-9))


# The site's part.


@dataclass
class Consent:
    """What a site has helped to open in one round, and so what it will refuse.

    Attributes
    ----------
    me : str
    group : tuple of str
        Its neighbourhood, itself included.
    threshold : int
        How many of the group must be in the sum.
    missing : frozenset of str
        Whose pairwise seeds it gave away.
    opened : bool, default False
        Whether it opened shares of own masks.
    """

    me: str
    group: tuple[str, ...]
    threshold: int
    missing: frozenset[str] = frozenset()
    opened: bool = False

    def agree(self, stage: int, present: frozenset[str]) -> None:
        """Agree to a request.

        Parameters
        ----------
        stage : int
            MISSING or OPEN.
        present : frozenset of str
            Who of the group is in the sum, according to the coordinator.

        Raises
        ------
        StepRefused
            For what would open both masks of a peer, or a sum of too few.
        """
        gone = frozenset(self.group) - present
        if self.me in gone:
            raise StepRefused("it is asked to help with a sum that it is not in; nothing was opened")
        if self.opened:
            raise StepRefused("shares of this round were opened already; it opens no second set")
        if both := sorted(self.missing & present):
            raise StepRefused(
                f"it is asked for both halves of {both[0]}: the pairwise mask was opened, its own stays shut"
            )
        if len(present) < self.threshold:
            raise StepRefused(f"{len(present)} of {len(self.group)} sites are in the sum and {self.threshold} must be")
        self.missing = gone
        self.opened = stage == OPEN


def masked_contribute(fraction: float, channel: Channel, vector: Residues) -> None:
    """A site's part: send the masked vector and the sealed shares, then help to open what the sum needs.

    Parameters
    ----------
    fraction : float
        Which part of a neighbourhood must remain.
    channel : Channel
    vector : Residues of shape (limbs, d)
        The site's own.

    Raises
    ------
    StepRefused
        When the coordinator asks for what would open the site's or a peer's input.
    """
    group = neighbourhood(channel.sites, channel.me)
    consent = Consent(channel.me, group, threshold_of(fraction, len(group)))
    pairs = {peer: PairKeys.of(channel, peer) for peer in group if peer != channel.me}
    (own,) = _draw(channel, 1)
    draw = functools.partial(_draw, channel)
    shares = dict(zip(group, shamir.split(own, consent.threshold, len(group), draw), strict=True))
    channel.send(COORDINATOR, _masked(channel, group, pairs, own, vector))
    channel.send(COORDINATOR, _sealed(pairs, shares))
    while not consent.opened:
        stage, present, sealed = _request(channel, group)
        consent.agree(stage, present)
        if stage == MISSING:
            channel.send(COORDINATOR, _words([pairs[peer].seed for peer in group if peer in consent.missing]))
    held = {peer: _to_bytes(shares[peer]) if peer == channel.me else pairs[peer].open(sealed[peer]) for peer in present}
    channel.send(COORDINATOR, _words([held[peer] for peer in group if peer in present]))


class PairKeys:
    """What a site and one neighbour share in one round: the seed of their pairwise mask, and a key for each direction.

    All three come from one secret of the pair, by a cipher, so that the seed says nothing of the keys.

    Attributes
    ----------
    seed : bytes
        Of 256 bits.
    """

    __slots__ = ("_opener", "_sealer", "seed")

    def __init__(self, seed: bytes, sealer: bytes, opener: bytes) -> None:
        self.seed = seed
        self._sealer = sealer
        self._opener = opener

    @classmethod
    def of(cls, channel: Channel, peer: str) -> PairKeys:
        """Those of this site and a peer in the channel's round."""
        secret = channel.shared_secret(peer, "masked sum")
        keys = AESGCM(secret).encrypt(_NONCE, _ZEROS, None)
        seed, lower, upper = keys[:32], keys[32:64], keys[64:96]
        return cls(seed, lower, upper) if channel.me < peer else cls(seed, upper, lower)

    def seal(self, share: bytes) -> bytes:
        """A share that the peer is to hold, which only it can open."""
        return ChaCha20Poly1305(self._sealer).encrypt(_NONCE, share, None)

    def open(self, words: Residues) -> bytes:
        """The share of the peer's own mask that it sealed for this site."""
        return ChaCha20Poly1305(self._opener).decrypt(_NONCE, words.tobytes(), None)


def _masked(
    channel: Channel, group: tuple[str, ...], pairs: Mapping[str, PairKeys], own: int, vector: Residues
) -> Residues:
    """y = x + PRG(b) + sum_{v > u} PRG(s_uv) - sum_{v < u} PRG(s_uv)."""
    total = add(vector, channel.expand(_to_bytes(own), vector.shape))
    position = group.index(channel.me)
    for number, peer in enumerate(group):
        if number != position:
            accumulate(total, channel.expand(pairs[peer].seed, vector.shape), 1 if number > position else -1)
    return total


def _sealed(pairs: Mapping[str, PairKeys], shares: Mapping[str, int]) -> Residues:
    """(m - 1, 6) words: the share of each neighbour, which only it can open."""
    return _words([keys.seal(_to_bytes(shares[peer])) for peer, keys in pairs.items()], SEALED_WORDS)


def _request(channel: Channel, group: tuple[str, ...]) -> tuple[int, frozenset[str], dict[str, Residues]]:
    """What the coordinator asks for, who of the group it says is in the sum, and the shares that it hands on."""
    rows = channel.receive(COORDINATOR, (len(group), REQUEST_WORDS))
    stage, flags = int(rows[group.index(channel.me), 1]), rows[:, 0].tolist()
    if stage not in (MISSING, OPEN) or not set(flags) <= {0, 1}:
        raise StepRefused("the coordinator asks for something that the protocol does not know")
    present = frozenset(peer for peer, flag in zip(group, flags, strict=True) if flag)
    return stage, present, dict(zip(group, rows[:, 1:], strict=True))


def _draw(channel: Channel, count: int) -> list[int]:
    """Uniform below the prime of the secret sharing."""
    drawn: list[int] = []
    while len(drawn) < count:
        words = channel.random((count - len(drawn), SECRET_WORDS)).tobytes()
        numbers = [int.from_bytes(words[start : start + _SECRET_BYTES], "little") for start in _starts(words)]
        drawn += [number for number in numbers if number < shamir.PRIME]
    return drawn


def _starts(secrets: bytes) -> range:
    """Where each of the secrets begins that lie one behind the other."""
    return range(0, len(secrets), _SECRET_BYTES)


# The coordinator's part.


def masked_reveal(fraction: float, channel: Channel, shape: tuple[int, int]) -> Residues:
    """The coordinator's part: the sum of the vectors of all sites that are there to the end of step 2.

    Parameters
    ----------
    fraction : float
        Which part of a neighbourhood must remain.
    channel : Channel
    shape : (limbs, d)
        Of the vectors.

    Returns
    -------
    Residues of shape (limbs, d)

    Raises
    ------
    PeerDropped
        When fewer remain; nothing is revealed then.
    """
    groups = neighbourhoods(channel.sites).all
    masked = channel.collect(dict.fromkeys(channel.sites, shape))
    sealed = channel.collect({site: (len(groups[site]) - 1, SEALED_WORDS) for site in masked})
    present, seeds = _settle(channel, groups, fraction, frozenset(sealed))
    own = _open_own_masks(channel, groups, fraction, present, sealed)
    total = np.zeros(shape, dtype=np.uint64)
    for site in sorted(present):
        accumulate(total, masked[site])
        accumulate(total, channel.expand(_to_bytes(own[site]), shape), -1)
    for (site, gone), seed in seeds.items():
        later = groups[site].index(gone) > groups[site].index(site)
        accumulate(total, channel.expand(seed, shape), -1 if later else 1)
    return total


def _settle(
    channel: Channel, groups: Mapping[str, tuple[str, ...]], fraction: float, present: frozenset[str]
) -> tuple[frozenset[str], dict[tuple[str, str], bytes]]:
    """Who is in the sum, and the seeds of the pairwise masks between them and the missing."""
    while True:
        _require_enough(groups, fraction, present)
        missing = {site: [peer for peer in groups[site] if peer not in present] for site in present}
        asked = [site for site in channel.sites if site in present and missing[site]]
        for site in asked:
            channel.send(site, request(MISSING, site, groups[site], present))
        answers = channel.collect({site: (len(missing[site]), SECRET_WORDS) for site in asked})
        if len(answers) == len(asked):
            pairs = [(site, gone) for site in asked for gone in missing[site]]
            seeds = [words.tobytes() for site in asked for words in answers[site]]
            return present, dict(zip(pairs, seeds, strict=True))
        present -= frozenset(asked) - answers.keys()


def _open_own_masks(
    channel: Channel,
    groups: Mapping[str, tuple[str, ...]],
    fraction: float,
    present: frozenset[str],
    sealed: Mapping[str, Residues],
) -> dict[str, int]:
    """The own mask of every site in the sum, from the shares that its neighbours open."""
    members = {site: [peer for peer in groups[site] if peer in present] for site in present}
    places, routes = neighbourhoods(channel.sites).places, neighbourhoods(channel.sites).routes
    nothing = np.zeros((len(next(iter(groups.values()))) - 1, SEALED_WORDS), dtype=np.uint64)
    of_all = np.stack([sealed[site] if site in present else nothing for site in channel.sites])
    for site in sorted(present):
        owners, rows = routes[site]
        channel.send(site, request(OPEN, site, groups[site], present, of_all[owners, rows]))
    answers = channel.collect({site: (len(members[site]), SECRET_WORDS) for site in sorted(present)})
    shares: dict[str, dict[int, int]] = {site: {} for site in present}
    for holder, opened in answers.items():
        secrets = opened.tobytes()
        for start, owner in zip(_starts(secrets), members[holder], strict=True):
            secret = secrets[start : start + _SECRET_BYTES]
            shares[owner][places[owner][holder] + 1] = int.from_bytes(secret, "little")
    own_masks = {}
    for owner, of_owner in shares.items():
        threshold = threshold_of(fraction, len(groups[owner]))
        _require(len(of_owner), threshold, f"shares of {owner}")
        own_masks[owner] = shamir.combine(dict(sorted(of_owner.items())[:threshold]))
    return own_masks


def request(
    stage: int, site: str, group: tuple[str, ...], present: frozenset[str], held: Residues | None = None
) -> Residues:
    """What the coordinator tells a site: whom it takes to be in the sum, and, to open them, the shares sealed for it.

    Parameters
    ----------
    stage : int
        MISSING or OPEN.
    site : str
    group : tuple of str
        Its neighbourhood.
    present : frozenset of str
        Who is in the sum.
    held : Residues of shape (m - 1, 6), optional
        The shares that the others of the group sealed for the site, zeros of those that are not in the sum.

    Returns
    -------
    Residues of shape (m, 7)
        A row for each of the group: whether it is in, and the share of its own mask; in that of the site itself, which
        has its own, the stage.
    """
    rows, place = np.zeros((len(group), REQUEST_WORDS), dtype=np.uint64), group.index(site)
    rows[:, 0] = [peer in present for peer in group]
    rows[place, 1] = stage
    if held is not None:
        rows[:place, 1:], rows[place + 1 :, 1:] = held[:place], held[place:]
    return rows


def _require_enough(groups: Mapping[str, tuple[str, ...]], fraction: float, present: frozenset[str]) -> None:
    if not present:
        raise PeerDropped("no site is left in the masked sum")
    for site in present:
        left = sum(peer in present for peer in groups[site])
        _require(left, threshold_of(fraction, len(groups[site])), f"sites around {site}")


def _require(left: int, needed: int, what: str) -> None:
    if left < needed:
        raise PeerDropped(f"{left} {what} are left and a masked sum needs {needed}; nothing was revealed")


def _words(secrets: list[bytes], words: int = SECRET_WORDS) -> Residues:
    return np.frombuffer(b"".join(secrets), dtype=np.uint64).reshape(len(secrets), words)


def _to_bytes(secret: int) -> bytes:
    return secret.to_bytes(_SECRET_BYTES, "little")


def masked_cost(sites: int, shape: tuple[int, int]) -> Cost:
    """What it costs without dropouts: input and sealed shares up, sealed shares with who is in down, opened shares up.

    Parameters
    ----------
    sites : int
    shape : (limbs, d)
        Of the vectors.

    Returns
    -------
    Cost
    """
    limbs, length = shape
    members = min(sites, MAX_NEIGHBOURS + 1)
    words = SEALED_WORDS * (members - 1) + (REQUEST_WORDS + SECRET_WORDS) * members
    return Cost(messages=4 * sites, hops=3, payload_bytes=sites * (limbs * length + words) * RESIDUE_BYTES)


def masked(threshold: float = DEFAULT_THRESHOLD) -> SecureSum:
    """The protocol; it needs two sites.

    Parameters
    ----------
    threshold : float, default 0.66
        Which part of a site's neighbourhood must remain, above 0.5 and at most 1.

    Returns
    -------
    SecureSum

    Raises
    ------
    ValueError
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
        min_remaining=functools.partial(threshold_of, threshold),
        sends_to=lambda me, sites: (COORDINATOR,),
    )
