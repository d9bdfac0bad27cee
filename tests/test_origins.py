"""The table of what each array of a model file is computed from."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fedsvm import run
from fedsvm.algorithms.origins import BASES, Mechanisms, origins
from fedsvm.algorithms.registry import ALGORITHMS
from fedsvm.scenarios.report.sections.overview import SECTION
from fedsvm.scenarios.report.summary import lines
from tools.docstrings import items_of
from tools.model_files import SHARED

TRAINED = {
    *("w", "b", "models", "support_indices", "dual_coef", "column", "bin", "children", "counts", "edges"),
    *("means", "variances", "log_shares", "middle", "selected", "left_out"),
}
"""Arrays that training makes of all rows."""


def test_every_documented_array_has_a_declared_origin() -> None:
    writers = [*SHARED.values(), *(algorithm.Model.to_arrays for _, algorithm in ALGORITHMS.loadable())]
    documented = {item.name for writer in writers for item in items_of(writer)}
    assert documented - TRAINED <= BASES.keys()
    assert not TRAINED & BASES.keys()


@pytest.mark.parametrize(
    ("mechanisms", "scale", "weights"),
    [
        (Mechanisms("secure-sums", "standard", 0.0), "exact secure sums", "training, without noise"),
        (Mechanisms("secure-sums", "minmax", 0.0), "exact extremes", "training, without noise"),
        (Mechanisms("secure-sums", "standard", 0.5), "noisy release, mu 0.5", "training, without noise"),
        (Mechanisms("secure-sums", "standard", 0.5, is_statistics=True), "mu 0.5", "noisy release, mu 0.5"),
        (
            Mechanisms("secure-sums", "standard", 0.0, is_statistics=True),
            "exact secure sums",
            "training, without noise",
        ),
        (
            Mechanisms("secure-sums", "standard", 0.5, objective_noise=0.2),
            "mu 0.5",
            "training, with noise in the objective (0.2) and a little on the released weights",
        ),
        (Mechanisms("public-rows", "standard", 0.0, noise="Laplace"), "public", "differential privacy: Laplace"),
    ],
)
def test_origins_name_the_mechanism_and_the_digits(mechanisms: Mechanisms, scale: str, weights: str) -> None:
    arrays = {"offset": np.zeros(3), "w": np.zeros(2), "columns": np.array(["a", "b", "c"])}
    offset, w, columns = origins(arrays, mechanisms)
    assert (offset.mechanism.endswith(scale), offset.digits) == (True, 12)
    assert (w.mechanism, w.digits) == (weights, 16)
    assert columns.digits is None
    assert scale in mechanisms.summary(arrays)


def test_result_summary_and_report_have_the_table(tmp_path: Path) -> None:
    changes = {"algorithm.landmarks": 20, "compare.centralised": False, "data.rows": 150}
    result = run("quickstart", sites=3, changes=changes, out=tmp_path / "run")
    assert result.model_file is not None
    with np.load(tmp_path / "run" / "model.npz") as file:
        assert [each.array for each in result.model_file.arrays] == file.files
    shown = dict(lines(result))
    assert shown["model file"] == result.model_file.summary
    objective, gap = shown["objective"].split(", certified within ")
    assert len(objective.replace(".", "").lstrip("0")) <= 3
    assert len(gap.split("e")[0]) == 3
    assert result.model is not None
    noisy = replace(result, model=replace(result.model, figures={**result.model.figures, "objective_noise": 0.2}))
    assert dict(lines(noisy))["objective"].startswith(
        f"{objective} with the sites' noise (0.2), certified within {gap}"
    )
    notes = [[card.beside for card in SECTION.cards(each) if card.name == "certified gap"] for each in (result, noisy)]
    assert notes == [
        ["maximum distance from the optimum"],
        ["distance of training from the optimum of its noisy objective"],
    ]
    assert "What each array of model.npz is computed from" in (tmp_path / "run" / "report.html").read_text()
