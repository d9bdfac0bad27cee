"""File descriptors: how many a process may have, and what to tell its user if they are too few."""

from __future__ import annotations

import errno
import sys
from types import TracebackType

from fedsvm.federation.errors import EndpointError

_MAX_DESCRIPTORS = 1 << 16
"""Maximum number that a process asks for if it needs no more: strangers take some until they are known as such."""
_NO_DESCRIPTORS = (errno.EMFILE, errno.ENFILE)


def raise_descriptor_limit(needed: int) -> None:
    """Allow this process to open `needed` files, and more if possible, since strangers' connections use some.

    Raises EndpointError where the system's hard limit forbids it.
    """
    import resource  # a browser has no such module, and no such limit

    soft, hard = (sys.maxsize if each == resource.RLIM_INFINITY else each for each in _descriptor_limits())
    if hard < needed:
        raise EndpointError(
            f"This many sites need {needed} open files in one process and the system allows {hard}: "
            "raise the hard limit (ulimit -Hn) or run fewer sites."
        )
    if soft < (wanted := min(hard, max(needed, _MAX_DESCRIPTORS))):
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, _descriptor_limits()[1]))


class descriptors_explained:  # noqa: N801 - a context, written as one that is made of a generator
    """Say in words what it means that a file or a socket could not be opened for lack of descriptors.

    Raises EndpointError for that, and leaves other errors as they are. party: who this process is.
    """

    def __init__(self, party: str) -> None:
        self._party = party

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if getattr(error, "errno", None) in _NO_DESCRIPTORS:
            raise EndpointError(
                f"{self._party} has no file descriptor left, of {_descriptor_limits()[0]} that its process may have: "
                "raise the limit (ulimit -n), and see who else connects to its port."
            ) from error


def _descriptor_limits() -> tuple[int, int]:
    import resource

    return resource.getrlimit(resource.RLIMIT_NOFILE)
