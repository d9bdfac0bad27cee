"""The cost in accuracy of landmarks that reveal no row, with the explained share, on 13 data sets.

`python -m benchmarks.landmarks FOLDER [--splits N] [--only NAME]` needs FEDSVM_DATA, and writes landmarks.json and
landmarks.md.

Exact means of clusters are compared with landmarks by noisy statistics (mu of 0.5, five sites): chosen by `auto`, all
drawn, and means with noise. The steps of sites and the coordinator are the real ones, called in this process without
messages: their sums come to the same. LIBSVM then trains in the features, over ten splits of four to one.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
from sklearn.svm import SVC

from fedsvm.algorithms.data.horizontal_task import HorizontalTask
from fedsvm.algorithms.data.statistics_rounds import StatisticsPlan
from fedsvm.algorithms.features.choice import Features, FeatureSettings
from fedsvm.algorithms.features.mapped_rows import map_rows
from fedsvm.algorithms.mapped_site import MappedSite
from fedsvm.algorithms.pan_svm import PanSite
from fedsvm.federation.arrays import FloatArray, IntArray
from fedsvm.federation.federation import Federation
from fedsvm.federation.site.partition import read_partition
from fedsvm.scenarios.data import dataset
from fedsvm.scenarios.run.offered_terms import terms_of
from fedsvm.scenarios.schema import spec
from tools.arguments import parser

STANDARD = ("data.label=label", "data.scale=standard", "data.test_fraction=0.2")
VOWELS = ["hAd", "hEd", "hId", "hOd", "hUd", "hYd", "had", "hed", "hid", "hod", "hud"]


def _of_table(source: str, positive: str, C: float, gamma: float, *more: str) -> tuple[str, ...]:
    """Return the scenario of a row of table 3.2 of the PAN-SVM dissertation."""
    data = (f"data.source={source}", "data.label=label", f"data.positive={positive}", "data.scale=minmax")
    return ("quickstart", *data, "data.test_fraction=0.2", f"algorithm.C={C}", f"algorithm.gamma={gamma}", *more)


SETS: Mapping[str, tuple[str, ...]] = {
    "quickstart": ("quickstart",),
    "wdbc": (
        *("quickstart", "data.source=wdbc", "data.positive=malignant", *STANDARD),
        *("algorithm.C=10", "algorithm.gamma=0.03"),
    ),
    "pima": (
        *("quickstart", "data.source=pima_diabetes", "data.positive=1", "data.scale=minmax"),
        *("algorithm.C=512", "algorithm.gamma=0.0078125"),
    ),
    "heart": ("quickstart", "data.source=heart", "data.positive=1", *STANDARD, "algorithm.C=1", "algorithm.gamma=0.05"),
    "german": (
        "quickstart",
        "data.source=german",
        "data.positive=1",
        *STANDARD,
        "algorithm.C=1",
        "algorithm.gamma=0.03",
    ),
    "vowel": (
        "digits",
        "data.source=vowel",
        f"data.classes={VOWELS}",
        *STANDARD,
        "algorithm.C=10",
        "algorithm.gamma=0.3",
        "algorithm.landmarks=0.25",
    ),
    "digits": ("digits",),
    "australian": _of_table("australian", "1", 512.0, 0.0078125),
    "breast cancer": _of_table("breast_cancer_wisconsin", "4", 0.125, 0.125, "data.ignore=['sample_code_number']"),
    "ionosphere": _of_table("ionosphere", "g", 8.0, 0.5),
    "liver": _of_table("bupa_liver", "2", 8.0, 0.5),
    "splice": _of_table("splice_train", "1", 8.0, 0.03125),
    "a9a": _of_table("a9a_train", "1", 100.0, 0.5, "data.scale=none", "data.rows=2000", "algorithm.landmarks=300"),
}
EXACT = ("data.statistics_privacy=0", "algorithm.landmark_method=local")
NOISY = ("data.statistics_privacy=0.5",)
LESS_NOISE = (*NOISY, "algorithm.landmark_method=local", "algorithm.landmark_noise=0.25")
FOURIER = (*NOISY, "algorithm.features=fourier", "algorithm.frequencies=400")
TWICE = ("algorithm.landmarks=0.5", "algorithm.min_cluster_size=2")
REMEDIES: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "german": {
        "local, noise 0.25": LESS_NOISE,
        "drawn, 300": (*NOISY, "algorithm.landmark_method=drawn", "algorithm.landmarks=300"),
        "auto, mu 1": ("data.statistics_privacy=1", "algorithm.landmark_method=auto"),
        "fourier, 400": FOURIER,
    },
    "vowel": {
        "local, noise 0.25": LESS_NOISE,
        "local, noise 0.25, twice as many": (*LESS_NOISE, *TWICE),
        "fourier, 400": FOURIER,
    },
    "ionosphere": {"local, noise 0.25": LESS_NOISE, "fourier, 400": FOURIER},
    "splice": {"local, noise 0.25": LESS_NOISE, "local, noise 0.25, twice as many": (*LESS_NOISE, *TWICE)},
}
"""Settings that may close a gap of `auto`, on the sets that have one."""
WAYS: Mapping[str, tuple[str, ...]] = {
    "local": EXACT,
    "auto": (*NOISY, "algorithm.landmark_method=auto"),
    "drawn": (*NOISY, "algorithm.landmark_method=drawn"),
    "local with noise": (*NOISY, "algorithm.landmark_method=local", "algorithm.landmark_noise=0.5"),
}


class PooledFederation:
    """Sites in this process, whose steps are called one after the other and summed in the clear."""

    def __init__(self, sites: Mapping[str, MappedSite]) -> None:
        self.sites = tuple(sites)
        self._sites = list(sites.values())

    def phase(self, name: str) -> nullcontext[None]:
        """Return a context that does nothing."""
        return nullcontext()

    def disclose(self, *arguments: Any, **named: Any) -> None:
        """Write nothing down."""

    def run(self, step: str, *, remember: bool = False, **params: Any) -> None:
        """Order each site to carry out a step."""
        if step == "agree_secret":
            for site in self._sites:
                site._secret = np.arange(4, dtype=np.uint64)
            return
        for site in self._sites:
            site.find_step(step)(**params)

    def sum(self, step: str, *, shape: tuple[int, ...], bound: float, **params: Any) -> FloatArray:
        """Return the sum of what each site's step returns."""
        return np.asarray(np.sum([site.find_step(step)(**params) for site in self._sites], axis=0).reshape(shape))

    def gather(self, step: str, *, shape: tuple[int, ...]) -> dict[str, FloatArray]:
        """Return what each site's step returns."""
        return {site.site: site.find_step(step)() for site in self._sites}


