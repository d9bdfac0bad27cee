"""A run over sites on other hosts: wait for them, train, and write down what a coordinator knows."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

from fedsvm.algorithms.data.columns import Columns, Schema
from fedsvm.algorithms.data.horizontal import HorizontalTask, count_rows
from fedsvm.algorithms.site_scores import ClassScores, SiteScores, score_at_sites
from fedsvm.federation.errors import FederationError
from fedsvm.federation.federation import Federation, RunObserver
from fedsvm.federation.hosts.certificates import Certificate
from fedsvm.federation.hosts.gathering import RemoteSites, end_rounds, gathered
from fedsvm.federation.hosts.hub import HubEndpoint
from fedsvm.federation.hosts.lobby import Column, Guest, Lobby, Quorum
from fedsvm.federation.hosts.visit import Held
from fedsvm.federation.journal import SKIPPED_ROUNDS, Journal
from fedsvm.federation.membership import DropoutPolicy
from fedsvm.federation.running import is_resumable
from fedsvm.federation.transport.deadline import Deadline
from fedsvm.federation.transport.keys import COORDINATOR, Party, Roster
from fedsvm.federation.transport.wire import RUN_ID_BYTES
from fedsvm.scenarios.data.dataset import Holding, Sizes, declared_classes
from fedsvm.scenarios.hosts import public_rows
from fedsvm.scenarios.hosts.columns import ColumnsAtSites, train_on_columns
from fedsvm.scenarios.run import resume
from fedsvm.scenarios.run.horizontal import UNCOVERED_JOURNAL, UNCOVERED_ROUNDS, held_out_folds
from fedsvm.scenarios.run.metrics import counted
from fedsvm.scenarios.run.outcome import Fold, Outcome, log_fold, trained
from fedsvm.scenarios.run.runner import Finished, Run, recorded
from fedsvm.scenarios.run.terms import terms_of
from fedsvm.scenarios.schema.spec import Scenario


@dataclass(frozen=True)
class Meeting:
    """Where a coordinator waits for its sites, and how long.

    Parameters
    ----------
    certificate : Certificate
        The coordinator's own.
    listen : str
        The tcp address that sites connect to.
    admitted : dict of str to bytes
        The public keys of the sites, by name, in ring order.
    wait_s : float
        How long it waits until all have joined.
    how_long : str
        The same, as its user wrote it.
    rejoin_s : float, default 0.0
        How long a run waits for a site that ended or is silent; 0: it goes on without.
    """

    certificate: Certificate
    listen: str
    admitted: dict[str, bytes]
    wait_s: float
    how_long: str
    rejoin_s: float = 0.0


@dataclass
class RemoteDataset:
    """What a coordinator knows of data that it never sees; rows are known once training began."""

    names: tuple[str, ...]
    classes: tuple[str, ...]
    numeric_columns: tuple[str, ...] = ()
    categorical_columns: tuple[str, ...] = ()
    site_rows: dict[str, int] = field(default_factory=dict)
    tested: int = 0
    warnings: tuple[str, ...] = ()
    foreseen: tuple[str, ...] = ()
    public: Held | None = None

    @classmethod
    def of(cls, scenario: Scenario) -> Self:
        """Before anything is known but the scenario, which names sites, classes and public rows.

        Raises ScenarioError for public rows that cannot be read.
        """
        names, classes = tuple(scenario.federation.site_names), declared_classes(scenario.data)
        return cls(names, classes, public=public_rows.read(scenario))

    @property
    def sizes(self) -> Sizes:
        """How much there is of everything."""
        public = 0 if self.public is None else self.public.rows
        return Sizes(sum(self.site_rows.values()) + self.tested, self._width, self.tested, public)

    def held(self, site: str) -> Holding:
        """How many rows a site trains on, and their columns."""
        return Holding(self.site_rows.get(site, 0), self._width)

    def count(self, site_rows: dict[str, int], scores: SiteScores | ClassScores | None) -> None:
        """Take in how many rows a model was trained on at each site, and how many it was tested on."""
        self.site_rows = site_rows
        self.tested = 0 if scores is None else scores.rows

    def describe(self, guests: Sequence[Guest]) -> None:
        """Take in what the sites say of their columns, which are all alike."""
        columns = guests[0].columns
        self.numeric_columns = tuple(each.name for each in columns if not each.categorical)
        self.categorical_columns = tuple(each.name for each in columns if each.categorical)

    @property
    def _width(self) -> int:
        return len(self.numeric_columns) + len(self.categorical_columns)


def dataset_of(scenario: Scenario) -> RemoteDataset | ColumnsAtSites:
    """What is known of what sites hold, be it rows or columns, before they have come. Raises ScenarioError."""
    return ColumnsAtSites(scenario) if scenario.data.partition == "vertical" else RemoteDataset.of(scenario)


@contextmanager
def listening(meeting: Meeting) -> Iterator[HubEndpoint]:
    """The endpoint that sites connect to. Raises EndpointError."""
    keys = meeting.certificate.keys
    parties = [Party(name, "", key) for name, key in meeting.admitted.items()]
    roster = Roster([Party(COORDINATOR, meeting.listen, keys.public), *parties])
    with HubEndpoint(meeting.listen, keys, roster) as endpoint:
        yield endpoint


def coordinate(
    scenario: Scenario,
    meeting: Meeting,
    endpoint: HubEndpoint,
    folder: Path,
    tell: Callable[[str], None],
    on_progress: Callable[[Federation], None],
    *,
    min_sites_chosen: bool,
    version: str,
    command: str,
) -> Finished:
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
        terms, alike = terms_of(scenario, restartable=restartable), isinstance(dataset, RemoteDataset)
        lobby = Lobby(endpoint, run, terms, version, tell, alike=alike)
        sum_needs = scenario.protocol.min_sites(len(meeting.admitted))
        quorum = Quorum(scenario.min_sites, sum_needs, min_sites_chosen)
        guests = lobby.wait(Deadline(meeting.wait_s), quorum, meeting.how_long)
        this.outcome.timing["launch_s"] = time.monotonic() - began
        with resume.begun(folder, scenario, Path(), **_met(meeting, endpoint, run, guests, restartable)) as journal:
            met = _met_now(scenario, meeting, endpoint, lobby, journal, guests, run, restartable, tell)
            _conduct(this, dataset, met, journal, tell, on_progress)

    return recorded(this, carry_out)


@dataclass(frozen=True)
class _Met:
    """The sites that have come, and how a run over them is conducted when some end."""

    endpoint: HubEndpoint
    sites: RemoteSites
    guests: Sequence[Guest]
    run: bytes
    policy: DropoutPolicy
    restart: Callable[[str], Party | None]


def go_on(
    this: Run,
    journal: Journal,
    meeting: Meeting,
    endpoint: HubEndpoint,
    tell: Callable[[str], None],
    on_progress: Callable[[Federation], None],
    *,
    version: str,
) -> Finished:
    """Go on with a run that failed or whose coordinator ended: its sites, which waited or are new, come to this one.

    Never raises for what goes wrong within the run.
    """
    met = journal.header
    guests = [Guest(Party(*party), tuple(Column(*column) for column in columns)) for party, columns in met["guests"]]
    guests = [replace(guest, party=_party_now(guest.party, journal)) for guest in guests]

    def carry_out() -> None:
        if not isinstance(this.dataset, RemoteDataset | ColumnsAtSites):
            raise TypeError("the data of a run across hosts are with its sites")
        restartable: tuple[str, ...] = tuple(met["restartable"])
        terms, alike = terms_of(this.scenario, restartable=restartable), isinstance(this.dataset, RemoteDataset)
        lobby = Lobby(endpoint, met["run"], terms, version, tell, alike=alike)
        endpoint.expect(met["tickets"] | {site: ticket for site, (ticket, _) in journal.returned.items()})
        journal.skip_rounds(SKIPPED_ROUNDS)
        heard = journal.skipped_to - 1
        if missing := lobby.resume(guests, Deadline(meeting.wait_s)):
            why = (
                f"After {meeting.how_long} {', '.join(missing)} had not come back, and the run cannot go on without; "
                "see whether fedsvm site still runs there, or start it again, and resume again (--wait)."
            )
            lobby.call_off(why, heard, resumable=True)
            raise FederationError(why)
        restarted = lobby.take_back_restarted()
        for site, party in restarted.items():
            _expect_return(journal, endpoint, site, party)
        waited = [guest.party.name for guest in guests if guest.party.name not in restarted]
        if why := _why_keys_are_refused(guests, restarted, waited, restartable):
            lobby.call_off(why, heard, resumable=False)
            raise FederationError(why)
        end_rounds(endpoint, waited, met["run"], heard)
        tell(f"{', '.join(met['tickets'])} are back; the run goes on after {journal.last_round} rounds")
        here = list(lobby.guests.values())
        come = _met_now(this.scenario, meeting, endpoint, lobby, journal, here, met["run"], restartable, tell)
        _conduct(this, this.dataset, come, journal, tell, on_progress)

    return recorded(this, carry_out)


def _why_keys_are_refused(
    guests: Sequence[Guest], restarted: Mapping[str, Party], waited: Sequence[str], restartable: Sequence[str]
) -> str:
    """Return why sites that waited would refuse the new keys of others, in a sentence; "" if they would not."""
    known = {guest.party.name: guest.party.agreement_key for guest in guests}
    new = [site for site, party in restarted.items() if party.agreement_key != known[site] and site not in restartable]
    if not (new and waited):
        return ""
    return (
        f"{', '.join(new)} started again with new keys, which {', '.join(waited)} refuse: the run was begun without "
        "--rejoin. Every fedsvm site ends now; start it again at every site, and resume once more."
    )


def _expect_return(journal: Journal, endpoint: HubEndpoint, site: str, party: Party) -> None:
    """Have the journal record how a new process of a site is let in, once it takes part."""
    journal.expect_return(site, [endpoint.tickets[site], list(party)])


def _party_now(party: Party, journal: Journal) -> Party:
    """Return a site as its last process is that took part."""
    return Party(*journal.returned[party.name][1]) if party.name in journal.returned else party


def _met_now(
    scenario: Scenario,
    meeting: Meeting,
    endpoint: HubEndpoint,
    lobby: Lobby,
    journal: Journal,
    guests: Sequence[Guest],
    run: bytes,
    restartable: tuple[str, ...],
    tell: Callable[[str], None],
) -> _Met:
    """Return the sites that are there now, and how the run waits for those that it loses."""
    sites = RemoteSites(endpoint)
    lobby.on_restarted = sites.note_restarted

    def restart(site: str) -> Party | None:
        party = lobby.wait_for(site, Deadline(meeting.rejoin_s))
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
    )
    return _Met(endpoint, sites, guests, run, policy, restart)


def _met(
    meeting: Meeting, endpoint: HubEndpoint, run: bytes, guests: Sequence[Guest], restartable: Sequence[str]
) -> dict[str, Any]:
    """What another process has to know of who has come, to take this one's place."""
    return {
        "run": run,
        "restartable": list(restartable),
        "admitted": meeting.admitted,
        "tickets": {guest.party.name: endpoint.tickets[guest.party.name] for guest in guests},
        "guests": [
            [list(guest.party), [[column.name, column.categorical] for column in guest.columns]] for guest in guests
        ],
    }


