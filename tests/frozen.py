"""The numbers of fault-free runs with injected draws, as `frozen.json` keeps them.

`PYTHONPATH=. python -m tests.frozen [CASE ...]` measures these cases, or all, and writes them to the file: after a
change that is meant to change numbers, and after none other. `FEDSVM_DATA` must name the folder of data sets.

A model is kept as a digest of its bytes, which must be equal on the machine whose linear algebra the file names, and as
projections of each array, which must be equal to 1e-9 of its length everywhere. Rounds, bytes, disclosures and the
audit are the same everywhere.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import random
import secrets
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import scipy.linalg  # noqa: F401  (brings a library of its own, which the comparison names)
from numpy.typing import NDArray
from threadpoolctl import threadpool_info

from fedsvm.algorithms.privacy import discrete_noise
from fedsvm.federation.channel import interface
from fedsvm.scenarios.data import dataset
from fedsvm.scenarios.run import runner
from fedsvm.scenarios.run.outcome import SITE_MODELS
from fedsvm.scenarios.run.result import RunResult
from fedsvm.scenarios.schema import spec
from fedsvm.scenarios.schema.spec import Scenario
from tests.repeatable_site import drawn_bytes
from tests.test_resume import HYBRID, SMALL, WITHOUT_DRAWS

PATH = Path(__file__).parent / "frozen.json"
RELATIVE = 1e-9
"""The tolerance of projections of a model with another linear algebra library."""

_FOLDED = ("data.test_fraction=0", "data.folds=2")
_DIGITS = ("data.rows=200", "algorithm.landmarks=20")
_BOARDS = ("quickstart", "algorithm.landmarks=40")
_ERM = HYBRID.replace("hybrid-svm", "dp-erm").partition("features")[0]

CASES: Mapping[str, Sequence[str]] = {
    "pan-svm": _BOARDS,
    "pan-svm, few rows": ("quickstart", *SMALL, "data.rows=60", "algorithm.landmarks=6", "federation.sites=3"),
    "pan-svm, cutting planes": (*_BOARDS, "algorithm.solver=cutting-plane"),
    "pan-svm, either solver": (*_BOARDS, "algorithm.solver=auto", "protocol.sum=masked"),
    "pan-svm, no masks": (*_BOARDS, "algorithm.masking=none", "algorithm.class_weight=balanced"),
    "pan-svm, kept by sites": (*_BOARDS, "algorithm.release=sites", "data.tested_by=sites"),
    "pan-svm, global landmarks": (*_BOARDS, "algorithm.landmark_method=global", *_FOLDED),
    "pan-svm, calibrated": ("breast-cancer", "data.calibration=0.3", "algorithm.threshold=balanced"),
    "pan-svm, means": ("breast-cancer", "data.missing=mean", "data.missing_indicators=true"),
    "pan-svm, ovr": ("digits", *_DIGITS),
    "pan-svm, ovo, cutting planes": ("digits", *_DIGITS, "algorithm.solver=cutting-plane", "algorithm.multiclass=ovo"),
    "pan-svm, joint": ("digits", *_DIGITS, "algorithm.solver=cutting-plane", "algorithm.multiclass=joint"),
    **WITHOUT_DRAWS,
    "voting-ensemble, to everyone": ("voting-ensemble", "algorithm.release=everyone"),
    "dpp-svm": ("dpp-svm-tic-tac-toe",),
    "dpp-svm, unaligned": ("dpp-svm-unaligned", "algorithm.kernel=linear"),
    "pp-svm": ("pp-svm", "data.rows=100"),
    "hybrid-svm, spherical": (HYBRID,),
    "hybrid-svm, none": (HYBRID, "algorithm.mechanism=none", "algorithm.prior=public"),
    "hybrid-svm, laplace, cutting planes": (HYBRID, "algorithm.mechanism=laplace", "algorithm.solver=cutting-plane"),
    "hybrid-svm, laplace, one-shot": (HYBRID, "algorithm.mechanism=laplace", "algorithm.variant=one-shot"),
    "hybrid-svm, none, one-shot": (HYBRID, "algorithm.mechanism=none", "algorithm.variant=one-shot"),
    "dp-erm, objective": (_ERM, "algorithm.perturbation=objective"),
    "dp-erm, output": (_ERM, "algorithm.perturbation=output"),
    "filter": ("filter", *SMALL, "data.folds=2", "algorithm.size=3"),
    "rfe": ("rfe", *SMALL, "data.folds=2"),
    "sparse-svm": ("sparse-genes", *SMALL),
    "voted-wrappers": ("voted-wrappers", *SMALL),
    "filter-wrapper": ("filter-wrapper", *SMALL, "data.folds=2"),
    "dpp-selection": ("dpp-selection", "data.folds=2", "algorithm.size=25"),
}
"""A scenario, by name or as text, and what is changed of it."""

AUDITED = frozenset({"decision-tree", "pan-svm, few rows"})
QUICK = ("pan-svm", "naive-bayes", "dpp-svm", "hybrid-svm, laplace, one-shot")
"""Cases that `make test` runs."""


@contextmanager
def injected_draws() -> Iterator[None]:
    """Have sites of runs that begin within, and the coordinator in this process, draw the same each time."""
    numbers = itertools.count()

    def urandom(size: int) -> bytes:
        return (drawn_bytes(f"coordinator {next(numbers)}") * (size // 32 + 1))[:size]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runner, "SITE_MODULE", "tests.repeatable_site")
        patch.setattr(interface, "os", SimpleNamespace(urandom=urandom))
        patch.setattr(secrets, "SystemRandom", lambda: random.Random(1))
        source = random.Random(2)
        patch.setattr(discrete_noise.SYSTEM, "getrandbits", source.getrandbits)
        patch.setattr(discrete_noise.SYSTEM, "random", source.random)
        yield


def scenario_of(case: str, folder: Path) -> tuple[Scenario, Path]:
    """Return the scenario of a case, and the folder from which it was read."""
    scenario, *changes = CASES[case]
    if "\n" in scenario:
        path = folder / "own.toml"
        path.write_text(scenario)
        scenario = str(path)
    return spec.read(scenario, overrides=["compare.centralised=false", "compare.baselines=false", *changes])


def measure(case: str, folder: Path) -> dict[str, Any]:
    """Run a case in an empty folder, and return the numbers that are frozen."""
    read, base = scenario_of(case, folder)
    rows, out = dataset.prepare(read, base), folder / "run"
    out.mkdir()
    with injected_draws():
        finished = runner.run(read, rows, out, audit=case in AUDITED, another_follows=True)
    assert finished.result.status == "completed", finished.result.error
    return numbers_of(finished.result, out)


def numbers_of(result: RunResult, folder: Path) -> dict[str, Any]:
    """Return what is frozen of a run."""
    found = result.to_dict()
    shown = [[each[key] for key in ("to", "step", "kind", "shape", "times")] for each in found["disclosures"]]
    events = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    files = [folder / "model.npz", *sorted((folder / SITE_MODELS).glob("*.npz"))]
    return {
        "steps": dict(sorted(Counter(each["step"] for each in events if each["event"] == "round").items())),
        "messages": found["cost"]["messages"],
        "payload_bytes": found["cost"]["payload_bytes"],
        "disclosures": _digest(json.dumps(shown).encode()),
        "audit": _digest(json.dumps(_counts(found["audit"])).encode()),
        "model": {f"{path.stem} {name}": numbers for path in files for name, numbers in _arrays(path)},
    }


def _arrays(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    with np.load(path) as file:
        for name in sorted(file.files):
            array = file[name]
            yield name, {"shape": list(array.shape), "digest": _digest(array.tobytes()), **_projections(array)}


def _projections(array: NDArray[Any]) -> dict[str, list[float]]:
    """Return the length of a numeric array, and its inner products with two directions."""
    if array.dtype.kind not in "fiu":
        return {}
    flat = np.ravel(array).astype(np.float64)
    places = np.arange(1, len(flat) + 1)
    return {"projections": [float(np.linalg.norm(flat)), float(flat @ np.cos(places)), float(flat @ np.sin(places))]}


def _counts(audit: Sequence[Mapping[str, Any]]) -> Any:
    """Return the whole numbers of an audit, and areas under curves to three digits."""
    kept = ("attack", "claimed", "recovered", "false_claims", "ranked", "members")
    return [
        [
            [each[key] for key in ("coalition", "coordinator", "sums", "numbers", "parameters", "rows", "recovered")],
            [[*(attack[key] for key in kept), round(attack["auc"] or 0.0, 3)] for attack in each["attacks"]],
        ]
        for each in audit
    ]


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]


def linear_algebra() -> str:
    """Return which linear algebra this machine computes with, whatever else other tests have loaded."""
    loaded = [each for each in threadpool_info() if each["user_api"] == "blas"]
    libraries = {(each["internal_api"], each["version"], each.get("architecture")) for each in loaded}
    return f"numpy {np.__version__}, {sorted(map(str, libraries))}"


def main(cases: Sequence[str]) -> None:
    """Measure cases and write them to the file."""
    known = json.loads(PATH.read_text()) if PATH.exists() and cases else {"cases": {}}
    for case in cases or CASES:
        with tempfile.TemporaryDirectory() as folder:
            known["cases"][case] = measure(case, Path(folder))
        print(case, sum(known["cases"][case]["steps"].values()), flush=True)
    known["linear_algebra"] = linear_algebra()
    PATH.write_text(json.dumps(known, sort_keys=True, separators=(",", ":")).replace('"audit"', '\n"audit"') + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
