"""The output of results with a full disk, a missing folder, a closed reader, and names that are not text."""

from __future__ import annotations

import io
import json
import os
import resource
import shutil
import subprocess
import tomllib
from collections.abc import Callable, Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedsvm.federation.federation import Federation
from fedsvm.federation.text import visible
from fedsvm.scenarios.console import console
from fedsvm.scenarios.data import dataset
from fedsvm.scenarios.report.axes import ChartAxis
from fedsvm.scenarios.report.chart import Series, lines
from fedsvm.scenarios.report.drawing import Style
from fedsvm.scenarios.report.page import write_report
from fedsvm.scenarios.report.summary import print_summary
from fedsvm.scenarios.run import runner
from fedsvm.scenarios.run.folder import make_folder
from fedsvm.scenarios.run.result import read_result, write_whole
from fedsvm.scenarios.schema import spec
from tests.commands import FEDSVM
from tests.conftest import ROOT, site_processes, wait_until, workspaces

SHORT = {
    "compare.centralised": False,
    "algorithm.landmarks": 20,
    "algorithm.cut_groups": 4,
    "algorithm.max_iterations": 3,
}
WORDS = [word for key, value in SHORT.items() for word in ("--set", f"{key}={json.dumps(value)}")]
FILES = {"result.json", "scenario.toml", "model.npz", "log.jsonl", "ledger.parquet", "report.html", "receipts"}


def run_by_command(
    folder: Path, *words: str, before: Callable[[], None] | None = None, **streams: Any
) -> subprocess.CompletedProcess[str]:
    """A short run; before: is called in the process before the command starts there."""
    return subprocess.run(
        [str(FEDSVM), "run", "quickstart", *WORDS, "--out", str(folder / "run"), *words],
        text=True,
        check=False,
        preexec_fn=before,
        **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | streams,
    )


def written(folder: Path) -> set[str]:
    return {path.name for path in (folder / "run").iterdir()}


def nothing_is_left(folder: Path) -> None:
    wait_until(lambda: not site_processes(folder) and not workspaces(folder))


def test_a_standard_output_that_takes_nothing_loses_no_run(tmp_path: Path, temporary_folder: Path) -> None:
    with Path("/dev/full").open("w") as full:
        done = run_by_command(tmp_path, "--json", stdout=full)
    assert done.returncode == 3
    assert done.stderr.splitlines() == [
        "fedsvm: Standard output cannot be written: No space left on device.",
        f"The known results of the run are in {tmp_path / 'run'}.",
    ]
    assert written(tmp_path) == FILES
    assert read_result(tmp_path / "run").status == "completed"
    nothing_is_left(temporary_folder)


def test_readers_that_leave_lose_no_run(tmp_path: Path, temporary_folder: Path) -> None:
    """As in `fedsvm run … 2>&1 | true`: nobody hears of anything any more, and all is written."""
    ours, theirs = os.pipe()
    os.close(ours)
    done = run_by_command(tmp_path, stdout=theirs, stderr=theirs)
    os.close(theirs)
    assert done.returncode == 3
    assert written(tmp_path) == FILES
    nothing_is_left(temporary_folder)


def test_streams_that_are_closed_from_the_start_lose_no_run(tmp_path: Path, temporary_folder: Path) -> None:
    def close() -> None:
        for descriptor in (0, 1, 2):
            os.close(descriptor)

    assert run_by_command(tmp_path, "--quiet", before=close).returncode == 0
    assert written(tmp_path) == FILES
    assert {site.status for site in read_result(tmp_path / "run").sites} == {"finished"}
    nothing_is_left(temporary_folder)


LITTLE_MEMORY = """
import resource, sys

def limit(what, details):
    if what == "import" and details[0] == "pyarrow":
        resident = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (resident + (16 << 20),) * 2)

if "fedsvm" in sys.orig_argv[1]:
    sys.addaudithook(limit)
"""
"""The command may not take the memory that pyarrow is loaded into, with which it writes the ledger."""


