"""Files and folders that a command makes, and that must not exist."""

from __future__ import annotations

from pathlib import Path

from fedsvm.scenarios.schema.errors import ScenarioError


def write_new(target: Path, text: str) -> None:
    """Write a file. Raises ScenarioError if it exists or cannot be written."""
    try:
        with target.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise ScenarioError([f"{target} exists already; name a file that does not, or remove it."]) from None
    except OSError as error:
        raise ScenarioError([f"{target} cannot be written: {error.strerror}; name another."]) from error


def make_new(folder: Path) -> None:
    """Make the folder of `--out`, readable by its owner only. Raises ScenarioError if it exists or cannot be made."""
    try:
        folder.mkdir(mode=0o700, parents=True)
    except OSError as error:
        raise ScenarioError([f"--out: no folder {folder} can be made: {error.strerror}; name another."]) from error
