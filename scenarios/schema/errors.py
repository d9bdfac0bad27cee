"""The errors of a scenario or its data: all at once, each in a sentence that says what to change."""

from __future__ import annotations

import difflib
import itertools
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Self

_MAX_COMPARED, _MAX_KNOWN = 100, 10_000
"""Letters of a word, and words, that are looked at for a likeness, which takes time."""


class ScenarioError(Exception):
    """A scenario cannot be run as it is. Nothing was started. `problems` are sentences."""

    def __init__(self, problems: Iterable[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(self.problems))


class QuotingProblem(str):
    """A sentence that quotes the rows of a site, for the owner of the rows.

    Parameters
    ----------
    sentence : str
        The sentence, which may name values, numbers of rows and places in a file.
    shared : str
        A sentence without these for everybody else: the key, the column, and the kind of problem.
    """

    shared: str

    def __new__(cls, sentence: str, shared: str) -> Self:
        """Return the sentence with what may be shared of it."""
        made = super().__new__(cls, sentence)
        made.shared = shared
        return made


def shared_problem(problem: str) -> str:
    """Return what others may read of a problem with a site's data: of an unmarked one the key alone."""
    if isinstance(problem, QuotingProblem):
        return problem.shared
    key, colon, _ = problem.partition(":")
    return f"{key if colon and ' ' not in key else 'data'}: the file of the site cannot be used"


@contextmanager
def collect_problems(problems: list[str]) -> Iterator[None]:
    """Add what is wrong to `problems` instead of raising it, so that all of it is reported at once."""
    try:
        yield
    except ScenarioError as error:
        problems += error.problems


def nearest(word: str, known: Iterable[str]) -> str:
    """Return a hint for a misspelled word: " Did you mean …?", or nothing."""
    close = difflib.get_close_matches(word[:_MAX_COMPARED], list(itertools.islice(known, _MAX_KNOWN)), n=1)
    return f" Did you mean {close[0]!r}?" if close else ""
