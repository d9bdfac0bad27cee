"""The wheel: it is built, installed in an environment without the checkout, and used from another folder."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest
from packaging.metadata import Metadata

from tests.conftest import ROOT
from tests.test_floors import FLOORS

SOURCES = ["pyproject.toml", "setup.py", "README.md", "LICENSE", *FLOORS]


def pip(*words: str | Path) -> None:
    command = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "--no-input", *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy, so that nothing is left in the checkout."""
    folder = tmp_path_factory.mktemp("wheel")
    (folder / "copy").mkdir()
    for name in SOURCES:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, folder / "copy" / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, folder / "copy")
    pip("wheel", "--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir", folder, folder / "copy")
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def elsewhere(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the wheel, which sees the packages of this one and not what finds the checkout."""
    folder = tmp_path_factory.mktemp("elsewhere")
    venv.create(folder, with_pip=False, symlinks=True)
    pip("--python", folder / "bin" / "python", "install", "--no-deps", "--no-index", wheel)
    (installed,) = (folder / "lib").glob("python*/site-packages")
    (installed / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")  # whose .pth files are not read
    return folder


def use(elsewhere: Path, words: Sequence[str], folder: Path) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [str(elsewhere / "bin" / words[0]), *words[1:]]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def test_a_wheel_has_every_file_of_the_packages_and_no_other(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        held = {name for name in archive.namelist() if ".dist-info/" not in name}
    files = (path for floor in FLOORS for path in (ROOT / floor).rglob("*") if path.is_file())
    inside = {path.relative_to(ROOT) for path in files if "__pycache__" not in path.parts and not path.is_symlink()}
    assert held == {str(path if path.parts[0] == "fedsvm" else "fedsvm" / path) for path in inside}
    assert {name.partition("/")[0] for name in held} == {"fedsvm"}, "a wheel has one name at the top"
    assert "fedsvm/py.typed" in held
    assert {"fedsvm/scenarios/catalogue/quickstart.toml", "fedsvm/scenarios/report/run.html.j2"} <= held
    assert {"fedsvm/scenarios/report/page.css", "fedsvm/scenarios/report/page.js"} <= held


def test_an_index_would_take_its_metadata(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        metadata = Metadata.from_email(archive.read(name), validate=True)
    assert f"\nversion: {metadata.version}\n" in (ROOT / "CITATION.cff").read_text()
    assert metadata.author == "fedsvm developers"
    assert metadata.license_expression == "Apache-2.0"
    assert "Typing :: Typed" in (metadata.classifiers or [])
    assert metadata.description_content_type == "text/markdown"
    description = metadata.description or ""
    assert description.startswith("# fedsvm\n")
    assert "scripts for your CSV files," in description, "the words of a link stay"
    links = re.findall(r"\]\((?!https?:)[^)]*\)", description)
    assert not links, "an index shows this page without the files beside it"


@pytest.mark.long
def test_every_module_of_it_can_be_imported(wheel: Path, elsewhere: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        paths = [Path(name).with_suffix("") for name in archive.namelist() if name.endswith(".py")]
    paths.remove(Path("fedsvm/scenarios/hub/migrations/env"))  # Alembic runs it
    modules = [".".join(path.parts[:-1] if path.name == "__init__" else path.parts) for path in paths]
    code = f"import importlib\nfor name in {modules}:\n    print(importlib.import_module(name).__file__)"
    done = use(elsewhere, ["python", "-c", code], tmp_path)
    assert done.returncode == 0, done.stderr
    assert len(modules) > 100
    assert all(Path(line).is_relative_to(elsewhere) for line in done.stdout.splitlines())


@pytest.mark.long
def test_the_wheel_works_in_a_folder_with_packages_of_the_same_names(elsewhere: Path, tmp_path: Path) -> None:
    """Neither the command nor the processes that it starts import a user's own `algorithms` or `scenarios`."""
    for floor in FLOORS[:-1]:
        (tmp_path / floor).mkdir()
        (tmp_path / floor / "__init__.py").write_text("raise ImportError('not the package of fedsvm')")
    done = use(elsewhere, ["python", "-c", "from fedsvm import PanSVC; print(PanSVC.__name__)"], tmp_path)
    assert done.stdout == "PanSVC\n", done.stderr
    done = use(elsewhere, ["fedsvm", "run", "quickstart", "--out", "run"], tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "run" / "report.html").is_file()
    small = ["--set", "algorithm.landmarks=10", "--set", "compare.centralised=false"]
    done = use(elsewhere, ["fedsvm", "sweep", "quickstart", "--vary", "seed=1,2", *small], tmp_path)
    assert done.returncode == 0, done.stderr
