"""A participant in a real browser: the invitation's page, Python in a worker, and the browser's own record of requests.

FEDSVM_PYODIDE is the folder of a Pyodide distribution; `python -m tests.pyodide_folder FOLDER` makes one.
With FEDSVM_PICTURES=FOLDER the page is photographed there, as the guide shows it.
"""

from __future__ import annotations

import base64
import io
import json
import os
import subprocess
import sys
import urllib.request
import zipfile
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pytest
from playwright.sync_api import BrowserContext, Page, expect, sync_playwright

from fedsvm.scenarios.hub.browser import FOLDER, StoredFolder, take_part
from fedsvm.scenarios.hub.browser_files import READERS, BrowserFiles
from fedsvm.scenarios.hub.participation import post_by_http
from fedsvm.scenarios.schema.errors import ScenarioError
from tests.conftest import wait_until
from tests.hub import CREATOR, SITES, Person, create, hospitals, hub, link_of, simulated, watching
from tests.test_report import BROWSER

PYODIDE = os.environ.get("FEDSVM_PYODIDE")
PICTURES = os.environ.get("FEDSVM_PICTURES")
EXACT = {"algorithm": "pan-svm", "set-kernel": "rbf", "set-masking": "none", "set-step_noise": "0"}
POLICY = """\
min_rows = 20
release = true
[algorithms.pan-svm]
kernel = ["rbf"]
[sums.masked]
min_sites = 3
"""
_NONE = "not an origin"
LABELS = {"label": "label", "negative": "-1", "positive": "1"}

in_browser = [
    pytest.mark.long,
    pytest.mark.timeout(1500),
    pytest.mark.skipif(BROWSER is None, reason="there is no Chromium here"),
    pytest.mark.skipif(PYODIDE is None, reason="FEDSVM_PYODIDE names no folder of a Pyodide distribution"),
]


def numbered(files: Mapping[str, Path]) -> dict[str, Path]:
    """The same rows as lines of numbers, which a browser reads without pyarrow."""
    written = {}
    for site, path in files.items():
        _, *rows = (line.split(",") for line in path.read_text().splitlines())
        lines = [
            " ".join(["1" if row[-1] == "M" else "-1", *(f"{place}:{cell}" for place, cell in enumerate(row[:-1], 1))])
            for row in rows
        ]
        written[site] = path.with_suffix(".svm")
        written[site].write_text("\n".join([*lines, ""]))
    return written


def opened(play: Any, profile: Path, record: Path) -> BrowserContext:
    """A browser with a profile of its own, which records every request and every byte that it sends."""
    context: BrowserContext = play.chromium.launch_persistent_context(
        profile,
        executable_path=BROWSER,
        args=["--no-sandbox", f"--log-net-log={record}", "--net-log-capture-mode=Everything"],
    )
    return context


def join_on_page(page: Page, link: str, data: Path, policy: str | None = None) -> None:
    page.goto(link)
    page.get_by_label("Your data file").set_input_files(data)
    if policy is not None:
        page.get_by_label("Your policy").fill(policy)
    page.get_by_label("This is what I allow").check()
    page.get_by_role("button", name="Take part").click()


def await_end(page: Page) -> None:
    """Wait until the visit has ended, well or not."""
    over = page.get_by_role("log").get_by_text("the task is over")
    expect(over.or_(page.locator("#visit .problem"))).to_be_visible(timeout=600_000)


def events(record: Path, kind: str) -> list[dict[str, Any]]:
    """The details of the events of a kind in a record of the browser's network."""
    logged = json.loads(record.read_text())
    number = logged["constants"]["logEventTypes"][kind]
    return [event.get("params", {}) for event in logged["events"] if event["type"] == number]


def requests(record: Path) -> list[tuple[str, str]]:
    """The method and the address of each request of pages and workers, not of those that Chromium sends by itself."""
    started = [event for event in events(record, "URL_REQUEST_START_JOB") if event.get("initiator", _NONE) != _NONE]
    return [(event["method"], event["url"]) for event in started]


def sent_bytes(record: Path) -> bytes:
    """Everything that the browser wrote to sockets."""
    return b"".join(base64.b64decode(event.get("bytes", "")) for event in events(record, "SOCKET_BYTES_SENT"))


def end(processes: Sequence[subprocess.Popen[str]]) -> None:
    for process in processes:
        process.kill()
        process.wait()