def _conduct(
    this: Run,
    dataset: RemoteDataset | ColumnsAtSites,
    met: _Met,
    journal: Journal,
    tell: Callable[[str], None],
    on_progress: Callable[[Federation], None],
) -> None:
    """Train over the sites that have come, and take down what happens."""
    scenario = this.scenario
    dataset.describe(met.guests)

    class Follower(RunObserver):
        def progress_made(self, federation: Federation) -> None:
            this.log.follow(federation.record.log)
            on_progress(federation)

    with (
        _resumption_explained(this.folder, tell),
        gathered(
            met.endpoint,
            met.sites,
            met.guests,
            met.run,
            scenario.protocol.secure_sum,
            scenario.federation.round_timeout_s,
            met.policy,
            observer=Follower(),
            restart=met.restart,
            journal=journal,
        ) as federation,
    ):
        this.federation = federation
        federation.assemble()
        if isinstance(dataset, ColumnsAtSites):
            train_on_columns(scenario, dataset, federation, this.outcome)
        else:
            train(scenario, dataset, federation, this.outcome)


@contextmanager
def _resumption_explained(folder: Path, tell: Callable[[str], None]) -> Iterator[None]:
    """Tell the operator of a run that failed how it goes on, if it can."""
    try:
        yield
    except FederationError as error:
        if is_resumable(error):
            tell(f"the sites wait for the run to be resumed: fedsvm coordinate --resume {folder} --listen … --key …")
        raise


