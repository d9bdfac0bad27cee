"""The files that a participant's browser needs: a distribution of Pyodide in a folder, and this version of fedsvm.

The hub serves them itself, so that the browser asks no third host.
"""

from __future__ import annotations

import functools
import importlib.metadata
import io
import json
import os
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from fedsvm.scenarios.schema.errors import ScenarioError

PACKAGES = ("cryptography", "msgpack", "numpy", "pydantic")
"""The packages of the distribution that a participant's code imports: those that are compiled, or need such."""
READERS = {".csv": "pyarrow", ".csv.gz": "pyarrow", ".svm": "scikit-learn"}
"""The package of the distribution that reads files with each ending. Without a package, its files cannot be used."""
_PURE = ("annotated-types", "threadpoolctl", "tomli-w")
"""The other packages that it imports. They are Python, and come from the hub's installation."""
CODE = "fedsvm.zip"
SCRIPT = "pyodide.js"
_LOCK = "pyodide-lock.json"
_RUNTIME = (SCRIPT, "pyodide.asm.wasm", "python_stdlib.zip", _LOCK)
_TYPES = {".js": "text/javascript", ".mjs": "text/javascript", ".wasm": "application/wasm", ".json": "application/json"}
_DISTRIBUTION = "use the full distribution of Pyodide (pyodide-VERSION.tar.bz2 of its releases)"
_ROOT = Path(__file__).parents[2]
_METADATA = {"METADATA": ("METADATA", "PKG-INFO"), "entry_points.txt": ("entry_points.txt",)}
"""The files that describe the package, and their names where it is installed: PKG-INFO in a checkout."""
_Lock = Mapping[str, tuple[str, list[str]]]
"""The file of each package, and the packages that it needs."""


class BrowserFiles:
    """The files by which a browser takes part.

    Parameters
    ----------
    folder : Path
        A distribution of Pyodide: its runtime, its lock file, and the wheels of `PACKAGES`, of a package of `READERS`,
        and of what they need.

    Attributes
    ----------
    readers : dict of str to str
        The entries of `READERS` whose package the distribution has.

    Raises
    ------
    ScenarioError
        A file is missing.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        missing = [name for name in _RUNTIME if not (folder / name).is_file()]
        if not missing:
            lock = _read_lock(folder)
            missing = _missing(folder, lock, PACKAGES)
            self.readers = {end: name for end, name in READERS.items() if not _missing(folder, lock, [name])}
            if not missing and not self.readers:
                missing = _missing(folder, lock, [READERS[".csv"]])
        if missing:
            raise ScenarioError([f"--pyodide: {folder} has no {', '.join(missing)}; {_DISTRIBUTION}."])
        self._names = {path.name for path in folder.iterdir() if path.is_file()}

    def path(self, name: str) -> Path | None:
        """Return the path of a file of the distribution; None if it has no such file."""
        return self._folder / name if name in self._names else None

    @staticmethod
    def media_type(name: str) -> str:
        """Return the media type of a file, by the end of its name."""
        return _TYPES.get(Path(name).suffix, "application/octet-stream")

    @functools.cached_property
    def code(self) -> bytes:
        """The hub's installation of fedsvm and of what it needs in Python, as a zip archive."""
        content = io.BytesIO()
        with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
            for path in _package_files(_ROOT):
                archive.write(path, Path("fedsvm") / path.relative_to(_ROOT))
            about = importlib.metadata.distribution("fedsvm")
            for name, installed in _METADATA.items():
                text = next(filter(None, map(about.read_text, installed)))
                archive.writestr(f"fedsvm-{about.version}.dist-info/{name}", text)
            for package in _PURE:
                for file in importlib.metadata.files(package) or ():
                    if file.suffix != ".pyc" and ".." not in file.parts:
                        archive.write(file.locate(), file)
        return content.getvalue()


def _read_lock(folder: Path) -> _Lock:
    """Return what the lock file of a distribution lists. Raises ScenarioError for another file."""
    try:
        packages = json.loads((folder / _LOCK).read_text(encoding="utf-8"))["packages"]
        return {_normal(name): (str(about["file_name"]), list(about["depends"])) for name, about in packages.items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ScenarioError([f"--pyodide: {folder / _LOCK} is not a lock file of Pyodide; {_DISTRIBUTION}."]) from error


def _missing(folder: Path, lock: _Lock, packages: Sequence[str]) -> list[str]:
    """Return the files of some packages, and of all that these need, that are not in the folder."""
    waiting, files = list(packages), dict[str, str]()
    while waiting:
        name = _normal(waiting.pop())
        if name not in files:
            files[name], depends = lock.get(name, (f"package {name}", []))
            waiting += depends
    return [file for file in files.values() if not (folder / file).is_file()]


def _normal(name: str) -> str:
    return name.lower().replace("_", "-")


def _package_files(root: Path) -> Iterator[Path]:
    """Yield the files of the package, of which some folders may be links."""
    for folder, folders, names in os.walk(root, followlinks=True):
        folders[:] = sorted(set(folders) - {"__pycache__"})
        yield from (Path(folder) / name for name in sorted(names))