def test_ledger_without_memory_fails_the_run(
    tmp_path: Path, temporary_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sitecustomize.py").write_text(LITTLE_MEMORY)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{ROOT}")
    done = run_by_command(tmp_path, "--quiet")
    assert (done.returncode, done.stdout) == (3, "")
    said = "The run could not write all of its files ("
    assert done.stderr.startswith(f"fedsvm: {said}"), done.stderr
    assert "Traceback" not in done.stderr
    result = read_result(tmp_path / "run")
    assert result.status == "failed"
    assert result.error is not None and result.error.startswith(said)
    assert "ledger.parquet" not in written(tmp_path)
    nothing_is_left(temporary_folder)


def test_a_disk_that_is_full_leaves_the_result_and_a_sentence(tmp_path: Path, temporary_folder: Path) -> None:
    """Files of this process end at 20 kB, as on a disk with no more room: the result has less, and the model more."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (40_000, 40_000))

    done = run_by_command(tmp_path, "--quiet", "--set", "algorithm.landmarks=100", before=limit)
    assert done.returncode == 3
    said = (
        f"The run could not write its files (File too large); make room in {tmp_path / 'run'}, or name another folder"
    )
    assert done.stderr.splitlines()[0].startswith(f"fedsvm: {said}")
    assert len(done.stderr.splitlines()) == 2
    assert not {name for name in written(tmp_path) if name.endswith(".partial") or name == "model.npz"}
    result = read_result(tmp_path / "run")
    assert result.status == "failed"
    assert result.error is not None
    assert result.error.startswith(said)
    assert result.metrics is not None
    nothing_is_left(temporary_folder)


@pytest.mark.parametrize("scenario", ["quickstart", "colluding-neighbours"])
def test_a_folder_that_is_removed_in_mid_run_is_a_sentence(
    scenario: str, tmp_path: Path, temporary_folder: Path
) -> None:
    """With a coalition, whose transcripts are in it too."""
    chosen, base = spec.read(scenario, changes=SHORT)
    folder = make_folder(chosen, tmp_path / "run")

    def remove(federation: Federation, faults: Sequence[str]) -> None:
        if federation.progress.phase == "train":
            shutil.rmtree(folder, ignore_errors=True)

    finished = runner.run(chosen, dataset.prepare(chosen, base), folder, remove)
    assert finished.result.status == "failed"
    assert finished.result.error is not None
    assert "is gone (No such file or directory); run again, and leave it in place." in finished.result.error
    assert not folder.exists()
    nothing_is_left(temporary_folder)


def test_a_folder_for_temporary_files_that_is_full_is_named(tmp_path: Path, temporary_folder: Path) -> None:
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (4_000, 4_000))

    done = run_by_command(tmp_path, "--quiet", before=limit)
    assert done.returncode == 3
    assert f"fedsvm: The data of site-1 cannot be written to {temporary_folder}" in done.stderr
    assert "(File too large); make room there, or set TMPDIR to another folder." in done.stderr
    assert "Traceback" not in done.stderr
    nothing_is_left(temporary_folder)


@pytest.mark.parametrize("words", [["scenarios"], ["--help"], ["schema"], ["data", "describe", "iris"]])
def test_every_command_says_that_it_cannot_print(words: list[str]) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run([str(FEDSVM), *words], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    expected = "fedsvm: Standard output cannot be written: No space left on device.\n"
    assert (done.returncode, done.stderr) == (3, expected)


def test_a_file_that_cannot_be_written_whole_is_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_text("before")

    def fail(file: Any) -> None:
        file.write(b"half")
        raise OSError("full")

    with pytest.raises(OSError, match="full"):
        write_whole(path, fail)
    assert path.read_text() == "before"
    assert list(tmp_path.iterdir()) == [path]
    write_whole(path, lambda file: file.write(b"after"))
    assert path.read_text() == "after"


# Names.

EVIL = [
    "<script>alert(1)</script>",
    "a&b\"'",
    "new\nline",
    "\x1b[31mred\x1b[0m",
    "[red]m[/red][/]",
    ":warning:",
    "\x1b]0;title\x07",
    "tab\there",
    '= ]\'"""#',
    "$x^{2}$",
    "\u202eback",
]


