"""The command `fedsvm`, also as `python -m fedsvm`: what must work before, and around, the command line itself."""

from __future__ import annotations

import gc
import os
import signal
import sys
from types import FrameType

import fedsvm

WRONG, INTERRUPTED = 2, 130  # exit status, as in fedsvm.scenarios.commands.exit_statuses
_WITH_SITES = (["run"], ["audit"])
"""The commands that start site processes."""

_POOLS = 2
"""Libraries for linear algebra that every command loads: numpy's and scipy's."""


def main() -> None:
    """Run the command line; Ctrl-C ends it with a sentence from the first import on, however often it is pressed."""
    signal.signal(signal.SIGINT, _leave)
    gc.disable()  # what is imported stays, and to look through it again and again takes a tenth of the time
    from fedsvm.federation.errors import LaunchError
    from fedsvm.federation.processes import limits
    from fedsvm.federation.processes.blas import fast_blas
    from fedsvm.scenarios.streams import guard_streams

    guard_streams()
    os.environ.update(fast_blas())
    try:
        pool_tasks = _POOLS * limits.pool_tasks()
        limits.require_tasks(pool_tasks + limits.TASKS_PER_ENDPOINT + 1 + limits.TASKS_PER_WARM_UP, "fedsvm")
        limits.require_address_space(pool_tasks, "fedsvm")
        if sys.argv[1:2] in _WITH_SITES:
            _start_server()
    except LaunchError as error:
        sys.exit(_sentence(str(error), WRONG))
    from fedsvm.scenarios import cli
    from fedsvm.scenarios.interrupts import Interrupts

    app = cli.application(*sys.argv[1:2])
    gc.freeze()
    gc.enable()
    interrupts = Interrupts()
    interrupts.listen(signal.SIGINT)
    try:
        try:
            cli.main(app, fedsvm.BEGAN)
        finally:
            interrupts.end()
            gc.freeze()  # the interpreter need not look through everything again when it ends
    except KeyboardInterrupt:
        interrupts.end()
        sys.exit(_sentence("Interrupted.", INTERRUPTED))


def _start_server() -> None:
    """Start the server that sites are forked from, which loads its modules while this process loads others."""
    from fedsvm.algorithms import SITE_MODULE
    from fedsvm.federation.processes.server_start import start_server

    server = start_server(SITE_MODULE)
    from fedsvm.federation.processes.launcher_cache import SPARE

    SPARE.adopt(SITE_MODULE, server)


def _leave(number: int, frame: FrameType | None) -> None:
    """Exit at once, since nothing was started and an exception during an import has unpredictable effects."""
    os._exit(_sentence("Interrupted before anything was started.", INTERRUPTED))


def _sentence(text: str, status: int) -> int:
    os.write(2, f"fedsvm: {text}\n".encode())  # as a signal handler may
    return status


if __name__ == "__main__":
    main()
