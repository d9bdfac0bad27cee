"""Linear systems over all sites, solved by a coordinator that sees them only behind two masks of different sites.

H is the sum of all sites' symmetric matrices and a public diagonal, q the sum of their right-hand sides. Three sites
are the committee (`committee`): the first a, the second b and the dealer c. All sites draw it anew in every attempt, or
agree on it before the run. All numbers are integers modulo several primes (`arithmetic.residue_numbers`).

    share   each site sends a seed of R_i to a, and adds H_i - R_i to the run's secure sum, which b opens.
            So a holds R = sum R_i, and b holds T = H - R.
    mask    a draws O_a = Q S: Q Haar-random orthogonal, S diagonal, log-uniform in [1/2, 2]. From shares of H the two
            compute shares of O_a H O_a^T. The dealer gives a the seeds of U, W_1 and Q_1, and b the seed of a symmetric
            V, Q_2 = U V - Q_1 and W_2 = U V U^T - Q_1 U^T - U Q_1^T - W_1. Then D = O_a - U goes to b, E = T - V to a,
            and
                a:  O_a (R + E) O_a^T + W_1 + Q_1 O_a^T + O_a Q_1^T
                b:  W_2 + Q_2 D^T + D Q_2^T + D V D^T
            add up to O_a H O_a^T. The same with the roles of a and b exchanged gives O_b O_a H O_a^T O_b^T.
    open    a adds to its share a uniform matrix that b subtracts from its own. Both send theirs to the coordinator. It
            has M = A H A^T and s = A q t, with A = O_b O_a and a factor t of every right-hand side that a alone knows.
    solve   The coordinator sends y = M^-1 s to b, b sends O_b^T y to a, and a has x = O_a^T O_b^T y / t.
    check   a sends x to b. They open r . (H x - q) to each other, for a random vector r that only they know. Both open
            x to the coordinator only if the number is next to 0, so that it learns A^T y of no other y. Or a sends x to
            all sites instead, and the coordinator learns no x.

Several systems have separate masks, and share the committee and the sum. Small ones of equal size also share messages
(`bundles_of`). The members a and b may add normal noise to q, and sums may be opened with a system (`blind_sums`).

Cost: see `blind_systems_cost`. Each member computes four matrix products for each prime.

Security. Against semi-honest parties. Each site alone sees uniform numbers and the solution. The coordinator together
with any one site sees M, the solution and that site's own data: the other member's mask still hides H. Each eigenvalue
of M is one of H up to a factor of 4 for each mask. Any two members of the committee learn H and q. Together with a
coalition that opens the sum, they learn the parts of single sites. A dealer or member that lies causes a wrong
solution, which the check detects unless a or b also lies in the check. There is no protection against a dealer or b
that lies together with the coordinator: from a false matrix of the dealer the coordinator learns a part of a mask. Nor
is there protection against the first site of the run, through which the draw goes. It may show each site other bits of
the others, until every site takes it for a and another site for b. With three sites, one attempt in 36 succeeds.
Messages between sites are sealed for their receiver, so the coordinator cannot read those that it forwards.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from fedsvm.federation.arrays import FloatArray, Residues
from fedsvm.federation.channel.interface import Channel
from fedsvm.federation.errors import FederationError, PeerDropped, StepRefused
from fedsvm.federation.transport.keys import COORDINATOR
from fedsvm.protocols.arithmetic.residue_numbers import MAX_SUMMANDS, symmetric, transpose, upper
from fedsvm.protocols.blind_masks import deal_masking, draw_mask, mask_other, mask_own
from fedsvm.protocols.blind_parameters import (
    CHECK_BITS,
    FRACTION_BITS,
    MASK_BITS,
    STRETCH,
    BlindSystem,
    bundles_of,
    solution_bits,
)
from fedsvm.protocols.blind_sums import deal_products, normal, open_sums_as_first, open_sums_as_second
from fedsvm.protocols.committee import MIN_SITES, Committee, agreed_committee, draw_committee, receive_committee
from fedsvm.protocols.common_seed import SHAPE
from fedsvm.protocols.side_by_side import Receive, Send, Steps, side_by_side
from fedsvm.protocols.sums.secure_sum import RESIDUE_BYTES, Cost, SecureSum

MAX_SITES = MAX_SUMMANDS
"""Maximum number of sites: so many packed residues add up without a carry."""


# The site's part.


def contribute_to_systems(
    channel: Channel,
    total: SecureSum,
    systems: Sequence[BlindSystem],
    entries: Sequence[FloatArray],
    members: Sequence[str] = (),
) -> list[FloatArray] | None:
    """Run a site's part, as a member of the committee or as another site.

    Parameters
    ----------
    channel : Channel
    total : SecureSum
        The run's secure sum.
    systems : sequence of BlindSystem
        The systems to solve.
    entries : sequence of float64 arrays of shape (entries,)
        The site's part of each system: the upper triangle of its matrix, its right-hand sides, and its numbers and
        vectors of `BlindSystem.sums`.
    members : sequence of str, default ()
        The committee that all sites agreed on: first, second and dealer. By default the sites draw one.

    Returns
    -------
    list of FloatArray of shape (problems, size), or None
        The solutions of each system, at the members that hold shares, and at every site if all sites learn them.

    Raises
    ------
    StepRefused
        There are too few or too many sites, or an agreed member does not take part; nothing was sent. Or another party
        sent false numbers; no solution was opened.
    BoundExceeded
        An entry is beyond the scale. Nothing was sent.
    PeerDropped
        A site is missing in the sum. Nothing was opened.
    """
    if not MIN_SITES <= len(channel.sites) <= MAX_SITES:
        raise StepRefused(
            f"a committee needs {MIN_SITES} to {MAX_SITES} sites, got {len(channel.sites)}; run again with enough "
            "sites, or with another masking"
        )
    encoded = [system.encode(own) for system, own in zip(systems, entries, strict=True)]
    committee = agreed_committee(members, channel.sites) if members else draw_committee(channel)
    seeds = channel.random((len(systems), SHAPE[1]))
    words = [np.ones((1, 1), dtype=np.uint64)]
    for system, own, seed in zip(systems, encoded, seeds, strict=True):
        numbers = system.numbers
        share = numbers.reduce(own - numbers.uniform(channel.expand, seed[None, :], (1, system.entries)))
        words.insert(-1, numbers.pack(share))
    opened = total.contribute(channel, np.concatenate(words, axis=1), committee.second)
    if channel.me == committee.first:
        return _serve(channel, systems, committee, _serve_as_first, _shares_of_first(channel, systems, seeds))
    channel.send(committee.first, seeds)
    if opened is not None:
        return _serve(channel, systems, committee, _serve_as_second, _shares_of_second(channel, systems, opened))
    found = [
        each
        for bundle in bundles_of(systems)
        for each in side_by_side(channel, [_serve_outside(channel, system, committee) for system in bundle])
    ]
    return [each for each in found if each is not None] or None


def _serve(
    channel: Channel,
    systems: Sequence[BlindSystem],
    committee: Committee,
    serve: Callable[[Channel, BlindSystem, Committee, FloatArray], Steps[FloatArray]],
    shares: Sequence[FloatArray],
) -> list[FloatArray]:
    """Return the solutions at a member that holds a share of each system."""
    found, share = list[FloatArray](), iter(shares)
    for bundle in bundles_of(systems):
        found += side_by_side(channel, [serve(channel, system, committee, next(share)) for system in bundle])
    return found


def _serve_outside(channel: Channel, system: BlindSystem, committee: Committee) -> Steps[FloatArray | None]:
    """Deal if this site is the dealer, and return the solutions if all sites learn them."""
    if channel.me == committee.dealer:
        for owner, other in ((committee.first, committee.second), (committee.second, committee.first)):
            yield from deal_masking(channel, system, owner, other)
        if system.sums.vectors:
            yield from deal_products(channel, system, committee.first, committee.second)
    if not system.is_told:
        return None
    found = yield Receive(committee.first, (system.size, system.problems), np.float64)
    return np.asarray(found.T)


def _shares_of_first(channel: Channel, systems: Sequence[BlindSystem], seeds: Residues) -> list[FloatArray]:
    """Return R of each system, as entries."""
    all_seeds = [seeds if site == channel.me else channel.receive(site, seeds.shape) for site in channel.sites]
    shares = []
    for place, system in enumerate(systems):
        shape = (1, system.entries)
        parts = sum(system.numbers.uniform(channel.expand, each[place : place + 1], shape) for each in all_seeds)
        shares.append(system.numbers.reduce(np.asarray(parts)))
    return shares


def _shares_of_second(channel: Channel, systems: Sequence[BlindSystem], opened: Residues) -> list[FloatArray]:
    """Return T of each system, as entries."""
    if (count := int(opened[0, -1])) != len(channel.sites):
        raise PeerDropped(f"{count} of {len(channel.sites)} sites are in the sum of a blind system; nothing was opened")
    ends = np.cumsum([system.numbers.words((1, system.entries)) for system in systems])
    words = np.split(opened[:, :-1], ends[:-1], axis=1)
    return [system.numbers.unpack(part, (1, system.entries)) for system, part in zip(systems, words, strict=True)]


def _serve_as_first(
    channel: Channel, system: BlindSystem, committee: Committee, entries: FloatArray
) -> Steps[FloatArray]:
    second = committee.second
    held = system.numbers.reduce(system.add_penalty(_add_dither(channel, system, system.matrix(entries))))
    mask = draw_mask(channel, system, STRETCH)
    share = yield from mask_own(channel, system, committee.dealer, second, mask, held)
    share = yield from mask_other(channel, system, committee.dealer, second, share)
    sums = yield from open_sums_as_first(channel, system, committee.dealer, second, entries)
    secrets = channel.random((2, SHAPE[1]))
    yield Send(second, secrets)
    yield from _open(channel, system, np.concatenate([upper(share), sums], axis=2), secrets[0], 1)
    turned = yield Receive(second, (system.size, system.problems), np.float64)
    found = mask.around.T @ turned / mask.factors
    yield Send(second, found)
    yield from _check_solution(channel, system, second, held, found, secrets[1])
    receivers = (
        [site for site in channel.sites if site not in (channel.me, second)] if system.is_told else [COORDINATOR]
    )
    for receiver in receivers:
        yield Send(receiver, found)
    return np.asarray(found.T)


def _serve_as_second(
    channel: Channel, system: BlindSystem, committee: Committee, entries: FloatArray
) -> Steps[FloatArray]:
    first = committee.first
    held = system.numbers.reduce(_add_dither(channel, system, system.matrix(entries)))
    mask = draw_mask(channel, system, 1.0)
    share = yield from mask_other(channel, system, committee.dealer, first, held)
    share = yield from mask_own(channel, system, committee.dealer, first, mask, share)
    sums = yield from open_sums_as_second(channel, system, committee.dealer, first, entries)
    secrets = yield Receive(first, (2, SHAPE[1]))
    yield from _open(channel, system, np.concatenate([upper(share), sums], axis=2), secrets[0], -1)
    solution = yield Receive(COORDINATOR, (system.size, system.problems), np.float64)
    yield Send(first, mask.around.T @ solution)
    found = yield Receive(first, (system.size, system.problems), np.float64)
    yield from _check_solution(channel, system, first, held, found, secrets[1])
    if not system.is_told:
        yield Send(COORDINATOR, found)
    return np.asarray(found.T)


def _add_dither(channel: Channel, system: BlindSystem, full: FloatArray) -> FloatArray:
    """Add this member's noise to the right-hand sides of extended matrices, in place and without reduction."""
    numbers, d = system.numbers, system.size
    if system.dither:
        drawn = normal(channel, d * system.problems).reshape(system.problems, d)
        size = np.append(np.full(d - system.free, system.dither), np.full(system.free, system.free_dither))
        noise = numbers.encode(size / 2**0.5 / system.scale * drawn, FRACTION_BITS)
        full[:, d:, :d] += noise
        full[:, :d, d:] += transpose(noise)
    return full


