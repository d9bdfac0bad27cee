"""Starts the processes, sockets and keys of a simulated federation, and ends them.

Use `start_federation` to choose transport, faults or dropouts, and `local_federation` in a program that already has
its partitions.
"""

from __future__ import annotations

import functools
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from threadpoolctl import threadpool_limits

from fedsvm.federation.errors import FederationError
from fedsvm.federation.federation import Federation, RunObserver
from fedsvm.federation.lifecycle import running_federation
from fedsvm.federation.links import SiteLinks
from fedsvm.federation.membership import DropoutPolicy
from fedsvm.federation.processes import limits
from fedsvm.federation.processes.launcher_cache import spare_launcher
from fedsvm.federation.processes.launcher_interface import SiteLauncher
from fedsvm.federation.run_journal import Journal
from fedsvm.federation.site.assignment import Assignment
from fedsvm.federation.site.partition import Partition
from fedsvm.federation.site.program import SumProtocol
from fedsvm.federation.site.rules import ANYTHING, SiteRules
from fedsvm.federation.site.signed import OrderSigner
from fedsvm.federation.site.site_policy import SitePolicy
from fedsvm.federation.site.terms import Terms
from fedsvm.federation.transport.descriptors import descriptors_explained
from fedsvm.federation.transport.endpoint import Endpoint
from fedsvm.federation.transport.keys import COORDINATOR, KeyPair, Party, Roster
from fedsvm.federation.transport.signing import SigningKey
from fedsvm.federation.transport.wire import RUN_ID_BYTES


@dataclass(frozen=True)
class SiteSetup:
    """The parts of a site's configuration that differ between sites.

    Parameters
    ----------
    write_partition : callable
        Writes the site's data to a new file, given its path.
    settings : mapping, default {}
        Plain values for its program, with the `seed` of its experiments.
    faults : sequence of dict, default ()
        Faults that it inflicts on itself, see `site.faults`.
    transcript_path : str, default ""
        The file of its transcript; empty for none.
    colludes : bool, default False
        Whether the transcript has all messages, not only the inputs.
    rules : SiteRules
        The site's own policy.
    journal_path : str, default ""
        The file of its journal; empty for none.
    receipt_path : str, default ""
        The file of its receipt; empty for none.
    version : str, default ""
        The version of the installation, for the receipt.
    """

    write_partition: Callable[[Path], None]
    settings: Mapping[str, Any] = field(default_factory=dict)
    faults: Sequence[dict[str, Any]] = ()
    transcript_path: str = ""
    colludes: bool = False
    rules: SiteRules = ANYTHING
    journal_path: str = ""
    receipt_path: str = ""
    version: str = ""


@dataclass(frozen=True)
class Deployment:
    """The sites to start, and how they communicate.

    Parameters
    ----------
    sites : tuple of str
        The sites, in ring order.
    terms : Terms
        The terms of the run.
    sum_protocol : SumProtocol
        The protocol of `Federation.sum`.
    setup : callable
        Returns the configuration of a site, given its name. Called whenever the site is started, at launch or again.
    round_timeout_s : float
        Seconds that the coordinator waits for a site.
    policy : DropoutPolicy
        The behavior when sites drop out.
    transport : {"tcp", "ipc"}, default "tcp"
        TCP sockets at the launcher's address, or Unix sockets in the workspace.
    port : int, default 0
        With tcp, the port of the coordinator; the sites take the next ones. 0: any free ports.
    encrypted : bool, default True
        Whether sockets use CURVE.
    via_coordinator : bool, default False
        Whether messages between sites go through the coordinator, sealed.
    log_level : {"debug", "info", "warning", "error", "none"}, default "warning"
        The minimum level of log records that sites send the coordinator, see `site.logs`.
    """

    sites: tuple[str, ...]
    terms: Terms
    sum_protocol: SumProtocol
    setup: Callable[[str], SiteSetup]
    round_timeout_s: float
    policy: DropoutPolicy
    transport: Literal["tcp", "ipc"] = "tcp"
    port: int = 0
    encrypted: bool = True
    via_coordinator: bool = False
    log_level: str = "warning"

    def address(self, party: str, workspace: Path, host: str) -> str:
        """Return the address at which a party listens, on a machine of this host address."""
        number = 0 if party == COORDINATOR else 1 + self.sites.index(party)
        if self.transport == "ipc":
            return f"ipc://{workspace}/{number}.sock"
        return f"tcp://{host}:{self.port + number if self.port else '*'}"

    @functools.cached_property
    def site_policy(self) -> SitePolicy:
        """Return the policy that every site applies."""
        protocol, policy = self.sum_protocol, self.policy
        fewest = max(policy.min_sites, protocol.min_sites, protocol.min_remaining(len(self.sites)))
        return SitePolicy(self.sites, replace(self.terms, min_sites=fewest, restartable=policy.restartable))

    def assignment(
        self, site: str, run: bytes, coordinator: Party, workspace: Path, host: str, journal: Journal | None
    ) -> Assignment:
        """Return the parameters that the process of a site is started with. Its partition is in a file that only it
        reads."""
        setup, path = self.setup(site), workspace / f"{site}.partition"
        path.unlink(missing_ok=True)  # a process that was killed before reading it leaves it behind
        setup.write_partition(path)
        return Assignment(
            name=site,
            run=run,
            listen=self.address(site, workspace, host),
            peers=len(self.sites),
            encrypted=self.encrypted,
            coordinator_address=coordinator.address,
            coordinator_key=coordinator.public_key,
            program=self.terms.program,
            partition_path=str(path),
            policy=self.site_policy if setup.rules == ANYTHING else replace(self.site_policy, rules=setup.rules),
            settings=dict(setup.settings),
            faults=list(setup.faults),
            transcript_path=setup.transcript_path,
            colludes=setup.colludes,
            needs_pairwise_keys=self.sum_protocol.needs_pairwise_keys,
            via_coordinator=self.via_coordinator,
            journal_path=setup.journal_path,
            receipt_path=setup.receipt_path,
            version=setup.version,
            journal_until=journal.last_round if journal is not None else 0,
            journal_has=journal.last_round_of(site) if journal is not None else 0,
            log_level=self.log_level,
        )


