"""The interface of a kind of fault. Each is one module of `kinds`, found by its name in scenarios."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cache
from signal import Signals
from typing import Any, ClassVar

from fedsvm.federation.faults import kinds


@dataclass(frozen=True)
class FaultKey:
    """A key that a kind adds to the faults of a scenario.

    Parameters
    ----------
    name : str
    annotation : type
        Its type, with bounds of `annotated_types`.
    default : object
    sentence : str
        Its meaning.
    missing : str, default ""
        For a required key: the noun phrase by which an error names it.
    """

    name: str
    annotation: Any
    default: Any
    sentence: str
    missing: str = ""


class FaultKind:
    """A kind of fault.

    Attributes
    ----------
    name : str
        The value of `kind` in a scenario.
    sentence : str
        Its description.
    keys : frozenset of str
        The shared keys that apply to it: site, message, for_s, direction, groups.
    own_keys : tuple of FaultKey
        The keys that it adds.
    """

    name: ClassVar[str]
    sentence: ClassVar[str]
    keys: ClassVar[frozenset[str]]
    own_keys: ClassVar[tuple[FaultKey, ...]] = ()


class SiteFault(FaultKind):
    """A kind of fault that a site inflicts on itself by a signal.

    Attributes
    ----------
    signal : Signals
        The signal to its own process.
    ends_process : bool
        True if the process is over. Otherwise it continues after `for_s` seconds; without `for_s`, never.
    """

    signal: ClassVar[Signals]
    ends_process: ClassVar[bool] = False

    @classmethod
    def restarts(cls, terms: Mapping[str, Any]) -> bool:
        """Return whether the site is started again. terms: values of the own keys."""
        return False


class LinkFault(FaultKind):
    """A kind of fault on links. An instance, in the relay process, is one such fault with the counts of its effects.

    Parameters
    ----------
    **terms
        Values of the own keys.

    Attributes
    ----------
    holds : bool
        True if bytes on these links wait until the fault is over.
    resets_connections : bool
        True if connections that use these links are reset, and new ones too.
    needs_encryption : bool
        True if only encryption detects it.
    """

    holds: ClassVar[bool] = False
    resets_connections: ClassVar[bool] = False
    needs_encryption: ClassVar[bool] = False

    def __init__(self, **terms: Any) -> None:
        self.terms = terms
        self.held_bytes = 0
        self.resets = 0
        self.delayed_bytes = 0
        self.corrupted_bytes = 0
        self.healed = False

    def begin(self, links: Collection[object]) -> None:
        """Prepare for these links."""

    def extra_ms(self, size: int) -> float:
        """Return the milliseconds that are added to the latency of some bytes."""
        return 0.0

    def change(self, link: object, data: bytes) -> bytes:
        """Return a chunk as the fault changes it."""
        return data

    def is_spent(self, link: object) -> bool:
        """Return whether the fault is over on a link."""
        return False

    def outcome(self) -> dict[str, Any]:
        """Return the effects of the fault so far, as counts by name."""
        names = ("held_bytes", "resets", "delayed_bytes", "corrupted_bytes", "healed")
        return {name: getattr(self, name) for name in names}


@cache
def find_kinds() -> dict[str, type[FaultKind]]:
    """Return the kind of each module of `kinds`, by its name in scenarios."""
    names = [module.name for module in pkgutil.iter_modules(kinds.__path__)]
    found: list[type[FaultKind]] = [importlib.import_module(f"{kinds.__name__}.{name}").KIND for name in names]
    return {kind.name: kind for kind in found}


def site_fault(name: str) -> type[SiteFault] | None:
    """Return the kind of this name if a site inflicts it on itself, otherwise None."""
    kind = find_kinds()[name]
    return kind if issubclass(kind, SiteFault) else None


def link_fault(name: str) -> type[LinkFault] | None:
    """Return the kind of this name if it acts on links, otherwise None."""
    kind = find_kinds()[name]
    return kind if issubclass(kind, LinkFault) else None
