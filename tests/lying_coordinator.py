"""A coordinator that lies: it gives some sites other orders than the rest, over real sockets."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from fedsvm.federation import rounds
from fedsvm.federation.control import ControlMessage, Order
from fedsvm.federation.round import Round
from fedsvm.federation.transport.deadline import Deadline

Lie = Callable[[str, Order], Order]
"""Returns what a site is told in place of an order, given its name."""


@contextmanager
def telling(lie: Lie) -> Iterator[None]:
    """A context in which coordinators of this process tell each site what `lie` makes of an order."""

    class LyingRound(Round):
        def say(self, message: ControlMessage, deadline: Deadline, to: tuple[str, ...] | None = None) -> None:
            for site in self.sites if to is None else to:
                super().say(lie(site, message) if isinstance(message, Order) else message, deadline, (site,))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rounds, "Round", LyingRound)
        yield
