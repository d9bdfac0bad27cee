"""The cost of an estimator in scikit-learn's tools: `python -m benchmarks.estimators`.

Seconds of `PanSVC.fit` on scikit-learn's breast cancer set (569 rows, 30 columns, standardised): of the first in a
process, which loads libraries and starts the process that sites are forked from; of those that follow; of ten folds.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import cross_val_score
from sklearn.preprocessing import scale

from fedsvm import PanSVC
from tools.arguments import parser

FOLDS = 10


def seconds(work: Callable[[], object]) -> float:
    """Return the seconds that work takes."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def main() -> None:
    """Measure and print, as Markdown."""
    parser("benchmarks.estimators", __doc__).parse_args()
    columns, labels = load_breast_cancer(return_X_y=True)
    rows = scale(columns)
    first, *others = [seconds(lambda: PanSVC().fit(rows, labels)) for _ in range(6)]
    folds = seconds(lambda: cross_val_score(PanSVC(), rows, labels, cv=FOLDS))
    print("| | seconds |\n|---|---|")
    print(f"| the first fit | {first:.2f} |")
    print(f"| one that follows | {statistics.median(others):.2f} |")
    print(f"| {FOLDS} folds | {folds:.2f} |")


if __name__ == "__main__":
    main()
