"""The installation whose sums are measured: sites that hold nothing, and give as many numbers as are asked for.

One of them can be profiled (`benchmarks.profile`).
"""

from __future__ import annotations

import cProfile

import numpy as np

from fedsvm.federation.arrays import FloatArray
from fedsvm.federation.channel.agreement import SECRET_BYTES, KeyAgreement, keystreams, round_keys, seal, unseal
from fedsvm.federation.processes.forkserver import main
from fedsvm.federation.site.program import Installation, SiteProgram, step
from fedsvm.protocols.arithmetic import shamir
from fedsvm.protocols.arithmetic.fixed_point import add, subtract
from fedsvm.protocols.sums.registry import SUMS
from fedsvm.protocols.sums.ring import RING
from tools.arguments import parser


class Numbers(SiteProgram):
    """A step that computes nothing, so that a round is what the round costs."""

    _profiler: cProfile.Profile

    @step
    def numbers(self, length: int) -> FloatArray:
        """Return the (length,) ones."""
        return np.ones(length)

    @step
    def profile(self, path: str, site: str) -> None:
        """Start profiling this process, or with a path stop it and write the profile there."""
        if site != self.site:
            return
        if not path:
            self._profiler = cProfile.Profile()
            self._profiler.enable()
        else:
            self._profiler.disable()
            self._profiler.dump_stats(path)


def warm_up() -> None:
    """Run what sites share because it is done before they are forked, as in `fedsvm.algorithms.site_process`."""
    one, other = KeyAgreement(bytes(8)), KeyAgreement(bytes(8))
    keys = round_keys(one.pair_key("one", "other", other.public, "warm-up"), 1)
    keystreams([unseal(keys, seal(keys, bytes(SECRET_BYTES), by_lower=True), by_lower=True)] * 2, (1, 3))
    shamir.split(np.ones((4, shamir.SECRET_WORDS), dtype=np.uint32), 5)
    residues = RING.encode(np.ones(3), 1.0, 3)
    subtract(add(residues, residues), residues)


if __name__ == "__main__":
    arguments = parser("benchmarks.site_process", __doc__)
    arguments.add_argument("descriptor", type=int, metavar="DESCRIPTOR", help="socket of the process that starts sites")
    main(Installation({"numbers": Numbers}, SUMS, warm_up=warm_up), arguments.parse_args().descriptor)
