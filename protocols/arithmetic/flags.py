"""Flags of sites, packed as bits of 64-bit words for messages."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedsvm.federation.arrays import Residues
from fedsvm.federation.errors import StepRefused


def pack_flags(flags: NDArray[np.bool_]) -> Residues:
    """Return flags as bits of 64-bit words."""
    words = np.zeros(word_count(len(flags)), dtype=np.uint64)
    packed = np.packbits(flags, bitorder="little")
    words.view(np.uint8)[: len(packed)] = packed
    return words


def unpack_flags(words: Residues, count: int) -> list[int]:
    """Return this many flags from words. Raises StepRefused if further bits are set."""
    flags = np.unpackbits(words.view(np.uint8), bitorder="little")
    if flags[count:].any():
        raise StepRefused("the coordinator names sites that are not in the round; nothing was opened")
    return [int(flag) for flag in flags[:count]]


def word_count(count: int) -> int:
    """Return the number of 64-bit words for this many flags."""
    return -(-count // 64)
