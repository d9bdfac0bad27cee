"""A hub in a process of its own, a browser that only reads, and participants with files of their own."""

from __future__ import annotations

import email
import http.cookiejar
import os
import re
import subprocess
import sys
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tests.commands import fedsvm
from tests.conftest import ROOT, wait_until

SITES = ("clinic", "north", "south")
CREATOR = "anna@clinic.example"
_START_S = 90.0


@dataclass
class Person:
    """Somebody with a browser, which keeps cookies and knows no script."""

    url: str
    jar: http.cookiejar.CookieJar = field(default_factory=http.cookiejar.CookieJar)

    def get(self, path: str) -> tuple[int, str]:
        """A page: its status and text."""
        return self._ask(urllib.request.Request(self.url + path))  # noqa: S310 - of a hub that the test started

    def post(self, path: str, form: Mapping[str, str], headers: Mapping[str, str] | None = None) -> tuple[int, str]:
        """Send a form."""
        body = urllib.parse.urlencode(form).encode()
        return self._ask(urllib.request.Request(self.url + path, body, dict(headers or {})))  # noqa: S310

    def form_key(self) -> str:
        """The key in this visitor's forms."""
        found = re.search(r'name="form_key" value="([0-9a-f]+)"', self.get("/")[1])
        return found.group(1) if found else ""

    def _ask(self, request: urllib.request.Request) -> tuple[int, str]:
        opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(self.jar))
        try:
            with opener.open(request, timeout=60) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()


@dataclass
class RunningHub:
    """A hub's process."""

    folder: Path
    port: int = 0
    options: Sequence[str] = ()
    descriptors: int | None = None
    process: subprocess.Popen[str] | None = None

    @property
    def url(self) -> str:
        return f"http://localhost:{self.port}"

    @property
    def log(self) -> Path:
        """The log file."""
        return self.folder.parent / "hub.log"

    def start(self) -> None:
        """Start it, at the port that it had; at first any."""
        command = [
            sys.executable,
            "-m",
            "tests.exact",
            "hub",
            "--folder",
            str(self.folder),
            "--every",
            "0.2",
            *self.options,
        ]
        if self.descriptors is not None:
            command = ["sh", "-c", f'ulimit -n {self.descriptors} && exec "$@"', "sh", *command]
        with self.log.open("a") as log:
            self.process = subprocess.Popen(
                [*command, "--listen", f"127.0.0.1:{self.port}"], stderr=log, text=True, env=environment()
            )
        wait_until(self._answers, _START_S)

    def kill(self) -> None:
        """End it at once, as a power cut does."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def end(self) -> None:
        """Ask it to end."""
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            self.process.wait(60)

    def mails(self, to: str) -> list[str]:
        """The texts of mails to an address, with their subjects, in order."""
        return mails_in(self.folder / "mails", to)

    def mailed(self, to: str, pattern: str) -> str:
        """Return a pattern's match in the last mail to an address that has it; waits for it."""
        found: list[str] = []

        def is_there() -> bool:
            found[:] = [match.group(0) for text in self.mails(to) for match in re.finditer(pattern, text)]
            return bool(found)

        wait_until(is_there)
        return found[-1]

    def signed_in(self, address: str) -> Person:
        """Somebody who followed the link of the mail."""
        person, before = Person(self.url), len(self.mails(address))
        assert person.post("/sign-in", {"email": address})[0] == 200
        wait_until(lambda: len(self.mails(address)) > before)
        path = self.mailed(address, r"/sign-in/[\w-]+")
        assert person.post(path, {})[0] == 200
        return person

    def _answers(self) -> bool:
        assert self.process is not None and self.process.poll() is None, self.log.read_text()
        if not self.port and (listens := re.search(r"listens at http://localhost:(\d+);", self.log.read_text())):
            self.port = int(listens[1])
        try:
            return self.port > 0 and Person(self.url).get("/")[0] == 200
        except OSError:
            return False


def mails_in(folder: Path, to: str) -> list[str]:
    """Return the texts of the mails to an address in a folder, with their subjects, in order."""
    found = []
    for path in sorted(folder.glob("*.eml")):
        message = email.message_from_bytes(path.read_bytes())
        if message["To"] == to:
            text = message.get_payload(decode=True)
            assert isinstance(text, bytes)
            found.append(f"{message['Subject']}\n{text.decode()}")
    return found


@contextmanager
def hub(folder: Path, *options: str, descriptors: int | None = None) -> Iterator[RunningHub]:
    """A hub that listens at a free port, with a limit of open files if one is given."""
    running = RunningHub(folder / "hub", options=options, descriptors=descriptors)
    try:
        running.start()
        yield running
    finally:
        running.end()


