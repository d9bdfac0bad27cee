"""Tasks of private training, which takes scale and features from public rows that the creator gives."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import numpy as np
import pytest

from fedsvm.algorithms.features.fourier import paired_features
from fedsvm.algorithms.hybrid_svm.minimizer import MAX_ITERATIONS, minimize
from fedsvm.algorithms.optimization.solution import StoppingRule
from fedsvm.scenarios.hub import public_rows, task_form
from fedsvm.scenarios.hub.task_form import TaskForm
from fedsvm.scenarios.schema.errors import ScenarioError
from tests import hub as hubs
from tests.conftest import wait_until
from tests.hub import CREATOR, SITES, create, hospitals, link_of, watching

PUBLIC = "a,b,c,d,diagnosis\n1,-1,0.5,0.2,M\n-1,0.5,0.3,-0.4,B\n0.7,0.1,-1,0.9,M\n-0.2,0.8,1,-0.6,B\n0.1,0.3,-0.4,1,B\n"


def wish(**given: str) -> TaskForm:
    """The form of a private task."""
    settings = {"features": "5", "epsilon": "0.5"}
    said = {"label": "diagnosis", "positive": "M", "negative": "B", "public_rows": PUBLIC, **given}
    return TaskForm("hybrid-svm", settings, **said)


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ("", "Public rows: are missing; hybrid-svm takes scale and features from them"),
        ("a,diagnosis\n1,M\n2,M\n3,M\n", "Public rows: the 3 rows of public.csv have one class only; add the others"),
        ("a,b\n1,2\n", "Public rows: "),
        (" ", "Public rows: public.csv cannot be read"),
        ("a,a,diagnosis\n1,2,M\n2,1,B\n", "Public rows: public.csv: columns 1, 2 have the same name 'a'"),
    ],
)
def test_rows_that_nothing_can_be_learned_from_are_refused(rows: str, said: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        form = wish(public_rows=rows)
        public_rows.require_readable(task_form.scenario_of("Task", form, SITES, 3), form.public_rows)
    assert said in str(caught.value)
    assert tempfile.gettempdir() not in str(caught.value), "the creator has no use for a folder of the hub"


def test_rows_that_an_algorithm_does_not_use_are_refused() -> None:
    form = TaskForm("pan-svm", label="diagnosis", positive="M", negative="B", public_rows=PUBLIC)
    with pytest.raises(ScenarioError, match="Public rows: pan-svm does not use them; remove them"):
        public_rows.require_readable(task_form.scenario_of("Task", form, SITES, 3), form.public_rows)


def test_a_task_names_no_file_of_the_hub() -> None:
    form = TaskForm("hybrid-svm", {"ledger": "/etc/passwd"}, "diagnosis", "M", "B", public_rows=PUBLIC)
    assert "ledger" not in {each.name for each in task_form.fields_of("hybrid-svm")}
    with pytest.raises(ScenarioError, match="a task cannot name a file of the hub"):
        task_form.scenario_of("Task", form, SITES, 3)


@pytest.mark.long
@pytest.mark.timeout(300)
def test_a_private_task_trains_on_features_of_public_rows(tmp_path: Path) -> None:
    """Without noise its model is the minimizer over all rows, in the scale and frequencies of the public ones."""
    files = hospitals(tmp_path)
    exact = {"set-mechanism": "none", "set-step_noise": "0", "set-features": "5", "set-C": "30"}
    with hubs.hub(tmp_path) as running:
        anna = running.signed_in(CREATOR)
        number = create(running, anna, algorithm="hybrid-svm", public_rows=PUBLIC, **{"set-kernel": "", **exact})
        assert "0.7,0.1,-1,0.9,M" in anna.get(f"/tasks/{number}")[1]
        visits = [watching(tmp_path, link_of(running, site), files[site]) for site in SITES]
        assert [visit.wait(200) for visit in visits] == [0, 0, 0]
        wait_until(lambda: "completed" in anna.get(f"/tasks/{number}/progress")[1])
        folder = running.folder / "tasks" / number
        result, model = json.loads((folder / "result.json").read_text()), dict(np.load(folder / "model.npz"))
    assert (result["data"]["rows"], result["data"]["public_rows"]) == (90, 5)
    public = np.array([line.split(",")[:4] for line in PUBLIC.split()[1:]], dtype=float)
    np.testing.assert_allclose(model["offset"], public.mean(axis=0))
    lines = [line.split(",") for path in files.values() for line in path.read_text().split()[1:]]
    rows = (np.array([line[:4] for line in lines], dtype=float) - model["offset"]) / model["scale"]
    labels = np.where(np.array([line[4] for line in lines]) == "M", 1.0, -1.0)
    features, none = paired_features(rows, model["rho"]), np.zeros(10)
    pooled = minimize(features, labels, none, 30 / len(rows), StoppingRule(1e-11, MAX_ITERATIONS))
    np.testing.assert_allclose(features @ model["w"], features @ pooled.w, atol=1e-4)
