"""The lowest versions that `pyproject.toml` allows, and newer Pythons: the quickstart and some tests with each."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tools.arguments import parser

ROOT = Path(__file__).parent.parent
NEWER = ("3.12", "3.13")
"""The Pythons that are tested in addition to that of the checkout's environment."""
TOOLS = ("hypothesis", "packaging", "psutil", "pytest", "pytest-timeout", "pytest-xdist", "setuptools")
"""Packages of the `dev` extra that these tests need."""
EXTRAS = ("lattice",)
"""Extras of fedsvm that are installed, since these tests use them."""
TESTS = (
    "test_spec",
    "test_wire",
    "test_fixed_point",
    "test_command",
    "test_privacy",
    "test_naive_bayes",
    "test_opened_scalars",
)
"""Files of short tests that reach what depends on versions: schema, sockets, command line, arithmetic, whole runs,
lattice reduction."""
_LOWER_BOUND = re.compile(r"([A-Za-z0-9._-]+)(?:\[[^\]]*\])?>=([0-9.]+)")


def lowest(requirements: Sequence[str]) -> list[str]:
    """Return a constraint for each requirement `name>=version`: exactly that version.

    Raises
    ------
    ValueError
        A requirement has no lower bound.
    """
    constraints = []
    for requirement in requirements:
        if (bound := _LOWER_BOUND.match(requirement)) is None:
            raise ValueError(f"pyproject.toml: {requirement} must have a lower bound, as in name>=1.0")
        constraints.append(f"{bound[1]}=={bound[2]}")
    return constraints


def find_python(version: str) -> str | None:
    """Return the interpreter of a version, from PATH or pyenv; None if neither has one that starts."""
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    found = [shutil.which(f"python{version}"), *sorted(map(str, pyenv.glob(f"{version}.*/bin/python")))]
    return next((path for path in found if path is not None and _starts(path, version)), None)


def _starts(path: str, version: str) -> bool:
    asked = [path, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]
    done = subprocess.run(asked, capture_output=True, text=True, check=False)
    return done.stdout.strip() == version


def install(name: str, python: str, constraints: Sequence[str], folder: Path) -> Path:
    """Install fedsvm under some constraints into an environment of its own, and return the folder of its commands.

    Parameters
    ----------
    name : str
        The name of the environment.
    python : str
        Its interpreter.
    constraints : sequence of str
        As in a constraints file of pip.
    folder : Path
        The folder of all such environments.

    Raises
    ------
    subprocess.CalledProcessError
        The installation failed.
    """
    place = folder / name
    binaries = place / "bin"
    subprocess.run([python, "-m", "venv", "--clear", "--without-pip", place], check=True)
    limits = folder / f"{name}.txt"
    limits.write_text("".join(f"{constraint}\n" for constraint in constraints))
    pip: list[str | Path] = [sys.executable, "-m", "pip", "--python", binaries / "python", "install", "--quiet"]
    pip += ["--disable-pip-version-check", "--no-warn-script-location", "--prefer-binary"]
    subprocess.run([*pip, "--constraint", limits, f"{ROOT}[{','.join(EXTRAS)}]", *_tools()], check=True)
    return binaries


def check(name: str, binaries: Path, folder: Path) -> None:
    """Run the quickstart and the tests in an environment.

    Parameters
    ----------
    name : str
        The name of the environment.
    binaries : Path
        The folder of its commands.
    folder : Path
        The folder of all such environments.

    Raises
    ------
    subprocess.CalledProcessError
        The run or a test failed.
    """
    began = time.monotonic()
    with tempfile.TemporaryDirectory(dir=folder) as empty:
        subprocess.run([binaries / "fedsvm", "run", "quickstart", "--quiet"], cwd=empty, check=True)
    files = [f"tests/{test}.py" for test in TESTS]
    chosen = ["-m", "not alone and not long", "-rf", "-p", "no:cacheprovider"]
    chosen += ["--numprocesses", "3", "--dist", "worksteal"]
    subprocess.run([binaries / "python", "-m", "pytest", *chosen, *files], cwd=ROOT, check=True)
    print(f"{name}: ran in {time.monotonic() - began:.0f} s", flush=True)


def _project() -> dict[str, list[str]]:
    """Return the requirements of fedsvm, by extra; "" is fedsvm without any."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return {"": project["dependencies"], **project["optional-dependencies"]}


def _required() -> list[str]:
    """Return the requirements of fedsvm with the installed extras."""
    known = _project()
    return [requirement for extra in ("", *EXTRAS) for requirement in known[extra]]


def _tools() -> list[str]:
    return [each for each in _project()["dev"] if re.split(r"[>=;\[]", each)[0] in TOOLS]


def main() -> None:
    """Check every environment, and say which Pythons are missing."""
    arguments = parser("tools.versions", __doc__)
    arguments.add_argument(
        "--folder", type=Path, default=ROOT / "build" / "versions", help="folder of the environments"
    )
    folder = arguments.parse_args().folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    environments: dict[str, tuple[str, Sequence[str]]] = {"lowest": (sys.executable, lowest(_required()))}
    for version in NEWER:
        if sys.version_info[:2] == tuple(map(int, version.split("."))):
            continue
        if (python := find_python(version)) is None:
            print(f"python{version}: is not installed here, and was not tested", flush=True)
        else:
            environments[f"python{version}"] = (python, [])
    with ThreadPoolExecutor(1) as pool:  # the next environment is installed while the tests of one run
        installed = {name: pool.submit(install, name, *chosen, folder) for name, chosen in environments.items()}
        try:
            for name, binaries in installed.items():
                check(name, binaries.result(), folder)
        finally:
            pool.shutdown(cancel_futures=True)


if __name__ == "__main__":
    main()
