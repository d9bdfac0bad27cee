"""One run of a sweep: `python -m scenarios.sweep_point run …`, which ends when its standard input does.

That is open as long as the sweep lives, so that a run does not outlive a sweep that was killed.
"""

from __future__ import annotations

import os
import signal
import sys
import threading

from scenarios.cli import main


def _end_with_the_sweep() -> None:
    sys.stdin.buffer.read()
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    threading.Thread(target=_end_with_the_sweep, daemon=True).start()
    main()
