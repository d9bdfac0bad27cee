"""Exported models: scikit-learn's own parts, or ONNX graphs, which predict what the run's model predicts."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from fedsvm import ScenarioError, run
from fedsvm.scenarios.export import export, pipeline
from fedsvm.scenarios.predict import predict
from fedsvm.scenarios.schema import spec
from tests.commands import fedsvm

pd = pytest.importorskip("pandas")
skops = pytest.importorskip("skops.io")

QUICK = {"compare.centralised": False, "compare.baselines": False, "protocol.sum": "plain"}

PATIENTS = "age,sex,stage,label\n" + "".join(
    f"{20 + i if i % 7 else ''},{'f' if i % 3 else 'm'},{i % 5},{'ill' if i > 45 else 'well'}\n" for i in range(90)
)


@pytest.fixture(scope="module")
def patients(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a calibrated run over numbers with gaps, and text."""
    folder = tmp_path_factory.mktemp("export")
    (folder / "patients.csv").write_text(PATIENTS)
    changes = {
        **QUICK,
        "data.source": str(folder / "patients.csv"),
        "data.positive": "ill",
        "data.scale": "standard",
        "data.missing": "mean",
        "data.missing_indicators": True,
        "data.calibration": 0.4,
        "algorithm.threshold": "half",
        "algorithm.landmarks": 20,
    }
    result = run("quickstart", sites=3, changes=changes, out=folder / "run")
    assert result.status == "completed", result.error
    return folder


def test_pipeline_has_the_runs_probabilities_threshold_and_gaps(patients: Path) -> None:
    export(patients / "run", patients / "model.skops")
    assert set(skops.get_untrusted_types(file=patients / "model.skops")) <= {"numpy.dtype"}
    made = skops.load(patients / "model.skops", trusted=["numpy.dtype"])
    rows = pd.read_csv(patients / "patients.csv")
    expected = predict(patients / "run", str(patients / "patients.csv"))
    assert expected.probabilities is not None and expected.threshold != 0
    np.testing.assert_allclose(made.predict_proba(rows)[:, 1], expected.probabilities, atol=1e-6)
    np.testing.assert_array_equal(made.predict(rows), expected.predicted)


def test_graph_has_the_runs_probabilities_threshold_and_gaps(patients: Path) -> None:
    onnx = pytest.importorskip("onnx")
    from fedsvm.scenarios import onnx_graph

    assert fedsvm("export", "run", "--to", "onnx", folder=patients).stdout == "model.onnx\n"
    rows = pd.read_csv(patients / "patients.csv", keep_default_na=True)
    rows.loc[0, "sex"] = "unknown"
    rows.to_csv(patients / "rows.csv", index=False)
    expected = predict(patients / "run", str(patients / "rows.csv"))
    columns = {name: rows[name].to_numpy() for name in ("age", "stage", "sex")}
    labels, decisions, chances = onnx_graph.evaluate(onnx.load(patients / "model.onnx"), columns)
    assert expected.probabilities is not None
    np.testing.assert_allclose(chances[:, 1], expected.probabilities, atol=1e-6)
    np.testing.assert_allclose(1 / (1 + np.exp(-decisions[:, 0])), chances[:, 1], atol=1e-12)
    assert labels.tolist() == expected.predicted.tolist()


def test_format_is_of_pipelines(patients: Path) -> None:
    done = fedsvm("export", "run", "--to", "onnx", "--format", "joblib", folder=patients)
    assert (done.returncode, "--format: applies to scikit-learn pipelines" in done.stderr) == (2, True)


