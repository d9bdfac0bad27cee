"""Sources of data: what is built in, what is read, and a sentence for everything that is wrong with a file."""

from __future__ import annotations

import gzip
import os
import shutil
import subprocess
import sys
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fedsvm.scenarios.data import dataset, sources, table_description
from fedsvm.scenarios.data.tables import Dataset
from fedsvm.scenarios.schema import spec
from fedsvm.scenarios.schema.errors import ScenarioError

GOOD = "age,sex,label\n50,f,1\n60,m,0\n70.5,f,1\n"


def load(
    source: str, folder: Path = Path(), label: str = "label", missing: str = "refuse", ignore: tuple[str, ...] = ()
) -> Dataset:
    return sources.load(source, label=label, ignore=ignore, missing=missing, base_folder=folder)


def test_every_final_board_of_tic_tac_toe_is_there() -> None:
    data = load("tic-tac-toe")
    boards = {tuple(feature.values[row] for feature in data.features) for row in range(data.rows)}
    assert len(boards) == data.rows == 958
    assert int((data.labels == "positive").sum()) == 626
    for board in boards:
        assert board.count("x") - board.count("o") in (0, 1)


def test_the_enumerated_boards_are_those_of_the_published_file(data_folder: Path) -> None:
    def rows(data: Dataset) -> list[tuple[str, ...]]:
        return sorted(zip(*(feature.values.tolist() for feature in data.features), data.labels.tolist(), strict=True))

    assert rows(load("tic-tac-toe")) == rows(load("tic_tac_toe"))


@pytest.mark.parametrize(
    ("name", "rows", "columns", "classes"),
    [("wdbc", 569, 30, 2), ("wine", 178, 13, 3), ("iris", 150, 4, 3), ("digits", 1797, 64, 10)],
)
def test_sets_of_scikit_learn(name: str, rows: int, columns: int, classes: int) -> None:
    data = load(name)
    assert (data.rows, len(data.features), len(data.classes)) == (rows, columns, classes)


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    if name.endswith(".gz"):
        path.write_bytes(gzip.compress(text.encode()))
    elif name.endswith(".parquet"):
        pq.write_table(pa.table({"age": [50.0, 60.0, 70.5], "sex": ["f", "m", "f"], "label": [1, 0, 1]}), path)
    else:
        path.write_text(text)
    return path


@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz", "a.parquet"])
def test_files_are_read_with_numbers_text_and_labels(name: str, tmp_path: Path) -> None:
    write(tmp_path, name, GOOD)
    data = load(name, tmp_path)
    assert [(feature.name, feature.categorical) for feature in data.features] == [("age", False), ("sex", True)]
    np.testing.assert_array_equal(data.features[0].values, [50.0, 60.0, 70.5])
    assert data.labels.tolist() == ["1", "0", "1"]


def test_libsvm_files_are_read(tmp_path: Path) -> None:
    write(tmp_path, "a.svm", "+1 1:0.5 3:2\n-1 2:1\n")
    data = load("a.svm", tmp_path)
    assert [feature.name for feature in data.features] == ["f1", "f2", "f3"]
    assert data.labels.tolist() == ["1", "-1"]


def test_names_are_found_in_the_folder_of_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, "my_data.csv", GOOD)
    monkeypatch.setenv(sources.FOLDER_VARIABLE, str(tmp_path))
    assert load("my-data").rows == load("my_data").rows == 3
    assert [item.name for item in sources.available()][-1] == "my_data"
    with pytest.raises(ScenarioError, match=r"\(my_data\), nor built in .*Did you mean 'my_data'\?"):
        load("my_dat")


def test_built_in_sets_are_listed_with_their_figures_and_hide_files_of_their_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, "wdbc.csv", GOOD)
    monkeypatch.setenv(sources.FOLDER_VARIABLE, str(tmp_path))
    listed = {item.name: (item.rows, item.columns, item.classes) for item in sources.available()}
    assert len(listed) == len(sources.available()) == 7
    assert (listed["wdbc"], listed["tic-tac-toe"]) == ((569, 30, 2), (958, 9, 2))
    assert listed["made-census"] == (30_000, 13, 2)
    assert listed["made-sphere"] == (10_000, 10, 2)


