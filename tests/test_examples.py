"""The scripts in `examples` run as they are, in an empty folder, and stay short."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.conftest import ROOT, site_processes

SCRIPTS = sorted((ROOT / "examples").glob("*.py"))
SITES = ("north", "south", "west")


def printed(folder: Path, script: str, *words: str) -> str:
    """Run a script in a folder as a user does, and return what it prints."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [sys.executable, str(ROOT / "examples" / script), *words]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def write_patients(folder: Path, sites: Sequence[str] = SITES) -> list[str]:
    """Write a file of made-up patients for each site; return the sites as the script's arguments."""
    draw = random.Random(1)
    for site in sites:
        rows = []
        for _ in range(60):
            age, pressure = draw.randint(20, 90), draw.gauss(130, 15)
            rows.append(f"{age},{pressure:.0f},{'yes' if age + pressure / 4 + draw.gauss(0, 8) > 90 else 'no'}")
        (folder / f"{site}.csv").write_text("\n".join(["age,pressure,died", *rows]) + "\n")
    return [f"{site}={site}.csv" for site in sites]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_an_example_has_at_most_40_lines(script: Path) -> None:
    assert len(script.read_text().splitlines()) <= 40


def test_readme_links_every_example() -> None:
    readme = (ROOT / "README.md").read_text()
    assert len(SCRIPTS) == 4
    assert [script.name for script in SCRIPTS if f"](examples/{script.name})" not in readme] == []


def test_own_sum_passes_every_check(tmp_path: Path) -> None:
    assert "as many colluders as stated" in printed(tmp_path, "own_sum.py").splitlines()[-1]


@pytest.mark.long
def test_csv_files_become_a_report(tmp_path: Path, temporary_folder: Path) -> None:
    text = printed(tmp_path, "csv_to_report.py", "died", *write_patients(tmp_path))
    assert text.splitlines()[-1] == "study/report.html"
    assert (tmp_path / "study" / "report.html").is_file()
    assert not site_processes(temporary_folder)


def test_csv_files_without_the_label_are_refused_in_a_sentence(tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "examples" / "csv_to_report.py"), "survived", *write_patients(tmp_path)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "survived" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.long
def test_grid_search_finds_parameters(tmp_path: Path, temporary_folder: Path) -> None:
    first, second, *_ = printed(tmp_path, "grid_search.py").splitlines()
    assert first.startswith("best parameters {'C':")
    assert float(second.split()[1]) > 0.9
    assert not site_processes(temporary_folder)


@pytest.mark.long
def test_sweep_draws_a_plot_and_bytes_are_as_predicted(tmp_path: Path) -> None:
    text = printed(tmp_path, "sweep_plot.py")
    assert text.count("bytes as predicted: True") == 3
    assert "<svg" in (tmp_path / "sweep.svg").read_text()
