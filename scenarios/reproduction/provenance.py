"""The origin of the runs in a folder: data files, which must not change, and states of the code."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from fedsvm.scenarios.data.files import SUFFIXES
from fedsvm.scenarios.run.result import write_whole
from fedsvm.scenarios.schema.errors import ScenarioError

NAME = "made-with.json"
_CODE = ("algorithms", "federation", "protocols", "scenarios")


@dataclass(frozen=True)
class InputDigests:
    """Digests of the data files that runs of a folder have read, by name, and of the code at each command."""

    files: Mapping[str, str]
    code: tuple[str, ...]

    @classmethod
    def of(cls, folder: Path) -> InputDigests:
        """Return the record of a folder, empty if it has no runs."""
        try:
            found = json.loads((folder / NAME).read_text(encoding="utf-8"))
            return cls({_name(each): str(digest) for each, digest in found["files"].items()}, tuple(found["code"]))
        except FileNotFoundError:
            return cls({}, ())
        except (OSError, ValueError, TypeError, KeyError, AttributeError):
            told = "cannot be read, and it is unknown which versions made the runs there; name another folder"
            raise ScenarioError([f"--out: {folder / NAME} {told}."]) from None

    def extend(self, folder: Path, files: Iterable[Path], *, runs: bool) -> InputDigests:
        """Return this record extended by what a command reads here, and write it down.

        Parameters
        ----------
        folder : Path
        files : iterable of Path
            The data files of its runs, those that are there among them.
        runs : bool
            Whether it is about to run anything, by its code.

        Returns
        -------
        MadeWith

        Raises
        ------
        ScenarioError
            Where a file is not the one that runs of the folder have read, and where it cannot be read.
        """
        try:
            read = {_name(path.name): _digest([path]) for path in sorted(set(files))}
        except OSError as error:
            raise ScenarioError([f"{error.filename} cannot be read: {error.strerror}."]) from error
        if changed := [name for name, digest in read.items() if self.files.get(name, digest) != digest]:
            raise ScenarioError(
                [f"--out: {changed[0]} is not the file that runs in {folder} were made with; name another folder."]
            )
        code = dict.fromkeys([*self.code, *([_code_digest()] if runs else [])])
        known = InputDigests({**self.files, **read}, tuple(code))
        text = json.dumps({"files": known.files, "code": known.code}, indent=1) + "\n"
        write_whole(folder / NAME, lambda file: file.write(text.encode()))
        return known

    @property
    def is_of_other_code(self) -> bool:
        """Return whether runs may be from another state of the code than this."""
        return any(each != _code_digest() for each in self.code)


def _name(file: str) -> str:
    """Return the name of a data file without suffix, by which sources find it."""
    return next((file.removesuffix(each) for each in SUFFIXES if file.endswith(each)), file)


def _code_digest() -> str:
    """Return a digest of the code that makes runs, without the code that judges them."""
    here = Path(__file__).parent
    found = sorted(path for name in _CODE for path in (here.parent.parent / name).rglob("*.py"))
    return _digest(path for path in found if here not in path.parents)


def _digest(paths: Iterable[Path]) -> str:
    digest = hashlib.sha256()
    for path in paths:
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]
