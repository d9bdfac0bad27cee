"""A site's consent in a round of a masked sum: what it has helped to open, and therefore refuses.

A coordinator that gives sites unequal lists of dropouts could have each pairwise mask opened by one site or the other,
and own masks by others still. It would open the sum of few sites, though every list has a threshold of them. So where
sites are missing, a site seals the digest of one list for its neighbors, and opens shares only after a threshold of
them sealed the same digest. Two lists with a threshold each have an honest site in common if twice the threshold
exceeds the number of sites and colluders together, and a site seals one list only. Where a site does not see all
others, this does not hold: one that is told of no missing neighbour opens its shares unconfirmed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fedsvm.federation.errors import StepRefused

MISSING, OPEN, LIST, CONFIRMED = range(4)
"""The requests of a coordinator: seeds shared with the missing sites, or shares of the others' own masks. Between them
a digest of the list of sites in the sum, and the digests of the neighbours."""


@dataclass
class Consent:
    """The record of what a site has helped to open in one round, and therefore refuses.

    Attributes
    ----------
    me : str
    group : tuple of str
        Its neighbourhood, itself included.
    threshold : int
        How many of the group must be in the sum.
    missing : frozenset of str
        Whose pairwise seeds it gave away.
    listed : bytes, default b""
        The digest of the list of sites in the sum that it sealed for its neighbors.
    confirmed : bool, default False
        Whether a threshold of them sealed the same one.
    opened : bool, default False
        Whether it opened shares of own masks.
    """

    me: str
    group: tuple[str, ...]
    threshold: int
    missing: frozenset[str] = frozenset()
    listed: bytes = b""
    confirmed: bool = False
    opened: bool = False

    def agree(self, stage: int, present: frozenset[str]) -> None:
        """Agree to a request.

        Parameters
        ----------
        stage : int
            MISSING, LIST or OPEN.
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
        if self.listed and (stage != OPEN or gone != self.missing):
            raise StepRefused("its list of the sites in the sum went to the others; it takes no second one")
        if stage == OPEN and gone and not self.confirmed:
            raise StepRefused("sites are missing, and the others did not confirm the list of them; nothing was opened")
        self.missing = gone
        self.opened = stage == OPEN

    def confirm(self, digests: Sequence[bytes]) -> None:
        """Take in what others sealed: the digests of their lists.

        Raises
        ------
        StepRefused
            A list differs from its own, or too few sites confirm it.
        """
        if any(digest != self.listed for digest in digests):
            raise StepRefused("the coordinator told others another list of the sites in the sum; nothing was opened")
        if 1 + len(digests) < self.threshold:
            raise StepRefused(
                f"{1 + len(digests)} of {len(self.group)} sites confirm the list of the sites in the sum and "
                f"{self.threshold} must"
            )
        self.confirmed = True
