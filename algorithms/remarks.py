"""The remarks that have a line of their own in a result."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Remark:
    """A line of the summary that only some kinds of models have: its name and its sentence."""

    name: str
    sentence: str
