"""A coordinator and sites as their operators start them: the commands, in processes of their own, on one machine."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import psutil
from numpy.typing import NDArray

from tests.conftest import ROOT, wait_until

NAMES = ("east", "north", "south")
ENDS_WITHIN_S = 90.0
EXACT = ("algorithm.masking=none", "algorithm.step_noise=0")
"""With which training is the same to the last bit each time."""

SCENARIO = """\
[data]
label = "diagnosis"
positive = "M"
classes = ["B", "M"]
tested_by = "sites"
test_fraction = 0.25

[compare]
centralised = false
"""


def write_files(folder: Path, names: Sequence[str] = NAMES, rows: int = 40) -> None:
    """A file of rows for each site, the scenario of a coordinator, and that of a simulation of the same."""
    random = np.random.default_rng(7)
    for number, name in enumerate(names):
        signs = np.where(random.random(rows) < 0.5, 1, -1)
        values = random.normal(size=(rows, 3)) + signs[:, None] * 0.8 + 0.1 * number
        wards = random.choice(["a", "b", name], size=rows)
        lines = ["size,depth,age,ward,diagnosis"]
        lines += [
            f"{a!r},{b!r},{c!r},{ward},{'M' if sign > 0 else 'B'}"
            for (a, b, c), ward, sign in zip(values.tolist(), wards, signs, strict=True)
        ]
        (folder / f"{name}.csv").write_text("\n".join(lines) + "\n")
    (folder / "hospitals.toml").write_text(SCENARIO)
    files = "".join(f'{name} = "{name}.csv"\n' for name in names)
    (folder / "simulated.toml").write_text(f"{SCENARIO}\n[data.sources]\n{files}")


@dataclass
class Started:
    """A command in a process of its own; both streams go to a file."""

    process: subprocess.Popen[bytes]
    path: Path

    @property
    def said(self) -> str:
        """All that it printed so far."""
        return self.path.read_text()

    def says(self, words: str) -> None:
        """Wait until it has said this."""
        wait_until(lambda: words in self.said or self.process.poll() is not None, ENDS_WITHIN_S)
        assert words in self.said, self.said

    def ends(self) -> int:
        """Wait until it has ended; its status."""
        return self.process.wait(ENDS_WITHIN_S)


@dataclass
class Hosts:
    """A folder with keys, files and scenarios, and the commands that run in it."""

    folder: Path
    within: dict[str, Sequence[str]] = field(default_factory=dict)
    """The prefix of a party's command, such as "ip netns exec NAME"."""
    started: list[Started] = field(default_factory=list)

    def command(self, party: str, *words: str) -> Started:
        """Start `fedsvm` with these words, as a party."""
        path = self.folder / f"{party}-{len(self.started)}.out"
        line = [*self.within.get(party, ()), sys.executable, "-m", "tests.exact", *words]
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "200"}
        with path.open("wb") as file:
            process = subprocess.Popen(
                line, cwd=self.folder, stdout=file, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, env=environment
            )
        self.started.append(Started(process, path))
        return self.started[-1]

    def make_keys(self, names: Sequence[str] = NAMES) -> None:
        """Keys of the coordinator and of sites; the public ones of these go to the folder of those admitted."""
        from fedsvm.federation.hosts import certificates

        (self.folder / "sites").mkdir()
        certificates.create(self.folder, "coordinator")
        for name in names:
            public, _ = certificates.create(self.folder, name)
            public.rename(self.folder / "sites" / public.name)

    def coordinator(self, *words: str, wait: str = "80s", listen: str = "tcp://127.0.0.1:0") -> Started:
        """Start the coordinator, and wait until it listens."""
        begun = self.command(
            "coordinator",
            *("coordinate", "hospitals.toml", "--listen", listen, "--key", "coordinator.key_secret"),
            *("--sites", "sites", "--wait", wait, "--out", "deployed", *words),
        )
        begun.says("listens at ")
        return begun

    def site(self, name: str, coordinator: Started, *words: str, key: str = "", coordinator_key: str = "") -> Started:
        """Start a site whose coordinator is on this machine."""
        address = coordinator.said.partition("listens at ")[2].partition(" ")[0]
        return self.command(
            name,
            *("site", "--coordinator", address, "--coordinator-key", coordinator_key or "coordinator.key"),
            *("--key", key or f"{name}.key_secret", "--data", f"{name}.csv", "--wait", "80s"),
            *("--listen", "tcp://127.0.0.1:0", *words),
        )

    def simulated(self, *words: str) -> dict[str, NDArray[np.float64]]:
        """The model of a simulation of the same."""
        status = self.command("simulation", "run", "simulated.toml", "--quiet", "--out", "simulated", *words).ends()
        assert status == 0, self.started[-1].said
        return self.model("simulated")

    def model(self, folder: str = "deployed") -> dict[str, NDArray[np.float64]]:
        """The arrays of a run's model."""
        with np.load(self.folder / folder / "model.npz") as file:
            return {name: file[name] for name in file.files}


def stalled(site: Started) -> bool:
    """Return whether a site has stopped itself."""
    return bool(psutil.Process(site.process.pid).status() == psutil.STATUS_STOPPED)


def same(one: Mapping[str, NDArray[np.float64]], other: Mapping[str, NDArray[np.float64]]) -> bool:
    """Return whether two models are equal to the last bit."""
    return one.keys() == other.keys() and all(one[name].tobytes() == other[name].tobytes() for name in one)


@contextmanager
def hosts(folder: Path, names: Sequence[str] = NAMES) -> Iterator[Hosts]:
    """A folder with all that is needed; what was started in it is ended with the context."""
    there = Hosts(folder)
    write_files(folder, names)
    there.make_keys(names)
    try:
        yield there
    finally:
        for each in there.started:
            if each.process.poll() is None:
                each.process.kill()
            each.process.wait()
