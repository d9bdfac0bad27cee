"""The assignment of a site process: the parameters that its launcher sends it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from fedsvm.federation.site.site_policy import SitePolicy
from fedsvm.federation.transport.keys import COORDINATOR, Party

MAX_SILENCE_S = 3600.0
"""Default maximum time without an order of the coordinator."""


@dataclass(frozen=True)
class Assignment:
    """The parameters of a site process, as plain values, because they cross a process boundary.

    Parameters
    ----------
    name : str
        The name of the site.
    run : bytes
        The run's 8 random bytes.
    listen : str
        Address to listen on.
    peers : int
        Maximum number of parties that it communicates with.
    encrypted : bool
        Whether sockets use CURVE.
    coordinator_address, coordinator_key : str, bytes or None
        The address and public key of the coordinator, the only party that the site knows at the start.
    coordinator_signing_key : bytes, optional
        The key with which the coordinator signs its orders; None if it signs none.
    program : str
        The program of its installation that it runs.
    partition_path : str
        The file of its partition, which it removes after reading; "" if it receives the partition itself.
    policy : SitePolicy
        Its policy, which the coordinator cannot change.
    settings : dict, default {}
        The settings of the program.
    faults : list of dict, default []
        Faults that this site inflicts on itself, see `faults`.
    transcript_path : str, default ""
        The file of its transcript, see `transcript`; empty in a run without an audit.
    colludes : bool, default False
        Whether the transcript has all messages, not only the inputs.
    needs_pairwise_keys : bool, default False
        Whether it makes a key pair for shared secrets.
    via_coordinator : bool, default False
        Whether its messages to other sites go through the coordinator, sealed.
    journal_path : str, default ""
        The file of its journal, see `site_journal`; empty for none.
    receipt_path : str, default ""
        The file of its receipt, see `receipt`; empty for none.
    version : str, default ""
        The version of the installation, for the receipt.
    journal_until : int, default 0
        The last round of the coordinator's journal; the site ignores later rounds of its own journal.
    journal_has : int, default 0
        The last round with this site in the coordinator's journal; the site's own journal must have it.
    patience_s : float
        Seconds without an order after which the coordinator counts as lost.
    resume_s : float, default 0.0
        Seconds that the site waits for a failed run to be resumed.
    log_level : {"debug", "info", "warning", "error", "none"}, default "warning"
        The minimum level of log records that the coordinator receives, see `logs`.
    shares_errors : bool, default True
        Whether the coordinator receives the text and the traceback of a step's exception, as on one machine. Otherwise
        it receives only text without values, and the site prints the rest.
    """

    name: str
    run: bytes
    listen: str
    peers: int
    encrypted: bool
    coordinator_address: str
    coordinator_key: bytes | None
    program: str
    partition_path: str
    policy: SitePolicy
    settings: dict[str, Any] = field(default_factory=dict)
    faults: list[dict[str, Any]] = field(default_factory=list)
    transcript_path: str = ""
    colludes: bool = False
    needs_pairwise_keys: bool = False
    via_coordinator: bool = False
    journal_path: str = ""
    receipt_path: str = ""
    version: str = ""
    journal_until: int = 0
    journal_has: int = 0
    patience_s: float = MAX_SILENCE_S
    resume_s: float = 0.0
    log_level: str = "warning"
    coordinator_signing_key: bytes | None = None
    shares_errors: bool = True

    def to_fields(self, policy: int) -> dict[str, Any]:
        """Return plain values for the launcher's pipe, with the number of the policy, which is sent separately."""
        return {**vars(self), "policy": policy}

    @classmethod
    def from_fields(cls, fields: Mapping[str, Any], policies: Sequence[SitePolicy]) -> Self:
        """Return an assignment from the fields that came through the pipe."""
        return cls(**{**fields, "policy": policies[fields["policy"]]})

    @property
    def coordinator(self) -> Party:
        return Party(COORDINATOR, self.coordinator_address, self.coordinator_key)
