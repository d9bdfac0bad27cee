"""Compiled templates of pages, kept where Python keeps compiled modules: compiling takes half of a report's time."""

from __future__ import annotations

import os
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

import jinja2
from jinja2.bccache import Bucket


class CompiledTemplates(jinja2.BytecodeCache):
    """A file for each template, which jinja2 compares with its source and with its own version.

    Parameters
    ----------
    folder : Path
        Of the files. Nothing is kept if it cannot be written, or if Python keeps no compiled modules.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def load_bytecode(self, bucket: Bucket) -> None:
        """Read a template if it is there; it stays empty if the file is damaged, or of another version or source."""
        try:
            with self._path(bucket).open("rb") as file:
                bucket.load_bytecode(file)
        except Exception:  # noqa: BLE001 - unpickling damaged bytes may raise any exception
            bucket.reset()

    def dump_bytecode(self, bucket: Bucket) -> None:
        """Write a template, whole or not at all."""
        if sys.dont_write_bytecode:
            return
        with suppress(OSError):
            self._folder.mkdir(exist_ok=True)
            with tempfile.NamedTemporaryFile("wb", dir=self._folder, delete=False) as file:
                try:
                    bucket.write_bytecode(file)
                    file.flush()
                    os.replace(file.name, self._path(bucket))  # noqa: PTH105 - a name, not a path
                except BaseException:
                    os.unlink(file.name)  # noqa: PTH108 - a name, not a path
                    raise

    def _path(self, bucket: Bucket) -> Path:
        return self._folder / f"{bucket.key}.template"
