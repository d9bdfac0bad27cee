"""A federation of processes on this machine, for a program that has its partitions in hand and no scenario."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from federation.errors import FederationError
from federation.federation import Federation
from federation.membership import DropoutPolicy
from federation.processes.launcher import LocalLauncher
from federation.site.partition import Partition
from federation.site.program import SumProtocol
from federation.site.site import Assignment
from federation.transport.endpoint import Endpoint
from federation.transport.keys import COORDINATOR, KeyPair, Party, Roster
from federation.transport.wire import RUN_ID_BYTES

_ANY_PORT = "tcp://127.0.0.1:*"


@contextmanager
def local_federation(
    module: str,
    program: str,
    partitions: Mapping[str, Partition],
    sum_protocol: SumProtocol,
    *,
    settings: Mapping[str, Any],
    round_timeout_s: float = 30.0,
) -> Iterator[Federation]:
    """Sites in processes of their own, on encrypted sockets, ready for the first verb; all are gone afterwards.

    module: what site processes run, as `python -m`; it calls `forkserver.main` with its installation. program: of that
    installation, what the sites do. partitions: what each site holds, by its name, in ring order. settings: plain
    values for every site, with the `seed` of its experiments. A site that is lost ends it. Raises FederationError.
    """
    if len(partitions) < sum_protocol.min_sites:
        raise FederationError(
            f"A {sum_protocol.name} sum needs {sum_protocol.min_sites} sites or more and there are "
            f"{len(partitions)}; with fewer it hides nothing. Have more sites, or another sum."
        )
    with LocalLauncher(module) as launcher:
        workspace, keys, run = launcher.prepare(), KeyPair.generate(), secrets.token_bytes(RUN_ID_BYTES)
        with Endpoint(COORDINATOR, _ANY_PORT, keys, len(partitions)) as endpoint:
            me = Party(COORDINATOR, endpoint.address, keys.public)

            def assignment(name: str) -> Assignment:
                path = str(workspace / f"{name}.partition")
                partitions[name].write(path)
                return Assignment(
                    name=name,
                    run=run,
                    listen=_ANY_PORT,
                    peers=len(partitions),
                    encrypted=True,
                    coordinator_address=me.address,
                    coordinator_key=me.public_key,
                    program=program,
                    partition_path=path,
                    settings=dict(settings),
                    needs_pairwise_keys=sum_protocol.needs_pairwise_keys,
                )

            roster = Roster([me, *launcher.start(map(assignment, partitions))])
            survival = DropoutPolicy(len(partitions), "abort")
            federation = Federation(
                endpoint, roster, run, launcher, sum_protocol, round_timeout_s, lambda _: None, survival=survival
            )
            try:
                federation.assemble()
                yield federation
            finally:
                federation.dismiss()
