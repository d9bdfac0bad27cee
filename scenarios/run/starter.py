"""Starts the sites of a run, at its beginning or again, each with what it needs to know."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

from federation.channel.transcript import Transcript
from federation.processes.launcher import LocalLauncher
from federation.site.site import Assignment
from federation.transport.keys import COORDINATOR, Party
from scenarios.data.dataset import FederatedDataset
from scenarios.run.injector import Injector
from scenarios.run.outcome import PARTS
from scenarios.schema.spec import Scenario

TRANSCRIPTS = "transcripts"


@dataclass(frozen=True)
class Starter:
    """Starts the sites of a run, at its beginning or again, and knows where parties write their transcripts."""

    scenario: Scenario
    workload: FederatedDataset
    launcher: LocalLauncher
    injector: Injector
    workspace: Path
    folder: Path
    run: bytes
    coordinator: Party
    transcripts: dict[str, list[Path]] = field(default_factory=lambda: defaultdict(list))

    def transcript(self, party: str) -> str:
        """A new file for a party's transcript; none where nobody colludes. The honest ones' do not outlive the run."""
        collusion = self.scenario.collusion
        if collusion is None:
            return ""
        folder = self.folder / TRANSCRIPTS if self._colludes(party) else self.workspace
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

    def start(self, names: list[str]) -> list[Party]:
        """Start these sites and lead the relays to them."""
        parties = self.launcher.start([self._assignment(name) for name in names])
        for party in parties:
            self.injector.reach(party)
        return parties

    def revive(self, site: str) -> Party | None:
        """Start a killed site again with its partition, if the scenario says so."""
        return self.start([site])[0] if self.injector.rejoins(site) else None

    def _assignment(self, name: str) -> Assignment:
        number = self.scenario.federation.site_names.index(name)
        path = self.workspace / f"{name}.partition"
        path.unlink(missing_ok=True)  # of a site that was killed before it read it
        self.workload.write_partition(number, path)
        return Assignment(
            name=name,
            run=self.run,
            listen=address(self.scenario, self.workspace, number + 1),
            peers=len(self.workload.names),
            encrypted=self.scenario.federation.encryption,
            coordinator_address=self.coordinator.address,
            coordinator_key=self.coordinator.public_key,
            program=self.scenario.algorithm.name,
            partition_path=str(path),
            settings={"seed": self.scenario.seed, "model_path": str((self.folder / PARTS / f"{name}.npz").resolve())},
            faults=self.injector.own_faults(name),
            transcript_path=self.transcript(name),
            colludes=self._colludes(name),
            needs_pairwise_keys=self.scenario.protocol.secure_sum.needs_pairwise_keys,
        )


def address(scenario: Scenario, workspace: Path, number: int) -> str:
    """Where party `number` listens; the coordinator is number 0."""
    settings = scenario.federation
    if settings.transport == "ipc":
        return f"ipc://{workspace}/{number}.sock"
    return f"tcp://127.0.0.1:{settings.port + number if settings.port else '*'}"
