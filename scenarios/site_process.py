"""What the processes of this installation's sites run: `python -m scenarios.site_process DESCRIPTOR`.

It registers every program and secure sum that a coordinator may name here, and imports nothing that is of use to
people only (no command line, no scikit-learn).
"""

from __future__ import annotations

import sys

from algorithms.pan_svm import PanSite
from federation.forkserver import main
from federation.program import Installation
from protocols.registry import SUMS

INSTALLATION = Installation({"pan-svm": PanSite}, SUMS)

if __name__ == "__main__":
    main(INSTALLATION, int(sys.argv[1]))
