"""Limits on processes, threads and address space: a run that reaches one names it in a sentence, and leaves nothing."""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.commands import FEDSVM
from tests.conftest import ROOT, site_processes, wait_until

READ_ALL = "+dac_override,+dac_read_search"
"""Capabilities of the other user, who runs what is installed here, wherever that is."""


@pytest.fixture
def other_user(tmp_path: Path, temporary_folder: Path) -> list[str]:
    """The beginning of a command line of a user without any process, whom limits hold, as they do not hold root."""
    if os.geteuid() != 0 or shutil.which("setpriv") is None or shutil.which("prlimit") is None:
        pytest.skip("only root can start a process of a user who has none yet")
    user = str(100_000 + secrets.randbelow(1 << 20))
    for folder in (tmp_path, temporary_folder):
        os.chown(folder, int(user), int(user))
    words = ["setpriv", "--reuid", user, "--regid", user, "--clear-groups"]
    words += ["--inh-caps", f"-all,{READ_ALL}", "--ambient-caps", f"-all,{READ_ALL}"]
    if subprocess.run([*words, "true"], check=False).returncode:
        pytest.skip("this root may not give capabilities to another user")
    return words


@pytest.fixture
def control_group() -> Iterator[Path]:
    """A control group of this test alone, inside that of this process."""
    groups = [line.split(":", 2)[1:] for line in Path("/proc/self/cgroup").read_text().splitlines()]
    for controllers, path in groups:
        folder = Path("/sys/fs/cgroup", controllers, path.strip("/"), f"fedsvm-{secrets.token_hex(8)}")
        if controllers in ("", "pids") and os.access(folder.parent, os.W_OK):
            folder.mkdir()
            try:
                if (folder / "pids.max").exists():
                    yield folder
                    return
            finally:
                folder.rmdir()
    pytest.skip("no control group with a limit on processes can be made")


def quickstart(prefix: Sequence[str], folder: Path) -> tuple[int, str]:
    """Run the quickstart, and return its exit status and what it printed."""
    words = [*prefix, str(FEDSVM), "run", "quickstart", "--quiet", "--out", "run"]
    one_thread = {"OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(
        words, cwd=folder, env=os.environ | one_thread, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout == ""
    return done.returncode, done.stderr


@pytest.mark.parametrize(
    ("limit", "status", "needs"),
    [
        (3, 2, "fedsvm needs 8 more processes and threads"),
        (12, 3, "Starting 5 of the sites needs 15 more processes and threads"),
    ],
)
def test_run_above_the_limit_of_a_user_names_the_limit(
    limit: int, status: int, needs: str, other_user: list[str], tmp_path: Path, temporary_folder: Path
) -> None:
    found, printed = quickstart(["prlimit", f"--nproc={limit}", *other_user], tmp_path)
    sentence = f"fedsvm: {needs}, but ulimit -u is {limit}; raise the limit, or run fewer sites at a time.\n"
    assert (found, printed) == (status, sentence + "The known results of the run are in run.\n" * (status == 3))
    assert not site_processes(temporary_folder)
    assert list(temporary_folder.iterdir()) == []


def test_run_above_the_limit_of_a_control_group_names_the_limit(
    control_group: Path, tmp_path: Path, temporary_folder: Path
) -> None:
    (control_group / "pids.max").write_text("12")
    join = ["sh", "-c", f'echo $$ > {control_group}/cgroup.procs && exec "$@"', "sh"]
    status, printed = quickstart(join, tmp_path)
    assert status == 3
    assert f"Starting 5 of the sites needs 15 more processes and threads, but {control_group}/pids.max is 12" in printed
    wait_until(lambda: not site_processes(temporary_folder))
    assert list(temporary_folder.iterdir()) == []


def test_run_above_the_limit_of_address_space_names_the_limit(tmp_path: Path, temporary_folder: Path) -> None:
    status, printed = quickstart(["sh", "-c", 'ulimit -v 400000 && exec "$@"', "sh"], tmp_path)
    sentence = "fedsvm: fedsvm needs 921600 kB of address space, but ulimit -v is 400000; raise the limit.\n"
    assert (status, printed) == (2, sentence)
    assert list(temporary_folder.iterdir()) == []
    assert list(tmp_path.iterdir()) == [temporary_folder]


def test_run_within_the_limit_of_address_space_completes(tmp_path: Path, temporary_folder: Path) -> None:
    assert quickstart(["sh", "-c", 'ulimit -v 921600 && exec "$@"', "sh"], tmp_path) == (0, "")


LITTLE_LEFT = """
import resource

from fedsvm.federation.processes.limits import require_address_space

hard = resource.getrlimit(resource.RLIMIT_AS)[1]
resource.setrlimit(resource.RLIMIT_AS, (2 << 30, hard))
require_address_space(0, "this test")
taken = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (taken + (16 << 20), hard))

import numpy as np
from scipy.linalg.blas import dgemm

square = np.ones((256, 256))
print(dgemm(1.0, square @ square, square).sum())
"""


def test_linear_algebra_has_its_memory_before_data_take_the_rest() -> None:
    done = subprocess.run(
        [sys.executable, "-c", LITTLE_LEFT], capture_output=True, text=True, timeout=30, check=False, cwd=ROOT
    )
    assert (done.stdout, done.stderr) == (f"{256.0**4}\n", "")
