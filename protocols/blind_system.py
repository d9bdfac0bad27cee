"""A linear system over all sites, solved by a coordinator that sees it only behind two masks of different sites.

H is the sum of all sites' symmetric matrices and a public diagonal, q the sum of their right-hand sides. Three sites
are the committee: the first a, the second b and the dealer c. All sites draw them together, afresh in every attempt,
and no site can choose them. Everything is an integer modulo several primes (`arithmetic.residue_numbers`).

    share   each site sends a seed of R_i to a, and puts H_i - R_i into the run's secure sum, which b opens.
            So a holds R = sum R_i, and b holds T = H - R.
    mask    a draws O_a = Q S: Q Haar-random orthogonal, S diagonal, log-uniform in [1/2, 2]. From shares of H the two
            compute shares of O_a H O_a^T. The dealer gives a the seeds of U, W_1 and Q_1, and b the seed of a symmetric
            V, W_2 = U V U^T - W_1 and Q_2 = U V - Q_1. Then D = O_a - U goes to b, E = T - V to a, and
                a:  O_a (R + E) O_a^T + W_1 + Q_1 D^T + D Q_1^T
                b:  W_2 + Q_2 D^T + D Q_2^T + D V D^T
            add up to O_a H O_a^T. The same with the roles of a and b exchanged gives O_b O_a H O_a^T O_b^T.
    open    a adds to its share a uniform matrix that b takes off its own, and both send theirs to the coordinator. It
            has M = A H A^T and s = A q t, with A = O_b O_a and a factor t of every right-hand side that a alone knows.
    solve   The coordinator sends y = M^-1 s to b, b sends O_b^T y to a, and a has x = O_a^T O_b^T y / t.
    check   a sends x to b. They open r . (H x - q) to each other, for a random vector r that only they know. Both open
            x to the coordinator only if the number is next to 0, so that it learns A^T y of no other y.

Cost: see `blind_system_cost`. For each prime six products of matrices at a and at b, and four at the dealer.

Security. Against semi-honest parties. Each site alone sees uniform numbers, and the solution. The coordinator, also
together with any one site, sees M and the solution beside what that site has: H stays behind a mask of the other
member. Each eigenvalue of M is one of H up to a factor of 4 for each mask. Any two of the committee learn H and q, and
two with the sum's own coalitions the parts of single sites. A dealer or member that lies makes a wrong solution, which
the check notices unless a or b lies in it too. A dealer or b that lies together with the coordinator is not
withstood: from a false matrix of the dealer it learns a part of a mask.
Messages between sites are sealed by the channel's links; the coordinator forwards what it cannot read.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fedsvm.federation.arrays import FloatArray, Residues
from fedsvm.federation.channel.contract import Channel
from fedsvm.federation.errors import BoundExceeded, FederationError, PeerDropped, StepRefused
from fedsvm.federation.transport.keys import COORDINATOR
from fedsvm.protocols.arithmetic.residue_numbers import (
    MAX_SUMMANDS,
    ResidueNumbers,
    symmetric,
    transposed,
    upper,
)
from fedsvm.protocols.common_seed import SHAPE
from fedsvm.protocols.passing_on import pass_on
from fedsvm.protocols.secret_order import secret_order
from fedsvm.protocols.sums.contract import RESIDUE_BYTES, Cost, SecureSum

MIN_SITES = 3
"""The committee."""

MAX_SITES = MAX_SUMMANDS
"""The number of sites whose packed residues add up without a carry."""

FRACTION_BITS = 60
"""Behind the point of an entry over the scale."""

_MASK_BITS = 12
"""Behind the point of a mask, which need not be orthogonal exactly, but known exactly."""

STRETCH = 2.0
"""The largest entry of S and the largest factor of a right-hand side; the smallest is its inverse."""

_STEP_BITS = 40
"""Of the solution in the check."""

_CHECK_BITS = 10
"""Of the entries of the random vector of the check."""

_WRONG = 1e-6
"""A solution is wrong if it leaves a larger share of the largest possible system; rounding leaves some 1e-11."""


@dataclass(frozen=True)
class BlindSystem:
    """The public parameters of one system, the same at every party.

    Attributes
    ----------
    size : int
        d, of H (d, d).
    problems : int
        The number of right-hand sides.
    scale : float
        A power of two that no entry of H or q exceeds.
    penalty : float
        What is added to the diagonal of H.
    free : int
        The number of last places of the diagonal that it is not added to.
    """

    size: int
    problems: int
    scale: float
    penalty: float
    free: int

    @property
    def extended(self) -> int:
        """The size of H with the right-hand sides as further rows and columns."""
        return self.size + self.problems

    @property
    def triangle(self) -> int:
        """The number of entries of the upper triangle of the extended matrix."""
        return self.extended * (self.extended + 1) // 2

    @property
    def entries(self) -> int:
        """The number of entries of a site: the upper triangle of H, and the right-hand sides."""
        return self.size * (self.size + 1) // 2 + self.problems * self.size

    @cached_property
    def numbers(self) -> ResidueNumbers:
        """The primes."""
        places = math.ceil(math.log2(self.extended))
        masked = FRACTION_BITS + 4 * _MASK_BITS + 5 + places
        checked = FRACTION_BITS + _STEP_BITS + _CHECK_BITS + 2 * places + 1
        return ResidueNumbers.holding(max(masked, checked), self.extended)

    def encoded(self, entries: FloatArray) -> FloatArray:
        """Return the residues (primes, 1, entries). Raises BoundExceeded for an entry beyond the scale."""
        if not np.abs(entries).max(initial=0.0) <= self.scale:
            raise BoundExceeded(f"an entry of the system is not finite or beyond the declared bound {self.scale:g}")
        return self.numbers.encoded(entries[None, :] / self.scale, FRACTION_BITS)

    def matrix(self, entries: FloatArray) -> FloatArray:
        """Return the extended matrices (primes, d + K, d + K) of entries (primes, 1, entries)."""
        d, triangle = self.size, self.size * (self.size + 1) // 2
        full = np.zeros((len(entries), self.extended, self.extended))
        full[:, :d, :d] = symmetric(entries[:, :, :triangle], d)
        full[:, d:, :d] = entries[:, 0, triangle:].reshape(len(entries), self.problems, d)
        full[:, :d, d:] = transposed(full[:, d:, :d])
        return full

    def is_solved(self, left: FloatArray, found: FloatArray) -> bool:
        """Return whether residues (primes, 1, K) of r . (H x - q) are next to 0."""
        numbers = np.ldexp(self.numbers.decoded(left), -FRACTION_BITS - _solution_bits(found)) * self.scale
        allowed = _WRONG * self.size**2 * 2.0**_CHECK_BITS * self.scale * float(np.linalg.norm(found))
        return bool(np.abs(numbers).max() <= allowed)

    def diagonal(self) -> FloatArray:
        """Return the extended matrices of the penalty."""
        values = np.zeros((self.extended, self.extended))
        penalized = np.arange(self.size - self.free)
        values[penalized, penalized] = self.penalty / self.scale
        return self.numbers.encoded(values, FRACTION_BITS)


@dataclass(frozen=True)
class _Committee:
    """The three members: the first, the second and the dealer."""

    first: str
    second: str
    dealer: str


@dataclass(frozen=True)
class _OwnMask:
    """A member's mask: around H (d, d), and the factor of each right-hand side (K,); multiples of 2^-12."""

    around: FloatArray
    factors: FloatArray

    def residues(self, system: BlindSystem) -> FloatArray:
        """Return the extended mask (primes, d + K, d + K), as integers."""
        d = system.size
        whole = np.zeros((system.extended, system.extended))
        whole[:d, :d] = self.around
        whole[d:, d:] = np.diag(self.factors)
        return system.numbers.of_integers(np.rint(np.ldexp(whole, _MASK_BITS)).astype(np.int64))


