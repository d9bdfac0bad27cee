"""Bytes between groups of parties that are held back."""

from __future__ import annotations

from fedsvm.federation.faults.fault_kind import LinkFault


class PartitionFault(LinkFault):
    """A division of the network into groups, between which bytes wait."""

    name = "partition"
    sentence = (
        'bytes between groups of parties are held back; `groups` is "split-one" (`site` alone), "bisect", or lists of '
        "sites; the coordinator is in the largest group."
    )
    keys = frozenset({"site", "groups", "for_s"})
    holds = True


KIND = PartitionFault