@dataclass(frozen=True)
class MappedSource:
    """All rows of a source in the features of a run: settings, features (n, m), labels (n,) of +1 and -1 or of more
    classes, the rows of each site and the test rows, by number. rows (n, d): scaled. choice: of the features."""

    settings: Any
    features: FloatArray
    labels: Any
    sites: Sequence[IntArray]
    test: IntArray
    rows: FloatArray
    choice: Features

    @property
    def training(self) -> IntArray:
        """The training rows of all sites."""
        return np.concatenate(self.sites)


def map_source(scenario_words: tuple[str, ...]) -> MappedSource:
    """Return the rows of a scenario's source, mapped by the steps of its sites."""
    name, *overrides = scenario_words
    scenario, base = spec.read(name, overrides=overrides)
    data = dataset.prepare(scenario, base)
    if scenario.data.statistics_privacy and data.schema.numeric:
        scenario, base = spec.read(name, overrides=[*overrides, f"data.ranges={ranges_of(data)}"])
    terms = terms_of(scenario)
    draws = np.random.default_rng()
    sites: dict[str, MappedSite] = {}
    with tempfile.TemporaryDirectory() as folder:
        for number, site in enumerate(data.names):
            path = Path(folder, site)
            data.write_partition(number, path)
            sites[site] = PanSite(site, read_partition(str(path)), {"seed": scenario.seed})
            sites[site].terms = terms
            sites[site].channel = cast("Any", _Channel(data.names, draws))
    federation = cast("Federation", PooledFederation(sites))
    task = HorizontalTask(
        data.schema, scenario.data.scale, scenario.seed, classes=data.classes, plan=StatisticsPlan.of(terms)
    )
    settings = cast("FeatureSettings", scenario.algorithm.settings)
    choice = map_rows(federation, settings, task.prepare(federation), task.seed)
    rows = task.columns(data.rows.numeric, data.rows.categorical)
    return MappedSource(
        scenario.algorithm.settings,
        choice.map(rows),
        data.rows.labels,
        [np.asarray(shard.rows) for shard in data.shards],
        np.asarray(data.test(None)),
        rows,
        choice,
    )


