"""The arrays of a model file, and what each is computed from."""

from __future__ import annotations

from typing import Any

from fedsvm.algorithms.origins import ArrayOrigin
from fedsvm.scenarios.report.section import Section

_TEMPLATE = """<p>What each array of model.npz is computed from.</p>
{{ grid(["array", "computed from", "mechanism", "digits"], rows, text=(0, 1, 2), wide=(2,), stack=true) }}"""


def _row(each: ArrayOrigin) -> list[Any]:
    return [each.array, each.computed_from, each.mechanism, "" if each.digits is None else each.digits]


SECTION = Section(
    place=150,
    id="arrays",
    title="Model file",
    content=lambda run: {
        "rows": [_row(each) for each in run.result.model_file.arrays] if run.result.model_file else []
    },
    template=_TEMPLATE,
)
