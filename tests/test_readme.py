"""The front page stays short, its links lead somewhere, and what it shows runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import typer.main

from fedsvm.scenarios.cli import application
from tests.conftest import ROOT, site_processes
from tests.guides import Reader, agrees, blocks

README = ROOT / "README.md"
LINK = re.compile(r"\]\(([^)#]+)(#[^)]*)?\)")


def test_readme_has_at_most_8000_bytes_and_140_lines() -> None:
    assert len(README.read_bytes()) <= 8000
    assert len(README.read_text().splitlines()) <= 140


def test_every_link_of_readme_leads_to_a_file_and_a_heading() -> None:
    links = LINK.findall(README.read_text())
    assert len(links) > 20
    for path, anchor in links:
        assert (ROOT / path).exists(), path
        if anchor:
            headings = re.findall(r"^#+ (.*)$", (ROOT / path).read_text(), re.MULTILINE)
            assert anchor[1:] in {re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings}


def test_every_command_that_readme_names_exists() -> None:
    commands = typer.main.get_command(application()).commands  # type: ignore[attr-defined]
    named = re.findall(r"`fedsvm ([a-z-]+)", README.read_text())
    named += re.findall(r"`([a-z-]+)`", " ".join(re.findall(r"^\| `fedsvm .*? \|", README.read_text(), re.MULTILINE)))
    assert len(set(named)) > 10
    assert set(named) <= set(commands)


def test_the_picture_is_small_and_fetches_nothing() -> None:
    picture = ROOT / "docs" / "round.svg"
    assert f"](docs/{picture.name})" in README.read_text()
    assert picture.stat().st_size < 60_000
    assert not re.findall(r"(?:href|src)=", picture.read_text())


@pytest.mark.long
def test_python_and_scenario_of_readme_run(tmp_path: Path, temporary_folder: Path) -> None:
    assert {block.language for block in blocks(README)} >= {"python", "toml", "sh"}
    for expected, printed in Reader(tmp_path).follow(README):
        assert agrees(expected, printed), f"README promises\n{expected}\nand the reader sees\n{printed}"
    assert not site_processes(temporary_folder)