def mapped(scenario_words: tuple[str, ...]) -> tuple[float, dict[str, Any]]:
    """Return the accuracy of a scenario's model, and what is said of its landmarks."""
    found = map_source(scenario_words)
    train = found.features[found.training]
    model = SVC(C=found.settings.C, kernel="linear").fit(train, found.labels[found.training])
    share = float(np.clip((train**2).sum(axis=1), 0, 1).mean())
    count = found.choice.figures.get("landmarks", train.shape[1])
    figures = {"landmarks": count, "share": share, "remark": found.choice.remarks.get("landmarks", "")}
    return float(model.score(found.features[found.test], found.labels[found.test])), figures


def ranges_of(data: dataset.FederatedDataset) -> str:
    """Return ranges as a code book has them: the lowest and the highest value with one digit, away from zero."""
    ends = {}
    for name, values in zip(data.schema.numeric, data.rows.numeric.T, strict=True):
        size = 10.0 ** np.floor(np.log10(np.abs(values).max() or 1.0))
        low, high = np.floor(values.min() / size) * size, np.ceil(values.max() / size) * size
        ends[name] = [float(low), float(high if high > low else low + size)]
    return "{" + ", ".join(f"{json.dumps(name)} = {each}" for name, each in ends.items()) + "}"


class _Channel(SimpleNamespace):
    """Of a site's channel what steps use here: the sites, and random numbers."""

    def __init__(self, sites: tuple[str, ...], draws: np.random.Generator) -> None:
        super().__init__(sites=tuple(sites))
        self._draws = draws

    def random(self, shape: tuple[int, ...]) -> Any:
        return self._draws.integers(0, 2**64, size=shape, dtype=np.uint64)


def measure(name: str, splits: int) -> Iterator[dict[str, Any]]:
    """Yield the accuracy of every way on every split of a data set."""
    for seed in range(1, splits + 1):
        for way, changes in {**WAYS, **REMEDIES.get(name, {})}.items():
            accuracy, figures = mapped((*SETS[name], *changes, f"seed={seed}"))
            yield {"data": name, "seed": seed, "way": way, "accuracy": accuracy, **figures}


def table(points: list[dict[str, Any]]) -> str:
    """Return mean accuracy with its standard error, explained share and number of landmarks, in Markdown."""
    lines = [f"| data set | {' | '.join(WAYS)} |", f"|---|{'---|' * len(WAYS)}"]
    names = list(dict.fromkeys(each["data"] for each in points))
    lines += [f"| {name} | {' | '.join(_cell(points, name, way) for way in WAYS)} |" for name in names]
    lines += [f"{name}, {way}: {_cell(points, name, way)}" for name in names for way in REMEDIES.get(name, {})]
    return "\n".join([*lines, ""])


def _cell(points: list[dict[str, Any]], name: str, way: str) -> str:
    found = [each for each in points if (each["data"], each["way"]) == (name, way)]
    accuracies = [100 * each["accuracy"] for each in found]
    error = np.std(accuracies, ddof=1) / np.sqrt(len(found)) if len(found) > 1 else 0.0
    mean: Callable[[str], float] = lambda key: float(np.mean([each[key] for each in found]))  # noqa: E731
    return f"{np.mean(accuracies):.1f} ± {error:.1f} ({mean('share'):.2f}, {mean('landmarks'):.0f})"


if __name__ == "__main__":
    arguments = parser("benchmarks.landmarks", __doc__)
    arguments.add_argument("folder", type=Path, metavar="FOLDER", help="folder for what is measured")
    arguments.add_argument("--splits", type=int, default=10, metavar="N", help="number of splits")
    arguments.add_argument("--only", action="append", choices=SETS, metavar="NAME", help="a data set; all if not given")
    chosen = arguments.parse_args()
    chosen.folder.mkdir(parents=True, exist_ok=True)
    measured: list[dict[str, Any]] = []
    for data_set in chosen.only or SETS:
        measured += measure(data_set, chosen.splits)
        print(table([each for each in measured if each["data"] == data_set]), flush=True)
    (chosen.folder / "landmarks.json").write_text(json.dumps(measured, indent=1) + "\n")
    (chosen.folder / "landmarks.md").write_text(table(measured))
