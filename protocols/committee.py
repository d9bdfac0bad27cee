"""The committee of a blind system (`blind_system`): three sites, drawn by all sites together or agreed before the run.

Each site commits to 256 random bits before any site shows its own, so no site that follows the protocol can choose the
members. The first site collects them and sends the draw to the coordinator; see `blind_system` for what it gains by a
lie.

Cost of a draw: 4 (n - 1) messages between sites in 4 hops, and one to the coordinator.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedsvm.federation.arrays import Residues
from fedsvm.federation.channel.interface import Channel
from fedsvm.federation.errors import FederationError, StepRefused
from fedsvm.federation.transport.keys import COORDINATOR
from fedsvm.protocols.common_seed import SHAPE
from fedsvm.protocols.secret_order import secret_order

MIN_SITES = 3
"""Members of a committee, and the minimum number of sites of a run that has one."""


@dataclass(frozen=True)
class Committee:
    """The three members.

    Attributes
    ----------
    first, second : str
        The sites that hold shares of a system.
    dealer : str
        The site that deals correlated randomness to these two.
    """

    first: str
    second: str
    dealer: str


def agreed_committee(members: Sequence[str], sites: Sequence[str]) -> Committee:
    """Return the committee of named sites.

    Parameters
    ----------
    members : sequence of 3 str
        First, second and dealer.
    sites : sequence of str
        The sites of the round.

    Returns
    -------
    Committee

    Raises
    ------
    StepRefused
        A member does not take part.
    """
    if missing := [site for site in members if site not in sites]:
        raise StepRefused(
            f"{', '.join(missing)} of the committee that the terms name does not take part; run again with all of "
            f"{', '.join(members)}, or with others in protocol.committee"
        )
    return Committee(*members)


def draw_committee(channel: Channel) -> Committee:
    """Draw the committee with all other sites. The first site sends the coordinator the members.

    Parameters
    ----------
    channel : Channel

    Returns
    -------
    Committee

    Raises
    ------
    StepRefused
        A site shows other bits than it committed to, or another site changed the bits of this one.
    """
    own = channel.random(SHAPE)
    commitments = _all_of(channel, _digest(own))
    shown = _all_of(channel, own)
    if any((_digest(each[None, :]) != kept).any() for each, kept in zip(shown, commitments, strict=True)):
        raise StepRefused("a site shows other random bits than it committed to")
    chosen = secret_order(np.bitwise_xor.reduce(shown, axis=0)[None, :], "committee", len(channel.sites))[:MIN_SITES]
    if channel.me == channel.sites[0]:
        channel.send(COORDINATOR, chosen.astype(np.uint64)[None, :])
    return Committee(*(channel.sites[place] for place in chosen))


def _digest(shown: Residues) -> Residues:
    return np.frombuffer(hashlib.sha256(shown.tobytes()).digest(), dtype=np.uint64)[None, :]


def _all_of(channel: Channel, own: Residues) -> Residues:
    """Return the arrays (1, 4) of all sites as a table (n, 4): the first site collects them, and sends all to each.

    That takes two hops; around a ring it would take 2 (n - 1).
    """
    (first, *others), place = channel.sites, channel.sites.index(channel.me)
    if channel.me == first:
        table = np.concatenate([own, *(channel.receive(site, own.shape) for site in others)])
        for site in others:
            channel.send(site, table)
        return table
    channel.send(first, own)
    table = channel.receive(first, (len(channel.sites), own.shape[1]))
    if (table[place] != own[0]).any():
        raise StepRefused("another site changed the random bits that this one contributes to the committee")
    return table


def receive_committee(channel: Channel) -> Committee:
    """Receive the members that the sites drew, at the coordinator.

    Parameters
    ----------
    channel : Channel

    Returns
    -------
    Committee

    Raises
    ------
    FederationError
        The first site does not send the places of three sites.
    """
    sites = channel.sites
    places = [int(place) for place in channel.receive(sites[0], (1, MIN_SITES))[0]]
    if len(set(places)) < MIN_SITES or max(places) >= len(sites):
        raise FederationError(f"A committee must be {MIN_SITES} of {len(sites)} sites, got places {places}; run again.")
    return Committee(*(sites[place] for place in places))
