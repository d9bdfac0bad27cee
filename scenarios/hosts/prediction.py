"""A request to sites on other hosts for decision values of new records."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import replace

from fedsvm.algorithms.column_prediction import Answer, Request, ask
from fedsvm.federation.hosts.invitations import Invitations
from fedsvm.federation.hosts.listening_endpoint import ListeningEndpoint
from fedsvm.federation.hosts.registration import Quorum, SiteRegistration
from fedsvm.federation.hosts.remote_federation import RemoteSites, open_remote_federation
from fedsvm.federation.membership import DropoutPolicy
from fedsvm.federation.site.signed import OrderSigner
from fedsvm.federation.text import quote_names
from fedsvm.federation.transport.deadline import Deadline
from fedsvm.federation.transport.wire import RUN_ID_BYTES
from fedsvm.scenarios.column_prediction import SplitModel
from fedsvm.scenarios.hosts.coordination import JoinAddress
from fedsvm.scenarios.schema.errors import ScenarioError


def meeting_of(model: SplitModel, meeting: JoinAddress) -> JoinAddress:
    """Return a meeting of the sites that have parts of a model. Raises ScenarioError if the key of one is missing."""
    if missing := [site for site in model.sites if site not in meeting.admitted]:
        raise ScenarioError(
            [f"--sites: must have the keys of all sites with a part of the model; add those of {quote_names(missing)}."]
        )
    return replace(meeting, admitted={site: meeting.admitted[site] for site in model.sites})


def predict(
    model: SplitModel,
    request: Request,
    meeting: JoinAddress,
    endpoint: ListeningEndpoint,
    tell: Callable[[str], None],
    *,
    version: str,
) -> Answer:
    """Wait for all sites of a model, and ask them for decision values of new records.

    Parameters
    ----------
    model : SplitModel
    request : Request
        One of this model.
    meeting : JoinAddress
        Of the model's sites, see `meeting_of`.
    endpoint : ListeningEndpoint
    tell : callable
        Receives sentences on who joins and who is refused.
    version : str
        Of this installation.

    Raises
    ------
    FederationError
        A site did not join, failed or refused, or they have no record in common.
    """
    run, terms = secrets.token_bytes(RUN_ID_BYTES), model.terms(request)
    registration = SiteRegistration(Invitations(endpoint, run, terms, version, tell), same_columns=False)
    needed, secure_sum = len(model.sites), model.scenario.protocol.secure_sum
    quorum = Quorum(needed, needed, is_chosen=True)
    joined = registration.wait(Deadline(meeting.wait_s), quorum, meeting.wait_text).joined
    names = tuple(each.party.name for each in joined)
    signing = meeting.certificate.signing
    with open_remote_federation(
        endpoint,
        RemoteSites(endpoint, names),
        joined,
        run,
        secure_sum,
        model.scenario.federation.round_timeout_s,
        DropoutPolicy(needed, "abort"),
        signer=None if signing is None else OrderSigner(signing, run, names, terms),
    ) as federation:
        federation.assemble()
        answer = ask(federation, request)
        for each in federation.disclosures:
            tell(f"{each.to} learned of {each.step!r}: {each.detail or each.kind}")
        return answer
