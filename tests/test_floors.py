"""One-way dependencies: a file imports from its own floor or from one below."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT

FLOORS = ["federation", "protocols", "algorithms", "scenarios"]
FILES = [path for floor in FLOORS for path in sorted((ROOT / floor).glob("*.py"))]


def imported(path: Path) -> set[str]:
    """First parts of the names of all modules that a file imports, wherever in it."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} imports relatively"
            names.add((node.module or "").partition(".")[0])
    return names


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_no_import_climbs(path: Path) -> None:
    above = set(FLOORS[FLOORS.index(path.parent.name) + 1 :])
    assert not imported(path) & above


def test_the_check_sees_every_floor() -> None:
    assert {path.parent.name for path in FILES} == set(FLOORS)
    assert "federation" in imported(ROOT / "algorithms" / "pan_svm.py")


def test_a_site_process_imports_nothing_heavy() -> None:
    """In a fresh interpreter, as the server that sites are forked from imports it."""
    code = (
        "import sys, algorithms.site_process as s; s.INSTALLATION.warm_up(); "
        "print(*{name.partition('.')[0] for name in sys.modules})"
    )
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT).stdout
    loaded = set(printed.split())
    assert {"numpy", "zmq", "msgpack", "algorithms"} <= loaded
    assert not loaded & {
        "email",
        "sklearn",
        "scipy",
        "clarabel",
        "pydantic",
        "typer",
        "rich",
        "pyarrow",
        "tomli_w",
        "pandas",
    }
