"""Algorithms of other packages that are broken: named in a sentence, and in nobody else's way."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from fedsvm.algorithms.registry import ALGORITHMS, OWN_ALGORITHMS
from fedsvm.algorithms.settings import settings

BROKEN = """
from dataclasses import dataclass
from typing import Annotated
from annotated_types import Interval
from fedsvm.algorithms.algorithm import Model
from fedsvm.algorithms.naive_bayes import NaiveBayes
from fedsvm.algorithms.settings import Share, doc


class NoName(NaiveBayes):
    pass


@dataclass
class ListSettings:
    widths: list[float] = ()


class OddSetting(NaiveBayes):
    name = "odd-setting"
    Settings = ListSettings


@dataclass
class NameSettings:
    name: str = "x"


class TakenSetting(NaiveBayes):
    name = "taken-setting"
    Settings = NameSettings


class NoSettings(NaiveBayes):
    name = "no-settings"
    Settings = None


@dataclass
class IntervalSettings:
    share: Annotated[float, Interval(ge=0, le=1), doc("A share.")] = 0.5


class IntervalSetting(NaiveBayes):
    name = "interval-setting"
    Settings = IntervalSettings


@dataclass
class DefaultSettings:
    share: Annotated[Share, doc("A share.")] = 2.0


class WrongDefault(NaiveBayes):
    name = "wrong-default"
    Settings = DefaultSettings


@dataclass
class SitesSettings:
    sites: Annotated[Share, doc("A share.")] = 0.5


class ClashingSetting(NaiveBayes):
    name = "clashing-setting"
    Settings = SitesSettings


class HalfModel(Model):
    def decision_function(self, rows):
        return rows[:, 0]


class WrongModel(NaiveBayes):
    name = "wrong-model"
    Model = HalfModel


class Raises(NaiveBayes):
    name = "raises"

    def __init__(self):
        raise RuntimeError("not today")
"""
SENTENCES = {
    "no-name": "broken:NoName is no algorithm of the name 'no-name'",
    "odd-setting": "TypeError: the setting widths must be an int or float, with Ge, Gt, Le or Lt",
    "interval-setting": "a Literal of strings, a dict from str to one of these, or one of these or None, got Interval(",
    "wrong-default": "TypeError: the default of the setting share must be a number above 0 and below 1",
    "wrong-model": "TypeError: its Model must define from_arrays, to_arrays",
    "taken-setting": "TypeError: no setting can be called name",
    "no-settings": "The algorithm 'no-settings' of broken:NoSettings cannot be loaded: TypeError",
    "raises": "The algorithm 'raises' of broken:Raises cannot be loaded: RuntimeError: not today",
}


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """A folder with a package that offers them."""
    (tmp_path / "broken.py").write_text(BROKEN)
    (tmp_path / "broken-1.0.dist-info").mkdir()
    (tmp_path / "broken-1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 1.0\n")
    offered = [*SENTENCES, "clashing-setting"]
    classes = {name: "".join(word.capitalize() for word in name.split("-")) for name in offered}
    lines = "".join(f"{name} = broken:{each}\n" for name, each in classes.items())
    (tmp_path / "broken-1.0.dist-info" / "entry_points.txt").write_text(f"[fedsvm.algorithms]\n{lines}")
    return tmp_path


def fedsvm(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "fedsvm", *words],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_broken_algorithm_is_named_when_it_is_asked_for(installed: Path) -> None:
    done = fedsvm(installed, "run", "quickstart", "--set", "algorithm.name=raises")
    assert done.returncode == 2
    assert SENTENCES["raises"] in done.stderr
    assert "Traceback" not in done.stderr


def test_each_way_to_be_broken_has_its_sentence(installed: Path) -> None:
    code = (
        "import sys\nfrom fedsvm.scenarios.schema import spec\n"
        "from fedsvm.scenarios.schema.errors import ScenarioError\n"
        "for name in sys.argv[1:]:\n"
        "    try:\n        spec.read('quickstart', changes={'algorithm.name': name})\n"
        "    except ScenarioError as error:\n        print(error)\n"
    )
    words = [sys.executable, "-c", code, *SENTENCES]
    done = subprocess.run(words, cwd=installed, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    told = done.stdout.splitlines()
    assert len(told) == len(SENTENCES)
    assert [sentence for sentence, line in zip(SENTENCES.values(), told, strict=True) if sentence not in line] == []


def test_a_setting_by_the_name_of_a_parameter_that_all_estimators_have_is_named(installed: Path) -> None:
    code = "from fedsvm import classifier; classifier('clashing-setting')"
    done = subprocess.run([sys.executable, "-c", code], cwd=installed, capture_output=True, text=True, check=False)
    assert "The setting sites of clashing-setting must be called otherwise" in done.stderr


@pytest.mark.parametrize("name", OWN_ALGORITHMS)
def test_settings_of_our_own_are_sound(name: str) -> None:
    for setting in settings(ALGORITHMS[name].Settings):
        setting.require_sound()


def test_a_broken_algorithm_hides_nothing_of_the_others(installed: Path) -> None:
    for change, sentence in (
        ("algorithm.sigma=1", "algorithm.sigma: unknown key. It is a setting of hybrid-svm, dp-erm."),
        ("data.partition=vertical", 'set it to that, or set algorithm.name = "dpp-svm" or "dpp-selection".'),
    ):
        done = fedsvm(installed, "run", "quickstart", "--set", change)
        assert done.returncode == 2
        assert done.stderr.strip().endswith(sentence)
    assert fedsvm(installed, "scenarios", "keys").returncode == 0
    (tables,) = [json.loads(fedsvm(installed, "schema").stdout)["properties"]["algorithm"]["anyOf"]]
    assert [table["properties"]["name"]["const"] for table in tables if "required" not in table] == ["pan-svm"]
    (naive_bayes,) = [table for table in tables if table["properties"]["name"]["const"] == "naive-bayes"]
    assert naive_bayes["properties"]["var_smoothing"]["description"].startswith("Share of the largest column variance")


def test_a_model_that_reports_what_its_algorithm_does_not_announce_fails_the_run(installed: Path) -> None:
    (installed / "broken.py").write_text(
        "from fedsvm.algorithms.naive_bayes import NaiveBayes\n\n\n"
        "class Raises(NaiveBayes):\n    name = 'raises'\n    figures = {'columns': 'of a row'}\n"
    )
    done = fedsvm(installed, "run", "naive-bayes", "--set", "algorithm.name=raises", "--quiet")
    assert done.returncode == 3
    assert (
        "A model of raises must not report smallest_class: `figures` of the algorithm does not name it." in done.stderr
    )


LOSSES = """
import numpy as np
from fedsvm.algorithms.losses import Loss


