"""Site processes whose draws follow from the site, the round and their order, in place of the system's generator.

Tests start them by `python -m tests.repeatable_site`. No option of a run leads here: only a module that a test names.
"""

from __future__ import annotations

import hashlib
import itertools
import sys
from collections.abc import Sequence
from typing import Any

from fedsvm.algorithms.site_process import INSTALLATION
from fedsvm.federation.arrays import Residues
from fedsvm.federation.channel.agreement import keystream
from fedsvm.federation.channel.mailbox import Mailbox
from fedsvm.federation.channel.socket import SocketChannel
from fedsvm.federation.processes.forkserver import main
from fedsvm.federation.site import site


def drawn_bytes(purpose: str) -> bytes:
    """Return 32 bytes that follow from the purpose."""
    return hashlib.sha256(purpose.encode()).digest()


class RepeatableChannel(SocketChannel):
    """A channel that draws the same in the same round of the same site."""

    def __init__(
        self,
        mailbox: Mailbox,
        sites: tuple[str, ...],
        run_sites: int,
        round_number: int,
        *others: Any,
        **options: Any,
    ) -> None:
        numbers = itertools.count()

        def draw(shape: Sequence[int]) -> Residues:
            return keystream(drawn_bytes(f"{mailbox.endpoint.name} {round_number} {next(numbers)}"), shape)

        super().__init__(mailbox, sites, run_sites, round_number, *others, **{**options, "draw": draw})


if __name__ == "__main__":
    site.SocketChannel = RepeatableChannel  # type: ignore[attr-defined]
    main(INSTALLATION, int(sys.argv[1]))