# The site's part.


def contribute_to_system(
    channel: Channel, total: SecureSum, system: BlindSystem, entries: FloatArray
) -> FloatArray | None:
    """Run a site's part.

    Parameters
    ----------
    channel : Channel
    total : SecureSum
        The run's.
    system : BlindSystem
    entries : float64 array of shape (entries,)
        The site's own: the upper triangle of its matrix, then its right-hand sides.

    Returns
    -------
    FloatArray of shape (problems, size), or None
        The solutions, at the two members that open them.

    Raises
    ------
    StepRefused
        Before anything is sent, for too few or too many sites.
    BoundExceeded
        Before anything is sent, for entries beyond the scale.
    PeerDropped
        Where a site is missing in the sum; nothing was opened.
    """
    if not MIN_SITES <= len(channel.sites) <= MAX_SITES:
        raise StepRefused(f"a committee needs {MIN_SITES} to {MAX_SITES} sites, got {len(channel.sites)}")
    numbers, own = system.numbers, system.encoded(entries)
    committee = _drawn_committee(channel)
    seed = channel.random(SHAPE)
    share = numbers.reduced(own - numbers.uniform(channel, seed, (1, system.entries)))
    counted = np.append(numbers.packed(share), np.ones((1, 1), dtype=np.uint64), axis=1)
    opened = total.contribute(channel, counted, committee.second)
    if channel.me == committee.first:
        return _serve_as_first(channel, system, committee, seed)
    channel.send(committee.first, seed)
    if opened is not None:
        return _serve_as_second(channel, system, committee, opened)
    if channel.me == committee.dealer:
        for owner, other in ((committee.first, committee.second), (committee.second, committee.first)):
            _deal(channel, system, owner, other)
    return None


