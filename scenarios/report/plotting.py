"""Figures as vector graphics, without a display, a window or words on standard error."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@contextmanager
def plain_text() -> Iterator[None]:
    """Text in figures is what it is: between dollar signs there is no formula to be set."""
    import matplotlib as mpl  # slow to import

    with mpl.rc_context({"text.parse_math": False}):
        yield


def new_figure(width: float, height: float, layout: Literal["constrained"] | None = "constrained") -> Figure:
    """An empty figure of this size in inches; `savefig` with a name that ends in .svg, or format="svg".

    layout: None leaves margins to the caller, and is drawn in half the time.
    """
    logging.getLogger("matplotlib").setLevel(logging.ERROR)  # its font cache is nobody's business
    from matplotlib.figure import Figure  # slow to import

    return Figure(figsize=(width, height), layout=layout)
