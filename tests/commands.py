"""The command line: from its very start by `FEDSVM`, or in a process forked from one that has loaded what it needs."""

from __future__ import annotations

import atexit
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import fedsvm as package
from fedsvm.__main__ import main
from fedsvm.algorithms.mapped_site import MappedAlgorithm
from fedsvm.scenarios.cli import AREAS

FEDSVM = Path(sys.executable).with_name("fedsvm")
PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(
    [
        *AREAS,
        "fedsvm.scenarios.run.runner",
        "fedsvm.scenarios.report.page",
        "fedsvm.scenarios.hub.participation",
        "fedsvm.scenarios.hub.service",
        "alembic.command",
        "uvicorn",
        "pyarrow.parquet",
        "scipy.optimize",
        "scipy.stats",
        "sklearn.model_selection",
        "sklearn.svm",
    ]
)
_LONGEST_S = 120.0


def fedsvm(*words: str | Path, folder: Path) -> subprocess.CompletedProcess[str]:
    """The command line, run in `folder` to its end."""
    line = [str(FEDSVM), *map(str, words)]
    with tempfile.TemporaryDirectory() as kept:
        stdout, stderr = Path(kept) / "stdout", Path(kept) / "stderr"
        mu = MappedAlgorithm.statistics_privacy
        process = PROCESSES.Process(target=_command, args=(line, folder, stdout, stderr, dict(os.environ), mu))
        process.start()
        process.join(_LONGEST_S)
        if process.exitcode is None:
            process.kill()
            process.join()
            raise subprocess.TimeoutExpired(line, _LONGEST_S, stdout.read_text(), stderr.read_text())
        return subprocess.CompletedProcess(line, process.exitcode, stdout.read_text(), stderr.read_text())


def _command(line: list[str], folder: Path, stdout: Path, stderr: Path, environment: dict[str, str], mu: float) -> None:
    """Run the command as a new process would, but without importing, and with the tests' noise of statistics."""
    MappedAlgorithm.statistics_privacy = mu
    for path, stream in ((stdout, sys.stdout), (stderr, sys.stderr)):
        with path.open("w") as file:
            os.dup2(file.fileno(), stream.fileno())
    os.environ.clear()
    os.environ.update(environment)
    tempfile.tempdir = None  # it is looked up in that environment
    os.chdir(folder)
    sys.argv = line
    package.BEGAN = time.monotonic()
    try:
        main()
    finally:
        atexit._run_exitfuncs()  # which processes of this kind leave out
