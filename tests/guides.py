"""Follows a guide as a reader would: writes the files it prints, runs its commands in order, compares what they say.

In a guide's Markdown, a fenced block with a `title` is a file. A `sh` block is run by bash, a `python` block by this
interpreter; either must succeed. A `text` block right after one is what it prints, "…" standing for anything and
"≈" before a figure that differs a little from machine to machine. What
blocks export to the environment, later ones have.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

FENCE = re.compile(r'^```(?P<language>\w+)(?: title="(?P<title>[^"]+)")?\n(?P<text>.*?)^```$', re.MULTILINE | re.DOTALL)
MAX_S = 600
ANYTHING, ABOUT = "…", "≈"
_FIGURE = r"\d+(?:\.\d+)?"
_VARYING = re.compile(rf"{ANYTHING}|{ABOUT}({_FIGURE})")
_ENVIRONMENT = ".environment"
"""The file in which a block leaves its exported variables for the next one."""


@dataclass(frozen=True)
class Block:
    """A fenced block: a file if it has a title, else something to run, or what that prints."""

    language: str
    title: str | None
    text: str


def blocks(guide: Path) -> list[Block]:
    """The fenced blocks of a guide, in order."""
    return [Block(found["language"], found["title"], found["text"]) for found in FENCE.finditer(guide.read_text())]


@dataclass
class Reader:
    """Someone who follows a guide in an empty folder, with the project installed."""

    folder: Path
    environment: dict[str, str] = field(default_factory=lambda: dict(os.environ))

    def follow(self, guide: Path) -> Iterator[tuple[str, str]]:
        """Yield what each block with an expected output should have printed, and what it did. Raises AssertionError."""
        self.environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{self.environment['PATH']}"
        printed = ""
        for block in blocks(guide):
            if block.title is not None:
                path = self.folder / block.title
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(block.text)
            elif block.language in ("sh", "python"):
                printed = self._run(block)
            elif block.language == "text":
                yield block.text, printed

    def _run(self, block: Block) -> str:
        words = [sys.executable, "-c", block.text]
        if block.language == "sh":
            words = ["bash", "-euo", "pipefail", "-c", f"{block.text}\nexport -p > {_ENVIRONMENT}\n"]
        done = subprocess.run(
            words,
            check=False,
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=MAX_S,
        )
        assert done.returncode == 0, f"{block.text}\nended with {done.returncode}:\n{done.stdout}"
        if (exported := self.folder / _ENVIRONMENT).is_file():
            self.environment |= _exported(exported.read_text())
        return done.stdout


def _exported(text: str) -> dict[str, str]:
    """The variables that `export -p` lists, of those that fit on a line."""
    return dict(re.findall(r'^declare -x (\w+)="([^"\\$`]*)"$', text, re.MULTILINE))


def agrees(expected: str, printed: str) -> bool:
    """Return whether a text is the expected one, ignoring line breaks and the width of columns.

    A figure after "≈" may differ by a tenth: how many iterations training takes depends on the processor.
    """
    wanted = " ".join(expected.split())
    pattern, figures, end = "", [], 0
    for found in _VARYING.finditer(wanted):
        pattern += re.escape(wanted[end : found.start()]) + (".*?" if found[0] == ANYTHING else f"({_FIGURE})")
        figures += [found[1]] if found[1] else []
        end = found.end()
    seen = re.fullmatch(pattern + re.escape(wanted[end:]), " ".join(printed.split()))
    return seen is not None and all(map(_close, figures, seen.groups()))


def _close(wanted: str, seen: str) -> bool:
    return abs(float(wanted) - float(seen)) <= 0.1 * float(wanted)
