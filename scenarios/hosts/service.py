"""A site as a service: it takes part in one run after the other, if its policy allows them."""

from __future__ import annotations

import time
from collections.abc import Callable

from fedsvm.federation.errors import FederationError
from fedsvm.federation.hosts.site_session import SiteSession

FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 60.0
"""A site that a coordinator turns away at once asks again after this time at the latest."""


def serve(new_session: Callable[[], SiteSession], tell: Callable[[str], None]) -> None:
    """Take part in runs until the process is interrupted.

    Parameters
    ----------
    new_session : callable
        Returns what takes part in the next run.
    tell : callable
        Called with a sentence about each run that failed.
    """
    pause_s = FIRST_PAUSE_S
    while True:
        began = time.monotonic()
        try:
            new_session().take_part()
        except FederationError as error:
            tell(str(error))
        is_turned_away = time.monotonic() - began < LONGEST_PAUSE_S
        pause_s = min(2 * pause_s, LONGEST_PAUSE_S) if is_turned_away else FIRST_PAUSE_S
        tell("waits for the next run")
        time.sleep(pause_s)