class TestInBrowser:
    """With Pyodide, in Chromium."""

    pytestmark = in_browser

    def test_participant_without_an_installation_trains_the_same_model(self, tmp_path: Path) -> None:
        """It closes the tab once it has joined, and comes back."""
        files, record = numbered(hospitals(tmp_path)), tmp_path / "requests.json"
        me, *rest = SITES
        with hub(tmp_path, "--pyodide", str(PYODIDE)) as running, sync_playwright() as play:
            creator = running.signed_in(CREATOR)
            number = create(running, creator, **EXACT, **LABELS)
            links = {site: link_of(running, site) for site in SITES}
            context = opened(play, tmp_path / "profile", record)
            others: list[subprocess.Popen[str]] = []
            try:
                first = context.new_page()
                join_on_page(first, links[me], files[me], POLICY)
                wait_until(lambda: 'class="state joined"' in creator.get(f"/tasks/{number}")[1], 600)
                first.close()
                page = context.new_page()
                said: list[str] = []
                page.on("console", lambda message: said.append(message.text))
                others += [watching(tmp_path, links[site], files[site]) for site in rest]
                join_on_page(page, links[me], files[me], POLICY)
                await_end(page)
                expect(page.get_by_role("log")).to_contain_text("the task is over")
                expect(page.get_by_role("log")).not_to_contain_text("fingerprint of this site")
                expect(page.get_by_role("link", name="task.receipt")).to_be_visible()
                assert not said
                assert [other.wait(60) for other in others] == [0, 0]
                if PICTURES is not None:
                    page.set_viewport_size({"width": 1000, "height": 900})
                    page.screenshot(path=Path(PICTURES) / "browser.png", full_page=True)
            finally:
                context.close()
                end(others)
            path = running.folder / "tasks" / number / "model.npz"
            wait_until(path.exists)
            with np.load(path) as model:
                assert np.abs(model["w"] - simulated(tmp_path, files, **LABELS)).max() < 1e-9
        asked = requests(record)
        assert {urlsplit(url).netloc for _, url in asked} == {urlsplit(running.url).netloc}
        assert {urlsplit(url).path for method, url in asked if method != "GET"} == {"/api/words"}
        sent = sent_bytes(record)
        assert b"POST /api/words" in sent
        cells = files[me].read_text().replace(":", " ").split()
        assert not [cell for cell in cells if "." in cell and cell.encode() in sent]

    def test_policy_on_the_page_declines_what_it_forbids(self, tmp_path: Path) -> None:
        files = numbered(hospitals(tmp_path))
        with hub(tmp_path, "--pyodide", str(PYODIDE)) as running, sync_playwright() as play:
            create(running, running.signed_in(CREATOR), **EXACT, **LABELS)
            context = opened(play, tmp_path / "profile", tmp_path / "requests.json")
            try:
                page = context.new_page()
                join_on_page(page, link_of(running, SITES[0]), files[SITES[0]], "min_rows = 31\n")
                await_end(page)
                expect(page.locator("#visit .problem")).to_contain_text("does not take part")
                page.reload()
                expect(page.get_by_text("declined", exact=True)).to_be_visible()
            finally:
                context.close()


def distribution(folder: Path, *packages: str) -> Path:
    """A folder like a distribution of Pyodide, with small files, that has these packages."""
    folder.mkdir()
    lock = {name: {"file_name": f"{name}-1.whl", "depends": needs} for name, needs in NEEDS.items()}
    (folder / "pyodide-lock.json").write_text(json.dumps({"packages": lock}))
    for name in ("pyodide.js", "pyodide.asm.wasm", "python_stdlib.zip", *(f"{name}-1.whl" for name in packages)):
        (folder / name).write_text(name)
    return folder


NEEDS = {
    "cryptography": ["cffi"],
    "cffi": [],
    "msgpack": [],
    "numpy": [],
    "pydantic": ["pydantic_core"],
    "pydantic-core": [],
    "pyarrow": ["numpy"],
    "scikit-learn": ["scipy"],
    "scipy": [],
}
ALL = tuple(NEEDS)


def test_folder_without_a_wheel_is_refused(tmp_path: Path) -> None:
    folder = distribution(tmp_path / "pyodide", *(name for name in ALL if name != "cffi"))
    with pytest.raises(ScenarioError, match=r"--pyodide: .* has no cffi-1.whl; use the full distribution"):
        BrowserFiles(folder)
    (folder / "pyodide-lock.json").write_text("[]")
    with pytest.raises(ScenarioError, match="is not a lock file"):
        BrowserFiles(folder)
    (folder / "pyodide.js").unlink()
    with pytest.raises(ScenarioError, match=r"has no pyodide\.js"):
        BrowserFiles(folder)


def test_kinds_of_files_are_those_that_the_distribution_reads(tmp_path: Path) -> None:
    both = BrowserFiles(distribution(tmp_path / "both", *ALL))
    assert both.readers == READERS
    others = [name for name in ALL if name != "pyarrow"]
    assert BrowserFiles(distribution(tmp_path / "numbers", *others)).readers == {".svm": "scikit-learn"}
    neither = distribution(tmp_path / "neither", *(name for name in others if name != "scipy"))
    with pytest.raises(ScenarioError, match=r"has no pyarrow-1\.whl"):
        BrowserFiles(neither)


