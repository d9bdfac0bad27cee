"""The neighbourhoods of a masked sum: which sites share masks and secrets.

Up to 51 sites all are neighbours of all. Beyond, each has 50: the nearest on a circle in an order that is hashed from
the keys of all sites. Each site draws its own keys for a run, so nobody alone chooses who its neighbours are. A
coordinator that works with sites can have these draw their keys last, and again and again: k trials gain log2(k) bits.
It may say that sites dropped; the others keep their order on the circle. The first 51 on the circle confirm the list of
sites in the sum to all. `DropoutThreshold` counts colluders as if all of them were where they do most harm.
"""

from __future__ import annotations

import functools
import hashlib
import math
from dataclasses import dataclass

import numpy as np

from fedsvm.federation.arrays import IntArray

MAX_NEIGHBOURS = 50
"""Of a site; all others, where there are no more."""

_MAX_GROUP = MAX_NEIGHBOURS + 1


class Neighbourhoods:
    """Each site and its neighbours; who is in whose neighbourhood is mutual.

    Parameters
    ----------
    sites : tuple of str
        In ring order.
    seed : bytes, default b""
        What all parties drew together; of no effect up to 51 sites.
    """

    def __init__(self, sites: tuple[str, ...], seed: bytes = b"") -> None:
        self._sites = sites
        self._circle: list[str] = []
        if len(sites) > MAX_NEIGHBOURS + 1:
            self._circle = sorted(sites, key=lambda site: hashlib.sha256(seed + site.encode()).digest())
            self._turn = {site: number for number, site in enumerate(self._circle)}
            self._place = {site: number for number, site in enumerate(sites)}

    def of(self, site: str) -> tuple[str, ...]:
        """Return the neighborhood of a site, in ring order, including the site itself."""
        if not self._circle:
            return self._sites
        offsets = range(-MAX_NEIGHBOURS // 2, MAX_NEIGHBOURS // 2 + 1)
        around = (self._circle[(self._turn[site] + step) % len(self._circle)] for step in offsets)
        return tuple(sorted(around, key=self._place.__getitem__))

    @functools.cached_property
    def confirming(self) -> tuple[str, ...]:
        """The sites that confirm the list of sites in the sum, in ring order: all, or 51 next to each other."""
        return tuple(sorted(self._circle[:_MAX_GROUP], key=self._place.__getitem__)) if self._circle else self._sites

    @functools.cached_property
    def all(self) -> dict[str, tuple[str, ...]]:
        """The neighbourhood of every site."""
        return {site: self.of(site) for site in self._sites}

    @functools.cached_property
    def numbers(self) -> dict[str, int]:
        """The place of every site in the ring."""
        return {site: number for number, site in enumerate(self._sites)}

    @functools.cached_property
    def members(self) -> IntArray:
        """(n, m): the neighbourhood of every site, by numbers."""
        return np.array([[self.numbers[peer] for peer in group] for group in self.all.values()])

    @functools.cached_property
    def place(self) -> IntArray:
        """(n,): of every site, its place in its own neighbourhood."""
        place: IntArray = np.argmax(self.members == np.arange(len(self._sites))[:, None], axis=1)
        return place

    @functools.cached_property
    def place_at(self) -> IntArray:
        """(n, m): of every site, its place in the neighbourhood of each of its own, in order."""
        places = [{peer: place for place, peer in enumerate(group.tolist())} for group in self.members]
        return np.array([[places[peer][site] for peer in group.tolist()] for site, group in enumerate(self.members)])


@functools.lru_cache(maxsize=1)
def neighbourhoods(sites: tuple[str, ...], seed: bytes = b"") -> Neighbourhoods:
    """Return the `Neighbourhoods` of a round's sites, cached for the next round."""
    return Neighbourhoods(sites, seed)


@functools.lru_cache(maxsize=1)
def neighbourhood(sites: tuple[str, ...], site: str, seed: bytes = b"") -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the neighborhood of one site, with it, and the sites that confirm lists, cached for the next round."""
    graph = Neighbourhoods(sites, seed)
    return graph.of(site), graph.confirming


@dataclass(frozen=True)
class DropoutThreshold:
    """The sites that must remain in the rounds of a run.

    They are counted from the sites that the run began with. Counted from those of a round, they would sink with every
    site that drops, down to two.

    Parameters
    ----------
    fraction : float
        Which part of the sites, and of a neighbourhood, must remain.
    run_sites : int
        How many sites the run began with.
    """

    fraction: float
    run_sites: int

    @property
    def neighbourhood(self) -> int:
        """Sites of a neighbourhood that must remain.

        Where not all are neighbours, 31 of 51 must, whatever the fraction: with fewer a coordinator that lies could
        exclude sites from the sum that are on the confirmed list.
        """
        threshold = self._part_of(self._members)
        return threshold if self.run_sites <= _MAX_GROUP else max(threshold, 1 + (3 * _MAX_GROUP + 1) // 5)

    @property
    def run(self) -> int:
        """Sites of a run that must remain: the fraction of all, and as many as a neighbourhood needs."""
        return max(self._part_of(self.run_sites), self.neighbourhood)

    @property
    def colluders_withstood(self) -> int:
        """Sites that may work with a coordinator that lies, so that it opens the sum of one whole list only.

        They are c at most, with the threshold t of m sites. One list: two with t confirming sites each have an honest
        one in common, 2 t > m + c. Where not all are neighbours also the following, for the honest sites O that open
        shares and t shares of the own mask of each site in the opened sum. No gap on the circle separates some of O
        from the others: next to a gap as wide as half a neighborhood at most (m + 1) / 2 and c hold shares,
        t > (m + 1) / 2 + c. No listed site is excluded, by claiming that its neighbors in O are missing: it may claim
        m - t, and as a gap in O has at most g = m - t + c sites, it has t - c - (g + 1) / 2 such neighbors or more,
        5 t > 3 m + 1 + 3 c.
        """
        threshold, members = self.neighbourhood, self._members
        one_list = 2 * threshold - members - 1
        if self.run_sites <= _MAX_GROUP:
            return one_list
        return min(one_list, threshold - (members + 1) // 2 - 1, (5 * threshold - 3 * members - 2) // 3)

    @property
    def _members(self) -> int:
        return min(self.run_sites, _MAX_GROUP)

    def _part_of(self, sites: int) -> int:
        """Return how many of so many sites must remain, two at least."""
        return max(2, math.ceil(self.fraction * sites - 1e-9))
