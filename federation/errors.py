"""The errors a user can meet: one sentence each, naming the site, the round and the way out.

`FederationError` ends a run (exit status 3). `MembershipChanged` is for algorithms; `RoundAborted`, `Stopped`,
`Malformed` and `DeadlineExpired` are signals between the parts of this floor and never reach a user.
"""

from __future__ import annotations

from collections.abc import Mapping


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


class SitesLost(FederationError):
    """Sites were lost, and the others cannot or must not go on. `lost` says why, by site."""

    def __init__(self, lost: Mapping[str, str], round_label: str, consequence: str) -> None:
        who = "; ".join(f"{site} was lost in {round_label}: {why}" for site, why in lost.items())
        super().__init__(f"{who}. {consequence}")
        self.lost = dict(lost)


class RoundFailed(FederationError):
    """A round was aborted again and again although every site answered; `waiting` says who waited for whom."""

    def __init__(self, round_label: str, times: int, waiting: Mapping[str, str]) -> None:
        who = ", ".join(f"{site} for {peer}" for site, peer in waiting.items() if peer) or "no site for another"
        super().__init__(
            f"{round_label} was aborted, and {times} times in a row, though every site answers the coordinator. "
            f"Waiting were {who}: look at the connections between them, or raise federation.round_timeout_s."
        )
        self.waiting = dict(waiting)


class MembershipChanged(Exception):
    """Sites left or joined during a stage whose rounds build on each other: the stage must begin anew."""


class StepRefused(FederationError):
    """A site will not carry out a step on its data; the message says why, and no traceback is needed."""


class BoundExceeded(StepRefused):
    """A value does not fit the bound that was declared for its sum."""


class RoundAborted(Exception):
    """The coordinator aborted the running round, or a later one."""

    def __init__(self, round_number: int = 0) -> None:
        super().__init__()
        self.round = round_number


class Stopped(Exception):
    """The coordinator told this site to stop, or is gone."""


class Malformed(Exception):
    """A message that does not keep the wire format; it is refused and counted."""


class DeadlineExpired(Exception):
    """What was waited for did not come in time."""