def test_code_for_browsers_is_whole(tmp_path: Path) -> None:
    """Of its Python packages, the browser imports those of the hub."""
    code = BrowserFiles(distribution(tmp_path / "pyodide", *ALL)).code
    with zipfile.ZipFile(io.BytesIO(code)) as archive:
        archive.extractall(tmp_path / "code")
    absent = ["zmq", "resource", "piqp", "typer", "rich", "fastapi", "sqlalchemy", "jinja2"]
    lines = (
        f"import sys; sys.path[:0] = ['code']; sys.modules |= dict.fromkeys({absent})",
        "import fedsvm.scenarios.hub.browser as used, importlib.metadata as known",
        "import annotated_types, threadpoolctl, tomli_w",
        "print(used.__file__, annotated_types.__file__, threadpoolctl.__file__, tomli_w.__file__)",
        "print(known.distribution('fedsvm').version, *known.entry_points(group='fedsvm.algorithms').names)",
    )
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(lines)], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    files, about = done.stdout.splitlines()
    assert [Path(file).is_relative_to("code") or "/code/" in file for file in files.split()] == [True] * 4
    assert about.split()[0] == version("fedsvm")


def test_folder_of_visits_survives_a_write_that_is_cut_short(tmp_path: Path) -> None:
    copies = {0: b"", 1: b""}
    first = StoredFolder(tmp_path / "first", copies.__getitem__, copies.__setitem__)
    first.restore()
    for content in (b"one", b"two"):
        (tmp_path / "first" / "diary").write_bytes(content)
        first.save()
        before = dict(copies)
        first.save()
        assert copies == before, "nothing has changed"
    again = StoredFolder(tmp_path / "again", copies.__getitem__, copies.__setitem__)
    again.restore()
    assert (tmp_path / "again" / "diary").read_bytes() == b"two"
    assert (tmp_path / "again" / "diary").stat().st_mode & 0o077 == 0
    newest = max(copies, key=lambda number: b"two" in copies[number])
    copies[newest] = copies[newest][:-1]
    cut = StoredFolder(tmp_path / "cut", copies.__getitem__, copies.__setitem__)
    cut.restore()
    assert (tmp_path / "cut" / "diary").read_bytes() == b"one"


def test_folder_of_visits_is_stored_again_after_a_write_that_failed(tmp_path: Path) -> None:
    copies, has_room = {0: b"", 1: b""}, True

    def write(number: int, content: bytes) -> None:
        copies[number] = content if has_room else b""  # as the worker empties a file before it writes
        if not has_room:
            raise OSError("no room")

    stored = StoredFolder(tmp_path / "first", copies.__getitem__, write)
    stored.restore()
    diary = tmp_path / "first" / "diary"
    diary.write_bytes(b"one")
    stored.save()
    has_room = False
    for content in (b"two", b"two", b"three"):
        diary.write_bytes(content)
        with pytest.raises(OSError, match="no room"):
            stored.save()
    StoredFolder(tmp_path / "again", copies.__getitem__, write).restore()
    assert (tmp_path / "again" / "diary").read_bytes() == b"one"


def test_visit_is_stored_before_each_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a browser, by the same functions; its policy forbids the task."""
    files, told, copies, asked = hospitals(tmp_path), list[str](), {0: b"", 1: b""}, list[bytes]()
    monkeypatch.chdir(tmp_path)
    with hub(tmp_path, "--pyodide", str(distribution(tmp_path / "pyodide", *ALL))) as running:
        person = running.signed_in(CREATOR)
        number = create(running, person, algorithm="pan-svm")
        link = link_of(running, SITES[0])
        page = Person(running.url).get(urlsplit(link).path)[1]
        assert "Or take part in this browser" in page
        assert 'data-packages="cryptography msgpack numpy pydantic"' in page

        def post(url: str, request: bytes) -> bytes:
            key = (tmp_path / FOLDER / "visitor.key_secret").read_bytes()
            assert any(key in copy for copy in copies.values())
            asked.append(request)
            return post_by_http(url, request)

        given = (told.append, copies.__getitem__, copies.__setitem__, post)
        problem = take_part(link, str(files[SITES[0]]), "", "min_rows = 31\n", *given)
        assert "does not take part" in problem
        assert len(asked) == 2
        assert "declined" in person.get(f"/tasks/{number}")[1]
        assert "must be the whole link" in take_part(link[:-3], "", "", "", *given)
        assert "min_row" in take_part(link, "", "", "min_row = 3\n", *given)
        with urllib.request.urlopen(f"{running.url}/static/worker.js") as answer:  # noqa: S310
            policy = answer.headers["Content-Security-Policy"]
        assert "connect-src 'self'" in policy
        assert "unsafe-eval" not in policy.replace("wasm-unsafe-eval", "")
        with urllib.request.urlopen(f"{running.url}/pyodide/pyodide.asm.wasm") as answer:  # noqa: S310
            assert answer.headers["Content-Type"] == "application/wasm"
        for name in ("none.js", "..%2Fhub%2Fhub.sqlite", "%2E%2E"):
            assert Person(running.url).get(f"/pyodide/{name}")[0] in (400, 404)


def test_hub_without_the_folder_offers_the_command_alone(tmp_path: Path) -> None:
    with hub(tmp_path) as running:
        create(running, running.signed_in(CREATOR))
        page = Person(running.url).get(urlsplit(link_of(running, SITES[0])).path)[1]
        assert "fedsvm join" in page
        assert "in this browser" not in page
        assert Person(running.url).get("/pyodide/pyodide.js")[0] == 400
