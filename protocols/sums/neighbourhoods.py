"""The neighbourhoods of a masked sum: which sites share masks and secrets.

Up to 51 sites all are neighbours of all. Beyond, each has 50: the nearest on a circle in an order that is hashed from
the keys of all sites. Each site draws its own keys for a run, so nobody alone chooses who its neighbours are. A
coordinator that works with sites can have these draw their keys last, and again and again: k trials gain log2(k) bits.
It may say that sites dropped; the others keep their order on the circle.
"""

from __future__ import annotations

import functools
import hashlib
import math

import numpy as np

from fedsvm.federation.arrays import IntArray

MAX_NEIGHBOURS = 50
"""Of a site; all others, where there are no more."""


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
    """Return the neighborhoods of a round's sites, cached for the next round.

    Parameters
    ----------
    sites : tuple of str
        In ring order.
    seed : bytes, default b""
        What all parties drew together.

    Returns
    -------
    Neighbourhoods
    """
    return Neighbourhoods(sites, seed)


@functools.lru_cache(maxsize=1)
def neighbourhood(sites: tuple[str, ...], site: str, seed: bytes = b"") -> tuple[str, ...]:
    """Return the neighborhood of one site, cached for the next round, without computing the others.

    Parameters
    ----------
    sites : tuple of str
        In ring order.
    site : str
    seed : bytes, default b""
        What all parties drew together.

    Returns
    -------
    tuple of str
        In ring order, the site itself included.
    """
    return Neighbourhoods(sites, seed).of(site)


def threshold_of(fraction: float, sites: int) -> int:
    """Return how many of so many sites must remain, two at least.

    Parameters
    ----------
    fraction : float
        Which part of them must.
    sites : int
        How many there are.

    Returns
    -------
    int
    """
    return max(2, math.ceil(fraction * sites - 1e-9))


def neighbourhood_threshold(fraction: float, run_sites: int) -> int:
    """Return how many of a neighbourhood must remain in any round of a run.

    It is counted from the sites that the run began with. Counted from those of a round, it would sink with every site
    that drops, down to two.

    Parameters
    ----------
    fraction : float
        Which part of a neighbourhood must remain.
    run_sites : int
        How many sites the run began with.

    Returns
    -------
    int
    """
    return threshold_of(fraction, min(run_sites, MAX_NEIGHBOURS + 1))
