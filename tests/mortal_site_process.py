"""Sites of which one is killed within a round behind a committee, at a step of its protocol.

The environment variable `DEATH` has the name of a function of `blind_system`, the number of the round, and the path of
a file. The first site that comes to this function in its round makes the file and dies.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

from fedsvm.algorithms.optimization import committee
from fedsvm.algorithms.site_process import INSTALLATION
from fedsvm.federation.processes import forkserver
from fedsvm.protocols import blind_system

DEATH = "FEDSVM_TESTS_DEATH"

if __name__ == "__main__":
    phase, ordered, path = os.environ[DEATH].split(" ", 2)
    contribute, real, rounds = blind_system.contribute_to_systems, getattr(blind_system, phase), [0]

    def counted(*arguments: Any) -> Any:
        rounds[0] += 1
        return contribute(*arguments)

    def deadly(channel: Any, *arguments: Any) -> Any:
        if rounds[0] >= int(ordered):
            try:
                Path(path).touch(exist_ok=False)
            except FileExistsError:
                return real(channel, *arguments)
            Path(path).write_text(str(channel.me))
            os.kill(os.getpid(), signal.SIGKILL)
        return real(channel, *arguments)

    committee.contribute_to_systems = counted  # type: ignore[assignment, attr-defined]
    setattr(blind_system, phase, deadly)
    forkserver.main(INSTALLATION, int(sys.argv[1]))
