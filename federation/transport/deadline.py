"""Deadlines on this process's monotonic clock, which is never sent to others."""

from __future__ import annotations

import time


class Deadline:
    """A point in time, some seconds from its creation, after which a wait ends."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._end = time.monotonic() + seconds

    def remaining_ms(self) -> int:
        """Return the milliseconds left, at least 0."""
        return max(0, int((self._end - time.monotonic()) * 1000))

    @property
    def expired(self) -> bool:
        return time.monotonic() >= self._end
