"""The neighbourhoods of a masked sum: which sites share masks and secrets.

Up to 51 sites, all are neighbours of each other. With more, each has 50 neighbours: the nearest on a circle, whose
order follows from a hash of all sites' keys. Each site draws its own keys for a run, so no party alone chooses its
neighbours. Sites that collude with the coordinator can draw their keys last and repeatedly: k trials gain log2(k) bits.
The coordinator may claim that sites dropped; the others keep their order on the circle. The first 51 sites on the
circle confirm the list of sites in the sum to all. `DropoutThreshold` assumes that all colluders have the worst
positions.
"""

from __future__ import annotations

import functools
import hashlib
import math
from dataclasses import dataclass

import numpy as np

from fedsvm.federation.arrays import IntArray

MAX_NEIGHBOURS = 50
"""Maximum number of neighbours of a site; with no more than 51 sites all others are neighbours."""

_MAX_GROUP = MAX_NEIGHBOURS + 1


class Neighbourhoods:
    """The neighbours of each site. The relation is symmetric.

    Parameters
    ----------
    sites : tuple of str
        The sites in ring order.
    seed : bytes, default b""
        The seed that all parties drew together. It has no effect up to 51 sites.
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
        """The position of every site in the ring."""
        return {site: number for number, site in enumerate(self._sites)}

    @functools.cached_property
    def members(self) -> IntArray:
        """The neighbourhood of every site as ring positions; an array of shape (n, m)."""
        return np.array([[self.numbers[peer] for peer in group] for group in self.all.values()])

    @functools.cached_property
    def place(self) -> IntArray:
        """The position of every site in its own neighbourhood; an array of shape (n,)."""
        place: IntArray = np.argmax(self.members == np.arange(len(self._sites))[:, None], axis=1)
        return place

    @functools.cached_property
    def place_at(self) -> IntArray:
        """The position of every site in the neighbourhoods of its own neighbourhood's sites; an array of shape (n,
        m)."""
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

    Thresholds are fractions of the sites that the run began with. As fractions of a round's sites, they would decrease
    with every site that drops, down to two.

    Parameters
    ----------
    fraction : float
        The minimum fraction of the sites, and of a neighbourhood, that must remain.
    run_sites : int
        The number of sites that the run began with.
    """

    fraction: float
    run_sites: int

    @property
    def neighbourhood(self) -> int:
        """The minimum number of sites of a neighbourhood that must remain.

        If not all sites are neighbours, 31 of 51 must, whatever the fraction: with fewer a coordinator that lies could
        exclude sites from the sum that are on the confirmed list.
        """
        threshold = self._part_of(self._members)
        return threshold if self.run_sites <= _MAX_GROUP else max(threshold, 1 + (3 * _MAX_GROUP + 1) // 5)

    @property
    def run(self) -> int:
        """The minimum number of sites of a run that must remain: the fraction of all, and enough for a
        neighbourhood."""
        return max(self._part_of(self.run_sites), self.neighbourhood)

    @property
    def colluders_withstood(self) -> int:
        """Maximum number of sites that may collude with a lying coordinator, so that it opens only the sum of one list.

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
        """Return the number of sites that must remain of this many, at least two."""
        return max(2, math.ceil(self.fraction * sites - 1e-9))
