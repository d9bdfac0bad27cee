"""The sum of MPyC (B. Schoenmakers) between so many processes: `python -m benchmarks.mpyc_sum 300 25 -M5`.

Every party puts a vector of numbers modulo a prime of 64 bits in, in Shamir shares, and the sum is opened. Prints the
median milliseconds of a round.
"""

from __future__ import annotations

import statistics
import time
from typing import Any

from tools.arguments import parser


async def measure(mpc: Any, length: int, rounds: int) -> None:
    """Measure so many rounds of so many numbers with a runtime of MPyC."""
    field = mpc.SecFld(min_order=2**64)
    await mpc.start()
    seconds = []
    for _ in range(rounds + 1):
        await mpc.transfer(0)  # all begin together
        began = time.perf_counter()
        inputs = mpc.input([field(1) for _ in range(length)])
        total = inputs[0]
        for each in inputs[1:]:
            total = mpc.vector_add(total, each)
        await mpc.output(total)
        seconds.append(time.perf_counter() - began)
    await mpc.shutdown()
    if mpc.pid == 0:
        print(1e3 * statistics.median(seconds[1:]))


def main() -> None:
    """Measure and print; MPyC reads its own options."""
    arguments = parser("benchmarks.mpyc_sum", __doc__)
    arguments.add_argument("numbers", type=int, metavar="NUMBERS", help="length of the vectors")
    arguments.add_argument("rounds", type=int, metavar="ROUNDS", help="rounds that are measured")
    options, _ = arguments.parse_known_args()
    from mpyc.runtime import mpc

    mpc.run(measure(mpc, options.numbers, options.rounds))


if __name__ == "__main__":
    main()
