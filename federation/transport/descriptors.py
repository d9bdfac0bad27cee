"""File descriptors: the limit of a process, and the error if it is too low."""

from __future__ import annotations

import errno
import sys
from types import TracebackType

from fedsvm.federation.errors import EndpointError

_MAX_DESCRIPTORS = 1 << 16
"""Limit that a process sets even if it needs fewer: connections of strangers use some until they are refused."""
_NO_DESCRIPTORS = (errno.EMFILE, errno.ENFILE)


def raise_descriptor_limit(needed: int) -> None:
    """Allow this process to open `needed` files, and more if possible, since strangers' connections use some.

    Raises EndpointError if the system's hard limit is lower.
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
    """A context that raises EndpointError if a file or socket cannot be opened for lack of descriptors.

    Other errors pass unchanged. party: the name of this process, for the message.
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
                "raise the limit (ulimit -n), and check which other programs connect to its port."
            ) from error


def _descriptor_limits() -> tuple[int, int]:
    import resource

    return resource.getrlimit(resource.RLIMIT_NOFILE)
