"""The processes of this installation's sites: `python -m fedsvm.algorithms.site_process DESCRIPTOR`.

It registers every program and secure sum that a coordinator may name here, and imports nothing that is of use to
people only (no command line, no scikit-learn).
"""

from __future__ import annotations

import gc

if __name__ == "__main__":
    gc.disable()  # until the server has loaded everything: see `forkserver`

import sys
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, fields
from typing import Any

import numpy as np

from fedsvm.algorithms.column_description import NAME as DESCRIBE
from fedsvm.algorithms.column_description import DescriptionSite
from fedsvm.algorithms.column_prediction import NAME as PREDICT
from fedsvm.algorithms.column_prediction import PredictionSite
from fedsvm.algorithms.features.k_means import local_centres
from fedsvm.algorithms.registry import ALGORITHMS
from fedsvm.algorithms.small_run import run_steps
from fedsvm.federation.channel.agreement import SECRET_BYTES, KeyAgreement, keystreams, round_keys, seal, unseal
from fedsvm.federation.channel.generator import KeyedRandom
from fedsvm.federation.site.program import Installation, SiteProgram
from fedsvm.federation.transport import wire
from fedsvm.protocols.arithmetic import shamir
from fedsvm.protocols.arithmetic.commutative import P256, Cipher
from fedsvm.protocols.arithmetic.fixed_point import add, subtract
from fedsvm.protocols.secret_order import secret_order
from fedsvm.protocols.sets.program import SetsSite
from fedsvm.protocols.sums.registry import SUMS
from fedsvm.protocols.sums.ring import RING


def _warm_up() -> None:
    """Run what most sites run. The server loads an algorithm when it starts the first sites that train by it."""
    local_centres(np.eye(3), 2, 1, np.random.default_rng(0))
    secret_order(np.zeros((1, 4), dtype=np.uint64), "warm-up", 3)
    one, other = KeyAgreement(bytes(8)), KeyAgreement(bytes(8))
    keys = round_keys(one.pair_key("one", "other", other.public, "warm-up"), 1)
    keystreams([unseal(keys, seal(keys, bytes(SECRET_BYTES), by_lower=True), by_lower=True)] * 2, (1, 3))
    shamir.split(np.ones((4, shamir.SECRET_WORDS), dtype=np.uint32), 5)
    Cipher(P256, KeyedRandom(bytes(SECRET_BYTES))).encrypt(P256.hash_identifiers(["warm-up"], b""))


def _practice() -> None:
    """Run once what a site does in most rounds, without sockets."""
    residues = RING.encode(run_steps(), 1.0, 3)
    masked = subtract(add(residues, residues), residues)
    wire.decode(wire.encode(wire.Message(wire.DATA_KIND, bytes(wire.RUN_ID_BYTES), arrays={"": masked})))


OTHERS: Mapping[str, type[SiteProgram]] = {"sets": SetsSite, DESCRIBE: DescriptionSite, PREDICT: PredictionSite}
"""The programs that train nothing, by name."""


class _Programs(Mapping[str, type[SiteProgram]]):
    """The programs of sites: the site half of every installed algorithm, and those that train nothing."""

    def __getitem__(self, name: str) -> type[SiteProgram]:
        return OTHERS[name] if name in OTHERS else ALGORITHMS[name].Site

    def __iter__(self) -> Iterator[str]:
        return iter([*ALGORITHMS, *OTHERS])

    def __len__(self) -> int:
        return len(ALGORITHMS) + len(OTHERS)


def _default_settings(program: str) -> Mapping[str, Any] | None:
    """Return an algorithm's settings with their defaults; None of another program, which has none."""
    if program in OTHERS:
        return None
    known = fields(ALGORITHMS[program].Settings)
    return {field.name: None if field.default is MISSING else field.default for field in known}


INSTALLATION = Installation(_Programs(), SUMS, _default_settings, _warm_up, _practice)

if __name__ == "__main__":
    from fedsvm.federation.processes.forkserver import main

    main(INSTALLATION, int(sys.argv[1]))