def test_leukaemia_of_t_cells_is_told_apart_in_the_file_of_two_classes(data_folder: Path) -> None:
    data = load("leukemia_3c")
    assert sorted((name, int((data.labels == name).sum())) for name in data.classes) == [
        ("ALL-B", 38),
        ("ALL-T", 9),
        ("AML", 25),
    ]
    cd3 = next(feature.values for feature in data.features if feature.name == "X04145_at").astype(float)
    assert cd3[data.labels == "ALL-T"].min() > cd3[data.labels != "ALL-T"].max()
    assert any(item.name == "leukemia_3c" for item in sources.available())
    apart = load("leukemia_4c").labels
    np.testing.assert_array_equal(np.flatnonzero(apart == "AML-PB") + 1, [52, 62, 63, 64])
    np.testing.assert_array_equal(np.where(np.char.startswith(apart, "AML"), "AML", apart), data.labels)


def test_another_file_of_leukaemia_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, "leukemia.csv", GOOD)
    monkeypatch.setenv(sources.FOLDER_VARIABLE, str(tmp_path))
    with pytest.raises(ScenarioError, match="Golub's 72 samples"):
        load("leukemia_3c")
    write(tmp_path, "leukemia.csv", GOOD.replace("label", "class"))
    with pytest.raises(ScenarioError, match="in a column called label"):
        load("leukemia_3c")
    write(tmp_path, "leukemia_3c.csv", GOOD)
    assert load("leukemia-3c").rows == 3, "a file of this name is taken as it is"


def test_a_folder_that_is_not_there_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(sources.FOLDER_VARIABLE, str(tmp_path / "gone"))
    with pytest.raises(ScenarioError, match=r"FEDSVM_DATA .*gone is no folder"):
        load("adult")


def test_columns_can_be_ignored_and_rows_with_gaps_dropped(tmp_path: Path) -> None:
    write(tmp_path, "a.csv", "id,age,sex,label\n1,50,f,1\n2,?,m,0\n3,70,,1\n4,80,m,0\n")
    data = load("a.csv", tmp_path, missing="drop", ignore=("id",))
    assert [feature.name for feature in data.features] == ["age", "sex"]
    assert data.labels.tolist() == ["1", "0"]
    assert (data.dropped, data.take(np.array([0])).dropped) == (2, 2)
    assert data.unlabeled == 0
    write(tmp_path, "b.csv", "age,sex,label\n?,f,1\n50,,0\n")
    with pytest.raises(ScenarioError, match=r"none of the .* is complete"):
        load("b.csv", tmp_path, missing="drop")


def test_whole_numbers_beyond_those_of_float64_and_decimals_are_numbers(tmp_path: Path) -> None:
    table = pa.table({"id": [2**53 + 1, 2], "price": [Decimal("1.5"), Decimal("2.5")], "label": [True, False]})
    pq.write_table(table, tmp_path / "a.parquet")
    data = load("a.parquet", tmp_path)
    assert [feature.values.tolist() for feature in data.features] == [[float(2**53), 2.0], [1.5, 2.5]]
    assert data.labels.tolist() == ["True", "False"]


