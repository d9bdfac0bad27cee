"""The accuracy of features that reveal no record, on the data sets of table 3.2 of the PAN-SVM dissertation.

`python -m benchmarks.features FOLDER` needs FEDSVM_DATA, takes some minutes, and writes features.json and features.md.

Every kind of features gets the same number m of them: landmarks that are local or global means of three rows or more,
or cosines and sines of m / 2 random frequencies. C and gamma are the table's. Landmarks are chosen, rows mapped and
the linear SVM solved in this process, over the five folds of five deals: `pooled_map` gives the map that a
federation of the same rows gives, which a test finds out, and training in it comes to the same optimum.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.svm import SVC

from fedsvm.algorithms.data.columns import LabeledRows
from fedsvm.algorithms.data.public_rows import public_columns
from fedsvm.algorithms.features import k_means
from fedsvm.algorithms.features.choice import FeatureSettings
from fedsvm.algorithms.features.feature_map import FeatureMap
from fedsvm.algorithms.features.fourier import FourierMap
from fedsvm.algorithms.features.identity import IdentityMap
from fedsvm.algorithms.features.landmarks import landmark_count, shares
from fedsvm.algorithms.features.nystrom import NystromMap
from fedsvm.federation.arrays import FloatArray, IntArray
from fedsvm.federation.site.partition import Partition
from fedsvm.federation.site.program import SiteProgram
from fedsvm.scenarios.data import dataset
from fedsvm.scenarios.data.dataset import FederatedDataset
from fedsvm.scenarios.schema import spec
from fedsvm.scenarios.schema.spec import Scenario
from tools.arguments import parser

NAMES = ("australian", "breast-cancer", "pima", "splice", "ionosphere", "liver")
SHARES = (0.15, 0.25)
SEEDS = range(1, 6)
WAYS = ("local", "global", "fourier")


def pooled_map(settings: FeatureSettings, held: Mapping[str, FloatArray], seed: int) -> FeatureMap:
    """Return the map that a federation with these scaled rows agrees on, by the same code in this process."""
    rows = np.vstack(list(held.values()))
    kernel = settings.kernel_of(rows.shape[1])
    if settings.features == "identity":
        return IdentityMap(rows.shape[1])
    if settings.features == "fourier":
        return FourierMap.draw(kernel.gamma, settings.frequencies, rows.shape[1], seed)
    count, least = landmark_count(settings.landmarks, len(rows)), settings.min_cluster_size
    if settings.landmark_method in ("auto", "local"):
        points = _local(held, count, least, seed)
    else:
        points = np.unique(k_means.pooled_centres(rows, count, least, seed), axis=0)
    return NystromMap.span(kernel, points, settings.rank_tolerance)


def _local(held: Mapping[str, FloatArray], count: int, least: int, seed: int) -> FloatArray:
    quotas = zip(held.items(), shares(count, [len(rows) for rows in held.values()]), strict=True)
    centres = [
        k_means.local_centres(rows, quota, least, SiteProgram(site, Partition({}), {"seed": seed}).random("cluster"))[0]
        for (site, rows), quota in quotas
    ]
    return np.unique(np.vstack(centres), axis=0)


def measure(name: str) -> Iterator[dict[str, Any]]:
    """Yield the accuracy of every way and number of features, for every fold and split of one data set."""
    for seed in SEEDS:
        scenario, base = spec.read(name, overrides=[f"seed={seed}"])
        prepared = dataset.prepare(scenario, base)
        for fold in range(len(prepared.tests)):
            held, test = _scaled(prepared, scenario, fold)
            train = LabeledRows(
                np.vstack([each.rows for each in held.values()]), np.hstack([y for _, y in held.values()])
            )
            settings, C = scenario.algorithm.settings, scenario.algorithm.settings.C
            common = {"data": name, "seed": seed, "fold": fold}
            exact = SVC(C=C, gamma=settings.gamma).fit(*train)
            yield {**common, "way": "exact kernel", "m": 0, "share": None, "accuracy": exact.score(*test)}
            for share in SHARES:
                count = landmark_count(share, len(train.rows))
                for way in WAYS:
                    chosen = _settings(way, settings.gamma, count)
                    mapped = pooled_map(chosen, {site: each.rows for site, each in held.items()}, seed)
                    model = SVC(C=C, kernel="linear").fit(mapped(train.rows), train.labels)
                    accuracy = model.score(mapped(test.rows), test.labels)
                    yield {**common, "way": way, "m": mapped.dimensions, "share": share, "accuracy": accuracy}


def _settings(way: str, gamma: float, count: int) -> FeatureSettings:
    if way == "fourier":
        return FeatureSettings(gamma=gamma, features="fourier", frequencies=max(1, count // 2))
    return FeatureSettings(gamma=gamma, landmarks=count, landmark_method=way)  # type: ignore[arg-type]


def _scaled(prepared: FederatedDataset, scenario: Scenario, fold: int) -> tuple[dict[str, LabeledRows], LabeledRows]:
    """Return each site's training rows while a fold is held out, and the fold, on the scale of all training rows."""
    pooled = prepared.rows.take(prepared.training(fold, prepared.names))
    columns = public_columns(prepared.schema, pooled.numeric, pooled.categorical, scenario.data.scale, {})

    def scaled(indices: IntArray) -> LabeledRows:
        rows = prepared.rows.take(indices)
        return LabeledRows(columns(rows.numeric, rows.categorical), rows.labels)

    return {site: scaled(prepared.training(fold, [site])) for site in prepared.names}, scaled(prepared.test(fold))


def table(points: list[dict[str, Any]]) -> str:
    """Return mean accuracy and its deviation over folds, a line for each data set and share, in Markdown."""
    ways = list(dict.fromkeys(each["way"] for each in points))
    lines = [f"| data set | share | {' | '.join(ways)} |", f"|---|---|{'---|' * len(ways)}"]
    for name in dict.fromkeys(each["data"] for each in points):
        for share in SHARES:
            of_line = [each for each in points if each["data"] == name and each["share"] in (share, None)]
            cells = [_cell([each for each in of_line if each["way"] == way]) for way in ways]
            lines.append(f"| {name} | {100 * share:.0f} % | {' | '.join(cells)} |")
    return "\n".join([*lines, ""])


def _cell(points: list[dict[str, Any]]) -> str:
    accuracies = [100 * each["accuracy"] for each in points]
    features = f" ({np.mean([each['m'] for each in points]):.0f})" if points[0]["share"] else ""
    return f"{np.mean(accuracies):.1f} ± {np.std(accuracies):.1f}{features}"


if __name__ == "__main__":
    arguments = parser("benchmarks.features", __doc__)
    arguments.add_argument("folder", type=Path, metavar="FOLDER", help="folder for what is measured")
    folder = arguments.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    measured: list[dict[str, Any]] = []
    for data in NAMES:
        measured += measure(data)
        print(table([each for each in measured if each["data"] == data]), flush=True)
    (folder / "features.json").write_text(json.dumps(measured, indent=1) + "\n")
    (folder / "features.md").write_text(table(measured))
