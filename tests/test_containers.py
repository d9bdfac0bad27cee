"""The container files: the image's steps as the script that it runs, and the guide's lines as compose starts them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.guides import blocks
from tests.hosts import NAMES
from tests.test_floors import FLOORS

FOLDER = ROOT / "containers"


def test_compose_starts_what_the_guide_does() -> None:
    services = re.split(r"^  (?=\w+:$)", (FOLDER / "compose.yaml").read_text(), flags=re.MULTILINE)
    commands = {
        service.partition(":")[0]: found[1] for service in services if (found := re.search(r"command: (.*)", service))
    }
    guide = {
        block.title: block.text.strip().removeprefix("fedsvm ")
        for block in blocks(ROOT / "docs" / "three-hospitals.md")
        if block.title in ("coordinator", *NAMES) and "keys new" not in block.text
    }
    assert commands == guide


def test_the_image_copies_all_that_is_installed() -> None:
    copied = re.findall(r"^COPY (.*) /source", (FOLDER / "Dockerfile").read_text(), re.MULTILINE)
    needed = {"pyproject.toml", "setup.py", "README.md", "LICENSE", *FLOORS}
    assert {name for line in copied for name in line.split()} >= needed


@pytest.mark.long
def test_the_steps_of_the_image_install_a_command_that_runs(tmp_path: Path) -> None:
    """From a folder with what the image copies, into an environment of its own; needs a package index."""
    source = tmp_path / "source"
    source.mkdir()
    for line in re.findall(r"^COPY (.*) /source/?(\S*)$", (FOLDER / "Dockerfile").read_text(), re.MULTILINE):
        for name in line[0].split():
            target = source / line[1] if (ROOT / name).is_dir() else source / line[1] / Path(name).name
            target.parent.mkdir(parents=True, exist_ok=True)
            if (ROOT / name).is_dir():
                shutil.copytree(ROOT / name, target)
            else:
                shutil.copy2(ROOT / name, target)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    script = source / "containers" / "install.sh"
    done = subprocess.run(
        [script, tmp_path / "installed"], capture_output=True, text=True, check=False, env=environment
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("fedsvm ")
    command: list[Path | str] = [tmp_path / "installed" / "bin" / "fedsvm", "keys", "new", "north"]
    subprocess.run(command, cwd=tmp_path, env=environment, check=True, capture_output=True)
    assert (tmp_path / "north.key_secret").is_file()
