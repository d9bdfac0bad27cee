"""What the sites of a run are started with, at its beginning or again, and where parties write their transcripts."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

from federation.assemble import Deployment, SiteSetup
from federation.channel.transcript import Transcript
from federation.errors import FederationError
from federation.membership import DropoutPolicy
from federation.processes.launcher import LocalLauncher
from federation.transport.keys import COORDINATOR
from scenarios.data.dataset import FederatedDataset
from scenarios.run.injector import Injector
from scenarios.run.outcome import SITE_MODELS
from scenarios.schema.spec import Scenario

TRANSCRIPTS = "transcripts"


@dataclass(frozen=True)
class Starter:
    """Says what sites are started with, and knows where parties write their transcripts."""

    scenario: Scenario
    dataset: FederatedDataset
    launcher: LocalLauncher
    injector: Injector
    folder: Path
    transcripts: dict[str, list[Path]] = field(default_factory=lambda: defaultdict(list))

    def transcript(self, party: str) -> str:
        """A new file for a party's transcript; none where nobody colludes. The honest ones' do not outlive the run."""
        collusion = self.scenario.collusion
        if collusion is None:
            return ""
        folder = self.folder / TRANSCRIPTS if self._colludes(party) else self.launcher.workspace
        if folder is None:
            raise AssertionError("the launcher is not up")
        folder.mkdir(mode=0o700, exist_ok=True)
        path = folder / f"{party}-{len(self.transcripts[party]) + 1}.transcript"
        self.transcripts[party].append(path)
        return str(path)

    def coordinators_transcript(self) -> Transcript | None:
        """The coordinator's own, if it colludes."""
        return Transcript(self.transcript(COORDINATOR), colludes=True) if self._colludes(COORDINATOR) else None

    def _colludes(self, party: str) -> bool:
        collusion = self.scenario.collusion
        if collusion is None:
            return False
        named = collusion.members(self.scenario.federation.site_names)
        return collusion.coordinator if party == COORDINATOR else party in named

    def deployment(self) -> Deployment:
        """The sites of the scenario."""
        settings, algorithm = self.scenario.federation, self.scenario.algorithm
        return Deployment(
            sites=tuple(settings.site_names),
            program=algorithm.name,
            sum_protocol=self.scenario.protocol.secure_sum,
            setup=self._setup,
            round_timeout_s=settings.round_timeout_s,
            policy=DropoutPolicy(
                self.scenario.min_sites, settings.on_dropout, self.injector.rejoining, self.injector.rejoins
            ),
            shown=algorithm.implementation.shown(algorithm.settings),
            transport=settings.transport,
            port=settings.port,
            encrypted=settings.encryption,
        )

    def _write_partition(self, number: int, path: Path) -> None:
        try:
            self.dataset.write_partition(number, path)
        except OSError as error:
            raise FederationError(
                f"What {self.dataset.names[number]} holds cannot be written to {path.parent} ({error.strerror}); make "
                "room there, or set TMPDIR to another folder."
            ) from error

    def _setup(self, name: str) -> SiteSetup:
        number = self.scenario.federation.site_names.index(name)
        model_path = (self.folder / SITE_MODELS / f"{name}.npz").resolve()
        return SiteSetup(
            write_partition=lambda path: self._write_partition(number, path),
            settings={"seed": self.scenario.seed, "model_path": str(model_path)},
            faults=self.injector.own_faults(name),
            transcript_path=self.transcript(name),
            colludes=self._colludes(name),
        )
