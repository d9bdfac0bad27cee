"""Several executions of one protocol side by side, which share their messages.

A protocol is a generator that yields each `Send` and `Receive` in order; a `Receive` returns the array. All executions
take the same steps with arrays of equal shapes, so k executions of a step cost one message instead of k.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from fedsvm.federation.channel.interface import Channel

T = TypeVar("T")


@dataclass(frozen=True)
class Send:
    """A step that sends an array (rows, columns) to a peer."""

    peer: str
    array: NDArray[Any]


@dataclass(frozen=True)
class Receive:
    """A step that receives an array of a shape (rows, columns) from a peer."""

    peer: str
    shape: tuple[int, int]
    dtype: Any = np.uint64


Steps = Generator[Send | Receive, Any, T]
"""A protocol that returns T."""


def side_by_side(channel: Channel, executions: Sequence[Steps[T]]) -> list[T]:
    """Run a party's part in all executions. The arrays of a message are joined along their rows.

    Parameters
    ----------
    channel : Channel
    executions : sequence of generator
        At least one, all with the same steps, peers and shapes.

    Returns
    -------
    list
        The value that each execution returns.
    """
    values: list[T] = []
    arrived: Sequence[Any] = [None] * len(executions)
    while True:
        steps = []
        for execution, array in zip(executions, arrived, strict=True):
            try:
                steps.append(execution.send(array))
            except StopIteration as end:
                values.append(end.value)
        if values:
            return values
        arrived = _take(channel, steps)


def _take(channel: Channel, steps: Sequence[Send | Receive]) -> Sequence[Any]:
    """Take the same step of all executions, and return the array that each receives, or None for each."""
    step, count = steps[0], len(steps)
    if isinstance(step, Receive):
        rows, columns = step.shape
        return np.split(channel.receive(step.peer, (count * rows, columns), step.dtype), count)
    arrays = [each.array for each in steps if isinstance(each, Send)]
    channel.send(step.peer, arrays[0] if count == 1 else np.concatenate(arrays))
    return [None] * count
