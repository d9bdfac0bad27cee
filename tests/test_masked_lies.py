"""Lies of a coordinator inside a masked sum of real site processes, by keys or lists of dropouts of its own.

They open the vector of one site, or the sum of two. Sites that were given the
keys of the others refuse such keys, see `test_pinned`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from fedsvm.federation.arrays import FloatArray, Residues
from fedsvm.federation.channel.agreement import SECRET_BYTES, KeyAgreement, keystreams, round_keys, unseal
from fedsvm.federation.channel.interface import Channel
from fedsvm.federation.errors import SiteFailed
from fedsvm.federation.federation import Federation
from fedsvm.federation.site.rules import SiteRules
from fedsvm.federation.transport.keys import Roster
from fedsvm.protocols.arithmetic import shamir
from fedsvm.protocols.arithmetic.fixed_point import add, subtract
from fedsvm.protocols.arithmetic.flags import pack_flags
from fedsvm.protocols.sums import masked
from fedsvm.protocols.sums.consent import LIST, MISSING, OPEN
from fedsvm.protocols.sums.masked import SEALED_WORDS, SECRET_WORDS, requests
from fedsvm.protocols.sums.neighbourhoods import neighbourhoods
from fedsvm.protocols.sums.plain import collect_chunks
from tests.accomplice_site_process import ACCOMPLICE, KNOWN
from tests.conftest import drill
from tests.test_dropouts import total, total_of

VICTIM, OTHER = "site-1", "site-2"
PURPOSE = "masked sum"
COLLUDING = "tests.accomplice_site_process"
SITES = (VICTIM, OTHER, ACCOMPLICE)


class Caught(Exception):
    """The coordinator has what it wanted, and ends here."""


def lying(
    federation: Federation, reveal: Callable[[Channel, tuple[int, int]], Residues], sites: int = len(SITES)
) -> FloatArray:
    """Run a sum in which the coordinator's part is this one, which returns the residues of one site; decode them."""
    found: list[Residues] = []

    def lie(channel: Channel, shape: tuple[int, int]) -> Residues:
        found.append(reveal(channel, shape))
        raise Caught

    honest = federation.sum_protocol
    federation._protocol = replace(honest, reveal_residues=lie)  # type: ignore[type-var]
    with pytest.raises(Caught):
        total(federation)
    return honest.decode(found[0], (3,), 1e3, sites)


def keys_with_victim(federation: Federation, peer: str, known: KeyAgreement) -> bytes:
    """Return what the victim shares with a peer in the first round, from the peer's secret key."""
    signer, public = federation._runner._signer, federation._admission._roster[VICTIM].agreement_key
    assert signer is not None
    assert signer._chain.last is not None
    assert public is not None
    return round_keys(known.pair_key(peer, VICTIM, public, PURPOSE), 1, signer._chain.last.digest)


def without_masks(vector: Residues, seeds: list[bytes]) -> Residues:
    """Return what is left of the victim's vector when all masks are off; it is the first site, and added them all."""
    for seed in seeds:
        vector = subtract(vector, keystreams([seed], vector.shape)[0])
    return vector


def opened(sealed: Residues, place: int, keys: bytes) -> NDArray[np.uint32]:
    return np.frombuffer(unseal(keys, sealed[place].tobytes(), by_lower=True), dtype=np.uint32)


def test_keys_of_its_own_open_the_vector_of_a_site() -> None:
    """This still succeeds where sites were not given the keys of the others: in simulations, and without --sites."""
    between = {name: KeyAgreement(b"") for name in (OTHER, ACCOMPLICE)}

    def views(party: str, roster: Roster) -> Roster:
        for name, made in between.items() if party == VICTIM else ():
            roster = roster.replace(roster[name]._replace(agreement_key=made.public))
        return roster

    with drill(3, protocol="masked", views=views) as federation:
        run = federation._dispatcher.mailbox.run
        own = {name: KeyAgreement(run, key._private.private_bytes_raw()) for name, key in between.items()}

        def reveal(channel: Channel, shape: tuple[int, int]) -> Residues:
            vector = channel.receive(VICTIM, shape)
            sealed = channel.receive(VICTIM, (2, SEALED_WORDS))
            keys = [keys_with_victim(federation, name, own[name]) for name in (OTHER, ACCOMPLICE)]
            shares = np.stack([opened(sealed, place, each) for place, each in enumerate(keys)])
            mask = shamir.combine((2, 3), shares).tobytes()
            return without_masks(vector, [mask, *(each[:SECRET_BYTES] for each in keys)])

        assert np.allclose(lying(federation, reveal), total_of([VICTIM]), rtol=0, atol=1e-9)


