"""The guides work as printed, the site they make is whole and needs nothing else, and a notebook leaves nothing."""

from __future__ import annotations

import html
import os
import queue
import re
import shutil
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import nbformat
import pytest
from jupyter_client.manager import start_new_kernel
from nbclient import NotebookClient

import fedsvm
from fedsvm.scenarios.schema import spec
from tests.conftest import ROOT, site_processes, wait_until
from tests.guides import Reader, agrees, blocks

GUIDES = sorted((ROOT / "docs").glob("*.md"))
FOLLOWED = [guide for guide in GUIDES if any(block.language in ("sh", "python") for block in blocks(guide))]


@pytest.mark.parametrize("guide", FOLLOWED, ids=lambda guide: guide.stem)
@pytest.mark.long
@pytest.mark.timeout(900)  # one audits a whole run of the paper's algorithm, for some minutes
def test_a_guide_works_as_printed(guide: Path, tmp_path: Path, temporary_folder: Path) -> None:
    reader = Reader(tmp_path)
    reader.environment |= {"PIP_NO_BUILD_ISOLATION": "0", "COLUMNS": "100"}  # pip reads 0 as: without isolation
    reader.environment.pop("PYTHONPATH", None)
    for expected, printed in reader.follow(guide):
        assert agrees(expected, printed), f"{guide.name} promises\n{expected}\nand the reader sees\n{printed}"
    assert not site_processes(temporary_folder)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site as `make docs` builds it, which fails for a link or an anchor that leads nowhere."""
    folder = tmp_path_factory.mktemp("site")
    for name in ("docs", "tools"):
        shutil.copytree(ROOT / name, folder / name)
    for path in [ROOT / "mkdocs.yml", *ROOT.glob("*.md")]:
        shutil.copy(path, folder)
    words = [sys.executable, "-m", "zensical", "build", "--strict", "--clean"]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    return folder / "build" / "site"


@pytest.mark.long
def test_the_site_fetches_nothing_from_elsewhere(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > 10
    for path in [*pages, *site.rglob("*.css")]:
        text = path.read_text()
        fetched = re.findall(r"<(?:link|script|img|iframe)\b[^>]*?(?:href|src)=\"?([^\" >]+)", text)
        fetched += re.findall(r"(?:url\(|@import )[\"']?([^\"')]+)", text) if path.suffix == ".css" else []
        assert not [address for address in fetched if address.startswith(("http:", "https:", "//"))], path


@pytest.mark.long
def test_every_page_of_the_sites_contents_is_there(site: Path) -> None:
    listed = re.findall(r"^ +- (\S+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
    assert len(listed) > 10
    for page in listed:
        name = page.removesuffix(".md").removesuffix("index")
        assert (site / name / "index.html").is_file(), page


@pytest.mark.long
def test_the_reference_has_every_parameter_of_the_estimators(site: Path) -> None:
    for name in ("PanSVC", "DppSVC", "HybridSVC", "PrivateErmClassifier"):
        parameters = getattr(fedsvm, name)().get_params()
        text = _text(site / "api" / "estimators" / "index.html")
        signature = re.search(rf"{name}\((.*?)\)\s*Bases", text, re.DOTALL)
        assert signature is not None
        assert {word for word in parameters if f"{word}:" in signature[1]} == set(parameters)
    assert "Raises" in _text(site / "api" / "run" / "index.html")
    assert "Return the sum over all live sites" in _text(site / "api" / "federation" / "index.html")


def _text(page: Path) -> str:
    return html.unescape(re.sub(r"<[^>]+>", "", page.read_text()))


@pytest.mark.long
def test_the_notebook_and_the_changelog_are_pages(site: Path) -> None:
    page = (site / "notebook" / "index.html").read_text()
    assert "PanSVC" in page
    assert "data:image/png;base64," in page
    assert "Unreleased" in _text(site / "changelog" / "index.html")


@pytest.mark.long
def test_the_search_finds_every_key_of_a_scenario_and_the_gallery_has_pictures(site: Path) -> None:
    found = (site / "search.json").read_text()
    for key in ("bandwidth_mbit", "on_dropout", "test_fraction", "known_records", "step_noise", "clip_norm"):
        assert key in found
    text = _text(site / "scenario" / "index.html")
    assert "Seconds of silence after which a site is dropped." in text
    assert "One-way latency in milliseconds, at most 600" in text
    page = (site / "gallery" / "index.html").read_text()
    for name in spec.catalogue():
        assert f"fedsvm run {name}" in _text(site / "gallery" / "index.html")
        assert (site / "gallery" / f"{name}.svg").is_file(), "python -m tools.gallery draws it"
        assert f"{name}.svg" in page


def test_every_table_says_what_each_key_means() -> None:
    tables = spec.json_schema()["$defs"]
    silent = [
        f"{name}.{key}"
        for name, table in tables.items()
        for key, said in table["properties"].items()
        if not said.get("description")
    ]
    assert not silent


@pytest.mark.long
@pytest.mark.timeout(900)
def test_the_notebook_runs_from_beginning_to_end(temporary_folder: Path) -> None:
    notebook = nbformat.read(ROOT / "docs" / "notebook.ipynb", as_version=4)  # type: ignore[no-untyped-call]
    promised = [_printed(cell) for cell in notebook.cells]
    NotebookClient(notebook, timeout=300, kernel_name="python3").execute()
    assert [_printed(cell) for cell in notebook.cells] == promised
    assert any("image/png" in output.get("data", {}) for cell in notebook.cells for output in cell.get("outputs", []))
    wait_until(lambda: not site_processes(temporary_folder))


def _printed(cell: Any) -> str:
    """Return what a cell printed, without figures that vary with training."""
    texts: list[str] = [output["text"] for output in cell.get("outputs", []) if output["output_type"] == "stream"]
    return re.sub(r"\d+e-\d+", "small", "".join(texts))


def test_no_process_is_left_when_a_kernel_is_interrupted(temporary_folder: Path) -> None:
    """And the kernel goes on, as after any other interrupt."""
    long = (
        "import numpy as np\nfrom fedsvm import PanSVC\n"
        "X = np.random.default_rng(0).normal(size=(3000, 20)); y = np.sign(X[:, 0] * X[:, 1])\n"
        "PanSVC(1e4, solver='cutting-plane', cut_groups=1, tolerance=1e-9, max_iterations=10**6).fit(X, y)"
    )
    manager, client = start_new_kernel(kernel_name="python3")
    try:
        request = client.execute(long)
        wait_until(lambda: len(site_processes(temporary_folder)) == 4, 60)
        assert _interrupted(manager, client, request)["ename"] == "KeyboardInterrupt"
        wait_until(lambda: not site_processes(temporary_folder))
        assert _reply(client, client.execute("X.shape"))["status"] == "ok"
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


def _interrupted(manager: Any, client: Any, request: str) -> dict[str, Any]:
    """The reply to a request that is interrupted, up to three times: one was lost once, for a reason not found."""
    for patience_s in (10, 10, 30):
        manager.interrupt_kernel()
        with suppress(queue.Empty):
            return _reply(client, request, patience_s)
    raise AssertionError("three interrupts did not end it")


def _reply(client: Any, request: str, patience_s: float = 30) -> dict[str, Any]:
    """To this request: a kernel that was slow to start has been asked several times whether it is there."""
    while (message := client.get_shell_msg(timeout=patience_s))["parent_header"]["msg_id"] != request:
        pass
    content: dict[str, Any] = message["content"]
    return content


@pytest.mark.parametrize(
    ("expected", "printed", "same"),
    [
        ("a 1.5\n  b", "a 1.5 b\n", True),
        ("took … s", "took 0.25 s", True),
        ("took … s", "took 0.25 minutes", False),
        ("≈21 iterations", "22 iterations", True),
        ("≈21 iterations", "30 iterations", False),
        ("2 sites", "3 sites", False),
        ("status 2", "status 3", False),
        ("accuracy 97.92 %", "accuracy 79.92 %", False),
        ("site-1", "site-2", False),
        ("1.73…,x", "1.7347,x", True),
        ("one", "one more", False),
    ],
)
def test_what_a_guide_promises_is_compared(expected: str, printed: str, same: bool) -> None:
    assert agrees(expected, printed) == same