def task_form(person: Person, sites: Sequence[str] = SITES, **given: str) -> dict[str, str]:
    """The form of a DPP-SVM task, with the fields given in place of these."""
    return {
        "form_key": person.form_key(),
        "algorithm": "dpp-svm",
        "title": "Malignant or not",
        "description": "Cell features of three laboratories.",
        "invited": "\n".join(f"{site} {site}@example.org" for site in sites),
        "min_sites": str(len(sites)),
        "label": "diagnosis",
        "positive": "M",
        "negative": "B",
        "test_fraction": "0.2",
        "set-kernel": "linear",
        "set-C": "1.0",
        "sum": "masked",
        **given,
    }


def create(running: RunningHub, person: Person, **given: str) -> str:
    """Make a task; its number."""
    status, page = person.post("/tasks", task_form(person, **given))
    assert status == 200, page
    found = re.search(r'action="/tasks/(\w+)/cancel"', page)
    assert found, page
    return found.group(1)


def link_of(running: RunningHub, site: str) -> str:
    """The link of the invitation that was mailed to a participant."""
    return running.mailed(f"{site}@example.org", r"http://\S+/join/\S+#\S+")


def join(folder: Path, link: str, data: Path | str, *options: str) -> subprocess.CompletedProcess[str]:
    """One visit, in a process of its own."""
    return fedsvm("join", link, "--data", data, *options, folder=folder)


def watching(folder: Path, link: str, data: Path) -> subprocess.Popen[str]:
    """A visit that lasts until the task is over."""
    kept = f"visits-{data.stem}"
    command = [sys.executable, "-m", "fedsvm", "join", link, "--data", str(data), "--folder", kept, "--watch"]
    return subprocess.Popen(command, cwd=folder, stderr=subprocess.DEVNULL, text=True, env=environment())


def cells(folder: Path, rows: int = 60) -> tuple[dict[str, Path], NDArray[np.float64], NDArray[np.str_]]:
    """Files of three laboratories with columns of the same rows, labels at the first; and all of it in one place."""
    random = np.random.default_rng(7)
    table = random.normal(size=(rows, 6)).round(6)
    labels = np.where(table[:, 0] - table[:, 2] + table[:, 5] + 0.4 * random.normal(size=rows) > 0, "M", "B")
    files = {}
    for place, site in enumerate(SITES):
        head = [f"{site}_radius", f"{site}_texture", *(["diagnosis"] if place == 0 else [])]
        lines = [",".join(head)]
        for row in range(rows):
            values = [repr(float(value)) for value in table[row, 2 * place : 2 * place + 2]]
            lines.append(",".join([*values, *([labels[row]] if place == 0 else [])]))
        files[site] = folder / f"{site}.csv"
        files[site].write_text("\n".join([*lines, ""]))
    return files, table, labels


def hospitals(folder: Path, sites: Sequence[str] = SITES) -> dict[str, Path]:
    """Files of hospitals with the same columns of different rows."""
    random = np.random.default_rng(3)
    files = {}
    for site in sites:
        rows = random.normal(size=(30, 4)).round(4)
        labels = np.where(rows[:, 0] - rows[:, 1] + 0.3 * random.normal(size=30) > 0, "M", "B")
        lines = [",".join([*map(str, row.tolist()), label]) for row, label in zip(rows, labels, strict=True)]
        files[site] = folder / f"{site}.csv"
        files[site].write_text("\n".join(["a,b,c,d,diagnosis", *lines, ""]))
    return files


def simulated(
    folder: Path, files: dict[str, Path], label: str = "diagnosis", negative: str = "B", positive: str = "M"
) -> NDArray[np.float64]:
    """The weights of the same scenario over the same files, in a simulation."""
    sources = "\n".join(f'{site} = "{path}"' for site, path in files.items())
    (folder / "same.toml").write_text(
        f"""
        [data]
        label = "{label}"
        classes = ["{negative}", "{positive}"]
        positive = "{positive}"
        test_fraction = 0.2
        tested_by = "sites"
        [data.sources]
        {sources}
        [algorithm]
        name = "pan-svm"
        masking = "none"
        step_noise = 0.0
        [protocol]
        sum = "masked"
        [compare]
        centralised = false
        baselines = false
        """
    )
    words = ["run", str(folder / "same.toml"), "--quiet", "--out", str(folder / "same")]
    subprocess.run([sys.executable, "-m", "tests.exact", *words], check=True, env=environment(), timeout=100)
    with np.load(folder / "same" / "model.npz") as model:
        return np.asarray(model["w"])


def environment() -> dict[str, str]:
    """Of processes: this code, and one thread for linear algebra."""
    return {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