def _open(channel: Channel, system: BlindSystem, share: FloatArray, seed: Residues, sign: int) -> Steps[None]:
    """Send the coordinator a share, masked so that it learns the sum of both members' shares only."""
    uniform = system.numbers.uniform(channel.expand, seed, share.shape[1:])
    channel.note_opening()
    yield Send(COORDINATOR, system.numbers.pack(system.numbers.reduce(share + sign * uniform)))


def _check_solution(
    channel: Channel, system: BlindSystem, other: str, held: FloatArray, found: FloatArray, seed: Residues
) -> Steps[None]:
    """Check a solution (size, problems) with the other member. Raises StepRefused for a wrong one."""
    numbers, shape, own = system.numbers, (1, system.problems), _residual(channel, system, held, found, seed)
    yield Send(other, numbers.pack(own))
    theirs = numbers.unpack((yield Receive(other, (1, numbers.words(shape)))), shape)
    if not system.is_solved(numbers.reduce(own + theirs), found):
        raise StepRefused("a vector does not solve the blind system; the coordinator or a member sent false numbers")


def _residual(channel: Channel, system: BlindSystem, held: FloatArray, found: FloatArray, seed: Residues) -> FloatArray:
    """Return this member's share (primes, 1, K) of r . (H x - q), with r from a seed."""
    if not np.isfinite(found).all():
        raise StepRefused("the solution of a blind system is not finite; a member of the committee sent a false share")
    numbers, d, bits = system.numbers, system.size, solution_bits(found)
    (words,) = channel.expand([seed.tobytes()], (1, d))
    weights = numbers.of_integers((words >> np.uint64(64 - CHECK_BITS)).astype(np.int64))
    products = numbers.product(held[:, :d, :d], numbers.encode(found, bits))
    right_hand_sides = numbers.reduce(held[:, :d, d:] * numbers.power_of_two(bits))
    return numbers.product(weights, numbers.reduce(products - right_hand_sides))