def difference_of_a_round_carried_out_twice(module: str, monkeypatch: pytest.MonkeyPatch) -> FloatArray:
    """Order a sum of one round twice, the second time of zeros of one site, and return the difference of its vectors.

    Masks of pairs are the same both times. Its own mask is another one, which the others open each time.
    """
    vectors: list[Residues] = []
    honest_seeds, honest_chunks = masked._own_seeds, collect_chunks

    def own_seeds(*told: Any) -> list[bytes]:
        seeds = honest_seeds(*told)
        vectors[-1] = without_masks(vectors[-1], seeds[:1])
        return seeds

    def collect(channel: Channel, shape: tuple[int, int]) -> Any:
        chunks, whole = honest_chunks(channel, shape)
        vectors.append(chunks[0][VICTIM])
        return chunks, whole

    monkeypatch.setattr(masked, "_own_seeds", own_seeds)
    monkeypatch.setattr(masked, "collect_chunks", collect)
    with drill(3, protocol="masked", module=module) as federation:
        federation.sum("total", shape=(3,), bound=1e3, factor=1.0)
        federation.progress.round -= 1
        federation.sum("total", shape=(3,), bound=1e3, factor=0.0)
        return federation.sum_protocol.decode(subtract(*vectors), (3,), 1e3, len(SITES))


def test_a_round_that_is_carried_out_twice_opens_the_vector_of_a_site(monkeypatch: pytest.MonkeyPatch) -> None:
    replayed = difference_of_a_round_carried_out_twice("tests.replaying_site_process", monkeypatch)
    assert np.allclose(replayed, total_of([VICTIM]), rtol=0, atol=1e-9)
    with pytest.raises(SiteFailed, match="its round must be above 1, the last one here, got 1"):
        difference_of_a_round_carried_out_twice("tests.site_process", monkeypatch)


def open_by_two_lists(federation: Federation) -> FloatArray:
    """Have the victim open a share of its own mask, and tell another that the victim is missing; one site colludes."""
    known = KeyAgreement(federation._dispatcher.mailbox.run, KNOWN)

    def reveal(channel: Channel, shape: tuple[int, int]) -> Residues:
        graph = neighbourhoods(SITES)
        vectors = channel.collect(dict.fromkeys(SITES, shape))
        sealed = channel.collect(dict.fromkeys(SITES, (2, SEALED_WORDS)))
        by = np.zeros((3, 3, SEALED_WORDS), dtype=np.uint64)
        for place, site in enumerate(SITES):
            by[place][graph.members[place] != place] = sealed[site]
        channel.send(VICTIM, requests(graph, OPEN, np.ones(3, dtype=bool), by[graph.members, graph.place_at])[0])
        own = channel.receive(VICTIM, (3, SECRET_WORDS))[0]
        channel.send(OTHER, requests(graph, MISSING, np.array([False, True, True]))[1])
        seed = channel.receive(OTHER, (1, SECRET_WORDS))[0].tobytes()
        keys = keys_with_victim(federation, ACCOMPLICE, known)
        shares = np.stack([own.view(np.uint32), opened(sealed[VICTIM], 1, keys)])
        mask = shamir.combine((1, 3), shares).tobytes()
        return without_masks(vectors[VICTIM], [mask, seed, keys[:SECRET_BYTES]])

    return lying(federation, reveal)


def test_unequal_lists_of_dropouts_open_a_vector_unless_a_policy_counts_the_colluder() -> None:
    with drill(3, protocol="masked", module=COLLUDING) as federation:
        assert np.allclose(open_by_two_lists(federation), total_of([VICTIM]), rtol=0, atol=1e-9)
    said = "1 of 3 sites may collude with the coordinator, and the sum withstands 0"
    counted = SiteRules(colluders=1)
    with (
        pytest.raises(SiteFailed, match=said),
        drill(3, protocol="masked", module=COLLUDING, rules=counted) as federation,
    ):
        open_by_two_lists(federation)


