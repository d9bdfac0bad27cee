"""The fixtures that tests share: real federations, the command line, and a check that nothing is left behind."""

from __future__ import annotations

import os
import secrets
import select
import signal
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import numpy as np
import psutil
import pytest
from hypothesis import settings

from fedsvm.algorithms.mapped_site import MappedAlgorithm
from fedsvm.algorithms.optimization import masking_choice
from fedsvm.federation.federation import Federation, RunObserver
from fedsvm.federation.membership import DropoutPolicy
from fedsvm.federation.processes.forkserver import WORKSPACE_PREFIX
from fedsvm.federation.processes.launcher import LocalLauncher
from fedsvm.federation.processes.launcher_cache import spare_launcher
from fedsvm.federation.site.partition import Partition
from fedsvm.federation.site.rules import ANYTHING, SiteRules
from fedsvm.federation.site.terms import Terms
from fedsvm.federation.startup import Deployment, SiteSetup, start_federation
from fedsvm.federation.transport.deadline import Deadline
from fedsvm.federation.transport.keys import Party, Roster
from fedsvm.protocols.sums.secure_sum import SecureSum
from fedsvm.scenarios.data.sources import FOLDER_VARIABLE
from tests.broken_sums import ALL_SUMS

ROOT = Path(__file__).parent.parent
OPTIONS: dict[str, dict[str, float]] = {
    "k-secure": {"segments": 3},
    "changing-neighbours": {"rings": 2},
    "masked": {"threshold": 0.6},
    "additive-shares": {"helpers": 2},
}
ROWS = np.arange(12.0).reshape(4, 3)


for threads in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    # for workers and commands: several threads of linear algebra each, beside others, spin for longer than they compute
    os.environ.setdefault(threads, "1")

MappedAlgorithm.statistics_privacy = 0.0  # numbers of tests must not depend on noise; `noisy_default` sets it back
masking_choice.MOST = 0.0  # nor on a committee, which draws other noise; `committee_default` sets it back

if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    # As in the background of a script. The processes that tests start would ignore it too.
    signal.signal(signal.SIGINT, signal.default_int_handler)

settings.register_profile("no deadline", deadline=None)  # a test that waits its turn has not failed
settings.load_profile("no deadline")

SLOWEST_LAST = ["test_relay", "test_runtime", "test_dropouts", "test_attacks", "test_faults", "test_runs"]
LONGEST_FIRST = [
    "test_hub_kills",
    "test_several_classes",
    "test_secrecy",
    "test_guides",
    "test_estimators",
    "test_hosts",
]
"""Files whose long tests begin first, so that no worker is left with one of them at the end."""


LONG_S = 900
"""The time limit of long tests without their own: a busy machine must not fail them."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The long tests first, then fast ones; and time for the long ones."""
    for item in items:
        if item.get_closest_marker("long") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(LONG_S))
    items.sort(key=_turn)


def _turn(item: pytest.Item) -> tuple[bool, int]:
    """Return what items are sorted by."""
    file = item.path.stem
    if item.get_closest_marker("long"):
        return False, LONGEST_FIRST.index(file) if file in LONGEST_FIRST else len(LONGEST_FIRST)
    return True, SLOWEST_LAST.index(file) if file in SLOWEST_LAST else -1


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call() -> None:
    """The name of the test leaves the environment, so that what sites are forked from can serve the next test too."""
    os.environ.pop("PYTEST_CURRENT_TEST", None)


@pytest.fixture(autouse=True)
def _site_processes_find_the_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))


@pytest.fixture
def noisy_default(monkeypatch: pytest.MonkeyPatch) -> None:
    """Scenarios take noisy statistics unless they say otherwise, as users' do."""
    monkeypatch.setattr(MappedAlgorithm, "statistics_privacy", 0.5)


@pytest.fixture
def committee_default(monkeypatch: pytest.MonkeyPatch) -> None:
    """Scenarios take a committee where it is predicted to cost little enough, as users' do."""
    monkeypatch.setattr(masking_choice, "MOST", 2.0)


@pytest.fixture
def data_folder() -> Path:
    """The folder of real data sets; tests that need it are left out where there is none."""
    folder = os.environ.get(FOLDER_VARIABLE, "")
    if not folder or not Path(folder).is_dir():
        pytest.skip(f"{FOLDER_VARIABLE} names no folder")
    return Path(folder)