def test_lists_are_no_values(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": [[1], [2]], "label": ["x", "y"]}), tmp_path / "a.parquet")
    with pytest.raises(ScenarioError, match="column 'a' holds lists or records"):
        load("a.parquet", tmp_path)


def test_columns_of_parquet_are_read_by_their_whole_names(tmp_path: Path) -> None:
    table = pa.table({"a.b": [1.0, 2.0], "a": [3.0, 4.0], "a.c": [5.0, 6.0], "label": ["x", "y"]})
    pq.write_table(table, tmp_path / "a.parquet")
    found = {each.name: each.values.tolist() for each in load("a.parquet", tmp_path).features}
    assert found == {"a.b": [1.0, 2.0], "a": [3.0, 4.0], "a.c": [5.0, 6.0]}


@pytest.mark.parametrize("name", ["a.csv.gz", "a.parquet", "a.svm"])
def test_a_file_that_is_not_what_its_ending_says_is_refused(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(b"hello world\n")
    with pytest.raises(ScenarioError, match=r"cannot be read: .*\. It must be "):
        load(name, tmp_path)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("age,label\n50,1\n?,0\n", r"no value in row 2, column 'age' \(1 missing in all\).*missing = \"drop\""),
        ("age,label\nnan,1\n,0\n", r"row 1, column 'age' \(2 missing in all\)"),
        ("age,label\n50,1\n60,\n", "data.unlabeled: column 'label' has no value in row 2"),
        ("age,label\n50,1\ninf,0\n", "infinite value in row 2, column 'age'"),
        ("age,label\n50,1\n60,1\n", r"one class only \(1\); two are needed"),
        ("age,labels\n50,1\n60,0\n", r"no column 'label'. Did you mean 'labels'\? It has: age, labels"),
        ("label\n1\n0\n", "no column besides the label"),
        ("age,age,label\n1,2,1\n3,4,0\n", "columns 1, 2 have the same name 'age'; rename all but one"),
        ("age,label\n", "has no rows"),
        ("", "cannot be read: Empty CSV file. It must be separated text"),
        ("age,label\n4,5\n1,2,3\n6,7\n", r"line 3 has 3 values for 2 columns \(1 in all\), read as .*; complete it"),
    ],
)
def test_a_bad_file_is_refused_in_a_sentence(text: str, sentence: str, tmp_path: Path) -> None:
    write(tmp_path, "a.csv", text)
    with pytest.raises(ScenarioError, match=sentence) as caught:
        load("a.csv", tmp_path)
    assert len(caught.value.problems) == 1


@pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("setpriv") is None, reason="only root can give up its rights to files"
)
def test_a_file_that_the_user_may_not_read_is_named(tmp_path: Path) -> None:
    write(tmp_path, "a.csv", "age,label\n50,1\n60,0\n")
    os.chown(tmp_path / "a.csv", 65534, 65534)
    (tmp_path / "a.csv").chmod(0o600)
    without_rights = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"]
    line = [*without_rights, sys.executable, "-m", "fedsvm", "data", "describe", "a.csv"]
    done = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True, check=False)
    said = "data.source: a.csv may not be read by the user of this process; allow it."
    assert (done.returncode, done.stderr.strip()) == (2, f"fedsvm: {said}")


def test_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b"age,label\n\xff\xfe\x81,1\n2,0\n")
    with pytest.raises(ScenarioError, match="not UTF-8 text"):
        load("a.csv", tmp_path)


def test_unknown_sources_are_refused_with_what_there_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(sources.FOLDER_VARIABLE, raising=False)
    with pytest.raises(ScenarioError, match=r"'tic-tac-to' is neither .*built in .*Did you mean 'tic-tac-toe'\?"):
        load("tic-tac-to")
    with pytest.raises(ScenarioError, match=r"there is no file 'gone\.csv'"):
        load("gone.csv", tmp_path)


def test_several_wrong_columns_are_reported_together(tmp_path: Path) -> None:
    write(tmp_path, "a.csv", GOOD)
    with pytest.raises(ScenarioError) as caught:
        load("a.csv", tmp_path, label="lable", ignore=("agee",))
    assert [problem.split(":")[0] for problem in caught.value.problems] == ["data.label", "data.ignore"]


