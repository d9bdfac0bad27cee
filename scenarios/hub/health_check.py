"""Checks a running hub."""

from __future__ import annotations

import urllib.error
import urllib.request

from fedsvm.federation.errors import FederationError

_TIMEOUT_S = 10.0


def require_health(url: str) -> None:
    """Check that a hub answers and can use its database.

    Parameters
    ----------
    url : str
        The address of the hub.

    Raises
    ------
    FederationError
        If it does not answer, or answers another status than 200.
    """
    try:
        with urllib.request.urlopen(f"{url.rstrip('/')}/health", timeout=_TIMEOUT_S):  # noqa: S310 - the operator's own address
            return
    except urllib.error.HTTPError as error:
        raise FederationError(f"The hub at {url} answers with status {error.code}; see its log.") from error
    except (OSError, ValueError) as error:
        raise FederationError(
            f"The hub at {url} cannot be reached ({error}); start it, or correct the address."
        ) from error
