"""One-way dependencies: a file imports from its own floor or from one below, and inside a floor one way too."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from fedsvm.algorithms.registry import OWN_ALGORITHMS
from fedsvm.protocols.sums.registry import OWN_SUMS
from tests.conftest import ROOT

FLOORS = ["federation", "protocols", "algorithms", "scenarios", "fedsvm"]
FILES = [path for floor in FLOORS for path in sorted((ROOT / floor).rglob("*.py"))]


def module_of(path: Path) -> str:
    """Return the dotted name of a file's module, which for an `__init__` is that of its package."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    whole = parts if parts[0] == "fedsvm" else ("fedsvm", *parts)
    return ".".join(whole[:-1] if whole[-1] == "__init__" else whole)


def floor_of(module: str) -> str:
    """Return the floor that a dotted name belongs to: one of the four, or "fedsvm" for the page of public names."""
    first, _, rest = module.partition(".")
    below = rest.partition(".")[0]
    return below if first == "fedsvm" and below in FLOORS else first


MODULES = {module_of(path): path for path in FILES}


def imported(path: Path) -> Iterator[str]:
    """Dotted names of everything that a file imports, wherever in it; of ours, the module that it comes from."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} imports relatively"
            whole = [f"{node.module}.{alias.name}" for alias in node.names]
            yield from (name if name in MODULES else str(node.module) for name in whole)


def room_of(module: str) -> str:
    """Return the subpackage that a module is in, or the module itself if it stands directly on its floor."""
    parts = module.split(".")
    return ".".join(parts[:3])


def is_type_only(path: Path) -> bool:
    """Package maps re-export lazily and stand above what they list."""
    return path.name == "__init__.py"


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_import_climbs(path: Path) -> None:
    above = set(FLOORS[FLOORS.index(path.relative_to(ROOT).parts[0]) + 1 :])
    assert not {floor_of(name) for name in imported(path)} & above


@pytest.mark.parametrize("floor", FLOORS)
def test_rooms_of_a_floor_import_one_way(floor: str) -> None:
    """There is an order of its sub-packages and single modules in which each imports from earlier ones only."""
    needs: dict[str, set[str]] = {}
    for module, path in MODULES.items():
        if floor_of(module) == floor and not is_type_only(path):
            ours = {room_of(name) for name in imported(path) if floor_of(name) == floor}
            needs.setdefault(room_of(module), set()).update(ours - {room_of(module)})
    while free := {room for room, below in needs.items() if not below & needs.keys()}:
        needs = {room: below for room, below in needs.items() if room not in free}
    assert not needs, f"these import each other in a circle: {needs}"


@pytest.mark.parametrize("package", ["hub", "reproduction"])
def test_nothing_on_floor_4_imports_the_inside_of_an_application(package: str) -> None:
    """The command line alone names its commands."""
    whole = f"fedsvm.scenarios.{package}"
    outside = [path for module, path in MODULES.items() if not module.startswith(whole)]
    assert not {path for path in outside for name in imported(path) if name.startswith(whole)}


def test_the_check_sees_every_floor_and_what_is_inside() -> None:
    assert {path.relative_to(ROOT).parts[0] for path in FILES} == set(FLOORS)
    assert any(len(path.relative_to(ROOT).parts) > 2 for path in FILES)
    assert "fedsvm.federation.federation" in set(imported(ROOT / "algorithms" / "pan_svm.py"))


@pytest.mark.parametrize(
    "package", sorted({path.parent for path in FILES}), ids=lambda path: str(path.relative_to(ROOT))
)
def test_every_package_is_installed(package: Path) -> None:
    """A folder without an `__init__` is found by no packager, and would be missing from the wheel silently."""
    assert (package / "__init__.py").is_file()


MIGRATIONS = "scenarios/hub/migrations"
UNMAPPED = {"fedsvm", MIGRATIONS, f"{MIGRATIONS}/versions", "scenarios/report/sections", "federation/faults/kinds"}
"""The page of public names, and packages whose modules a program finds by itself."""
MAPPED = sorted({path.parent for path in FILES} - {ROOT / folder for folder in UNMAPPED})


@pytest.mark.parametrize("package", MAPPED, ids=lambda path: str(path.relative_to(ROOT)))
def test_the_map_of_a_package_names_its_modules_and_no_others(package: Path) -> None:
    """An entry of the docstring of `__init__` begins a line: "name  text", "- `name`: text", or several names."""
    text = ast.get_docstring(ast.parse((package / "__init__.py").read_text())) or ""
    entries = re.findall(r"^(?:- )?(`?\w+`?(?:, `?\w+`?)*)(?::|  +|$)", text, re.MULTILINE)
    modules = {path.stem for path in package.glob("*.py")} | {
        path.parent.name for path in package.glob("*/__init__.py")
    }
    assert set(re.findall(r"\w+", " ".join(entries))) == modules - {"__init__"}


def test_no_two_public_classes_have_one_name() -> None:
    parsed = [ast.parse(path.read_text()) for path in FILES]
    names = Counter(node.name for tree in parsed for node in tree.body if isinstance(node, ast.ClassDef))
    assert not [name for name, count in names.items() if count > 1 and not name.startswith("_")]


def test_a_site_process_imports_nothing_heavy() -> None:
    """In a fresh interpreter, as the server that sites are forked from imports it."""
    code = (
        "import sys, fedsvm.federation.processes.forkserver, fedsvm.algorithms.site_process as s; "
        "s.INSTALLATION.warm_up(); "
        "print(*{name.partition('.')[0] for name in sys.modules}, *sys.modules)"
    )
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT).stdout
    loaded = set(printed.split())
    assert {"numpy", "zmq", "msgpack", "fedsvm.algorithms"} <= loaded
    assert not loaded & {
        "email",
        "sklearn",
        "scipy",
        "piqp",
        "pydantic",
        "typer",
        "rich",
        "pyarrow",
        "tomli_w",
        "pandas",
    }


def texts(path: Path) -> Iterator[str]:
    """Every text in a file: literals of Python, docstrings among them, or the whole of anything else."""
    if path.suffix != ".py":
        yield path.read_text()
        return
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


FLOOR_4 = [path for path in sorted((ROOT / "scenarios").rglob("*.*")) if path.suffix in (".py", ".j2")]


@pytest.mark.parametrize("path", FLOOR_4, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_algorithm_is_known_by_name_on_floor_4(path: Path) -> None:
    """But for the catalogue, which is scenario files."""
    found = list(texts(path))
    known = {name for name in OWN_ALGORITHMS for text in found if is_named(name, text)}
    assert not known


@pytest.mark.parametrize("path", FLOOR_4, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_secure_sum_is_known_by_name_on_floor_4(path: Path) -> None:
    found = list(texts(path))
    assert not {name for name in OWN_SUMS for text in found if is_named(name, text)}


def is_named(name: str, text: str) -> bool:
    """Return whether a text has the name of an algorithm or a sum; a plain word must be all of it, or be quoted."""
    return name in text if "-" in name else name == text or f'"{name}"' in text or f"'{name}'" in text
