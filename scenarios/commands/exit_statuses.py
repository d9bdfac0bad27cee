"""Exit statuses of the command line, and errors that end a command with a sentence and a status."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import typer

from fedsvm.federation.errors import FederationError
from fedsvm.scenarios.console import complain

WRONG, FAILED, INTERRUPTED = 2, 3, 130


@contextmanager
def failing() -> Iterator[None]:
    """End the command with status 3 and the sentence of a FederationError that is raised within."""
    try:
        yield
    except FederationError as error:
        complain(str(error))
        raise typer.Exit(FAILED) from None


@contextmanager
def interrupted_as(sentence: str) -> Iterator[None]:
    """End the command with status 130 and this sentence if it is interrupted within."""
    try:
        yield
    except KeyboardInterrupt:
        complain(sentence)
        raise typer.Exit(INTERRUPTED) from None