def _drawn_committee(channel: Channel) -> _Committee:
    """Draw the committee together: each site commits to 256 bits, then shows them. The first site tells the
    coordinator."""
    own = channel.random(SHAPE)
    commitments = _all_of(channel, _digest(own))
    shown = _all_of(channel, own)
    if any((_digest(each[None, :]) != kept).any() for each, kept in zip(shown, commitments, strict=True)):
        raise StepRefused("a site shows other random bits than it committed itself to")
    chosen = secret_order(np.bitwise_xor.reduce(shown, axis=0)[None, :], "committee", len(channel.sites))[:MIN_SITES]
    if channel.me == channel.sites[0]:
        channel.send(COORDINATOR, chosen.astype(np.uint64)[None, :])
    return _Committee(*(channel.sites[place] for place in chosen))


def _digest(shown: Residues) -> Residues:
    return np.frombuffer(hashlib.sha256(shown.tobytes()).digest(), dtype=np.uint64)[None, :]


def _all_of(channel: Channel, own: Residues) -> Residues:
    """Return (n, 4) every site's array (1, 4), which goes round once to be filled and once to be read."""
    sites, place = channel.sites, channel.sites.index(channel.me)
    shape = (len(sites), own.shape[1])
    table = np.zeros(shape, dtype=np.uint64) if place == 0 else channel.receive(sites[place - 1], shape)
    table = table.copy()
    table[place] = own[0]
    if place < len(sites) - 1:
        channel.send(sites[place + 1], table)
    table = pass_on(channel, sites[-1], table if place == len(sites) - 1 else None, shape)
    if (table[place] != own[0]).any():
        raise StepRefused("another site changed the random bits that this one contributes to the committee")
    return table


def _serve_as_first(channel: Channel, system: BlindSystem, committee: _Committee, seed: Residues) -> FloatArray:
    numbers, second = system.numbers, committee.second
    seeds = [seed if site == channel.me else channel.receive(site, SHAPE) for site in channel.sites]
    parts = sum(numbers.uniform(channel, each, (1, system.entries)) for each in seeds)
    held = numbers.reduced(system.matrix(numbers.reduced(np.asarray(parts))) + system.diagonal())
    mask = _drawn_mask(channel, system, STRETCH)
    share = _mask_own(channel, system, committee.dealer, second, mask, held)
    share = _mask_other(channel, system, committee.dealer, second, share)
    secrets = channel.random((2, SHAPE[1]))
    channel.send(second, secrets)
    _open(channel, system, upper(share), secrets[0], 1)
    turned = channel.receive(second, (system.size, system.problems), np.float64)
    found = mask.around.T @ turned / mask.factors
    channel.send(second, found)
    return _open_solution(channel, system, second, held, found, secrets[1])


def _serve_as_second(channel: Channel, system: BlindSystem, committee: _Committee, opened: Residues) -> FloatArray:
    if (count := int(opened[0, -1])) != len(channel.sites):
        raise PeerDropped(f"{count} of {len(channel.sites)} sites are in the sum of a blind system; nothing was opened")
    first = committee.first
    held = system.matrix(system.numbers.unpacked(opened[:, :-1], (1, system.entries)))
    mask = _drawn_mask(channel, system, 1.0)
    share = _mask_other(channel, system, committee.dealer, first, held)
    share = _mask_own(channel, system, committee.dealer, first, mask, share)
    secrets = channel.receive(first, (2, SHAPE[1]))
    _open(channel, system, upper(share), secrets[0], -1)
    solution = channel.receive(COORDINATOR, (system.size, system.problems), np.float64)
    channel.send(first, mask.around.T @ solution)
    found = channel.receive(first, (system.size, system.problems), np.float64)
    return _open_solution(channel, system, first, held, found, secrets[1])


def _mask_own(
    channel: Channel, system: BlindSystem, dealer: str, other: str, mask: _OwnMask, share: FloatArray
) -> FloatArray:
    """Return the owner's share of O H O^T, given its share of H and its mask O."""
    numbers, square, secret = system.numbers, (system.extended, system.extended), mask.residues(system)
    seeds = channel.receive(dealer, (3, SHAPE[1]))
    around, product, twice = (numbers.uniform(channel, seed, square) for seed in seeds)
    hidden = numbers.reduced(secret - around)
    channel.send(other, numbers.packed(hidden))
    theirs = _received_symmetric(channel, system, other)
    turned = numbers.product(numbers.product(secret, numbers.reduced(share + theirs)), transposed(secret))
    cross = numbers.product(product, transposed(hidden))
    return numbers.reduced(turned + symmetric(upper(twice), system.extended) + cross + transposed(cross))