def test_an_identifier_tells_rows_apart_and_is_no_feature(tmp_path: Path) -> None:
    (tmp_path / "p.csv").write_text("id,age,label\n7,50,a\n8,60,b\n9.5,70,a\n")
    data = sources.load("p.csv", label="label", identifier="id", base_folder=tmp_path)
    assert data.identifiers.tolist() == ["7", "8", "9.5"]
    (tmp_path / "q.csv").write_text("id,age,label\n007,50,a\n7,60,b\n12345678901234567891,70,a\n")
    exact = sources.load("q.csv", label="label", identifier="id", base_folder=tmp_path)
    assert exact.identifiers.tolist() == ["007", "7", "12345678901234567891"]
    rows = "".join(f"{n:03d},{n % 5},{n % 3},{n % 7},{'ab'[n % 2]}\n" for n in range(40))
    (tmp_path / "r.csv").write_text(f"id,age,dose,height,label\n{rows}")
    changes = {"data.source": str(tmp_path / "r.csv"), "data.identifier": "id", "data.positive": "a"}
    whole = dataset.prepare(*spec.read("dpp-svm-unaligned", changes=changes, sites=3))
    assert set(whole.identifiers.tolist()) == {f"{n:03d}" for n in range(40)}
    assert [feature.name for feature in data.features] == ["age"]
    assert data.take(np.array([2, 0])).identifiers.tolist() == ["9.5", "7"]


@pytest.mark.parametrize(
    ("text", "identifier", "sentence"),
    [
        ("id,age,label\np1,50,a\np2,60,b\np1,70,a\n", "id", r"column 'id' of p.csv has 'p1' in rows 1 and 3 \(1 such"),
        ("id,age,label\np1,50,a\np2,60,b\n", "ident", r"data.identifier: p.csv has no column 'ident'"),
        ("id,age,label\np1,50,a\np2,60,b\n", "label", r"data.identifier: 'label' is the label, or ignored"),
        ("id,age,label\np1,50,a\n,60,b\n", "id", r"data.missing: p.csv has no value in row 2, column 'id'"),
        ("id,age,label\n1,50,a\nNA,60,b\n", "id", r"data.missing: p.csv has no value in row 2, column 'id'"),
    ],
)
def test_identifiers_that_will_not_do(text: str, identifier: str, sentence: str, tmp_path: Path) -> None:
    (tmp_path / "p.csv").write_text(text)
    with pytest.raises(ScenarioError, match=sentence):
        sources.load("p.csv", label="label", identifier=identifier, base_folder=tmp_path)


# Described.


def test_a_description_counts_what_is_there_and_what_is_missing(tmp_path: Path) -> None:
    write(
        tmp_path, "p.csv", "age,sex,label\n" + "".join(f"{20 + i},{'f' if i % 3 else ''},{i % 2}\n" for i in range(60))
    )
    found = table_description.describe("p.csv", "label", "random", 2, tmp_path)
    assert found.rows == 60
    assert found.columns[1:] == [("age", "numbers", "0", "20 to 79, 60 different"), ("sex", "text", "20", "f (40)")]
    assert found.classes == [("class", "rows"), ("0", "20"), ("1", "20")]
    assert [line[1] for line in found.sites] == ["rows", "20", "20"]
    assert sum(int(line[2]) for line in found.sites[1:]) == 20


@pytest.mark.parametrize("rows", [2, 3])
def test_a_file_of_fewer_rows_than_sites_is_described(rows: int, tmp_path: Path) -> None:
    write(tmp_path, "p.csv", "age,label\n" + "".join(f"{20 + i},{i % 2}\n" for i in range(rows)))
    found = table_description.describe("p.csv", "label", "random", 5, tmp_path)
    assert found.rows == rows
    assert len(found.sites) == 1 + rows


def test_a_description_of_a_skewed_split_shows_the_skew() -> None:
    found = table_description.describe("wine", "label", "label-skew", 3, Path())
    assert found.sites[0] == ("site", "rows", "class_0", "class_1", "class_2")
    assert any("0" in line[2:] for line in found.sites[1:])
    with pytest.raises(ScenarioError, match=r"--label: wine has no column 'lable'. Did you mean 'label'\?"):
        table_description.describe("wine", "lable", "random", 3, Path())


