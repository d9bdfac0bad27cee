"""The start of a site process: its keys, its sockets, and its report to the launcher."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from fedsvm.federation.channel.agreement import KeyAgreement
from fedsvm.federation.site.assignment import Assignment
from fedsvm.federation.site.faults import OwnFaults
from fedsvm.federation.site.program import Installation
from fedsvm.federation.site.site import Site
from fedsvm.federation.transport.descriptors import descriptors_explained
from fedsvm.federation.transport.endpoint import Endpoint
from fedsvm.federation.transport.keys import KeyPair, Party, Roster


def run_site(
    assignment: Assignment, installation: Installation, report: Callable[[dict[str, Any]], None], lifeline: int
) -> None:
    """Run one site: open the endpoint, report in, and carry out orders until the run is over.

    Parameters
    ----------
    assignment : Assignment
    installation : Installation
    report : callable
        Sends the launcher a report: first the site's address, key and process, later each fault that it inflicts on
        itself.
    lifeline : int
        A descriptor that becomes readable when the launcher has ended.

    Raises
    ------
    EndpointError
        The site cannot listen on its address.
    """
    keys = KeyPair.generate() if assignment.encrypted else None
    with (
        descriptors_explained(assignment.name),
        Endpoint(assignment.name, assignment.listen, keys, assignment.peers) as endpoint,
    ):
        endpoint.watch(lifeline, lambda: os._exit(1))  # the launcher has ended
        keyed = assignment.needs_pairwise_keys or assignment.via_coordinator
        agreement = KeyAgreement(assignment.run) if keyed else None
        public = agreement.public if agreement is not None else None
        me = Party(assignment.name, endpoint.address, keys.public if keys else None, public)
        endpoint.admit(Roster([assignment.coordinator, me]))
        report({"party": me, "pid": os.getpid()})
        Site(assignment, installation, endpoint, agreement, OwnFaults(assignment.faults, report)).serve()
