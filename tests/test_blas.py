"""The environment of OpenBLAS: what it is on which processor, and that the library obeys it."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from fedsvm.federation.processes.blas import fast_blas

AVX512 = "avx512f avx512cd avx512bw avx512dq avx512vl"
AMD, INTEL = "vendor_id : AuthenticAMD\nflags : fpu avx2", "vendor_id : GenuineIntel\nflags : fpu avx2"


@pytest.fixture(autouse=True)
def _nothing_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENBLAS_THREAD_TIMEOUT", "OPENBLAS_CORETYPE"):
        monkeypatch.delenv(name, raising=False)


def test_only_processors_by_amd_with_all_instructions_get_another_code() -> None:
    assert fast_blas(f"{AMD} {AVX512}") == {"OPENBLAS_THREAD_TIMEOUT": "4", "OPENBLAS_CORETYPE": "SkylakeX"}
    for other in (AMD, f"{AMD} {AVX512.replace('avx512vl', '')}", f"{INTEL} {AVX512}", ""):
        assert fast_blas(other) == {"OPENBLAS_THREAD_TIMEOUT": "4"}


def test_variables_of_the_user_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENBLAS_CORETYPE", "Haswell")
    monkeypatch.setenv("OPENBLAS_THREAD_TIMEOUT", "20")
    assert fast_blas(f"{AMD} {AVX512}") == {}


def test_the_library_obeys_and_products_of_residues_stay_exact() -> None:
    """The products of large integers need every bit of float64, whatever code the library runs."""
    code = (
        "import numpy as np, sys; from threadpoolctl import threadpool_info; rng = np.random.default_rng(0); "
        "a, b = (rng.integers(0, 1 << 22, (200, 200)) for _ in range(2)); "
        "assert (a.astype(float) @ b.astype(float) == a @ b).all(); "
        "print(*[each['architecture'] for each in threadpool_info() if each['internal_api'] == 'openblas'])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | fast_blas(), capture_output=True, text=True, check=True
    )
    assert not done.stderr
    wanted = fast_blas().get("OPENBLAS_CORETYPE")
    assert wanted is None or set(done.stdout.split()) <= {wanted}
