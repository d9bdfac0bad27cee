"""The secure sums of this installation, by the name a scenario calls them, and what they can be told.

Another package adds its own by an entry point of the group `fedsvm.sums` whose name is the sum's and whose object is a
`SecureSum`. It must be installed wherever a site runs: a coordinator names a sum, and cannot send one. The names of
ours stay ours.
"""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from federation.errors import FederationError
from protocols.sums.changing_neighbours import changing_neighbours
from protocols.sums.contract import SecureSum
from protocols.sums.k_secure import k_secure
from protocols.sums.masked import masked
from protocols.sums.plain import PLAIN
from protocols.sums.ring import RING

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "fedsvm.sums"

OWN_SUMS: Mapping[str, Callable[..., SecureSum]] = MappingProxyType(
    {
        "plain": lambda: PLAIN,
        "ring": lambda: RING,
        "k-secure": k_secure,
        "changing-neighbours": changing_neighbours,
        "masked": masked,
    }
)
"""The sums of this project: each is called with the options that a scenario sets, `segments` of k-secure, `rings` of
changing-neighbours, `threshold` of masked."""


class _Sums(Mapping[str, Callable[..., SecureSum]]):
    """Ours, and those of other packages, which are looked for when they are asked for: most sites never do."""

    @functools.cached_property
    def _offered(self) -> dict[str, Callable[..., SecureSum]]:
        """They have no options, and are loaded when they are used."""
        from importlib.metadata import entry_points  # noqa: PLC0415 - sites would carry what it imports

        points_of: dict[str, list[EntryPoint]] = defaultdict(list)
        for point in entry_points(group=GROUP):
            points_of[point.name].append(point)
        return {name: functools.partial(_loaded, points) for name, points in points_of.items() if name not in OWN_SUMS}

    def __getitem__(self, name: str) -> Callable[..., SecureSum]:
        return OWN_SUMS[name] if name in OWN_SUMS else self._offered[name]

    def __iter__(self) -> Iterator[str]:
        return iter([*OWN_SUMS, *self._offered])

    def __len__(self) -> int:
        return len(OWN_SUMS) + len(self._offered)


def _loaded(points: list[EntryPoint]) -> SecureSum:
    """The sum that an entry point names. Raises FederationError for anything else."""
    if len(points) > 1:
        raise FederationError(
            f"Several packages offer a sum {points[0].name!r} ({', '.join(each.value for each in points)}); remove all "
            "but one."
        )
    (point,) = points
    try:
        offered = point.load()
    except Exception as error:
        raise FederationError(
            f"The sum {point.name!r} of {point.value} cannot be loaded: {type(error).__name__}: {error}."
        ) from error
    if not isinstance(offered, SecureSum) or offered.name != point.name:
        raise FederationError(
            f"{point.value} is no SecureSum of the name {point.name!r}; see that its entry point and its name agree."
        )
    return offered


SUMS: Mapping[str, Callable[..., SecureSum]] = _Sums()
"""All sums by name, ours first. One of another package raises FederationError when it is called and cannot be had."""
