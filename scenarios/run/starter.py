"""The start parameters of a run's sites, at the beginning or after a restart, and the files of transcripts."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path

from fedsvm.federation.channel.transcript import Transcript
from fedsvm.federation.errors import FederationError
from fedsvm.federation.membership import DropoutPolicy
from fedsvm.federation.processes.launcher_interface import SiteLauncher
from fedsvm.federation.site.rules import SiteRules
from fedsvm.federation.startup import Deployment, SiteSetup
from fedsvm.federation.transport.keys import COORDINATOR
from fedsvm.scenarios.data.dataset import FederatedDataset
from fedsvm.scenarios.run.injector import Injector
from fedsvm.scenarios.run.offered_terms import terms_of
from fedsvm.scenarios.run.outcome import JOURNAL, RECEIPT, RECEIPTS, SITE_MODELS
from fedsvm.scenarios.schema.policy import rules_at
from fedsvm.scenarios.schema.spec import Scenario

TRANSCRIPTS = "transcripts"


@dataclass(frozen=True)
class Starter:
    """The start parameters of sites, and the files of transcripts.

    audits_all: whether all parties are audited and record their whole view. If not, declared colluders do, and if there
    are any, the honest parties record their inputs. journalled: whether all parties write journals, so that the run can
    be resumed.
    """

    scenario: Scenario
    dataset: FederatedDataset
    launcher: SiteLauncher
    injector: Injector
    folder: Path
    audits_all: bool
    journalled: bool = False
    transcripts: dict[str, list[Path]] = field(default_factory=lambda: defaultdict(list))

    def transcript(self, party: str) -> str:
        """Create a file for a party's transcript, and return its path; "" without an audit. Only the files of declared
        colluders are kept after the run."""
        if not self._audit:
            return ""
        folder = self.folder / TRANSCRIPTS if self._is_declared(party) else self.launcher.workspace
        if folder is None:
            raise AssertionError("the launcher is not up")
        folder.mkdir(mode=0o700, exist_ok=True)
        path = folder / f"{party}-{len(self.transcripts[party]) + 1}.transcript"
        self.transcripts[party].append(path)
        return str(path)

    def coordinators_transcript(self) -> Transcript | None:
        """Return the coordinator's transcript, if it writes one."""
        return Transcript(self.transcript(COORDINATOR), colludes=True) if self._writes_all(COORDINATOR) else None

    @property
    def _audit(self) -> bool:
        return self.audits_all or self.scenario.collusion is not None

    def _is_declared(self, party: str) -> bool:
        """Return whether the scenario lists a party as a colluder."""
        collusion = self.scenario.collusion
        if collusion is None:
            return False
        named = collusion.members(self.scenario.federation.site_names)
        return collusion.coordinator if party == COORDINATOR else party in named

    def _writes_all(self, party: str) -> bool:
        """Return whether a party records its whole view: every party if all are audited, otherwise colluders."""
        return self._is_declared(party) or self.audits_all

    def deployment(self) -> Deployment:
        """Return the sites of the scenario."""
        settings = self.scenario.federation
        return Deployment(
            sites=tuple(settings.site_names),
            terms=terms_of(self.scenario),
            sum_protocol=self.scenario.protocol.secure_sum,
            setup=self._setup,
            round_timeout_s=settings.round_timeout_s,
            policy=DropoutPolicy(
                self.scenario.min_sites,
                settings.on_dropout,
                self.injector.rejoining,
                self.injector.rejoins,
                committee=self.scenario.committee,
            ),
            transport=settings.transport,
            port=settings.port,
            encrypted=settings.encryption,
            via_coordinator=self.scenario.protocol.routing == "via-coordinator",
            log_level=settings.site_log,
        )

    def _write_partition(self, number: int, path: Path) -> None:
        try:
            self.dataset.write_partition(number, path)
        except OSError as error:
            raise FederationError(
                f"The data of {self.dataset.names[number]} cannot be written to {path.parent} ({error.strerror}); make "
                "room there, or set TMPDIR to another folder."
            ) from error

    def _setup(self, name: str) -> SiteSetup:
        number = self.scenario.federation.site_names.index(name)
        is_here = self.scenario.federation.launcher == "local"
        model_path = str((self.folder / SITE_MODELS / f"{name}.npz").resolve()) if is_here else ""
        return SiteSetup(
            write_partition=lambda path: self._write_partition(number, path),
            settings={"seed": self.scenario.seed, "model_path": model_path},
            faults=self.injector.own_faults(name),
            transcript_path=self.transcript(name),
            colludes=self._writes_all(name),
            rules=self._rules(name),
            journal_path=self._journal_path(name),
            receipt_path=self._receipt_path(name) if is_here else "",
            version=version("fedsvm"),
        )

    def _journal_path(self, name: str) -> str:
        """Return the path of a site's journal; "" in a run without journals."""
        return str((self.folder / JOURNAL / f"{name}.journal").resolve()) if self.journalled else ""

    def _receipt_path(self, name: str) -> str:
        """Return the path of a site's receipt."""
        folder = (self.folder / RECEIPTS).resolve()
        folder.mkdir(mode=0o700, exist_ok=True)
        return str(folder / f"{name}{RECEIPT}")

    def _rules(self, name: str) -> SiteRules:
        """Return the site's own policy, if the scenario has one."""
        return rules_at(name, self.scenario.policy, self.scenario.federation.site_names)
