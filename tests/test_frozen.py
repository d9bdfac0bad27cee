"""Fault-free runs with injected draws come to the numbers that `frozen.json` keeps; see `frozen`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fedsvm.algorithms.registry import OWN_ALGORITHMS
from tests import frozen
from tests.conftest import long_but_for


@pytest.mark.parametrize("case", long_but_for(frozen.CASES, *frozen.QUICK))
def test_numbers_of_a_run_are_those_that_were_frozen(case: str, tmp_path: Path, data_folder: Path) -> None:
    kept = json.loads(frozen.PATH.read_text())
    found = frozen.measure(case, tmp_path)
    check_models(found.pop("model"), kept["cases"][case].pop("model"), kept["linear_algebra"])
    assert found == kept["cases"][case]


def check_models(found: dict[str, Any], kept: dict[str, Any], linear_algebra: str) -> None:
    """Check arrays to the last bit on the machine whose numbers are kept, and elsewhere to a relative 1e-9."""
    assert found.keys() == kept.keys()
    for name, array in found.items():
        assert array["shape"] == kept[name]["shape"], name
        if frozen.linear_algebra() == linear_algebra:
            assert array["digest"] == kept[name]["digest"], name
        length, *others = array.get("projections", [0.0])
        expected, *expected_others = kept[name].get("projections", [0.0])
        assert length == pytest.approx(expected, rel=frozen.RELATIVE), name
        assert others == pytest.approx(expected_others, abs=frozen.RELATIVE * expected), name


def test_every_algorithm_is_frozen() -> None:
    assert {case.partition(",")[0] for case in frozen.CASES} == set(OWN_ALGORITHMS)
    assert set(json.loads(frozen.PATH.read_text())["cases"]) == set(frozen.CASES)
