"""The generated pages of commands, results and model files leave nothing out."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

import pytest
import typer.main
from rich.text import Text
from sklearn.datasets import load_iris

from fedsvm import classifier
from fedsvm.algorithms.registry import OWN_ALGORITHMS
from fedsvm.scenarios.cli import application
from fedsvm.scenarios.run.result import RunResult
from tests.conftest import long_but_for
from tools.commands import command_reference
from tools.docstrings import items_of
from tools.model_files import SHARED
from tools.results import result_reference

SMALL: dict[str, dict[str, Any]] = {
    "hybrid-svm": {"features": 3, "public": 0.4},
    "dp-erm": {"public": 0.4},
    "svm-admm": {"max_iterations": 10},
    "rfe": {"size": 2},
    "voted-wrappers": {"size": 2, "criteria": "rfe"},
    "filter-wrapper": {"size": 1, "filter_keep": 1},
}
"""Settings with which a fit is short."""


def commands(command: Any, name: str = "fedsvm") -> dict[str, Any]:
    """Return every command below one, by the words that call it."""
    found = {name: command}
    for word, inner in getattr(command, "commands", {}).items():
        found |= commands(inner, f"{name} {word}")
    return found


def test_every_command_argument_and_option_has_a_meaning() -> None:
    page = command_reference()
    for name, command in commands(typer.main.get_command(application())).items():
        assert command.help, name
        assert name == "fedsvm" or f"## {name}\n" in page
        assert not [parameter.name for parameter in command.params if name != "fedsvm" and not parameter.help], name


def test_help_in_a_terminal_keeps_all_words() -> None:
    """Rich drops a word in brackets, which it takes for a style."""
    for name, command in commands(typer.main.get_command(application())).items():
        for text in (command.help, *(getattr(parameter, "help", None) or "" for parameter in command.params)):
            assert Text.from_markup(text).plain == text, name


def test_every_field_of_a_result_has_a_meaning_or_a_class_that_says_it() -> None:
    meanings = {item.name: item.meaning for item in items_of(RunResult)}
    assert set(meanings) == {field.name for field in dataclasses.fields(RunResult)}
    assert all(meanings.values())
    page = result_reference()
    linked = set(re.findall(r"\]\(#(\w+)\)", page))
    titles = {title.lower() for title in re.findall(r"^## (\w+)$", page, re.MULTILINE)}
    assert linked <= titles
    assert {"costreport", "metrics", "partyaudit", "disclosurereport", "privacyreport"} <= linked


@pytest.mark.parametrize("name", long_but_for(OWN_ALGORITHMS, "pan-svm", "naive-bayes"))
def test_every_array_of_a_model_file_is_on_the_page(name: str) -> None:
    """Those of the model itself, and of the parts that it shares with others."""
    X, y = load_iris(return_X_y=True)
    model = classifier(name)(sites=3, **SMALL.get(name, {})).fit(X[:100], y[:100]).model_
    documented = {item.name for writer in [type(model).to_arrays, *SHARED.values()] for item in items_of(writer)}
    if name in ("filter", "rfe", "sparse-svm", "voted-wrappers", "filter-wrapper"):
        documented |= {item.name for item in items_of(type(model.inner).to_arrays)}
    own = {item.name for item in items_of(type(model).to_arrays)}
    written = set(model.to_arrays())
    assert written <= documented
    assert own - {"scheme", "pairs"} <= written, "of two classes there is one problem"
