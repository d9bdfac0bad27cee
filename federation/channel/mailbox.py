"""Sorts what an endpoint receives: arrays wait here for their round, control messages for whoever asks for them.

Nothing is called back. Who waits, be it for an array or an answer, asks afterwards for the control messages that came,
one by one and in the order in which they came.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque

from federation.transport.deadline import Deadline
from federation.transport.endpoint import Endpoint, Received
from federation.transport.wire import DATA_KIND, Message


class Mailbox:
    """The messages of one run that came in at one endpoint.

    A message of another run, of an older round, or from further ahead than the next round is refused and counted. A
    site may be one round behind a faster peer, never more, since the coordinator waits for all.
    """

    def __init__(self, endpoint: Endpoint, run: bytes) -> None:
        self.endpoint = endpoint
        self.run = run
        self._now = 0
        self._waiting: dict[int, dict[str, deque[Message]]] = defaultdict(lambda: defaultdict(deque))

    @property
    def refused(self) -> Counter[str]:
        return self.endpoint.refused

    def enter(self, round_number: int) -> None:
        """Begin a round: what older ones left is dropped. A round that is older than the last one does not begin."""
        if round_number < self._now:
            return
        self._now = round_number
        self.endpoint.round = round_number
        self.endpoint.interrupted.clear()
        for older in [older for older in self._waiting if older < round_number]:
            if late := sum(map(len, self._waiting.pop(older).values())):
                self.refused["stale"] += late

    def next_array(self, peer: str) -> Message | None:
        """The next protocol message of the current round from `peer`, if it is there."""
        of_round = self._waiting[self._now]
        if peer not in of_round:
            return None
        message = of_round[peer].popleft()
        if not of_round[peer]:
            del of_round[peer]
        return message

    def senders(self) -> set[str]:
        """Those of whom a protocol message of the current round waits."""
        return set(self._waiting[self._now])

    def next_control(self) -> Received | None:
        """The next control message that came in, or None; arrays that came before it are put where they wait."""
        while (received := self.endpoint.received()) is not None:
            peer, message, _ = received
            if message.run != self.run:
                self.refused["another run"] += 1
            elif message.kind != DATA_KIND:
                return received
            elif not self._now <= message.round < self._now + 2:
                self.refused["stale"] += 1
            else:
                self._waiting[message.round][peer].append(message)
        return None

    def wait(self, deadline: Deadline) -> None:
        """Wait until something comes in or happens, perhaps nothing for us. Raises DeadlineExpired."""
        self.endpoint.wait(deadline)
