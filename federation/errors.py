"""The errors a user can meet: one sentence each, naming the site, the round and the way out.

`FederationError` ends a run (exit status 3). `RoundAborted`, `Stopped` and `Malformed` are signals between the
parts of this floor and never reach a user.
"""

from __future__ import annotations


class FederationError(Exception):
    """A run cannot go on. The message is what the user reads."""


class LaunchError(FederationError):
    """The processes of a run could not be started."""


class EndpointError(FederationError):
    """A socket could not be opened, or a peer could not be reached."""


class SiteFailed(FederationError):
    """A step or a protocol raised at a site; `remote_traceback` is the site's own. `cut_off`: it could not reach,
    or did not hear from, another, so the cause may lie elsewhere."""

    def __init__(
        self, site: str, round_label: str, reason: str, remote_traceback: str = "", *, cut_off: bool = False
    ) -> None:
        super().__init__(f"{site} failed in {round_label}: {reason}")
        self.cut_off = cut_off
        self.site = site
        self.reason = reason
        self.remote_traceback = remote_traceback


class SiteLost(FederationError):
    """The process of a site ended while it was needed."""

    def __init__(self, site: str, how: str, round_label: str) -> None:
        super().__init__(f"{site} was lost in {round_label}: its process {how}.")
        self.site = site


class RoundTimeout(FederationError):
    """A round did not end within its deadline; `waiting` are the sites that stayed silent."""

    def __init__(self, round_label: str, timeout_s: float, waiting: tuple[str, ...]) -> None:
        who = ", ".join(waiting) if waiting else "every site answered when asked, but the sum never arrived"
        super().__init__(
            f"{round_label} did not end within {timeout_s:g} s; silent: {who}. "
            "Raise federation.round_timeout_s if the sites need longer."
        )
        self.waiting = waiting


class StepRefused(FederationError):
    """A site will not carry out a step on its data; the message says why, and no traceback is needed."""


class BoundExceeded(StepRefused):
    """A value does not fit the bound that was declared for its sum."""


class RoundAborted(Exception):
    """The coordinator called the running round off."""


class Stopped(Exception):
    """The coordinator told this site to stop, or is gone."""


class Malformed(Exception):
    """A message that does not keep the wire format; it is refused and counted."""


class DeadlineExpired(Exception):
    """What was waited for did not come in time."""
