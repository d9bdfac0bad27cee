"""A run over sites on other hosts: wait for them, train, and write down what a coordinator knows."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fedsvm.federation.errors import FederationError
from fedsvm.federation.federation import Federation, RunObserver
from fedsvm.federation.hosts.certificates import KeyCertificate
from fedsvm.federation.hosts.held_data import HeldColumn
from fedsvm.federation.hosts.listening_endpoint import ListeningEndpoint
from fedsvm.federation.hosts.registration import JoinedSite, Quorum, SiteRegistration
from fedsvm.federation.hosts.remote_federation import RemoteSites, end_rounds, open_remote_federation
from fedsvm.federation.lifecycle import is_resumable
from fedsvm.federation.membership import DropoutPolicy
from fedsvm.federation.run_journal import SKIPPED_ROUNDS, Journal
from fedsvm.federation.site.signed import OrderSigner
from fedsvm.federation.transport.deadline import Deadline
from fedsvm.federation.transport.keys import COORDINATOR, Party, Roster
from fedsvm.federation.transport.wire import RUN_ID_BYTES
from fedsvm.scenarios.hosts.sources import ColumnsAtHosts, RowsAtHosts, SourceAtHosts
from fedsvm.scenarios.run import resume
from fedsvm.scenarios.run.offered_terms import terms_of
from fedsvm.scenarios.run.runner import FinishedRun, Run, run_and_record
from fedsvm.scenarios.run.training import train
from fedsvm.scenarios.schema.spec import Scenario


@dataclass(frozen=True)
class JoinAddress:
    """The address at which a coordinator waits for its sites, and the limits of its wait.

    Parameters
    ----------
    certificate : KeyCertificate
        The coordinator's own.
    listen : str
        The tcp address that sites connect to.
    admitted : dict of str to bytes
        The public keys of the sites, by name, in ring order.
    wait_s : float
        Maximum time until all sites have joined.
    wait_text : str
        The same, as its user wrote it.
    rejoin_s : float, default 0.0
        Maximum time that a run waits for a site that ended or is silent; with 0 it continues without.
    """

    certificate: KeyCertificate
    listen: str
    admitted: dict[str, bytes]
    wait_s: float
    wait_text: str
    rejoin_s: float = 0.0


def dataset_of(scenario: Scenario) -> SourceAtHosts:
    """Return what is known of the data at sites before these have come. Raises ScenarioError."""
    return ColumnsAtHosts(scenario) if scenario.data.partition == "vertical" else RowsAtHosts(scenario)


@contextmanager
def listening(meeting: JoinAddress) -> Iterator[ListeningEndpoint]:
    """Open the endpoint that sites connect to. Raises EndpointError."""
    keys = meeting.certificate.keys
    parties = [Party(name, "", key) for name, key in meeting.admitted.items()]
    roster = Roster([Party(COORDINATOR, meeting.listen, keys.public), *parties])
    with ListeningEndpoint(meeting.listen, keys, roster) as endpoint:
        yield endpoint


def coordinate(
    scenario: Scenario,
    meeting: JoinAddress,
    endpoint: ListeningEndpoint,
    folder: Path,
    tell: Callable[[str], None],
    on_progress: Callable[[Federation], None],
    *,
    min_sites_chosen: bool,
    version: str,
    command: str,
) -> FinishedRun:
    """Wait for the sites of a scenario, carry it out, and write its results to an empty folder.

    tell: told of who comes and who is turned away, in sentences. min_sites_chosen: see `Quorum`. Never raises for what
    goes wrong within the run.
    """
    dataset = dataset_of(scenario)
    this = Run(scenario, dataset, folder, command)

    def carry_out() -> None:
        began = time.monotonic()
        run = secrets.token_bytes(RUN_ID_BYTES)
        restartable = tuple(meeting.admitted) if meeting.rejoin_s else ()
        terms, same_columns = terms_of(scenario, restartable=restartable), isinstance(dataset, RowsAtHosts)
        registration = SiteRegistration(endpoint, run, terms, version, tell, same_columns=same_columns)
        sum_needs = scenario.protocol.min_sites(len(meeting.admitted))
        quorum = Quorum(scenario.min_sites, sum_needs, min_sites_chosen)
        joined = registration.wait(Deadline(meeting.wait_s), quorum, meeting.wait_text)
        this.outcome.timing["launch_s"] = time.monotonic() - began
        with resume.begin_journal(
            folder, scenario, Path(), **_state_for_takeover(meeting, endpoint, run, joined, restartable)
        ) as journal:
            met = _met_now(scenario, meeting, endpoint, registration, journal, joined, run, restartable, tell)
            _conduct(this, dataset, met, journal, tell, on_progress)

    return run_and_record(this, carry_out)


@dataclass(frozen=True)
class _CoordinatedSites:
    """The sites that have come, and how a run over them is conducted when some end."""

    endpoint: ListeningEndpoint
    sites: RemoteSites
    joined: Sequence[JoinedSite]
    run: bytes
    policy: DropoutPolicy
    restart: Callable[[str], Party | None]
    signer: OrderSigner | None


def go_on(
    this: Run,
    journal: Journal,
    meeting: JoinAddress,
    endpoint: ListeningEndpoint,
    tell: Callable[[str], None],
    on_progress: Callable[[Federation], None],
    *,
    version: str,
) -> FinishedRun:
    """Resume a run that failed or whose coordinator ended. Its sites, waiting or restarted, connect to this
    coordinator.

    Never raises for what goes wrong within the run.
    """
    met = journal.header
    joined = [
        JoinedSite(Party(*party), tuple(HeldColumn(*column) for column in columns)) for party, columns in met["joined"]
    ]
    joined = [replace(site, party=_party_now(site.party, journal)) for site in joined]

    def carry_out() -> None:
        if not isinstance(this.dataset, SourceAtHosts):
            raise TypeError("the data of a run across hosts are with its sites")
        restartable: tuple[str, ...] = tuple(met["restartable"])
        terms, same_columns = terms_of(this.scenario, restartable=restartable), isinstance(this.dataset, RowsAtHosts)
        registration = SiteRegistration(endpoint, met["run"], terms, version, tell, same_columns=same_columns)
        endpoint.expect(met["tickets"] | {site: ticket for site, (ticket, _) in journal.returned.items()})
        journal.skip_rounds(SKIPPED_ROUNDS)
        heard = journal.skipped_to - 1
        if missing := registration.resume(joined, Deadline(meeting.wait_s)):
            why = registration.explain_missing(missing, meeting.wait_text)
            registration.call_off(why, heard, resumable=True)
            raise FederationError(why)
        restarted = registration.take_back_restarted()
        for site, party in restarted.items():
            _expect_return(journal, endpoint, site, party)
        waited = [site.party.name for site in joined if site.party.name not in restarted]
        if why := _why_keys_are_refused(joined, restarted, waited, restartable):
            registration.call_off(why, heard, resumable=False)
            raise FederationError(why)
        end_rounds(endpoint, waited, met["run"], heard)
        tell(f"{', '.join(met['tickets'])} are back; the run continues after {journal.last_round} rounds")
        here = list(registration.ready_sites.values())
        come = _met_now(this.scenario, meeting, endpoint, registration, journal, here, met["run"], restartable, tell)
        _conduct(this, this.dataset, come, journal, tell, on_progress)

    return run_and_record(this, carry_out)


def _why_keys_are_refused(
    joined: Sequence[JoinedSite], restarted: Mapping[str, Party], waited: Sequence[str], restartable: Sequence[str]
) -> str:
    """Return why sites that waited would refuse the new keys of others, in a sentence; "" if they would not."""
    known = {site.party.name: site.party.agreement_key for site in joined}
    new = [site for site, party in restarted.items() if party.agreement_key != known[site] and site not in restartable]
    if not (new and waited):
        return ""
    return (
        f"{', '.join(new)} started again with new keys, which {', '.join(waited)} refuse: the run was begun without "
        "--rejoin. Every fedsvm site ends now; start it again at every site, and resume once more."
    )


def _expect_return(journal: Journal, endpoint: ListeningEndpoint, site: str, party: Party) -> None:
    """Record in the journal how a new process of a site is admitted, once it takes part."""
    journal.expect_return(site, [endpoint.tickets[site], list(party)])


def _party_now(party: Party, journal: Journal) -> Party:
    """Return a site as its last process is that took part."""
    return Party(*journal.returned[party.name][1]) if party.name in journal.returned else party


def _met_now(
    scenario: Scenario,
    meeting: JoinAddress,
    endpoint: ListeningEndpoint,
    registration: SiteRegistration,
    journal: Journal,
    joined: Sequence[JoinedSite],
    run: bytes,
    restartable: tuple[str, ...],
    tell: Callable[[str], None],
) -> _CoordinatedSites:
    """Return the sites that are there now, and how the run waits for those that it loses."""
    sites = RemoteSites(endpoint, [site.party.name for site in joined])
    registration.on_restarted = sites.note_restarted

    def restart(site: str) -> Party | None:
        party = registration.wait_for(site, Deadline(meeting.rejoin_s))
        if party is not None:
            _expect_return(journal, endpoint, site, party)
        return party

    policy = DropoutPolicy(
        scenario.min_sites,
        scenario.federation.on_dropout,
        restartable if meeting.rejoin_s else (),
        silence_s=meeting.rejoin_s,
        on_silence=lambda silent: tell(
            f"{', '.join(silent)} did not answer; the run waits, at most {meeting.rejoin_s:g} s"
        ),
        committee=scenario.committee,
    )
    signing, names = meeting.certificate.signing, tuple(site.party.name for site in joined)
    signer = None if signing is None else OrderSigner(signing, run, names, registration.terms)
    return _CoordinatedSites(endpoint, sites, joined, run, policy, restart, signer)


def _state_for_takeover(
    meeting: JoinAddress,
    endpoint: ListeningEndpoint,
    run: bytes,
    joined: Sequence[JoinedSite],
    restartable: Sequence[str],
) -> dict[str, Any]:
    """Return what another process must know about the registered sites to take this one's place."""
    return {
        "run": run,
        "restartable": list(restartable),
        "admitted": meeting.admitted,
        "tickets": {site.party.name: endpoint.tickets[site.party.name] for site in joined},
        "joined": [
            [list(site.party), [[column.name, column.categorical] for column in site.columns]] for site in joined
        ],
    }