# The coordinator's part.


@dataclass(frozen=True)
class BlindSolution:
    """The coordinator's result for a system.

    Attributes
    ----------
    found : FloatArray of shape (problems, size)
        The solutions. If all sites learn them, the coordinator has only the masked ones.
    trace : float
        The trace of the masked matrix.
    decrements : FloatArray of shape (problems,)
        q . H^-1 q for each right-hand side q with its noise, times the square of its factor, which is at most STRETCH.
    numbers, products : FloatArray of shape (count,) and (g, g)
        The sums opened with the system, with noise.
    """

    found: FloatArray
    trace: float
    decrements: FloatArray
    numbers: FloatArray
    products: FloatArray


def solve_blind_systems(
    channel: Channel, total: SecureSum, systems: Sequence[BlindSystem], members: Sequence[str] = ()
) -> list[BlindSolution]:
    """Run the coordinator's part: solve the systems behind the masks.

    Parameters
    ----------
    channel : Channel
    total : SecureSum
        The run's secure sum.
    systems : sequence of BlindSystem
    members : sequence of str, default ()
        The committee that all sites agreed on. By default the first site sends the one that they drew.

    Returns
    -------
    list of BlindSolution

    Raises
    ------
    FederationError
        A system is singular, or the members open different solutions.
    """
    committee = agreed_committee(members, channel.sites) if members else receive_committee(channel)
    total.forward(channel, (1, _summed_words(systems)), committee.second)
    return [
        each
        for bundle in bundles_of(systems)
        for each in side_by_side(channel, [_solve(system, committee) for system in bundle])
    ]