def train(scenario: Scenario, dataset: RemoteDataset, federation: Federation, outcome: Outcome) -> None:
    """Train one model after the other, and have the sites test each on rows of their own."""
    algorithm, settings = scenario.algorithm.implementation, scenario.algorithm.settings
    if dataset.public is not None:
        train_privately(scenario, dataset, dataset.public, federation, outcome)
        return
    first = task_of(scenario, dataset)
    for fold in held_out_folds(scenario.data):
        task, named = first.of_fold(fold), fold if scenario.data.folds is not None else None
        with outcome.timed("train_s"):
            model = algorithm.fit(federation, task, settings)
        log_fold(federation, named, trained(model))
        with outcome.timed("evaluate_s"), federation.phase("evaluate"):
            tested = scenario.data.tested_at_sites
            scores = score_at_sites(federation, model, len(dataset.classes)) if tested else None
        dataset.count(task.site_rows, scores)
        outcome.keep(_fold(named, model, task.columns, scores), algorithm)


def train_privately(
    scenario: Scenario, dataset: RemoteDataset, public: Held, federation: Federation, outcome: Outcome
) -> None:
    """Train one model, of which private rows choose nothing but by sums; nobody tests it."""
    schema = schema_of(scenario, dataset)
    accountant = public_rows.accountant_of(scenario, [*schema.numeric, *schema.categorical])
    task = public_rows.task_of(scenario, public, schema, accountant)
    try:
        with outcome.timed("train_s"):
            model = scenario.algorithm.implementation.fit(federation, task, scenario.algorithm.settings)
    finally:  # what was spent is spent, whatever came of it
        if (report := accountant.report()) is not None:
            outcome.privacy = replace(report, not_covered=(UNCOVERED_JOURNAL, UNCOVERED_ROUNDS))
    log_fold(federation, None, trained(model))
    dataset.site_rows = count_rows(federation)
    outcome.keep(_fold(None, model, task.columns, None), scenario.algorithm.implementation)


def schema_of(scenario: Scenario, dataset: RemoteDataset) -> Schema:
    """The columns that all sites have."""
    return Schema(dataset.numeric_columns, dataset.categorical_columns, scenario.data.categories)


def task_of(scenario: Scenario, dataset: RemoteDataset) -> HorizontalTask:
    """What is to be trained on."""
    data = scenario.data
    return HorizontalTask(
        schema_of(scenario, dataset),
        data.scale,
        scenario.seed,
        filled=data.missing == "mean",
        indicated=data.missing_indicators,
        classes=dataset.classes,
        weighted=data.weight is not None,
        tested_apart=data.folds is None,
    )


def _fold(fold: int | None, model: Any, columns: Columns, scores: SiteScores | ClassScores | None) -> Fold:
    """A model, and what the sites found of it, which is all that anybody knows here."""
    threshold = model.calibrated.threshold if model.calibrated is not None else 0.0
    return Fold(
        fold=fold,
        training=trained(model),
        arrays={**model.to_arrays(), **columns.to_arrays()},
        test=None if scores is None else counted(scores, threshold),
        pooled=None,
        at_sites=scores,
    )
