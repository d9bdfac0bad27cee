"""The environment in which OpenBLAS, numpy's library for linear algebra, is fast on this machine.

It applies to processes that load the library later, and leaves variables that are set.
"""

from __future__ import annotations

import os

_PROCESSORS = "/proc/cpuinfo"
_FIRST_BYTES = 1 << 13
"""Number of bytes to read, enough for the first processor: reading all of hundreds takes long."""

_INSTRUCTIONS = frozenset({"avx512f", "avx512cd", "avx512bw", "avx512dq", "avx512vl"})
"""The instructions that the library's kernels for SkylakeX need."""


def fast_blas(described: str | None = None) -> dict[str, str]:
    """Return environment variables for OpenBLAS.

    Its idle threads sleep at once; by default they keep a core busy for a tenth of a second, also after loading. On AMD
    processors with AVX-512 it uses the kernels for AVX-512. By default the library does so only for the models that it
    knows, and on others products of matrices take half as long again.

    Parameters
    ----------
    described : str, optional
        The description of a processor as in /proc/cpuinfo. Default: this machine's.

    Returns
    -------
    dict of str to str
        The variables and their values, without those that are set already.
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
