"""Lies of a coordinator in a masked sum above 51 sites, where no site sees all others."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import pytest
from numpy.typing import NDArray

from fedsvm.federation.arrays import Residues
from fedsvm.federation.channel.interface import Channel
from fedsvm.federation.channel.memory import InMemoryNetwork
from fedsvm.federation.errors import SiteFailed, StepRefused
from fedsvm.federation.transport.keys import COORDINATOR
from fedsvm.protocols.arithmetic import shamir
from fedsvm.protocols.arithmetic.fixed_point import add, subtract
from fedsvm.protocols.arithmetic.flags import pack_flags
from fedsvm.protocols.sums import masked
from fedsvm.protocols.sums.consent import LIST, MISSING, OPEN
from fedsvm.protocols.sums.masked import REQUEST_WORDS, SEALED_WORDS, SECRET_WORDS, requests
from fedsvm.protocols.sums.neighbourhoods import DropoutThreshold, Neighbourhoods, neighbourhoods
from fedsvm.protocols.sums.plain import collect_chunks
from tests.conftest import drill, sum_protocol
from tests.test_dropouts import total_of
from tests.test_masked_lies import lying
from tests.unconfirmed_site_process import Unconfirmed

FRACTION = 0.6
SITES = tuple(f"site-{number}" for number in range(1, 81))
SHAPE = (1, 4)

Confirmed = Literal["nothing", "all lists", "its own list"]
"""The confirmations that a site is shown: none, or those of whatever list, or those of the list that it is told."""


class Lie:
    """A coordinator that opens the sum of the sites of an arc: as many as the threshold, next to each other.

    It tells these that the sites on either side are missing, sites farther away that those of the arc are, and the
    sites on either side that none is. So both masks of the arc are opened, by one of the ends of each.

    Attributes
    ----------
    arc : list of str
        The sites, once it has opened their sum.
    """

    def __init__(self, confirmed: Confirmed) -> None:
        self._confirmed = confirmed
        self.arc: list[str] = []

    def __call__(self, channel: Channel, shape: tuple[int, int]) -> Residues:
        sites = channel.sites
        graph = neighbourhoods(sites, channel.joint_seed())
        threshold = DropoutThreshold(FRACTION, len(sites)).neighbourhood
        may_miss, circle = 51 - threshold, graph._circle
        arc = circle[may_miss : may_miss + threshold]
        beside = {*circle[:may_miss], *circle[may_miss + threshold : 2 * may_miss + threshold]}
        far = [site for site in sites if site not in beside and site not in arc]
        told = {site: np.array([other not in beside for other in sites]) for site in arc}
        told |= dict.fromkeys(beside, np.ones(len(sites), dtype=bool))
        told |= {site: np.array([other not in arc for other in sites]) for site in far}
        vectors, _ = collect_chunks(channel, shape)
        sealed = channel.collect(dict.fromkeys(sites, (50, SEALED_WORDS)))
        total: Residues = functools.reduce(add, [vectors[0][site] for site in arc])
        for site in (*arc, *far):
            gone = [peer for peer in graph.of(site) if not told[site][graph.numbers[peer]]]
            channel.send(site, requests(graph, MISSING, told[site])[graph.numbers[site]])
            for peer, seed in zip(gone, channel.receive(site, (len(gone), SECRET_WORDS)), strict=True):
                if (site in arc) != (peer in arc):
                    inside, outside = (site, peer) if site in arc else (peer, site)
                    take = subtract if graph.numbers[outside] > graph.numbers[inside] else add
                    total = take(total, channel.expand([seed.tobytes()], shape)[0])
        confirmations = self._confirmations(channel, graph, told)
        held = {site: dict(zip([p for p in graph.of(site) if p != site], sealed[site], strict=True)) for site in sites}
        shares: dict[str, dict[int, Residues]] = {site: {} for site in arc}
        for site in (*arc, *beside):
            row = requests(graph, OPEN, told[site])[graph.numbers[site]]
            present = [peer for peer in graph.of(site) if told[site][graph.numbers[peer]]]
            for peer in present:
                if peer != site:
                    row[graph.of(site).index(peer), 1:] = held[peer][site]
            channel.send(site, row)
            channel.send(site, pack_flags(told[site]))
            channel.send(site, confirmations[site])
            for peer, share in zip(present, channel.receive(site, (len(present), SECRET_WORDS)), strict=True):
                if peer in arc:
                    shares[peer][graph.of(peer).index(site) + 1] = share
        for found in shares.values():
            known = dict(list(found.items())[:threshold])
            own = shamir.combine(tuple(known), np.stack(list(known.values())).view(np.uint32))
            total = subtract(total, channel.expand([own.tobytes()], shape)[0])
        self.arc = arc
        return total

    def _confirmations(
        self, channel: Channel, graph: Neighbourhoods, told: dict[str, NDArray[np.bool_]]
    ) -> dict[str, Residues]:
        """Return what each site is shown: digests that others sealed for it, of the lists that they were told."""
        shown = {site: np.zeros((51, REQUEST_WORDS), dtype=np.uint64) for site in told}
        for place, site in enumerate(graph.confirming if self._confirmed != "nothing" else ()):
            channel.send(site, requests(graph, LIST, told[site])[graph.numbers[site]])
            channel.send(site, pack_flags(told[site]))
            present = [peer for peer, is_in in zip(channel.sites, told[site], strict=True) if is_in and peer != site]
            digests = channel.receive(site, (len(present), SEALED_WORDS))
            for peer, digest in zip(present, digests, strict=True):
                if self._confirmed == "all lists" or np.array_equal(told[peer], told[site]):
                    shown[peer][place] = [1, *digest]
        return shown


def sum_in_memory(lie: Lie) -> Residues:
    """Return what a coordinator that lies opens of 80 sites, each of which adds its number."""
    network = InMemoryNetwork(SITES, timeout_s=60, min_sites=40)

    def contribute(number: int, channel: Channel) -> Residues | None:
        masked.masked_contribute(FRACTION, channel, np.full(SHAPE, number, dtype=np.uint64))
        return None

    parties: dict[str, Callable[[Any], Residues | None]] = {
        site: functools.partial(contribute, number) for number, site in enumerate(SITES, start=1)
    }
    found: list[Residues] = []

    def reveal(channel: Channel) -> Residues:
        found.append(lie(channel, SHAPE))
        network._abort()  # ends the wait of the sites that are not asked
        return found[0]

    try:
        network.run({**parties, COORDINATOR: reveal})
    except StepRefused:
        raise
    except Exception:
        if not found:
            raise
    return found[0]


def test_unequal_lists_open_an_arc_of_the_circle_without_confirmations(monkeypatch: pytest.MonkeyPatch) -> None:
    lie = Lie("nothing")
    monkeypatch.setattr(masked, "Consent", Unconfirmed)
    assert np.array_equal(sum_in_memory(lie), np.full(SHAPE, sum(SITES.index(site) + 1 for site in lie.arc)))
    assert len(lie.arc) == 31


@pytest.mark.parametrize(
    ("confirmed", "said"),
    [
        ("nothing", r"^0 sites confirm the list of the sites in the sum and 31 must; nothing was opened$"),
        ("all lists", r"^the coordinator sent others another list of the sites in the sum; nothing was opened$"),
        ("its own list", r"^20 sites confirm the list of the sites in the sum and 31 must; nothing was opened$"),
    ],
)
def test_sites_that_do_not_see_all_others_open_only_a_list_that_is_confirmed(confirmed: Confirmed, said: str) -> None:
    """The arc alone confirms its list, but cannot open the masks of its ends."""
    with pytest.raises(StepRefused, match=said):
        sum_in_memory(Lie(confirmed))


@pytest.mark.long
def test_processes_of_100_sites_open_an_arc_only_without_confirmations() -> None:
    assert sum_protocol("masked").options == {"threshold": FRACTION}
    lie = Lie("its own list")
    with drill(100, protocol="masked", module="tests.unconfirmed_site_process", timeout_s=60) as federation:
        assert np.allclose(lying(federation, lie, sites=100), total_of(lie.arc), rtol=0, atol=1e-9)
    with (
        pytest.raises(SiteFailed, match="20 sites confirm the list"),
        drill(100, protocol="masked", timeout_s=60) as federation,
    ):
        lying(federation, Lie("its own list"), sites=100)
