"""Predictions for new rows are those of the run, whatever was learnt; and runs from Python."""

from __future__ import annotations

import csv
import io
import re
import shutil
import subprocess
import sys
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fedsvm import run
from fedsvm.scenarios import predict
from fedsvm.scenarios.data import dataset, sources
from fedsvm.scenarios.schema import spec
from fedsvm.scenarios.schema.errors import ScenarioError
from tests.commands import fedsvm

SMALL = {"federation.round_timeout_s": 30.0, "compare.centralised": False}
PATIENTS = "patient,age,sex,stage,label\n" + "".join(
    f"p{i},{20 + i},{'f' if i % 3 else 'm'},{i % 5},{'ill' if i > 45 else 'well'}\n" for i in range(90)
)


def write_table(path: Path, source: str, indices: np.ndarray) -> np.ndarray:
    """Rows of a built-in data set as a file, in another order of columns; their labels."""
    data = sources.load(source, label="label", base_folder=Path())
    columns = list(reversed(data.features))
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([feature.name for feature in columns])
        writer.writerows(zip(*(feature.values[indices].tolist() for feature in columns), strict=True))
    return np.asarray(data.labels[indices])


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("quickstart", "tic-tac-toe"),
        pytest.param("quickstart fourier", "tic-tac-toe", marks=pytest.mark.long),
        ("quickstart identity", "tic-tac-toe"),
        ("dpp-svm-rbf", "wdbc"),
        pytest.param("dpp-svm-tic-tac-toe", "tic-tac-toe", marks=pytest.mark.long),
        ("dp-logistic", "wdbc"),
        ("hybrid-stand-in", "made-census"),
    ],
)
def test_predictions_of_the_test_rows_are_as_good_as_the_run_said(name: str, source: str, tmp_path: Path) -> None:
    changes: dict[str, object] = dict(SMALL)
    name, _, features = name.partition(" ")
    if features:
        changes |= {"algorithm.features": features, "algorithm.kernel": "linear" if features == "identity" else "rbf"}
    if name == "hybrid-stand-in":
        changes |= {"data.public": 30, "algorithm.features": 20, "compare.baselines": False}
    result = run(name, changes=changes, out=tmp_path / "run").to_dict()
    assert (result["status"], result["error"]) == ("completed", None)
    scenario, base = spec.read(name, changes=changes)
    labels = write_table(tmp_path / "new.csv", source, dataset.prepare(scenario, base).tests[-1])
    found = predict.predict(tmp_path / "run", str(tmp_path / "new.csv"))
    right = float(np.mean(found.predicted == labels))
    assert right == pytest.approx(result["metrics"]["folds"][-1]["accuracy"], abs=1e-12)
    if name.startswith("dpp-svm"):  # a coordinator has this folder alone, across hosts and in tasks of the hub
        shutil.rmtree(tmp_path / "run" / "sites")
        refused = fedsvm("predict", tmp_path / "run", tmp_path / "new.csv", folder=tmp_path)
        assert refused.returncode == 2
        assert "has no columns: each site keeps the part for its columns." in " ".join(refused.stderr.split())


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run over a file with numbers, text, an identifier and a label."""
    folder = tmp_path_factory.mktemp("predict")
    (folder / "patients.csv").write_text(PATIENTS)
    changes = {**SMALL, "data.source": str(folder / "patients.csv"), "data.positive": "ill", "data.ignore": ["patient"]}
    changes["data.scale"] = "standard"
    assert run("quickstart", sites=3, changes=changes, out=folder / "run").status == "completed"
    return folder / "run"


def test_the_command_prints_a_line_for_each_row(trained: Path, tmp_path: Path) -> None:
    done = fedsvm("predict", trained, trained.parent / "patients.csv", folder=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    rows = list(csv.DictReader(io.StringIO(done.stdout)))
    assert [row["row"] for row in rows] == [str(number) for number in range(1, 91)]
    assert {row["predicted"] for row in rows} == {"ill", "well"}
    assert all((float(row["decision"]) >= 0) == (row["predicted"] == "ill") for row in rows)
    again = fedsvm("predict", trained, trained.parent / "patients.csv", "--out", tmp_path / "p.csv", folder=tmp_path)
    assert (again.returncode, again.stdout) == (0, "")
    assert (tmp_path / "p.csv").read_text() == done.stdout
    third = fedsvm("predict", trained, trained.parent / "patients.csv", "--out", tmp_path / "p.csv", folder=tmp_path)
    assert (third.returncode, "exists already" in third.stderr) == (2, True)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("age,sex\n50,f\n", r"lacks 'stage', which the model was trained on; add it\."),
        ("age\n50\n", r"lacks 'stage', 'sex', which the model was trained on; add them\."),
        ("age,sex,stage,pulse\n50,f,1,80\n", r"has 'pulse', which the model does not know; remove it\."),
        ("age,sex,stage\nfifty,f,1\n", r"Column 'age' of .* holds text, and in the run it held numbers\."),
        ("age,sex,stage\n50,1,1\n", r"Column 'sex' of .* holds numbers, and in the run it held text\."),
        ("age,sex,stage\n50,f,1\n,f,2\n", r"has no value in row 2, column 'age'; fill it\."),
    ],
)
def test_rows_that_do_not_fit_the_model_are_named(text: str, sentence: str, trained: Path, tmp_path: Path) -> None:
    (tmp_path / "new.csv").write_text(text)
    with pytest.raises(ScenarioError, match=sentence):
        predict.predict(trained, str(tmp_path / "new.csv"))


def test_an_unknown_category_is_missing_unless_it_is_to_be_refused(trained: Path, tmp_path: Path) -> None:
    (tmp_path / "new.csv").write_text("age,sex,stage\n50,f,1\n60,x,2\n")
    with pytest.raises(ScenarioError, match=r"Column 'sex' of .* must hold one of 'f', 'm', as in the run, got 'x'\."):
        predict.predict(trained, str(tmp_path / "new.csv"), unknown="refuse")
    found = predict.predict(trained, str(tmp_path / "new.csv"))
    assert len(found.decisions) == 2
    assert [each.split("; ")[0] for each in found.doubts] == [
        "1 row is of an unknown category in column 'sex' ('x'), which is taken as missing"
    ]
    assert fedsvm("predict", trained, "new.csv", "--unknown", "keep", folder=tmp_path).returncode == 2


def test_values_far_from_the_training_rows_are_named(trained: Path, tmp_path: Path) -> None:
    (tmp_path / "new.csv").write_text("age,sex,stage\n999,f,1\n60,m,2\n")
    found = predict.predict(trained, str(tmp_path / "new.csv"))
    (doubt,) = found.doubts
    assert doubt.startswith("1 row is outside the training range of column 'age', ")
    assert [(each.column, each.outside) for each in found.drift] == [("age", 1), ("stage", 0), ("sex", 0)]


def test_a_report_has_measures_with_intervals_and_drift(trained: Path, tmp_path: Path) -> None:
    patients = trained.parent / "patients.csv"
    done = fedsvm("predict", trained, patients, "--report", "--out", "p.csv", folder=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert re.search(r"intervals  95 %, \d+ rows: accuracy ", done.stdout)
    assert "'ill' from a decision value of 0 on" in done.stdout
    assert [line.split()[0] for line in done.stdout.splitlines()[-4:]] == ["column", "age", "stage", "sex"]
    assert len((tmp_path / "p.csv").read_text().splitlines()) == 91


def test_a_report_of_rows_without_labels_has_drift_alone(trained: Path, tmp_path: Path) -> None:
    (tmp_path / "new.csv").write_text("age,sex,stage\n50,f,1\n")
    found = predict.predict(trained, str(tmp_path / "new.csv"), judge=True)
    assert found.measured is None
    assert found.doubts == ("no row has a label in column 'label', so there are no measures.",)
    assert [(each.column, each.origin) for each in found.drift] == [
        ("age", "mean and 5 SD"),
        ("stage", "mean and 5 SD"),
        ("sex", ""),
    ]
    (tmp_path / "some.csv").write_text("age,sex,stage,label\n50,f,1,ill\n60,m,2,\n40,m,1,well\n")
    some = predict.predict(trained, str(tmp_path / "some.csv"), judge=True)
    assert some.measured is not None
    assert some.doubts == ("1 row has no label in column 'label'; the measures are those of the other 2.",)


def test_the_model_file_says_its_version_and_its_scale_and_no_extremes(trained: Path) -> None:
    with np.load(trained / "model.npz") as file:
        assert str(file["version"]) and str(file["scaling"]) == "standard"
        assert "ranges" not in file


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("model.npz", b"PK\x03\x04 and no more", "model.npz is not a file of a model"),
        ("result.json", b"[1]", "is not the folder of a run"),
    ],
)
def test_a_file_of_a_run_that_is_damaged_is_said(
    name: str, content: bytes, sentence: str, trained: Path, tmp_path: Path
) -> None:
    shutil.copytree(trained, tmp_path / "run")
    (tmp_path / "run" / name).write_bytes(content)
    with pytest.raises(ScenarioError, match=sentence):
        predict.predict(tmp_path / "run", "wdbc")


def test_a_model_whose_algorithm_is_gone_is_said(trained: Path, tmp_path: Path) -> None:
    shutil.copytree(trained, tmp_path / "run")
    with np.load(trained / "model.npz") as file:
        np.savez(tmp_path / "run" / "model.npz", **{**file, "algorithm": "ridge"})
    with pytest.raises(ScenarioError, match="is of 'ridge', which is not installed"):
        predict.predict(tmp_path / "run", "wdbc")


@pytest.mark.parametrize("lacks", ["algorithm", "features"])
def test_a_model_of_an_earlier_version_is_said(lacks: str, trained: Path, tmp_path: Path) -> None:
    shutil.copytree(trained, tmp_path / "run")
    with np.load(trained / "model.npz") as file:
        np.savez(tmp_path / "run" / "model.npz", **{name: file[name] for name in file if name != lacks})
    with pytest.raises(ScenarioError, match="written by an earlier version of fedsvm; run it again"):
        predict.predict(tmp_path / "run", "wdbc")


def test_a_folder_without_a_model_is_said(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match="is not the folder of a run"):
        predict.predict(tmp_path, "wdbc")
    done = fedsvm("predict", tmp_path, "wdbc", folder=tmp_path)
    assert done.returncode == 2
    assert "is not the folder of a run" in done.stderr


def test_a_run_from_python_is_the_command_lines(tmp_path: Path) -> None:
    changes = {"algorithm.cut_groups": 8, "protocol.sum": "plain", "compare.centralised": False}
    result = run("quickstart", sites=4, changes=changes, out=tmp_path / "run").to_dict()
    assert (result["status"], len(result["sites"])) == ("completed", 4)
    assert result["scenario"]["protocol"]["sum"] == "plain"
    with pytest.raises(ScenarioError, match=r"algorithm\.C: must be a number from 1e-12 to 1e12, got 'ten'"):
        run("quickstart", changes={"algorithm.C": "ten"})
    with pytest.raises(ScenarioError, match=r"changes\['name\.x'\]: name is not a table"):
        run("quickstart", changes={"name": "a", "name.x": 1})


def test_importing_scenarios_costs_site_processes_nothing() -> None:
    code = "import sys, scenarios; print(*{name.partition('.')[0] for name in sys.modules})"
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert not set(printed.split()) & {"numpy", "pydantic", "sklearn"}


def test_rows_are_called_by_the_column_that_is_named(tmp_path: Path) -> None:
    table = tmp_path / "patients.csv"
    table.write_text(PATIENTS)
    changes = {
        **SMALL,
        "data.source": str(table),
        "data.positive": "ill",
        "data.ignore": ["patient"],
        "algorithm.landmarks": 10,
    }
    assert run("quickstart", changes=changes, out=tmp_path / "run").status == "completed"
    done = fedsvm("predict", tmp_path / "run", table, "--id", "patient", folder=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    lines = list(csv.DictReader(io.StringIO(done.stdout)))
    assert [line["patient"] for line in lines] == [f"p{number}" for number in range(90)]
    numbered = list(csv.DictReader(io.StringIO(fedsvm("predict", tmp_path / "run", table, folder=tmp_path).stdout)))
    assert [line["row"] for line in numbered[:2]] == ["1", "2"]
    assert [line["decision"] for line in lines] == [line["decision"] for line in numbered]
    assert [line["age"] for line in _called_by(tmp_path / "run", table, "age")[:2]] == ["20", "21"]
    with pytest.raises(ScenarioError, match=r"has no column 'patiemt'\. Did you mean 'patient'\?"):
        predict.predict(tmp_path / "run", str(table), "patiemt")


@pytest.mark.parametrize(
    "names",
    [
        ["000000", "000001", "10"],
        ["9007199254740993", "9007199254740995", "12345678901234567890"],
        ["0.00", "0.10", "1e5"],
        ["2023-01-02T10:00:00Z", "2023-01-03T10:00:00Z", "2023-01-04T10:00:00Z"],
        ["true", "false", "true"],
        ["", "P1", 'a,"b" '],
        ["NA", "?", "null"],
        ["NaN", "7", "n/a"],
    ],
)
def test_identifiers_come_out_as_they_are_written(names: list[str], trained: Path, tmp_path: Path) -> None:
    with (tmp_path / "new.csv").open("w", newline="") as file:
        csv.writer(file).writerows(
            [["patient", "age", "sex", "stage"], *([name, 50, "f", 1 + row] for row, name in enumerate(names))]
        )
    assert [line["patient"] for line in _called_by(trained, tmp_path / "new.csv", "patient")] == names


def test_a_column_of_the_model_can_call_rows_as_it_is_written(trained: Path, tmp_path: Path) -> None:
    (tmp_path / "new.csv").write_text("age,sex,stage\n050,f,1\n51.0,m,2\n")
    assert [line["age"] for line in _called_by(trained, tmp_path / "new.csv", "age")] == ["050", "51.0"]


def test_whole_numbers_and_decimals_of_parquet_keep_every_digit(trained: Path, tmp_path: Path) -> None:
    exact = {"number": pa.array([9007199254740993, None]), "decimal": pa.array([Decimal("0.10"), Decimal("2.00")])}
    for name, column in exact.items():
        rows = {name: column, "age": [50.0, 51.0], "sex": ["f", "m"], "stage": [1, 2]}
        pq.write_table(pa.table(rows), tmp_path / f"{name}.parquet")
    for name, names in {"number": ["9007199254740993", ""], "decimal": ["0.10", "2.00"]}.items():
        assert [line[name] for line in _called_by(trained, tmp_path / f"{name}.parquet", name)] == names


def _called_by(folder: Path, table: Path, column: str) -> list[dict[str, str]]:
    text = "\n".join(predict.predict(folder, str(table), column).lines())
    return list(csv.DictReader(io.StringIO(text)))
