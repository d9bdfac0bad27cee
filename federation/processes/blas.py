"""The environment in which OpenBLAS, numpy's library for linear algebra, is fast on this machine.

It applies to processes that load the library later, and leaves variables that are set.
"""

from __future__ import annotations

import os

_PROCESSORS = "/proc/cpuinfo"
_FIRST_BYTES = 1 << 13
"""Number of bytes that describe the first processor: the kernel takes long to describe hundreds."""

_INSTRUCTIONS = frozenset({"avx512f", "avx512cd", "avx512bw", "avx512dq", "avx512vl"})
"""The instructions that the library's code for SkylakeX consists of."""


def fast_blas(described: str | None = None) -> dict[str, str]:
    """Return environment variables for OpenBLAS.

    Idle threads of it sleep at once: by default they keep a core busy for a tenth of a second, also after the library
    is loaded. On processors by AMD that have AVX-512 it uses these instructions. The library does so only for those
    that it knows by number, and takes half as long again for products of matrices on others.

    Parameters
    ----------
    described : str, optional
        The description of a processor as in /proc/cpuinfo. Default: this machine's.

    Returns
    -------
    dict of str to str
        Without variables that are set.
    """
    found = {"OPENBLAS_THREAD_TIMEOUT": "4"}  # 2^4 cycles
    words = (_first_processor() if described is None else described).split()
    if "AuthenticAMD" in words and _INSTRUCTIONS.issubset(words):
        found["OPENBLAS_CORETYPE"] = "SkylakeX"
    return {name: value for name, value in found.items() if name not in os.environ}


def _first_processor() -> str:
    try:
        with open(_PROCESSORS, encoding="ascii", errors="replace") as file:  # noqa: PTH123 - before pathlib is loaded
            return file.read(_FIRST_BYTES)
    except OSError:
        return ""
