"""A description of the columns of sites on other hosts."""

from __future__ import annotations

import secrets
from collections.abc import Callable

from fedsvm.algorithms.column_description import ColumnDescription
from fedsvm.federation.hosts.invitations import Invitations
from fedsvm.federation.hosts.listening_endpoint import ListeningEndpoint
from fedsvm.federation.hosts.registration import Quorum, SiteRegistration
from fedsvm.federation.hosts.remote_federation import RemoteSites, open_remote_federation
from fedsvm.federation.membership import DropoutPolicy
from fedsvm.federation.site.signed import OrderSigner
from fedsvm.federation.transport.deadline import Deadline
from fedsvm.federation.transport.wire import RUN_ID_BYTES
from fedsvm.scenarios import description
from fedsvm.scenarios.hosts.coordination import JoinAddress
from fedsvm.scenarios.hosts.sources import RowsAtHosts
from fedsvm.scenarios.schema.spec import Scenario


def describe(
    scenario: Scenario,
    meeting: JoinAddress,
    endpoint: ListeningEndpoint,
    tell: Callable[[str], None],
    *,
    min_sites_chosen: bool,
    version: str,
) -> ColumnDescription:
    """Wait for the sites of a scenario, and describe their columns.

    Parameters
    ----------
    scenario : Scenario
        One that `description.describable` returned.
    meeting : JoinAddress
        Where sites connect.
    endpoint : ListeningEndpoint
    tell : callable
        Receives sentences on who joins and who is refused.
    min_sites_chosen : bool
        See `Quorum`.
    version : str
        Of this installation.

    Raises
    ------
    FederationError
        Too few sites joined, or one failed or refused.
    """
    rows, run = RowsAtHosts(scenario), secrets.token_bytes(RUN_ID_BYTES)
    terms = description.terms_to_describe(scenario)
    registration = SiteRegistration(Invitations(endpoint, run, terms, version, tell))
    quorum = Quorum(scenario.min_sites, scenario.protocol.min_sites(len(meeting.admitted)), min_sites_chosen)
    joined = registration.wait(Deadline(meeting.wait_s), quorum, meeting.wait_text).joined
    rows.describe(joined)
    sites = RemoteSites(endpoint, [each.party.name for each in joined])
    policy = DropoutPolicy(scenario.min_sites, scenario.federation.on_dropout)
    timeout_s = scenario.federation.round_timeout_s
    signing, names = meeting.certificate.signing, tuple(each.party.name for each in joined)
    signer = None if signing is None else OrderSigner(signing, run, names, terms)
    secure_sum = scenario.protocol.secure_sum
    with open_remote_federation(
        endpoint, sites, joined, run, secure_sum, timeout_s, policy, signer=signer
    ) as federation:
        federation.assemble()
        return description.over(federation, scenario, rows.schema, rows.classes)
