"""Limits of what one client, and all clients together, can make the hub do."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict

_MAX_CLIENTS = 10_000


class RateLimiter:
    """A token bucket for each client, which holds `burst` tokens and refills continuously.

    Parameters
    ----------
    per_second : float
        Tokens that a client gets back each second.
    burst : int
        Tokens of a client that was not seen before, and the maximum.
    """

    def __init__(self, per_second: float, burst: int) -> None:
        self._per_second = per_second
        self._burst = float(burst)
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()
        self._lock = threading.Lock()

    def allows(self, client: str) -> bool:
        """Take a token from a client's bucket; return whether there was one."""
        now = time.monotonic()
        with self._lock:
            tokens, at = self._buckets.pop(client, (self._burst, now))
            tokens = min(self._burst, tokens + (now - at) * self._per_second)
            is_allowed = tokens >= 1
            self._buckets[client] = (tokens - 1 if is_allowed else tokens, now)
            if len(self._buckets) > _MAX_CLIENTS:
                self._buckets.popitem(last=False)
            return is_allowed