def squared_root(margins):
    root = np.sqrt(1 + (1 - margins) ** 2)
    return root - 1, (margins - 1) / root, root**-3


PSEUDO_HUBER = Loss("pseudo-huber", squared_root, slope=1.0, curvature=1.0)
TOO_FLAT = Loss("too-flat", squared_root, slope=0.5, curvature=1.0)
"""


@pytest.fixture
def with_losses(installed: Path) -> Path:
    """A folder with a package that offers a loss, and one whose bound is wrong."""
    (installed / "broken.py").write_text(LOSSES)
    (installed / "broken-1.0.dist-info" / "entry_points.txt").write_text(
        "[fedsvm.losses]\npseudo-huber = broken:PSEUDO_HUBER\ntoo-flat = broken:TOO_FLAT\n"
    )
    return installed


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("too-flat", "The loss 'too-flat' of broken:TOO_FLAT cannot be loaded: ValueError: its first derivative must"),
        ("hinge", "algorithm.loss: must be one of logistic, huber, pseudo-huber, too-flat, got 'hinge'."),
    ],
)
def test_a_loss_that_is_wrong_or_unknown_is_refused_before_anything_starts(
    with_losses: Path, name: str, sentence: str
) -> None:
    done = fedsvm(with_losses, "run", "dp-logistic", "--set", f"algorithm.loss={name}")
    assert sentence in done.stderr
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


@pytest.mark.long
def test_a_loss_of_another_package_trains(with_losses: Path) -> None:
    changes = ["algorithm.loss=pseudo-huber", "algorithm.perturbation=none", "federation.sites=3"]
    words = [word for each in changes for word in ("--set", each)]
    done = fedsvm(with_losses, "run", "dp-logistic", "--unset", "algorithm.budget", *words, "--out", "run")
    assert done.returncode == 0, done.stderr
    result = json.loads((with_losses / "run" / "result.json").read_text())
    assert result["metrics"]["accuracy"] > 0.85
    assert result["centralised"]["max_decision_difference"] < 1e-5
