"""An algorithm over site programs in this process: what sites compute and the coordinator makes of it, without sockets.

A federation's rounds are exact sums whatever carries them, which other tests show over real processes. Here the same
programs and the same training run as often as a comparison of many data sets needs: numbers are rounded as a secure sum
rounds them, protocols among sites run in threads, and sites leave and are restarted in rounds of a test's choice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from fedsvm.federation.arrays import FloatArray
from fedsvm.federation.channel.memory import InMemoryNetwork
from fedsvm.federation.errors import MembershipChanged
from fedsvm.federation.membership import DropoutPolicy, Membership
from fedsvm.federation.record import Progress
from fedsvm.federation.site.program import SiteProgram
from fedsvm.federation.transport.keys import COORDINATOR
from fedsvm.protocols.arithmetic.fixed_point import FixedPoint, add
from fedsvm.protocols.sums.registry import SUMS

T = TypeVar("T")


@dataclass(frozen=True)
class Loss:
    """Sites that are lost in a round, and whether they are restarted.

    completes: the round ends without them, as under a masked sum; else it is run again, as in a ring.
    """

    sites: tuple[str, ...]
    restarted: bool = False
    completes: bool = False


class InProcessFederation:
    """The verbs that algorithms use, over programs by site; see `Federation`.

    losses: by step, and how often it was ordered so far, counted from 1. make: a site's program anew.
    """

    def __init__(
        self,
        programs: Mapping[str, SiteProgram],
        *,
        losses: Mapping[tuple[str, int], Loss] | None = None,
        make: Callable[[str], SiteProgram] | None = None,
    ) -> None:
        self.programs = dict(programs)
        self.membership = Membership(tuple(programs), DropoutPolicy())
        self.progress = Progress()
        self.metrics: list[Mapping[str, float]] = []
        self.orders: Counter[str] = Counter()
        self.opened: list[tuple[str, FloatArray, Mapping[str, Any]]] = []
        self.networks: list[tuple[str, InMemoryNetwork]] = []
        self._losses, self._make = dict(losses or {}), make
        self._public_state: dict[str, Mapping[str, Any]] = {}
        self._is_fixed = False

    def journaled_random(self, purpose: str, draw: Callable[[], T]) -> T:
        """Return a draw, since there is no journal to keep it in."""
        return draw()

    @property
    def sites(self) -> tuple[str, ...]:
        """Those that take part."""
        return self.membership.sites

    def gather(self, step: str, *, shape: Sequence[int], **params: Any) -> dict[str, FloatArray]:
        """Every site's value."""
        values = self._complete(step, params)
        return {site: np.asarray(value, dtype=np.float64).reshape(shape) for site, value in values.items()}

    def sum(self, step: str, *, shape: Sequence[int], bound: float, public: bool = False, **params: Any) -> FloatArray:
        """The sum of the sites' values, as rounded as a secure sum is; no site opens it again."""
        encoding = FixedPoint.for_bound(bound, len(self.sites))
        values = self._complete(step, params)
        total = np.zeros((encoding.limbs, int(np.prod(shape))), dtype=np.uint64)
        for value in values.values():
            total = add(total, encoding.encode(np.asarray(value, dtype=np.float64)))
        opened = encoding.decode(total).reshape(shape)
        self.opened.append((step, opened, params))
        return opened

    def run(
        self,
        step: str,
        *,
        remember: bool = False,
        take_part: Callable[[Any], Any] | None = None,
        work_s: float = 0.0,
        **params: Any,
    ) -> Any:
        """A step at every site, and the coordinator's part."""
        values = self._complete(step, params, take_part)
        if remember:
            self._public_state[step] = params
        return values.get(COORDINATOR)

    def disclose(self, *words: Any, **more: Any) -> None:
        """Nobody reads it."""

    def log_metrics(self, **figures: float) -> None:
        """Record the figures of an algorithm."""
        self.metrics.append(figures)

    shows_inputs = False
    sum_protocol = SUMS["ring"]()

    def require_all_sites(self, why: str) -> None:
        """No site leaves here unless a test has it leave."""

    def until_stable(self, stage: Callable[[], T]) -> T:
        """A stage, again where sites left or joined in it."""
        while True:
            with suppress(MembershipChanged), self.fixed_membership():
                return stage()

    @contextmanager
    def fixed_membership(self) -> Iterator[None]:
        """Sites that leave or join are told of."""
        before, self._is_fixed = self._is_fixed, True
        try:
            yield
        finally:
            self._is_fixed = before

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Any phase."""
        yield

    # A round.

    def _complete(
        self, step: str, params: Mapping[str, Any], take_part: Callable[[Any], Any] | None = None
    ) -> dict[str, Any]:
        self.orders[step] += 1
        loss = self._losses.pop((step, self.orders[step]), None)
        values = self._attempt(step, params, take_part)
        for site in self.sites:
            self.programs[site].work_ahead()
        if loss is None:
            return values
        self._change(loss)
        if loss.completes:
            return {site: value for site, value in values.items() if site not in loss.sites}
        return self._complete(step, params, take_part)

    def _attempt(self, step: str, params: Mapping[str, Any], take_part: Callable[[Any], Any] | None) -> dict[str, Any]:
        """The step at every site, each in a thread of its own."""

        def at(site: str) -> Callable[[Any], Any]:
            def carry_out(channel: Any) -> Any:
                program = self.programs[site]
                program.channel = channel
                return program.find_step(step)(**params)

            return carry_out

        parties = {site: at(site) for site in self.sites}
        if take_part is not None:
            parties[COORDINATOR] = take_part
        network = InMemoryNetwork(self.sites)
        self.networks.append((step, network))
        return network.run(parties)

    def _change(self, loss: Loss) -> None:
        back = loss.sites if loss.restarted else ()
        for site in back:
            assert self._make is not None
            self.programs[site] = self._make(site)
            for step, params in self._public_state.items():
                self.programs[site].find_step(step)(**params)
        self.membership.change(0, "train", dict.fromkeys(loss.sites, "it was lost"), back, "a round")
        if self._is_fixed:
            raise MembershipChanged
