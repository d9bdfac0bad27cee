"""Files that only the site's owner may read."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import IO


def replace_private(path: str, write: Callable[[IO[bytes]], None]) -> None:
    """Write a file that only its owner may read, and replace an earlier one atomically.

    Parameters
    ----------
    path : str
        The file, in a folder that exists.
    write : callable
        Writes the content, given the open file.

    Raises
    ------
    OSError
        The file cannot be written.
    """
    partial = f"{path}.partial"
    with os.fdopen(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        write(file)
    os.replace(partial, path)  # noqa: PTH105 - pathlib takes a quarter of a megabyte in every site