@contextmanager
def start_federation(
    launcher: SiteLauncher,
    deployment: Deployment,
    *,
    observer: RunObserver | None = None,
    views: Callable[[str, Roster], Roster] = lambda party, roster: roster,
    journal: Journal | None = None,
) -> Iterator[Federation]:
    """Start sites and yield a federation of them; `federation.assemble()` introduces them to each other.

    When the context ends, the sites receive a stop. When the launcher is closed, it ends those that did not receive it.

    Parameters
    ----------
    launcher : SiteLauncher
        Starts the sites.
    deployment : Deployment
        The sites and their configuration.
    observer : RunObserver, optional
        Sees the run.
    views : callable, optional
        See `SiteLinks`.
    journal : Journal, optional
        The journal of this run; its verbs are replayed.

    Raises
    ------
    FederationError
        A process could not be started, or a socket could not be opened.
    """
    observer = observer or RunObserver()
    workspace, host = launcher.prepare(), launcher.host
    keys = KeyPair.generate() if deployment.encrypted else None
    signing, run = SigningKey(), secrets.token_bytes(RUN_ID_BYTES)
    address = deployment.address(COORDINATOR, workspace, host)
    limits.require_tasks(limits.TASKS_PER_ENDPOINT, COORDINATOR)
    with (
        threadpool_limits(1, "blas"),  # its idle threads would keep the sites' cores busy
        descriptors_explained(COORDINATOR),
        Endpoint(COORDINATOR, address, keys, peers=len(deployment.sites)) as endpoint,
    ):
        me = Party(COORDINATOR, endpoint.address, keys.public if keys else None)
        observer.party_listens(me)

        def start(sites: Sequence[str]) -> list[Party]:
            assignments = [deployment.assignment(site, run, me, workspace, host, journal) for site in sites]
            parties = launcher.start(
                [
                    replace(each, coordinator_signing_key=signing.public) if each.receipt_path else each
                    for each in assignments
                ]
            )
            for party in parties:
                observer.party_listens(party)
            return parties

        roster = Roster([me, *start(deployment.sites)])
        signer = OrderSigner(signing, run, deployment.sites, deployment.site_policy.terms)
        links = SiteLinks(endpoint, roster, run, launcher, lambda site: start([site])[0], views, signer=signer)
        with running_federation(
            links, deployment.sum_protocol, deployment.policy, deployment.round_timeout_s, observer, journal
        ) as federation:
            yield federation


@contextmanager
def local_federation(
    module: str,
    program: str,
    partitions: Mapping[str, Partition],
    sum_protocol: SumProtocol,
    *,
    settings: Mapping[str, Any],
    terms: Terms | None = None,
    round_timeout_s: float = 30.0,
    observer: RunObserver | None = None,
) -> Iterator[Federation]:
    """Start sites in processes of their own on encrypted sockets, ready for the first verb. End them afterwards.

    The server that they are forked from waits two seconds for the next federation, see `processes.launcher_cache`.

    Parameters
    ----------
    module : str
        The module that site processes run by `python -m`; it calls `forkserver.main` with its installation.
    program : str
        The program of that installation that the sites run.
    partitions : mapping of str to Partition
        The data of each site, by its name, in ring order.
    sum_protocol : SumProtocol
        The protocol of `Federation.sum`.
    settings : mapping
        Plain values for every site, with the `seed` of its experiments.
    terms : Terms, optional
        The terms of the run; optional for a program without settings.
    round_timeout_s : float, default 30.0
        Seconds that the coordinator waits for a site. The federation ends when a site drops.
    observer : RunObserver, optional
        Sees the run.

    Raises
    ------
    FederationError
        There are too few sites for the sum, a process could not be started, or a site dropped.
    """
    if len(partitions) < sum_protocol.min_sites:
        raise FederationError(
            f"A {sum_protocol.name} sum needs {sum_protocol.min_sites} sites or more, and there are "
            f"{len(partitions)}: with fewer it hides nothing. Add sites, or choose another sum."
        )

    def setup(site: str) -> SiteSetup:
        return SiteSetup(lambda path: partitions[site].write(str(path)), settings)

    policy = DropoutPolicy(len(partitions), "abort")
    agreed = terms or Terms(program, {}, sum_protocol.name, dict(sum_protocol.options), sum_protocol.min_sites)
    deployment = Deployment(tuple(partitions), agreed, sum_protocol, setup, round_timeout_s, policy)
    with spare_launcher(module) as launcher, start_federation(launcher, deployment, observer=observer) as federation:
        federation.assemble()
        yield federation
