"""Landmarks by noisy statistics where a run is resumed, and across hosts."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tests.hosts import NAMES, hosts
from tests.test_resume import EXACTLY, NAME, begin, check, cut, ends, go_on

NOISY = "data.statistics_privacy=0.5"
NARROW = ("algorithm.gamma=20", "algorithm.landmarks=40", "algorithm.max_landmarks=40")
"""A kernel that drawn boards do not reach, so that noisy means take their place."""


@pytest.mark.parametrize("changes", [(), NARROW], ids=["drawn", "means"])
def test_a_resumed_run_keeps_landmarks_and_noise(changes: tuple[str, ...], tmp_path: Path) -> None:
    begin(tmp_path / "whole", *EXACTLY["pan-svm"], NOISY, *changes)
    records = ends(tmp_path / "whole" / "journal" / NAME)
    folder = cut(tmp_path / "whole", tmp_path / "cut", records[len(records) // 2])
    go_on(folder)
    check(folder, tmp_path / "whole")


@pytest.mark.long
def test_sites_across_hosts_draw_their_landmarks(tmp_path: Path) -> None:
    ranges = "data.ranges={size=[-5,5],depth=[-5,5],age=[-5,5]}"
    with hosts(tmp_path) as there:
        coordinator = there.coordinator("--set", NOISY, "--set", ranges, "--set", "algorithm.landmark_method=drawn")
        sites = [there.site(name, coordinator) for name in NAMES]
        for each in (coordinator, *sites):
            assert each.ends() == 0, each.said
        model, result = there.model(), json.loads((tmp_path / "deployed" / "result.json").read_text())
    marks = (model["landmarks"] * model["scale"] + model["offset"])[:, 3:]
    np.testing.assert_allclose(marks.sum(axis=1), 1.0, atol=1e-9)  # one ward each
    assert 0 <= result["model"]["figures"]["explained_share"] <= 1
