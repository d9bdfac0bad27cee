"""What the processes of this installation's sites run: `python -m algorithms.site_process DESCRIPTOR`.

It registers every program and secure sum that a coordinator may name here, and imports nothing that is of use to
people only (no command line, no scikit-learn).
"""

from __future__ import annotations

import sys

import numpy as np

from algorithms.dpp_svm import DppSite
from algorithms.hybrid_svm import HybridSite
from algorithms.landmarks import local_centres
from algorithms.pan_svm import PanSite
from algorithms.private_erm import ErmSite
from federation.agreement import KeyAgreement, keystream
from federation.forkserver import main
from federation.program import Installation
from protocols.commutative import P256, Cipher
from protocols.registry import SUMS
from protocols.secret_order import secret_order


def _warm_up() -> None:
    local_centres(np.eye(3), 2, 1, np.random.default_rng(0))
    secret_order(np.zeros((1, 4), dtype=np.uint64), "warm-up", 3)
    one, other = KeyAgreement(bytes(8)), KeyAgreement(bytes(8))
    keystream(one.secret(other.public, "warm-up"), (1, 3))
    Cipher(P256).encrypt(P256.hashed(["warm-up"], b""))


PROGRAMS = {"pan-svm": PanSite, "dpp-svm": DppSite, "hybrid-svm": HybridSite, "dp-erm": ErmSite}
INSTALLATION = Installation(PROGRAMS, SUMS, _warm_up)

if __name__ == "__main__":
    main(INSTALLATION, int(sys.argv[1]))
