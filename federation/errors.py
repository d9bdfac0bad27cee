"""The errors a user can meet: one sentence each, naming the site, the round and the way out.

Errors that end a round are of two families, which decide what follows:

    Transient   a connection broke, or a peer is late: the round is aborted and runs again
    Fatal       running it again cannot help: the run ends at once, with exit status 3

A `FederationError` of neither family does not come from a round: the request cannot be fulfilled, and the run ends.

`MembershipChanged` is for algorithms. `RoundAborted`, `SiteStopped`, `Malformed` and `DeadlineExpired` are signals
between the parts of this floor and never reach a user.
"""

from __future__ import annotations

from collections.abc import Mapping

SEE_SITE = "see the site's own output"
"""The end of an error message for other parties, if the text of the error stays at the site."""


class FederationError(Exception):
    """A run, or a round of it, cannot continue. The message is for the user."""


class Transient(FederationError):
    """The network failed, not the code: the round may run again. Users never see it, see `RoundFailed`."""


class Fatal(FederationError):
    """Running a round again would end the same way, so the run ends."""


class PeerDropped(Transient):
    """A peer cannot be reached: its process ended, its connection broke, or too few peers are left."""


class PeerLate(Transient):
    """A peer did not send in time."""


class ProtocolError(Fatal):
    """A party sent an array of another shape or type than its protocol has in this place.

    The protocol's code is wrong at one of the two ends. `sender` and `receiver` are parties; `expected` and `got`
    describe the expected and the received array.
    """

    def __init__(self, sender: str, receiver: str, expected: str, got: str) -> None:
        super().__init__(f"{sender} sent {got} to {receiver}; it must be {expected}")
        self.sender = sender
        self.receiver = receiver
        self.expected = expected
        self.got = got


class LaunchError(Fatal):
    """The processes of a run could not be started."""


class EndpointError(Fatal):
    """A socket, or for lack of descriptors a file, could not be opened."""


class SiteFailed(Fatal):
    """A step or a protocol raised at a party; `remote_traceback` is the party's own."""

    def __init__(self, site: str, round_label: str, reason: str, remote_traceback: str = "") -> None:
        super().__init__(f"{site} failed in {round_label}: {reason}")
        self.site = site
        self.reason = reason
        self.remote_traceback = remote_traceback


class SitesDropped(Fatal):
    """Sites dropped, and the others cannot or must not continue. `dropped` has the reason by site."""

    def __init__(self, dropped: Mapping[str, str], round_label: str, consequence: str) -> None:
        who = "; ".join(f"{site} dropped in {round_label}: {why}" for site, why in dropped.items())
        super().__init__(f"{who}. {consequence}")
        self.dropped = dict(dropped)


class RoundFailed(Fatal):
    """A round was aborted repeatedly although every site answered; `waiting` has the peer that each site last waited
    for."""

    def __init__(self, round_label: str, times: int, waiting: Mapping[str, str]) -> None:
        who = ", ".join(f"{site} for {peer}" for site, peer in waiting.items()) or "no site for another"
        super().__init__(
            f"{round_label} was aborted, and {times} times in a row, though every site answers the coordinator. "
            f"Waiting were {who}: look at the connections between them, raise federation.round_timeout_s, or where "
            'sites cannot reach each other set protocol.routing = "via-coordinator".'
        )
        self.waiting = dict(waiting)


class StepRefused(Fatal):
    """A site refuses to carry out a step on its data; the message has the reason, and no traceback is needed.

    The message is for the site's own operator and may quote its data. `shared` is the text for other parties and for
    the receipt: by default the message.
    """

    def __init__(self, message: str, shared: str = "") -> None:
        super().__init__(message)
        self.shared = shared or message


class OrderRefused(StepRefused):
    """A site's own configuration forbids what an order or a roster asks for; nothing of it was carried out."""

    def __init__(self, why: str, shared: str = "") -> None:
        super().__init__(f"it refuses the order: {why}", f"it refuses the order: {shared or why}")


class OrdersDiffer(StepRefused):
    """Two sites of a round did not receive the same orders, now or before."""

    def __init__(self, me: str, peer: str) -> None:
        super().__init__(
            f"{me} and {peer} received different orders from the coordinator, in this round or before it; {me} passes "
            f"nothing on. Compare the orders of {me} and {peer}"
        )


class BoundExceeded(StepRefused):
    """A value does not fit the bound that was declared for its sum."""


class MembershipChanged(Exception):
    """Sites dropped or joined during a stage whose rounds depend on each other: the stage must start again."""


class RoundAborted(Exception):
    """The coordinator aborted the running round, or a later one."""

    def __init__(self, round_number: int = 0) -> None:
        super().__init__()
        self.round = round_number


class SiteStopped(Exception):
    """The coordinator stopped this site, or is lost.

    `failure` is the reason why the run failed, empty if it did not; `resumable` is true if it may be resumed.
    """

    def __init__(self, failure: str = "", *, resumable: bool = False) -> None:
        super().__init__()
        self.failure = failure
        self.resumable = resumable


class Malformed(Exception):
    """A message that violates the wire format, or a control message that violates its own format."""


class DeadlineExpired(Exception):
    """A deadline passed."""


class NothingDue(BaseException):
    """No stored message is left to process, and the party needs one that has not arrived.

    It is not an `Exception`, since no step, algorithm or round may handle it. The party ends, and runs again when more
    messages have arrived.
    """
