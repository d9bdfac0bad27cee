"""The tests, with one kind of kernel for linear algebra on all x86 processors: frozen numbers hold on each of them."""

import os
import platform

if platform.machine() == "x86_64":  # read when numpy loads its library
    os.environ.setdefault("OPENBLAS_CORETYPE", "Haswell")