@given(st.text())
def test_what_is_visible_can_be_printed_and_says_what_it_was(text: str) -> None:
    shown = visible(text)
    assert shown.isprintable()
    assert len(shown.encode()) >= len(text)
    if text.isprintable():
        assert shown == text


class Elements(HTMLParser):
    """The elements of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.names: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.add(tag)
        assert not [name for name, _ in attrs if name.startswith("on")]


def write_table(path: Path) -> None:
    """Columns, values and classes with these names."""

    def quoted(name: str) -> str:
        return '"' + name.replace('"', '""') + '"'

    random = np.random.default_rng(1)
    lines = [",".join([*map(quoted, EVIL), "c", "label"])]
    for row in range(60):
        cells = [f"{value:.3f}" for value in random.random(len(EVIL))]
        lines.append(",".join([*cells, quoted(EVIL[row % 4]), quoted(EVIL[[0, 3][row < 25]])]))
    path.write_text("\n".join(lines) + "\n")


def test_names_of_a_stranger_are_shown_and_never_obeyed(tmp_path: Path) -> None:
    """By a run whose sites lack a class, which the notes of the summary tell."""
    write_table(tmp_path / "evil.csv")
    changes = SHORT | {
        "data.source": str(tmp_path / "evil.csv"),
        "data.positive": EVIL[0],
        "data.split": "label-skew",
        "data.ignore": EVIL[1:3],
        "data.categories": {"c": EVIL[:4]},
        "algorithm.landmarks": 8,
    }
    chosen, base = spec.read("quickstart", changes=changes)
    assert tomllib.loads(spec.resolved_toml(chosen))["data"]["ignore"] == EVIL[1:3]
    folder = make_folder(chosen, tmp_path / "run")
    finished = runner.run(chosen, dataset.prepare(chosen, base), folder)
    assert finished.result.error is None, finished.traceback
    again, _ = spec.read(folder / "scenario.toml")
    assert again.data == chosen.data
    text = write_report(folder).read_text()
    assert not {"img", "iframe", "object"} & Elements(text).names
    assert text.count("<script>") == 1
    assert "script-src 'sha256-" in text
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text
    assert "\x1b" not in text
    shown = console()
    shown.file = io.StringIO()
    print_summary(shown, finished.result, folder)
    assert "\x1b" not in shown.file.getvalue()
    assert "holds no row of class '<script>alert(1)</script>'" in " ".join(shown.file.getvalue().split())


def test_a_description_shows_names_and_obeys_none(tmp_path: Path) -> None:
    write_table(tmp_path / "evil.csv")
    environment = os.environ | {"COLUMNS": "300"}
    words = [str(FEDSVM), "data", "describe", str(tmp_path / "evil.csv"), "--split"]
    done = subprocess.run([*words, "random"], capture_output=True, text=True, check=False, env=environment)
    assert (done.returncode, done.stderr) == (0, "")
    first_words = "\n".join(line.split("  ")[0] for line in done.stdout.splitlines()).split("\n")
    assert {visible(name) for name in EVIL} <= set(first_words)
    assert all(letter.isprintable() or letter == "\n" for letter in done.stdout)
    done = subprocess.run([*words, "by-feature:\x1b[5m"], capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 2
    (sentence,) = done.stderr.splitlines()
    assert sentence.isprintable()
    assert "'\\x1b[31mred\\x1b[0m'" in sentence or "\\x1b[31mred\\x1b[0m" in sentence


def test_pictures_obey_no_names() -> None:
    name = '<script>\x1b"&'
    chart = lines(
        name,
        name,
        ChartAxis(name),
        ChartAxis(name),
        [Series(name, [(0.0, 1.0), (1.0, 2.0)], Style("red"))],
        names=[name, "b"],
    )
    for text in (chart.svg, chart.file()):
        ElementTree.fromstring(text)  # noqa: S314 - drawn by this very test
        assert "<script>" not in text
        assert "\x1b" not in text