def _solve(system: BlindSystem, committee: Committee) -> Steps[BlindSolution]:
    numbers, d = system.numbers, system.size
    shape = (1, system.opened)
    opened = numbers.unpack((yield Receive(committee.first, (1, numbers.words(shape)))), shape)
    opened += numbers.unpack((yield Receive(committee.second, (1, numbers.words(shape)))), shape)
    opened = numbers.reduce(opened)
    decoded = numbers.decode(opened[:, :, : system.triangle])
    masked = symmetric(decoded[None], system.extended)[0]
    masked = np.ldexp(masked, -FRACTION_BITS - 4 * MASK_BITS) * system.scale
    try:
        solution = np.linalg.solve(masked[:d, :d], masked[:d, d:])
    except np.linalg.LinAlgError:
        raise FederationError("The blind system is singular; raise its regularization.") from None
    yield Send(committee.second, solution)
    decrements = np.einsum("ij,ij->j", masked[:d, d:], solution)
    if not system.is_told:
        solution = yield Receive(committee.first, (d, system.problems), np.float64)
        other = yield Receive(committee.second, (d, system.problems), np.float64)
        if not np.array_equal(solution, other):
            raise FederationError(
                f"{committee.first} and {committee.second} opened different solutions of a blind system; run again."
            )
    trace, sums = float(np.trace(masked[:d, :d])), system.read_sums(opened[:, :, system.triangle :])
    return BlindSolution(np.asarray(solution.T, dtype=np.float64), trace, decrements, *sums)


