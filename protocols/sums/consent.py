"""A site's consent in a round of a masked sum: what it has helped to open, and therefore refuses.

A coordinator could send sites unequal lists of dropouts. Some sites would then open each pairwise mask, and others the
own masks. The coordinator would learn the sum of few sites, although every list has a threshold of them.

So if sites are missing, or a site does not see all others, some sites confirm one list. Each seals the digest of its
list for every other site. A site opens shares only after a threshold of them sealed the digest of its own list, and it
seals one list only. If twice the threshold exceeds the number of confirming sites and colluders together, two lists
with a threshold each have an honest confirming site in common. So all honest sites that open shares have the same list.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fedsvm.federation.errors import StepRefused

MISSING, OPEN, LIST = range(3)
"""The requests of a coordinator: seeds shared with missing sites, shares of the others' own masks, and a digest of the
list of sites in the sum."""


@dataclass
class Consent:
    """The record of what a site has helped to open in one round, and therefore refuses.

    Attributes
    ----------
    me : str
        The site.
    group : tuple of str
        Its neighbourhood, including itself.
    threshold : int
        The minimum number of sites of the group in the sum, and of sites that confirm the list.
    missing : frozenset of str, default empty
        The sites with which it shares seeds that it sent to the coordinator.
    listed : bytes, default b""
        The digest of the list of sites in the sum that it sealed for the others.
    opened : bool, default False
        Whether it was asked for shares of own masks.
    """

    me: str
    group: tuple[str, ...]
    threshold: int
    missing: frozenset[str] = frozenset()
    listed: bytes = b""
    opened: bool = False

    def agree(self, stage: int, present: frozenset[str]) -> None:
        """Agree to a request.

        Parameters
        ----------
        stage : int
            The request: MISSING, OPEN or LIST.
        present : frozenset of str
            The sites of the group that are in the sum, according to the coordinator.

        Raises
        ------
        StepRefused
            The request would open both masks of a peer, or a sum of too few sites.
        """
        gone = frozenset(self.group) - present
        if self.me in gone:
            raise StepRefused("it is asked to help with a sum that it is not in; nothing was opened")
        if self.opened:
            raise StepRefused("shares of this round were opened already; it opens no second set")
        if both := sorted(self.missing & present):
            raise StepRefused(
                f"it is asked for both masks of {both[0]}: the pairwise mask was opened, so its own mask stays closed"
            )
        if len(present) < self.threshold:
            raise StepRefused(f"{len(present)} of {len(self.group)} sites are in the sum and {self.threshold} must be")
        if self.listed and (stage != OPEN or gone != self.missing):
            raise StepRefused(
                "it sent its list of the sites in the sum to the others already; it accepts no second one"
            )
        self.missing = gone
        self.opened = stage == OPEN

    def confirm(self, listed: bytes, digests: Sequence[bytes]) -> None:
        """Compare the list by which this site is asked to open shares with the lists of others.

        Parameters
        ----------
        listed : bytes
            The digest of this site's list.
        digests : sequence of bytes
            The digests that the other confirming sites sealed for it.

        Raises
        ------
        StepRefused
            A digest differs, or too few sites confirm the list.
        """
        own = [self.listed] if self.listed else []
        if any(digest != listed for digest in (*own, *digests)):
            raise StepRefused("the coordinator sent others another list of the sites in the sum; nothing was opened")
        if (confirming := len(own) + len(digests)) < self.threshold:
            raise StepRefused(
                f"{confirming} sites confirm the list of the sites in the sum and {self.threshold} must; "
                "nothing was opened"
            )
