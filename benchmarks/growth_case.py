"""One case of `benchmarks.growth`: made or stored rows, and who trains on them, in a process of its own.

`python benchmarks/growth_case.py CASE SIZE WHO` prints seconds, the accuracy on the training rows and what else is
known, as JSON. It imports nothing of this folder, so that another checkout's fedsvm can run it.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.kernel_approximation import Nystroem
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, LinearSVC

from fedsvm import DppSVC, PanSVC

Rows = tuple[NDArray[np.float64], NDArray[Any]]
SITES = 5


def _stored(name: str) -> Rows:
    """Return columns and labels of a data set of FEDSVM_DATA."""
    with gzip.open(Path(os.environ["FEDSVM_DATA"]) / f"{name}.csv.gz", "rt") as file:
        _, *lines = csv.reader(file)
    return np.array([line[:-1] for line in lines], dtype=np.float64), np.array([line[-1] for line in lines])


def _made(rows: int, columns: int, classes: int) -> Rows:
    """Return rows around two centres a class, which overlap."""
    random = np.random.default_rng(0)
    centres, of_rows = random.normal(size=(2 * classes, columns)), random.integers(2 * classes, size=rows)
    return centres[of_rows] + random.normal(size=(rows, columns)), of_rows % classes


def _first_classes(classes: int) -> Rows:
    columns, labels = _stored("vowel")
    kept = np.isin(labels, np.unique(labels)[:classes])
    return columns[kept], labels[kept]


CASES: Mapping[str, tuple[Callable[[int], Rows], Callable[[int], dict[str, Any]]]] = {
    "vowel": (lambda size: _first_classes(11), lambda size: {"landmarks": size, "C": 2.0, "gamma": 0.5}),
    "german": (lambda size: _stored("german"), lambda size: {"landmarks": size, "C": 8.0, "gamma": 0.03125}),
    "a9a": (
        lambda size: _stored("a9a_train"),
        lambda size: {"landmarks": size, "C": 1.0, "gamma": 0.02, "tolerance": 1e-3},
    ),
    "segment": (lambda size: _made(2_310, 19, 7), lambda size: {"landmarks": size, "C": 1.0, "gamma": 0.05}),
    "rows": (lambda size: _made(size, 20, 2), lambda size: {"landmarks": 200, "C": 1.0, "gamma": 0.05}),
    "columns": (
        lambda size: _made(size, 20, 2),
        lambda size: {"landmarks": 200, "C": 1.0, "gamma": 0.05, "sum": "ring"},
    ),
}
"""By name: its rows, and the settings of its estimator, given a size: the number of landmarks, or of rows."""


def _ours(settings: Mapping[str, Any]) -> PanSVC | DppSVC:
    if "sum" in settings:  # sites hold columns
        return DppSVC(sites=SITES, **settings)
    return PanSVC(
        sites=SITES,
        landmark_method="local",
        min_cluster_size=1,
        max_landmarks=settings["landmarks"],
        round_timeout_s=600.0,
        **settings,
    )


def _nystroem(settings: Mapping[str, Any]) -> Any:
    features = Nystroem(gamma=settings["gamma"], n_components=settings["landmarks"], random_state=0)
    svm = LinearSVC(C=settings["C"], loss="hinge", tol=1e-3, max_iter=2_000)
    return make_pipeline(StandardScaler(), features, svm)


def _libsvm(settings: Mapping[str, Any]) -> Any:
    return make_pipeline(StandardScaler(), SVC(C=settings["C"], gamma=settings["gamma"]))


WHO: Mapping[str, Callable[[Mapping[str, Any]], Any]] = {
    "ours": _ours,
    "Nystroem and LinearSVC": _nystroem,
    "LIBSVM": _libsvm,
}


def main(case: str, size: int, who: str) -> None:
    """Train, and print."""
    rows, settings = CASES[case]
    columns, labels = rows(size)
    model = WHO[who](settings(size))
    began, processor = time.perf_counter(), time.process_time()
    model.fit(columns, labels)
    found: dict[str, Any] = {"seconds": time.perf_counter() - began, "own_processor": time.process_time() - processor}
    some = slice(0, 5_000)
    found["accuracy"] = float((model.predict(columns[some]) == labels[some]).mean())
    if who == "ours":
        cost = model.result_["cost"]
        found |= {"objective": float(model.model_.training.objective), "rounds": int(model.n_iter_)}
        found["payload_mb"] = cost["payload_bytes"] / 1e6
    print(json.dumps(found))


def _read_arguments() -> argparse.Namespace:
    described = (__doc__ or "").splitlines()[0]
    read = argparse.ArgumentParser(
        prog="python -m benchmarks.growth_case",
        description=described,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    read.add_argument("case", choices=CASES)
    read.add_argument("size", type=int, help="the number of landmarks, or of rows")
    read.add_argument("who", choices=WHO)
    return read.parse_args()


if __name__ == "__main__":
    main(**vars(_read_arguments()))