def _conduct(
    this: Run,
    dataset: SourceAtHosts,
    met: _CoordinatedSites,
    journal: Journal,
    tell: Callable[[str], None],
    on_progress: Callable[[Federation], None],
) -> None:
    """Train over the sites that have come, and take down what happens."""
    scenario = this.scenario
    dataset.describe(met.joined)

    class Follower(RunObserver):
        def progress_made(self, federation: Federation) -> None:
            this.log.follow(federation.record.log)
            on_progress(federation)

    with (
        _resumption_explained(this.folder, tell),
        open_remote_federation(
            met.endpoint,
            met.sites,
            met.joined,
            met.run,
            scenario.protocol.secure_sum,
            scenario.federation.round_timeout_s,
            met.policy,
            observer=Follower(),
            restart=met.restart,
            signer=met.signer,
            journal=journal,
        ) as federation,
    ):
        this.federation = federation
        federation.assemble()
        train(dataset, federation, this.outcome)


@contextmanager
def _resumption_explained(folder: Path, tell: Callable[[str], None]) -> Iterator[None]:
    """Tell the operator of a run that failed how it goes on, if it can."""
    try:
        yield
    except FederationError as error:
        if is_resumable(error):
            tell(f"the sites wait for the run to be resumed: fedsvm coordinate --resume {folder} --listen … --key …")
        raise
