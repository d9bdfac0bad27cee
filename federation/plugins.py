"""Registries of the extensions that other packages offer by entry points, which are loaded on first use."""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from fedsvm.federation.errors import FederationError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

T = TypeVar("T")


class Registry(Mapping[str, T], Generic[T]):
    """The entries of one kind: our own, and those that other packages offer by entry points of a group.

    Another package cannot replace an entry of ours.

    Parameters
    ----------
    group : str
        The group of the entry points, such as "fedsvm.sums".
    kind : str
        The kind of entry in a word, for errors, such as "sum".
    own : mapping of str to callable
        Makes each of our own entries, by name.
    accept : callable
        Returns the entry for an object that another package offers, given the object and its name; None if the object
        is of another kind or has another name. If it raises, the object cannot be loaded for this reason.
    """

    def __init__(
        self, group: str, kind: str, own: Mapping[str, Callable[[], T]], accept: Callable[[Any, str], T | None]
    ) -> None:
        self._group = group
        self._kind = kind
        self._own = own
        self._accept = accept

    def __getitem__(self, name: str) -> T:
        """Return the entry of this name. Raises KeyError if there is none, FederationError if it cannot be loaded."""
        if name in self._own:
            return self._own[name]()
        return self._load(self._offers[name])

    def __contains__(self, name: object) -> bool:
        return name in self._own or name in self._offers

    def loadable(self) -> Iterator[tuple[str, T]]:
        """Yield the names and entries that can be loaded. Skip broken packages: hints list the others."""
        for name in self:
            with suppress(FederationError):
                yield name, self[name]

    def __iter__(self) -> Iterator[str]:
        return iter([*self._own, *self._offers])

    def __len__(self) -> int:
        return len(self._own) + len(self._offers)

    @functools.cached_property
    def _offers(self) -> dict[str, list[EntryPoint]]:
        from importlib.metadata import entry_points  # most sites never need it, and its imports take memory

        points: dict[str, list[EntryPoint]] = defaultdict(list)
        for point in entry_points(group=self._group):
            if point.name not in self._own:
                points[point.name].append(point)
        return dict(points)

    def _load(self, points: list[EntryPoint]) -> T:
        name, places = points[0].name, ", ".join(point.value for point in points)
        if len(points) > 1:
            raise FederationError(f"Several packages offer the {self._kind} {name!r} ({places}); remove all but one.")
        try:
            accepted = self._accept(points[0].load(), name)
        except Exception as error:
            raise FederationError(
                f"The {self._kind} {name!r} of {places} cannot be loaded: {type(error).__name__}: {error}."
            ) from error
        if accepted is None:
            raise FederationError(
                f"{places} is no {self._kind} of the name {name!r}; make its entry point and its name agree."
            )
        return accepted
