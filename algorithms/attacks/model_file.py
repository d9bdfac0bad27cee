"""The view of somebody who has the file of a model and nothing else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from fedsvm.algorithms.attacks.class_means import CLASSES
from fedsvm.protocols.analysis.views import Coalition, RoundView, RunView


def file_view(arrays: Mapping[str, Any]) -> RunView:
    """Return the arrays of a file as the parameters that sites were sent, where attacks look for them."""
    if "offset" not in arrays or "scale" not in arrays:
        return RunView(Coalition((), coordinator=False), ())
    sent: list[tuple[str, Mapping[str, Any]]] = [
        ("encode", {"values": _categories([str(name) for name in arrays["columns"]])}),
        ("rescale", {name: arrays[name] for name in ("offset", "scale", "window") if name in arrays}),
    ]
    if "features" in arrays:
        sent.append(("receive_map", arrays))
    if "means" in arrays:
        sent.append((CLASSES, arrays))
    rounds = [RoundView(number, step, told, {}) for number, (step, told) in enumerate(sent, start=1)]
    return RunView(Coalition((), coordinator=False), tuple(rounds))


def _categories(columns: Sequence[str]) -> list[list[str]]:
    """Return the values of each categorical column, from the names of its 0/1 columns: "column=value"."""
    pairs = [name.split("=", 1) for name in columns if "=" in name]
    return [[value for _, value in group] for _, group in groupby(pairs, key=lambda pair: pair[0])]
