"""Time as this process sees it: monotonic, computed locally, never sent as a clock time."""

from __future__ import annotations

import time


class Deadline:
    """A moment after which waiting is over."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._end = time.monotonic() + seconds

    def remaining_ms(self) -> int:
        """Return the milliseconds left, at least 0."""
        return max(0, int((self._end - time.monotonic()) * 1000))

    @property
    def expired(self) -> bool:
        return time.monotonic() >= self._end