def test_pipeline_loads_without_fedsvm(patients: Path) -> None:
    export(patients / "run", patients / "model.joblib", "joblib")
    code = (
        "import sys, joblib, pandas as pd\n"
        "made = joblib.load('model.joblib')\n"
        "print(len(made.predict(pd.read_csv('patients.csv'))))\n"
        "assert not any(name.startswith('fedsvm.') for name in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=patients, capture_output=True, text=True, check=False)
    assert (done.stdout, done.returncode) == ("90\n", 0), done.stderr


def test_rows_outside_the_window_of_noisy_statistics_are_clipped_everywhere(tmp_path: Path) -> None:
    """The declared range is too small: rows are trained on, predicted and exported with its ends."""
    (tmp_path / "patients.csv").write_text(PATIENTS)
    changes = {
        **QUICK,
        "data.source": str(tmp_path / "patients.csv"),
        "data.positive": "ill",
        "data.scale": "standard",
        "data.missing": "mean",
        "data.missing_indicators": True,
        "data.statistics_privacy": 100.0,
        "data.ranges": {"age": [30.0, 90.0], "stage": [0.0, 4.0]},
        "data.calibration": 0.4,
        "algorithm.landmarks": 10,
    }
    result = run("quickstart", sites=3, changes=changes, out=tmp_path / "run")
    assert result.status == "completed", result.error
    with np.load(tmp_path / "run" / "model.npz") as file:
        window = dict(zip(file["columns"].tolist(), file["window"].T.tolist(), strict=True))
    assert window["age"] == [30.0, 90.0] and window["sex=f"] == [0.0, 1.0]
    (tmp_path / "far.csv").write_text("age,sex,stage\n" + "".join(f"{age},m,9\n" for age in (-5000, 30, 90, 1e9)))
    far = predict(tmp_path / "run", str(tmp_path / "far.csv"))
    assert far.probabilities is not None
    assert far.decisions[0] == far.decisions[1] != far.decisions[2] == far.decisions[3]
    made = pipeline(tmp_path / "run")
    shown = made.predict_proba(pd.read_csv(tmp_path / "far.csv"))[:, 1]
    np.testing.assert_allclose(shown, far.probabilities, atol=1e-6)


KEPT_BY_SITES = "its sites keep parts of it"
NOT_EXPORTED = {
    "binned-least-squares": "no public parts",
    "decision-tree": "no public parts",
    "dp-logistic": "rows cut to a length",
    "dpp-selection": KEPT_BY_SITES,
    "dpp-svm-rbf": KEPT_BY_SITES,
    "dpp-svm-reconstruction": KEPT_BY_SITES,
    "dpp-svm-tic-tac-toe": KEPT_BY_SITES,
    "dpp-svm-unaligned": KEPT_BY_SITES,
    "naive-bayes": "no public parts",
    "pp-svm": "its support rows are with the sites",
    "voting-ensemble": "no public parts",
}
SHORTENED: dict[str, dict[str, object]] = {
    "filter-wrapper-paper": {"algorithm.filter_p": 1e-5},
    "rfe": {"algorithm.remove": "half", "algorithm.landmarks": 20},
    "voted-wrappers-paper": {"algorithm.inner_folds": 2},
}
"""Changes for fewer trainings: the exported model has the same parts. Two folds do where there are more."""
TOO_LONG = {
    "filter-wrapper": "its model has the parts of filter",
    "letter": "its model has the parts of digits",
    "selection-bias": "its model has the parts of rfe-genes",
    "voted-wrappers": "its model has the parts of voted-wrappers-paper",
}


@pytest.mark.long
@pytest.mark.timeout(400)
@pytest.mark.parametrize("scenario", spec.catalogue())
def test_models_of_the_catalogue_are_exported_or_refused(scenario: str, tmp_path: Path) -> None:
    """Exports compare the decision values of 200 drawn rows with the model's, to 1e-6, and refuse a difference."""
    if scenario in TOO_LONG:
        pytest.skip(TOO_LONG[scenario])
    changes = {"compare.centralised": False, "compare.baselines": False, **SHORTENED.get(scenario, {})}
    if spec.read(scenario)[0].data.folds is not None:
        changes["data.folds"] = 2
    try:
        result = run(scenario, changes=changes, out=tmp_path / "run")
    except ScenarioError as error:
        if "is neither a file" not in str(error):
            raise
        pytest.skip(f"its data are not here: {error}")
    assert result.status == "completed", result.error
    if (reason := NOT_EXPORTED.get(scenario)) is not None:
        with pytest.raises(ScenarioError, match=f"cannot be exported: .*{reason}"):
            pipeline(tmp_path / "run")
        return
    assert all(type(part).__module__.startswith("sklearn.") for _, part in pipeline(tmp_path / "run").steps)
    if importlib.util.find_spec("onnx") is not None:
        export(tmp_path / "run", tmp_path / "model.onnx", "onnx")
        assert (tmp_path / "model.onnx").stat().st_size > 0