# Labels that are numbers, and those above their median +1.


def halved(folder: Path, incomes: list[str], *changes: str, scenario: str = "quickstart") -> dataset.FederatedDataset:
    rows = "\n".join(f"{number / 2},{income}" for number, income in enumerate(incomes))
    (folder / "incomes.csv").write_text(f"age,label\n{rows}\n")
    overrides = [f"data.source={folder}/incomes.csv", "data.positive=above-median", "data.test_fraction=0"]
    chosen, base = spec.read(scenario, overrides=[*overrides, *changes])
    return dataset.prepare(chosen, base)


def test_labels_above_their_median_are_positive(tmp_path: Path) -> None:
    found = halved(tmp_path, [str(1000 * number) for number in range(1, 42)])
    assert found.classes == ("at most 21000", "above 21000")
    np.testing.assert_array_equal(found.rows.labels, np.where(np.arange(1, 42) > 21, 1.0, -1.0))
    assert not found.warnings


def test_where_a_model_is_private_the_median_is_of_public_rows_alone(tmp_path: Path) -> None:
    incomes = [str(number) for number in range(100)]
    found = halved(tmp_path, incomes, "data.public=9", scenario="dp-logistic")
    middle = sorted(found.public)[4]
    assert found.classes == (f"at most {middle}", f"above {middle}")
    np.testing.assert_array_equal(found.rows.labels > 0, np.arange(100) > middle)


@pytest.mark.parametrize(
    ("incomes", "changes", "sentence"),
    [
        (["1", "2", "rich", "4"] * 10, [], "applies to labels that are numbers, and incomes.csv has 'rich'"),
        (["1"] * 30 + ["0"] * 10, [], "of the 40 rows of incomes.csv whose labels may be looked at none is above"),
        (["1", "2"] * 20, ["data.classes=[1, 2]"], 'data.positive = "above-median" defines two classes itself'),
        (
            ["1", "2"] * 20,
            ["collusion.coordinator=true", "collusion.candidates=x.csv"],
            'say "source", or name the label',
        ),
    ],
)
def test_where_there_is_no_median_a_sentence_says_so(
    incomes: list[str], changes: list[str], sentence: str, tmp_path: Path
) -> None:
    with pytest.raises(ScenarioError) as caught:
        halved(tmp_path, incomes, *changes)
    assert sentence in " ".join(caught.value.problems)


def test_public_rows_of_a_shifted_census_are_of_other_people() -> None:
    changes = ["data.source=made-census:shift=1", "data.public=200"]
    shifted = dataset.prepare(spec.read("hybrid-stand-in", overrides=changes)[0], Path())
    private = np.concatenate([each.rows for each in shifted.shards])
    assert (len(shifted.public), len(private) + len(shifted.tests[0])) == (200, 30_000)
    assert shifted.public.min() >= 30_000 > private.max()
    plain = sources.read("made-census", Path()).columns
    moved = sources.read("made-census:shift=1", Path()).columns
    assert all(np.array_equal(moved[name][:30_000], plain[name]) for name in plain)
    assert moved["education"][30_000:].mean() - plain["education"].mean() == pytest.approx(3.0, abs=0.3)


def test_marks_of_tic_tac_toe_are_27_columns_and_each_square_has_one() -> None:
    data = load("tic-tac-toe:marks")
    values = np.column_stack([each.values for each in data.features])
    assert values.shape == (958, 27)
    np.testing.assert_array_equal(values.reshape(958, 9, 3).sum(axis=2), 1.0)
    assert (data.labels == load("tic-tac-toe").labels).all()
    with pytest.raises(ScenarioError, match="'tic-tac-toe:x' must be written tic-tac-toe:marks"):
        load("tic-tac-toe:x")