def _mask_other(channel: Channel, system: BlindSystem, dealer: str, owner: str, share: FloatArray) -> FloatArray:
    """Return the other member's share of O H O^T, given its share of H."""
    numbers, square = system.numbers, (system.extended, system.extended)
    seed, shape = channel.receive(dealer, SHAPE), (1, numbers.words(square))
    twice = _received_symmetric(channel, system, dealer)
    product = numbers.unpacked(channel.receive(dealer, shape), square)
    around = symmetric(upper(numbers.uniform(channel, seed, square)), system.extended)
    channel.send(owner, numbers.packed(upper(numbers.reduced(share - around))))
    hidden = numbers.unpacked(channel.receive(owner, shape), square)
    cross = numbers.product(product, transposed(hidden))
    turned = numbers.product(numbers.product(hidden, around), transposed(hidden))
    return numbers.reduced(twice + cross + transposed(cross) + turned)


def _deal(channel: Channel, system: BlindSystem, owner: str, other: str) -> None:
    """Deal the correlated randomness of one mask, drawn for it alone."""
    numbers, square = system.numbers, (system.extended, system.extended)
    seeds = channel.random((4, SHAPE[1]))
    channel.send(owner, seeds[:3])
    channel.send(other, seeds[3:])
    around, product, twice, between = (numbers.uniform(channel, seed, square) for seed in seeds)
    between, twice = (symmetric(upper(each), system.extended) for each in (between, twice))
    turned = numbers.product(around, between)
    both = numbers.product(turned, transposed(around))
    channel.send(other, numbers.packed(upper(numbers.reduced(both - twice))))
    channel.send(other, numbers.packed(numbers.reduced(turned - product)))


def _received_symmetric(channel: Channel, system: BlindSystem, sender: str) -> FloatArray:
    """Return a symmetric matrix of residues, which comes as its upper triangle."""
    shape = (1, system.triangle)
    words = channel.receive(sender, (1, system.numbers.words(shape)))
    return symmetric(system.numbers.unpacked(words, shape), system.extended)


def _open(channel: Channel, system: BlindSystem, share: FloatArray, seed: Residues, sign: int) -> None:
    """Send the coordinator a share, of which nothing follows but its sum with the other member's."""
    uniform = system.numbers.uniform(channel, seed, share.shape[1:])
    channel.send(COORDINATOR, system.numbers.packed(system.numbers.reduced(share + sign * uniform)))


def _open_solution(
    channel: Channel, system: BlindSystem, other: str, held: FloatArray, found: FloatArray, seed: Residues
) -> FloatArray:
    """Check a solution (size, problems) with the other member, and send it to the coordinator.

    Return the solutions (problems, size). Raises StepRefused for a wrong one.
    """
    numbers, shape, own = system.numbers, (1, system.problems), _residual(channel, system, held, found, seed)
    channel.send(other, numbers.packed(own))
    theirs = numbers.unpacked(channel.receive(other, (1, numbers.words(shape))), shape)
    if not system.is_solved(numbers.reduced(own + theirs), found):
        raise StepRefused("a vector does not solve the blind system; the coordinator or a member sent false numbers")
    channel.send(COORDINATOR, found)
    return found.T


def _residual(channel: Channel, system: BlindSystem, held: FloatArray, found: FloatArray, seed: Residues) -> FloatArray:
    """Return this member's share (primes, 1, K) of r . (H x - q), with r from a seed."""
    if not np.isfinite(found).all():
        raise StepRefused("the solution of a blind system is not finite; a member of the committee sent a false share")
    numbers, d, bits = system.numbers, system.size, _solution_bits(found)
    (words,) = channel.expand([seed.tobytes()], (1, d))
    weights = numbers.of_integers((words >> np.uint64(64 - _CHECK_BITS)).astype(np.int64))
    factors = numbers.of_integers(np.ones((1, 1), dtype=np.int64))
    for _ in range(bits):
        factors = numbers.reduced(2 * factors)
    products = numbers.product(held[:, :d, :d], numbers.encoded(found, bits))
    return numbers.product(weights, numbers.reduced(products - numbers.reduced(held[:, :d, d:] * factors)))


