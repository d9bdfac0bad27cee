"""What the runs of a folder were made with: data files, which must stay the same, and states of the code."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from scenarios.run.result import write_whole
from scenarios.schema.errors import ScenarioError

NAME = "made-with.json"
_CODE = ("algorithms", "federation", "protocols", "scenarios")


@dataclass(frozen=True)
class MadeWith:
    """Digests of the data files that runs of a folder have read, by name, and of the code at each command."""

    files: Mapping[str, str]
    code: tuple[str, ...]

    @classmethod
    def of(cls, folder: Path) -> MadeWith:
        """What is written down in a folder; nothing of one that has no runs."""
        try:
            found = json.loads((folder / NAME).read_text(encoding="utf-8"))
            return cls(dict(found["files"]), tuple(found["code"]))
        except (OSError, ValueError, TypeError, KeyError):
            return cls({}, ())

    def extended(self, folder: Path, files: Iterable[Path]) -> MadeWith:
        """This, written down with what a command that is about to run here reads, and its code.

        Raises ScenarioError where a file is not the one that runs of the folder have read, and where it cannot be read.
        """
        try:
            read = {path.name: _digest([path]) for path in sorted(set(files))}
        except OSError as error:
            raise ScenarioError([f"{error.filename} cannot be read: {error.strerror}."]) from error
        if changed := [name for name, digest in read.items() if self.files.get(name, digest) != digest]:
            raise ScenarioError(
                [f"--out: {changed[0]} is not the file that runs in {folder} were made with; name another folder."]
            )
        known = MadeWith({**self.files, **read}, tuple(dict.fromkeys([*self.code, _code_digest()])))
        text = json.dumps({"files": known.files, "code": known.code}, indent=1) + "\n"
        write_whole(folder / NAME, lambda file: file.write(text.encode()))
        return known


def _code_digest() -> str:
    root = Path(__file__).parent.parent.parent
    return _digest(sorted(path for name in _CODE for path in (root / name).rglob("*.py")))


def _digest(paths: Iterable[Path]) -> str:
    digest = hashlib.sha256()
    for path in paths:
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]
