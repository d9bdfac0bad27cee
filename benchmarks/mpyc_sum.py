"""The sum of MPyC (B. Schoenmakers) between so many processes: `python -m benchmarks.mpyc_sum 300 25 -M5`.

Every party puts a vector of numbers modulo a prime of 64 bits in, in Shamir shares, and the sum is opened. Prints the
median milliseconds of a round.
"""

from __future__ import annotations

import statistics
import sys
import time

from mpyc.runtime import mpc


async def main() -> None:
    """Measure so many rounds of so many numbers."""
    length, rounds = (int(each) for each in sys.argv[1:3])
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


if __name__ == "__main__":
    mpc.run(main())