def _solution_bits(found: FloatArray) -> int:
    """Return how many bits are behind the point of a solution in the check."""
    return max(0, _STEP_BITS - math.frexp(float(np.abs(found).max(initial=0.0)))[1])


def _drawn_mask(channel: Channel, system: BlindSystem, widest: float) -> _OwnMask:
    """Draw a mask Q S, and factors of the right-hand sides up to `widest`; S on the other side would show itself."""
    d, k = system.size, system.problems
    pairs = -(-d * d // 2)
    first, second, rest = np.split(_uniform(channel, 2 * pairs + d + k), [pairs, 2 * pairs])
    radius, angle = np.sqrt(-2 * np.log1p(-first)), 2 * np.pi * second
    normal = np.concatenate([radius * np.cos(angle), radius * np.sin(angle)])[: d * d].reshape(d, d)
    q, r = np.linalg.qr(normal)
    around = q * np.copysign(1.0, np.diagonal(r)) * STRETCH ** (2 * rest[:d] - 1)
    return _OwnMask(_rounded(around), _rounded(widest ** (2 * rest[d:] - 1)))


def _uniform(channel: Channel, count: int) -> FloatArray:
    """Return (count,) numbers in [0, 1) from the operating system's generator."""
    return np.asarray(np.ldexp((channel.random((1, count))[0] >> np.uint64(11)).astype(np.float64), -53))


def _rounded(values: FloatArray) -> FloatArray:
    return np.asarray(np.ldexp(np.rint(np.ldexp(values, _MASK_BITS)), -_MASK_BITS))


# The coordinator's part.


def solve_blind_system(channel: Channel, total: SecureSum, system: BlindSystem) -> FloatArray:
    """Run the coordinator's part: solve the system behind the masks.

    Parameters
    ----------
    channel : Channel
    total : SecureSum
        The run's.
    system : BlindSystem

    Returns
    -------
    FloatArray of shape (problems, size)
        The solutions.

    Raises
    ------
    FederationError
        For a singular system, and for members that open different solutions.
    """
    numbers, d, sites = system.numbers, system.size, channel.sites
    places = [int(place) for place in channel.receive(sites[0], (1, MIN_SITES))[0]]
    if len(set(places)) < MIN_SITES or max(places) >= len(sites):
        raise FederationError(f"A committee must be {MIN_SITES} of {len(sites)} sites, got places {places}; run again.")
    committee = _Committee(*(sites[place] for place in places))
    total.forward(channel, (1, numbers.words((1, system.entries)) + 1), committee.second)
    shape, members = (1, system.triangle), (committee.first, committee.second)
    shares = [numbers.unpacked(channel.receive(site, (1, numbers.words(shape))), shape) for site in members]
    whole = symmetric(numbers.reduced(shares[0] + shares[1]), system.extended)
    masked = np.ldexp(numbers.decoded(whole), -FRACTION_BITS - 4 * _MASK_BITS) * system.scale
    try:
        solution = np.linalg.solve(masked[:d, :d], masked[:d, d:])
    except np.linalg.LinAlgError:
        raise FederationError("The blind system is singular; raise its regularization.") from None
    channel.send(committee.second, solution)
    found = [channel.receive(site, (d, system.problems), np.float64) for site in members]
    if not np.array_equal(found[0], found[1]):
        raise FederationError(f"{' and '.join(members)} opened different solutions of a blind system; run again.")
    return found[0].T


def blind_system_cost(total: SecureSum, sites: int, system: BlindSystem) -> Cost:
    """Return the cost of a system: the draw of the committee, seeds, one sum, two masks, and what is opened.

    Hops are an upper bound, since they depend on who is drawn.

    Parameters
    ----------
    total : SecureSum
        The run's.
    sites : int
    system : BlindSystem

    Returns
    -------
    Cost
    """
    numbers, e = system.numbers, system.extended
    shape = (1, numbers.words((1, system.entries)) + 1)
    summed = total.cost_of(sites, shape)
    square, triangle = numbers.words((e, e)), numbers.words((1, system.triangle))
    checked, values = numbers.words((1, system.problems)), system.size * system.problems
    drawn = 4 * (sites - 1) * sites * SHAPE[1] + MIN_SITES
    seeds = (sites - 1 + 2 * 4 + 2) * SHAPE[1]
    words = drawn + seeds + shape[1] + 4 * square + 6 * triangle + 2 * checked + 5 * values
    return Cost(
        messages=5 * (sites - 1) + 1 + summed.messages + 2 + 2 * 6 + 1 + 2 + 7,
        hops=4 * (sites - 1) + summed.hops + 12,
        payload_bytes=summed.payload_bytes + words * RESIDUE_BYTES,
    )
