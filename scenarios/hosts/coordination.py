"""A run over sites on other hosts: wait for them, train, and write down what a coordinator knows."""

from __future__ import annotations

import secrets
import shlex
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedsvm.federation.errors import FederationError
from fedsvm.federation.federation import Federation, RunObserver
from fedsvm.federation.hosts.certificates import KeyCertificate
from fedsvm.federation.hosts.held_data import HeldColumn
from fedsvm.federation.hosts.invitations import Invitations, JoinedSite
from fedsvm.federation.hosts.listening_endpoint import ListeningEndpoint
from fedsvm.federation.hosts.registered_sites import RegisteredSites
from fedsvm.federation.hosts.registration import Quorum, SiteRegistration
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


class CoordinatedRun:
    """A run over sites on other hosts, from their registration to the end of training. Its results are in a folder.

    Parameters
    ----------
    scenario : Scenario
    meeting : JoinAddress
    endpoint : ListeningEndpoint
        Of the meeting.
    folder : Path
        Empty, or that of the run to resume.
    tell : function of str
        Called with sentences on who comes and who is turned away.
    on_progress : function of Federation
    version : str
        That sites must have.
    command : str
        The user's, for the record.

    Raises
    ------
    ScenarioError
    """

    def __init__(
        self,
        scenario: Scenario,
        meeting: JoinAddress,
        endpoint: ListeningEndpoint,
        folder: Path,
        tell: Callable[[str], None],
        on_progress: Callable[[Federation], None],
        *,
        version: str,
        command: str,
    ) -> None:
        self._dataset = dataset_of(scenario)
        self._run = Run(scenario, self._dataset, folder, command)
        self._meeting = meeting
        self._endpoint = endpoint
        self._tell = tell
        self._on_progress = on_progress
        self._version = version

    def begin(self, *, min_sites_chosen: bool) -> FinishedRun:
        """Wait for the sites, train over them, and write the results. min_sites_chosen: see `Quorum`.

        Never raises for what goes wrong within the run.
        """

        def carry_out() -> None:
            began = time.monotonic()
            scenario, meeting, run = self._run.scenario, self._meeting, secrets.token_bytes(RUN_ID_BYTES)
            restartable = tuple(meeting.admitted) if meeting.rejoin_s else ()
            registration = SiteRegistration(self._invitations(run, restartable), same_columns=self._same_columns)
            sum_needs = scenario.protocol.min_sites(len(meeting.admitted))
            quorum = Quorum(scenario.min_sites, sum_needs, min_sites_chosen)
            registered = registration.wait(Deadline(meeting.wait_s), quorum, meeting.wait_text)
            self._run.outcome.timing["launch_s"] = time.monotonic() - began
            takeover = self._state_for_takeover(run, registered.joined, restartable)
            with resume.begin_journal(self._run.folder, scenario, Path(), **takeover) as journal:
                self._train(registered, journal)

        return run_and_record(self._run, carry_out)

    def go_on(self, journal: Journal) -> FinishedRun:
        """Resume the run, which failed or whose coordinator ended. Its sites, waiting or restarted, connect again.

        Never raises for what goes wrong within the run. Raises FederationError if it cannot go on; its folder then has
        the results that it had.
        """
        registered = self._take_over(journal)
        return run_and_record(self._run, lambda: self._train(registered, journal))

    def _take_over(self, journal: Journal) -> RegisteredSites:
        """Take back the sites of the run. Raises FederationError."""
        met, endpoint, meeting = journal.header, self._endpoint, self._meeting
        restartable: tuple[str, ...] = tuple(met["restartable"])
        joined = [
            JoinedSite(_party_now(Party(*party), journal), tuple(HeldColumn(*column) for column in columns))
            for party, columns in met["joined"]
        ]
        invitations = self._invitations(met["run"], restartable)
        registered = RegisteredSites(invitations, joined, same_columns=self._same_columns)
        endpoint.expect(met["tickets"] | {site: ticket for site, (ticket, _) in journal.returned.items()})
        journal.skip_rounds(SKIPPED_ROUNDS)
        heard = journal.skipped_to - 1
        if missing := registered.resume(Deadline(meeting.wait_s)):
            why = registered.explain_missing(missing, meeting.wait_text)
            registered.call_off(why, heard, resumable=True)
            raise FederationError(why)
        restarted = registered.take_back_restarted()
        for site, party in restarted.items():
            self._expect_return(journal, site, party)
        waited = [site.party.name for site in joined if site.party.name not in restarted]
        if why := _why_keys_are_refused(joined, restarted, waited, restartable):
            registered.call_off(why, heard, resumable=False)
            raise FederationError(why)
        end_rounds(endpoint, waited, met["run"], heard)
        self._tell(f"{', '.join(met['tickets'])} are back; the run continues after {journal.last_round} rounds")
        return registered

    @property
    def _same_columns(self) -> bool:
        return isinstance(self._dataset, RowsAtHosts)

    def _invitations(self, run: bytes, restartable: tuple[str, ...]) -> Invitations:
        terms = terms_of(self._run.scenario, restartable=restartable)
        return Invitations(self._endpoint, run, terms, self._version, self._tell)

    def _state_for_takeover(
        self, run: bytes, joined: Sequence[JoinedSite], restartable: Sequence[str]
    ) -> dict[str, Any]:
        """Return what another process must know about the registered sites to take this one's place."""
        return {
            "run": run,
            "restartable": list(restartable),
            "admitted": self._meeting.admitted,
            "tickets": {site.party.name: self._endpoint.tickets[site.party.name] for site in joined},
            "joined": [
                [list(site.party), [[column.name, column.categorical] for column in site.columns]] for site in joined
            ],
        }

    def _expect_return(self, journal: Journal, site: str, party: Party) -> None:
        """Record in the journal how a new process of a site is admitted, once it takes part."""
        journal.expect_return(site, [self._endpoint.tickets[site], list(party)])

    def _train(self, registered: RegisteredSites, journal: Journal) -> None:
        """Train over the sites that have come, and take down what happens."""
        scenario, endpoint, rejoin_s = self._run.scenario, self._endpoint, self._meeting.rejoin_s
        run, restartable = journal.header["run"], tuple(journal.header["restartable"])
        joined = registered.joined
        self._dataset.describe(joined)
        sites = RemoteSites(endpoint, [site.party.name for site in joined])
        registered.on_restarted = sites.note_restarted

        def restart(site: str) -> Party | None:
            party = registered.wait_for(site, Deadline(rejoin_s))
            if party is not None:
                self._expect_return(journal, site, party)
            return party

        policy = DropoutPolicy(
            scenario.min_sites,
            scenario.federation.on_dropout,
            restartable if rejoin_s else (),
            silence_s=rejoin_s,
            on_silence=lambda silent: self._tell(
                f"{', '.join(silent)} did not answer; the run waits, at most {rejoin_s:g} s"
            ),
            committee=scenario.committee,
        )
        signing, names = self._meeting.certificate.signing, tuple(site.party.name for site in joined)
        log, on_progress = self._run.log, self._on_progress

        class Follower(RunObserver):
            def progress_made(self, federation: Federation) -> None:
                log.follow(federation.record.log)
                on_progress(federation)

        with (
            _resumption_explained(self._run.folder, self._meeting, self._tell),
            open_remote_federation(
                endpoint,
                sites,
                joined,
                run,
                scenario.protocol.secure_sum,
                scenario.federation.round_timeout_s,
                policy,
                observer=Follower(),
                restart=restart,
                signer=None if signing is None else OrderSigner(signing, run, names, registered.terms),
                journal=journal,
            ) as federation,
        ):
            self._run.federation = federation
            federation.assemble()
            train(self._dataset, federation, self._run.outcome)


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


def _party_now(party: Party, journal: Journal) -> Party:
    """Return a site as its last process is that took part."""
    return Party(*journal.returned[party.name][1]) if party.name in journal.returned else party


@contextmanager
def _resumption_explained(folder: Path, meeting: JoinAddress, tell: Callable[[str], None]) -> Iterator[None]:
    """Tell the operator of a run that failed or was interrupted how it goes on, if it can."""
    named = ["--listen", meeting.listen, "--key", f"{meeting.certificate.name}.key_secret"]
    command = shlex.join(["fedsvm", "coordinate", "--resume", str(folder), *named])
    try:
        yield
    except FederationError as error:
        if is_resumable(error):
            tell(f"start sites that ended again, by the same command; the others wait. To resume the run: {command}")
        raise
    except KeyboardInterrupt:
        tell(f"the sites end too. To resume the run, start them again, and run: {command}")
        raise
