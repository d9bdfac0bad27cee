"""The remarks that have a line of their own in a result."""

from __future__ import annotations

from dataclasses import dataclass

from fedsvm.algorithms.data.statistics import NoisyStatistics


@dataclass(frozen=True)
class Remark:
    """A line of the summary that only some kinds of models have: its name and its sentence."""

    name: str
    sentence: str


def opened_exactly(statistics: NoisyStatistics | None, what: str) -> tuple[Remark, ...]:
    """Return the remark on exact sums of a run that takes noisy statistics; none of a run that takes exact ones.

    Parameters
    ----------
    statistics : NoisyStatistics, optional
    what : str
        The content of the sums.
    """
    sentence = f"{what}; the noise of data.statistics_privacy does not cover these sums"
    return () if statistics is None else (Remark("exact sums", sentence),)
