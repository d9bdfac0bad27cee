"""The commands of `benchmarks` and `tools`, and the lowest versions of packages."""

from __future__ import annotations

import runpy
import sys
import tomllib
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tools import versions

COMMANDS = sorted(
    f"{path.parent.name}.{path.stem}"
    for folder in ("benchmarks", "tools")
    for path in (ROOT / folder).glob("*.py")
    if 'if __name__ == "__main__":' in path.read_text()
)


@pytest.mark.parametrize("name", COMMANDS)
def test_help_is_printed_and_nothing_starts(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [name, "--help"])
    monkeypatch.delitem(sys.modules, name, raising=False)
    with pytest.raises(SystemExit) as ended:
        runpy.run_module(name, run_name="__main__")
    assert ended.value.code == 0
    printed = capfd.readouterr()
    documentation = (ROOT / f"{name.replace('.', '/')}.py").read_text().split('"""')[1]
    assert printed.out.startswith(f"usage: python -m {name.removesuffix('.__main__')} ")
    assert documentation.splitlines()[0] in printed.out
    assert printed.err == ""
    assert list(tmp_path.iterdir()) == []


def test_every_requirement_has_a_lowest_version() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    constraints = versions.lowest(project["dependencies"])
    assert len(constraints) == len(project["dependencies"])
    assert "annotated-types==0.8" in constraints
    with pytest.raises(ValueError, match="numpy must have a lower bound"):
        versions.lowest(["numpy"])