@pytest.fixture
def temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of this test alone in which site processes make their workspaces."""
    folder = tmp_path / "t"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    return folder


def long_but_for(values: Iterable[Any], *quick: Any) -> list[Any]:
    """Values of a parametrisation, of which `make test` runs these few, and `make long` the others."""
    return [value if value in quick else pytest.param(value, marks=pytest.mark.long) for value in values]


def wait_until(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    """Wait for a state that must come; polls, since no event tells of a process that is not ours."""
    deadline = Deadline(seconds)
    while not condition():
        assert not deadline.expired, "it did not come to pass"
        select.select([], [], [], 0.02)


def site_processes(folder: Path) -> set[int]:
    """Every site, and server that sites are forked from, whose folder for temporary files is this one."""
    found = set()
    for process in psutil.process_iter(["cmdline", "environ"]):
        words, environment = process.info["cmdline"] or [], process.info["environ"] or {}
        if any("site_process" in word for word in words) and environment.get("TMPDIR") == str(folder):
            found.add(process.pid)
    return found


def workspaces(folder: Path) -> list[Path]:
    """Return what runs left in a folder for temporary files."""
    return [path for path in folder.iterdir() if path.name.startswith(WORKSPACE_PREFIX)]


def sum_protocol(name: str) -> SecureSum:
    """A secure sum with options that five sites can run."""
    return ALL_SUMS[name](**OPTIONS.get(name, {}))


@contextmanager
def drill(
    sites: int,
    *,
    protocol: str = "ring",
    program: str = "drill",
    module: str = "tests.site_process",
    partitions: Sequence[Partition] | None = None,
    transport: Literal["tcp", "ipc"] = "tcp",
    encrypted: bool = True,
    via_coordinator: bool = False,
    timeout_s: float = 20.0,
    faults: Mapping[str, list[dict[str, Any]]] | None = None,
    on_dropout: Literal["continue", "abort"] = "continue",
    rejoin: bool = False,
    silence_s: float = 0.0,
    log_level: str = "warning",
    reading: Mapping[str, Any] | None = None,
    rules: SiteRules = ANYTHING,
    receipts: Path | None = None,
    journals: Path | None = None,
    another_follows: bool = True,
    views: Callable[[str, Roster], Roster] = lambda party, roster: roster,
    on_listening: Callable[[Party], None] = lambda party: None,
    launched: Callable[[LocalLauncher], None] = lambda launcher: None,
    when_assembled: Callable[[LocalLauncher, Federation], None] = lambda launcher, federation: None,
) -> Iterator[Federation]:
    """A federation of real site processes that run the drill program; each holds ROWS plus its number.

    program, partitions: another program of the tests' installation, and what its sites hold. module: another
    installation. rules: of every site's operator. receipts, journals: the folders of the sites' receipts and journals.
    faults: those that sites do to themselves, by site, until they are restarted. reading: what the terms say of the
    data.
    rejoin: a site whose process ends is restarted. silence_s: how long silent sites are waited for.
    another_follows: what sites are forked from waits a moment for another drill, see `spare_launcher`. on_listening,
    views: see `start_federation`.
    """

    class Listening(RunObserver):
        def party_listens(self, party: Party) -> None:
            on_listening(party)

    names = tuple(f"site-{number}" for number in range(1, sites + 1))
    own_faults = dict(faults or {})

    def setup(site: str) -> SiteSetup:
        number = names.index(site)
        held = partitions[number] if partitions is not None else Partition({"rows": ROWS + number})
        return SiteSetup(
            lambda path: held.write(str(path)),
            {"seed": 1},
            own_faults.pop(site, []),
            rules=rules,
            receipt_path=str(receipts / f"{site}.receipt") if receipts else "",
            journal_path=str(journals / f"{site}.journal") if journals else "",
        )

    chosen = sum_protocol(protocol)
    policy = DropoutPolicy(chosen.min_sites, on_dropout, names if rejoin else (), silence_s=silence_s)
    deployment = Deployment(
        names,
        Terms(program, {}, chosen.name, dict(chosen.options), chosen.min_sites, reading=reading or {}),
        chosen,
        setup,
        timeout_s,
        policy,
        transport=transport,
        encrypted=encrypted,
        via_coordinator=via_coordinator,
        log_level=log_level,
    )
    launched_by: Callable[[str], AbstractContextManager[LocalLauncher]]
    launched_by = spare_launcher if another_follows else LocalLauncher
    with (
        launched_by(module) as launcher,
        start_federation(launcher, deployment, observer=Listening(), views=views) as federation,
    ):
        launched(launcher)
        federation.assemble()
        when_assembled(launcher, federation)
        yield federation


@pytest.fixture(scope="session")
def postgresql() -> Iterator[str]:
    """A PostgreSQL server, by its URL but for the name of a database."""
    pgserver = pytest.importorskip("pgserver", reason="there is no PostgreSQL server here")
    # Which is run by a user of its own, who may not read what is pytest's.
    with TemporaryDirectory(prefix="postgresql-") as folder:
        there = pgserver.get_server(folder, cleanup_mode="delete")
        yield f"postgresql://postgres@/{{}}?host={folder}"
        there.cleanup()


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.long)])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of a database without anything in it."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'hub.sqlite'}"
    server, name = request.getfixturevalue("postgresql"), f"hub_{secrets.token_hex(8)}"
    psycopg = pytest.importorskip("psycopg")
    with psycopg.connect(server.format("postgres"), autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    return str(server.format(name))