def _summed_words(systems: Sequence[BlindSystem]) -> int:
    return sum(system.numbers.words((1, system.entries)) for system in systems) + 1


def blind_systems_cost(total: SecureSum, sites: int, systems: Sequence[BlindSystem], *, is_drawn: bool = True) -> Cost:
    """Return the cost of a round: the draw of the committee, seeds, one sum, two masks, and the opened values.

    The number of hops is an upper bound, since it depends on which sites are drawn.

    Parameters
    ----------
    total : SecureSum
        The run's secure sum.
    sites : int
    systems : sequence of BlindSystem
    is_drawn : bool, default True
        False if all sites agreed on the committee before the run.

    Returns
    -------
    Cost
    """
    summed = total.cost_of(sites, (1, _summed_words(systems)))
    drawing = 4 * (sites - 1) if is_drawn else 0
    messages, hops = drawing + is_drawn + (sites - 1) + summed.messages + 2, 4 * is_drawn + summed.hops + 1
    words = (
        drawing // 2 * (sites + 1) * SHAPE[1]
        + MIN_SITES * is_drawn
        + len(systems) * (sites - 1) * SHAPE[1]
        + _summed_words(systems)
    )
    for bundle in bundles_of(systems):
        told, has_products = (sites - 2 if bundle[0].is_told else 2), bundle[0].sums.vectors > 0
        messages, hops = messages + 2 * 6 + 1 + 2 + 5 + told + 5 * has_products, hops + 11 + 2 * has_products
        words += sum(_words_after_sum(system, told) for system in bundle)
    return Cost(messages=messages, hops=hops, payload_bytes=summed.payload_bytes + words * RESIDUE_BYTES)


def _words_after_sum(system: BlindSystem, told: int) -> int:
    """Return the number of words that are sent for one system after the sum. told: the number of messages with the
    solution."""
    numbers, sums, e = system.numbers, system.sums, system.extended
    square, triangle = numbers.words((e, e)), numbers.words((1, system.triangle))
    words = (2 * 4 + 2) * SHAPE[1] + 4 * square + 4 * triangle + 2 * numbers.words((1, system.opened))
    words += 2 * numbers.words((1, system.problems)) + (3 + told) * system.size * system.problems
    if sums.vectors:
        vectors, products = numbers.words((sums.vectors, sums.length)), numbers.words((sums.vectors,) * 2)
        words += 3 * SHAPE[1] + 2 * vectors + products
    return words
