"""The table of the threat model that says which sums of each algorithm have noise, compared with what sites may be
ordered to open."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from benchmarks import setup_cost
from fedsvm.algorithms.algorithm import VerticalAlgorithm
from fedsvm.algorithms.data.statistics_rounds import StatisticsSums
from fedsvm.algorithms.features.drawn_landmark_sums import DrawnLandmarks
from fedsvm.algorithms.registry import ALGORITHMS
from fedsvm.federation.site.program import step_methods
from fedsvm.scenarios.run.offered_terms import terms_of
from fedsvm.scenarios.schema import spec
from tests.conftest import ROOT

NOISY = {*step_methods(StatisticsSums), *step_methods(DrawnLandmarks)}
NO_SUM_OF_ROWS = {"category_tables", "local_landmarks", "records_exposed", "released", "held_out_rows"}
"""Values of categories, means with noise or their number, the trained model, and the score of a test."""
WORDS = {
    "row_count": "rows of each site",
    **dict.fromkeys(("squared_norms", "noise_sizes"), "lengths of features"),
    "newton": "each round's masked system, with rows of each class",
    **dict.fromkeys(("consensus", "dual_sums", "dual_vector"), "models and losses of each iteration"),
    "model_table": "models of sites",
    "moments": "second moments of features, with labels",
    "newton_sums": "gradients and Hessians",
    **dict.fromkeys(("label_sums", "products"), "labels and products of bins"),
    "class_counts": "rows of each class",
    "cross_tables": "tables of nodes",
    **dict.fromkeys(("item_count", "class_labels"), "items and labels of rows"),
    "coefficients": "weights",
    **dict.fromkeys(("class_moments", "class_sizes"), "class means and variances"),
    **dict.fromkeys(("subset_newton", "subset_weights", "subset_cuts", "subset_line"), "sums of subsets of columns"),
    **dict.fromkeys(("support_changes", "support_moments", "support_overlaps"), "sums of subsets of columns"),
    "rows_determined": "sums of subsets of columns",
}


def _documented() -> dict[str, tuple[float, set[str]]]:
    """The default mu and the exact sums of each algorithm, from the page."""
    text = (ROOT / "docs" / "threat-model.md").read_text(encoding="utf-8")
    section = text.partition("## Which sums have noise?")[2].partition("\n## ")[0]
    found: dict[str, tuple[float, set[str]]] = {}
    for names, mu, sums in re.findall(r"^\| (`.+`) \| ([\d.]+) \| (.+) \|$", section, re.MULTILINE):
        for name in re.findall(r"`([\w-]+)`", names):
            listed = set(sums.split("; "))
            found[name] = (
                float(mu),
                listed - {"as `filter`"} | (found["filter"][1] if "as `filter`" in listed else set()),
            )
    return found


SCALED = [
    name
    for name, found in ALGORITHMS.loadable()
    if not isinstance(found, VerticalAlgorithm) and found.scaling == "secure-sums"
]


def test_the_table_names_every_algorithm_that_scales_by_secure_sums() -> None:
    assert sorted(_documented()) == sorted(SCALED)


@pytest.mark.usefixtures("noisy_default")
@pytest.mark.parametrize("name", SCALED)
def test_the_table_says_which_sums_of_an_algorithm_are_exact(name: str, tmp_path: Path) -> None:
    mu, documented = _documented()[name]
    algorithm = ALGORITHMS[name]
    assert mu == algorithm.statistics_privacy
    text = f'[data]\nsource = "wdbc"\npositive = "malignant"\nstatistics_privacy = 0.5\n[algorithm]\nname = "{name}"\n'
    (tmp_path / "noisy.toml").write_text(text)
    ordered = algorithm.Site.script(terms_of(spec.read(tmp_path / "noisy.toml")[0])).steps
    methods = step_methods(algorithm.Site)
    opened = {each for each in ordered & methods.keys() if methods[each].__annotations__.get("return") != "None"}
    assert {WORDS[each] for each in opened - NOISY - NO_SUM_OF_ROWS} == documented


@pytest.mark.long
def test_set_up_costs_as_many_rounds_and_bytes_as_documented() -> None:
    page = (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8")
    columns = setup_cost.line("quickstart", "pan-svm").split(" | ")
    documented = next(each.split(" | ") for each in page.splitlines() if each.startswith("| quickstart | `pan-svm` |"))
    assert columns[:-1] == documented[:-1]