SIX = tuple(f"site-{number}" for number in range(1, 7))
TWO = SIX[:2]
SAID_MISSING = {0: (2, 3), 1: (4, 5), 2: (1,), 3: (1,), 4: (0,), 5: (0,)}
"""The sites that each of six is told are missing. Each list leaves four of six in the sum, the threshold."""


def open_two_of_six(federation: Federation, *, listed: bool = True) -> FloatArray:
    """Open the sum of two sites: each pairwise mask between them and the others is opened by one of its ends.

    listed: each site confirms the list that it was told.
    """

    def reveal(channel: Channel, shape: tuple[int, int]) -> Residues:
        graph = neighbourhoods(SIX)
        vectors = channel.collect(dict.fromkeys(SIX, shape))
        sealed = channel.collect(dict.fromkeys(SIX, (5, SEALED_WORDS)))
        by = np.zeros((6, 6, SEALED_WORDS), dtype=np.uint64)
        for place, site in enumerate(SIX):
            by[place][graph.members[place] != place] = sealed[site]
        shares_of, sum_of_two = by[graph.members, graph.place_at], add(*(vectors[site] for site in TWO))
        opened_by: dict[str, Residues] = {}
        there = {place: np.array([other not in gone for other in range(6)]) for place, gone in SAID_MISSING.items()}
        for place, gone in SAID_MISSING.items():
            channel.send(SIX[place], requests(graph, MISSING, there[place])[place])
            for other, seed in zip(gone, channel.receive(SIX[place], (len(gone), SECRET_WORDS)), strict=True):
                own, peer = sorted((place, other))  # the first has added the mask, and is one of the two
                assert own in (0, 1)
                assert peer > 1
                sum_of_two = subtract(sum_of_two, keystreams([seed.tobytes()], shape)[0])
        confirmations = confirm_unequal_lists(channel, there) if listed else np.zeros((6, 6, 7), dtype=np.uint64)
        for place, site in enumerate(SIX):
            channel.send(site, requests(graph, OPEN, there[place], shares_of)[place])
            channel.send(site, pack_flags(there[place]))
            channel.send(site, confirmations[place])
            opened_by[site] = channel.receive(site, (int(there[place].sum()), SECRET_WORDS))
        for owner in (0, 1):
            holders = [place for place in range(6) if there[place][owner]][:4]
            rows = [opened_by[SIX[place]][there[place][:owner].sum()].view(np.uint32) for place in holders]
            own_mask = shamir.combine(tuple(place + 1 for place in holders), np.stack(rows)).tobytes()
            sum_of_two = subtract(sum_of_two, keystreams([own_mask], shape)[0])
        return sum_of_two

    return lying(federation, reveal, sites=6)


def confirm_unequal_lists(channel: Channel, there: dict[int, NDArray[np.bool_]]) -> Residues:
    """Have each site seal the digest of its list, and return for each the digests that the others sealed for it."""
    graph, sealed = neighbourhoods(SIX), np.zeros((6, 6, 7), dtype=np.uint64)
    for place, site in enumerate(SIX):
        channel.send(site, requests(graph, LIST, there[place])[place])
        channel.send(site, pack_flags(there[place]))
        others = there[place] & (np.arange(6) != place)
        sealed[others, place, 1:] = channel.receive(site, (int(others.sum()), SEALED_WORDS))
        sealed[others, place, 0] = 1
    return sealed


def test_unequal_lists_of_dropouts_open_the_sum_of_two_unless_sites_confirm_one_list() -> None:
    with drill(6, protocol="masked", module="tests.unconfirmed_site_process") as federation:
        assert np.allclose(open_two_of_six(federation), total_of(TWO), rtol=0, atol=1e-9)
    for listed, said in ((False, "sites confirm the list"), (True, "sent others another list")):
        with (
            pytest.raises(SiteFailed, match=said),
            drill(6, protocol="masked") as federation,
        ):
            open_two_of_six(federation, listed=listed)
