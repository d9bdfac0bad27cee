"""The command line in a process of its own, with exact statistics unless a scenario asks for noise: for tests.

`python -m tests.exact WORDS` is `fedsvm WORDS`, but numbers of tests do not depend on noise.
"""

from __future__ import annotations

from fedsvm.__main__ import main
from fedsvm.algorithms.mapped_site import MappedAlgorithm

if __name__ == "__main__":
    MappedAlgorithm.statistics_privacy = 0.0
    main()
