"""The reference of model.npz as a page: every array, from the docstrings of the methods that write them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator

from fedsvm.algorithms.calibration import Calibration
from fedsvm.algorithms.data.columns import Columns
from fedsvm.algorithms.dpp_svm.site import DppSite
from fedsvm.algorithms.features.feature_map import FeatureMap
from fedsvm.algorithms.features.fourier import FourierMap
from fedsvm.algorithms.features.identity import IdentityMap
from fedsvm.algorithms.features.kernels import Kernel
from fedsvm.algorithms.features.nystrom import NystromMap
from fedsvm.algorithms.registry import ALGORITHMS
from tools.docstrings import items_of, text_of
from tools.markdown import flat, table

SHARED: dict[str, Callable[..., object]] = {
    "Columns and scale": Columns.to_arrays,
    "Feature map": FeatureMap.to_arrays,
    "Feature map: landmarks": NystromMap.parts,
    "Feature map: fourier": FourierMap.parts,
    "Feature map: identity": IdentityMap.parts,
    "Kernel": Kernel.to_arrays,
    "Calibration": Calibration.to_arrays,
}
"""Parts that files of several algorithms have, by their titles on the page."""


def model_file_reference() -> str:
    """Return a section for each kind of model, and for each part that several have, as Markdown."""
    return "\n\n".join([*_models(), *_shared(), *_section("A site's own file of dpp-svm", DppSite._part)])


def _models() -> Iterator[str]:
    """Yield a section for each class of models, with the algorithms that write it."""
    names = defaultdict(list)
    for name, algorithm in ALGORITHMS.loadable():
        names[algorithm.Model.to_arrays].append(name)
    for to_arrays, algorithms in names.items():
        yield from _section(", ".join(algorithms), to_arrays)


def _shared() -> Iterator[str]:
    for title, writer in SHARED.items():
        yield from _section(title, writer)


def _section(title: str, writer: Callable[..., object]) -> Iterator[str]:
    yield f"## {title}"
    yield _noun(text_of(writer))
    yield table(
        ("array", "shape", "meaning"), [(f"`{item.name}`", item.kind, flat(item.meaning)) for item in items_of(writer)]
    )


def _noun(text: str) -> str:
    """Return what a method returns: "The arrays" for "Return the arrays"."""
    returned = text.removeprefix("Return ")
    return returned[:1].upper() + returned[1:]
