"""The predictions by which `masking = "auto"` takes a committee: `python -m benchmarks.masking_forecast`.

The first table has the predicted seconds of a run without and with a committee, and their ratio. The second has the
number of features up to which `auto` takes a committee. Both are computed from formulas, in a second.
"""

from __future__ import annotations

from fedsvm.algorithms.algorithm import Premises
from fedsvm.algorithms.data.conditions import Conditions
from fedsvm.algorithms.optimization.masking_choice import MaskedRounds
from fedsvm.algorithms.pan_svm import PanSettings, PanSvm
from tools.arguments import parser

SITES = (5, 20)
FEATURES = (50, 100, 180, 300, 500)
CASES = {
    "five sites, one model of two classes": Premises(5),
    "three sites, the same": Premises(3),
    "five sites, three classes": Premises(5, classes=3),
    "five sites, five folds": Premises(5, models=5),
    "five sites of 700 rows in all": Premises(5, rows=700),
}
_STEP, _MAX_FEATURES = 10, 600


def predicted_seconds(sites: int, features: int) -> str:
    """Return a cell of the first table."""
    rounds = MaskedRounds.of_path(sites, features, 1, 1, Conditions())
    ratio = rounds.committee_s / rounds.open_s
    return f"{rounds.open_s:.2g}, {rounds.committee_s:.2g} ({ratio:.1f})"


def max_features(premises: Premises) -> int:
    """Return the most features, in steps of ten, with which `auto` takes a committee."""
    algorithm, features = PanSvm(), 0
    while features < _MAX_FEATURES:
        settings, _ = algorithm.resolve_settings(PanSettings(landmarks=features + _STEP), premises)
        if settings.masking != "committee":
            break
        features += _STEP
    return features


def tables() -> list[str]:
    """Return the lines of both tables, as Markdown."""
    lines = [f"| sites | {' | '.join(f'm = {each}' for each in FEATURES)} |", "|---|" + "---|" * len(FEATURES)]
    lines += [f"| {sites} | {' | '.join(predicted_seconds(sites, each) for each in FEATURES)} |" for sites in SITES]
    lines += ["", "| case | `auto` takes a committee up to |", "|---|---|"]
    return lines + [f"| {case} | {max_features(premises)} features |" for case, premises in CASES.items()]


def main() -> None:
    """Print both tables."""
    parser("benchmarks.masking_forecast", __doc__).parse_args()
    print("\n".join(tables()))


if __name__ == "__main__":
    main()
