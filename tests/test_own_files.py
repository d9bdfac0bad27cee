"""Files as hospitals have them: how text is written, whose a row is, what a column is, and what is missing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedsvm import ScenarioError, run
from fedsvm.federation.errors import StepRefused
from fedsvm.scenarios import predict
from fedsvm.scenarios.data import dataset, files, label_classes, notation, table_description
from fedsvm.scenarios.data.dataset import FederatedDataset
from fedsvm.scenarios.data.site_column import resolve_site_names
from fedsvm.scenarios.data.text_form import TextForm
from fedsvm.scenarios.draft import draft
from fedsvm.scenarios.hosts.site_data import hold
from fedsvm.scenarios.run.offered_terms import terms_of
from fedsvm.scenarios.schema import spec
from tests import hospitals

IGNORED = ["patient_id", "aufnahme"]
MINUS = "\N{MINUS SIGN}"
SMALL: dict[str, Any] = {
    "data.label": "died",
    "data.ignore": IGNORED,
    "data.missing": "drop",
    "data.scale": "standard",
    "algorithm.landmarks": 20,
    "algorithm.tolerance": 1e-3,
    "compare.centralised": False,
}


def scenario(folder: Path, text: str) -> Path:
    """A scenario file with these lines in [data]."""
    path = folder / "own.toml"
    path.write_text(
        f'name = "own"\nprotocol.sum = "masked"\n[data]\nlabel = "died"\nignore = ["patient_id", "aufnahme"]\n{text}\n'
    )
    return path


def prepared(folder: Path, text: str, **changes: Any) -> FederatedDataset:
    chosen, base = spec.read(scenario(folder, text), changes=changes)
    return dataset.prepare(resolve_site_names(chosen, base), base)


def refused(folder: Path, text: str, **changes: Any) -> tuple[str, ...]:
    with pytest.raises(ScenarioError) as caught:
        prepared(folder, text, **changes)
    return caught.value.problems


# How text is written.


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "cp1252"])
@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
def test_how_text_is_written_is_found_out(encoding: str, separator: str, tmp_path: Path) -> None:
    decimal = "." if separator == "," else ","
    lines = [("größe", "ort", "label"), (f"1{decimal}5", "Köln", "a"), (f"-2{decimal}25", "Ulm", "b"), ("3", "", "a")]
    path = tmp_path / "a.csv"
    path.write_bytes("\n".join(separator.join(line) for line in lines).encode(encoding))
    columns, form = files.read(path)
    assert columns["größe"].tolist() == [1.5, -2.25, 3.0]
    assert columns["ort"].tolist() == ["Köln", "Ulm", ""]
    assert form == TextForm(separator, decimal, encoding)


def test_how_text_is_written_can_be_told(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes("a;b;label\n1,5;ł;x\n2.5;ł;y\n".encode("cp1250"))
    told = TextForm(decimal=",", encoding="cp1250")
    columns, _ = files.read(tmp_path / "a.csv", form=told)
    assert columns["b"].tolist() == ["ł", "ł"]
    assert columns["a"].tolist() == ["1,5", "2.5"]  # the file is at odds with itself
    for key, value, says in [
        ("encoding", "klingon", 'data.encoding: must be an encoding such as "utf-8" or "cp1252", got \'klingon\'.'),
        ("separator", "::", "data.separator: must be"),
    ]:
        (said,) = refused(tmp_path, f'source = "a.csv"\n{key} = "{value}"')
        assert said.startswith(says)


def test_a_file_of_excel_is_read_and_said_to_be_one(tmp_path: Path) -> None:
    hospitals.as_excel_writes(tmp_path / "p.csv", hospitals.rows(60))
    hospitals.plain(tmp_path / "q.csv", hospitals.rows(60))
    found, plain = (prepared(tmp_path, f'source = "{name}.csv"\nmissing = "drop"') for name in "pq")
    np.testing.assert_array_equal(found.rows.numeric, plain.rows.numeric)
    np.testing.assert_array_equal(found.rows.categorical, plain.rows.categorical)
    said = "p.csv was read as cp1252 text with semicolons between columns and a decimal comma."
    assert said in found.warnings
    assert not any("was read as" in warning for warning in plain.warnings)


# Which column is what.


def test_identifiers_and_dates_are_refused_before_anything_starts(tmp_path: Path) -> None:
    hospitals.as_excel_writes(tmp_path / "p.csv", hospitals.rows(800))
    said = refused(tmp_path, 'source = "p.csv"\nmissing = "drop"', **{"data.ignore": []})
    assert len(said) == 2
    assert "'patient_id' has" in said[0]
    assert "it looks like an identifier; add it to data.ignore" in said[0]
    assert "'aufnahme' holds dates" in said[1]


def test_numbers_that_tell_rows_apart_are_a_warning(tmp_path: Path) -> None:
    rows = "".join(f"{1000 + row},{row % 7},{row % 2}\n" for row in range(50))
    (tmp_path / "p.csv").write_text(f"case_id,age,died\n{rows}")
    found = prepared(tmp_path, 'source = "p.csv"', **{"data.ignore": []})
    assert "Column 'case_id' has a different whole number in each row" in "".join(found.warnings)
    assert "'age'" not in "".join(found.warnings)


def test_a_typing_mistake_among_numbers_is_told_with_its_cell(tmp_path: Path) -> None:
    rows = "".join(f"{row % 12},{row % 2}\n" for row in range(200))
    (tmp_path / "p.csv").write_text(f"age,died\n{rows}oops,1\n")
    found = prepared(tmp_path, 'source = "p.csv"', **{"data.ignore": []})
    assert "Column 'age' is read as text because of 'oops' in row 201 among numbers" in "".join(found.warnings)
    rows = "".join(f"{row / 10},{row % 2}\n" for row in range(200))
    (tmp_path / "p.csv").write_text(f"age,died\n{rows}oops,1\n")
    (said,) = refused(tmp_path, 'source = "p.csv"', **{"data.ignore": []})
    assert said.startswith("data.source: column 'age' is read as text because of 'oops' in row 201")


@pytest.mark.parametrize(
    ("classes", "positive"),
    [("01", "1"), (("10", "9"), "10"), (("Died", "alive"), "Died"), (("no", "YES"), "YES"), (("-1", "+1"), "+1")],
)
def test_a_class_that_everybody_takes_for_positive_needs_no_telling(classes: Any, positive: str) -> None:
    assert label_classes.obvious_positive(sorted(classes)) == positive


def test_a_class_that_is_not_plain_must_be_told_and_may_be_a_number(tmp_path: Path) -> None:
    assert label_classes.obvious_positive(["a", "b"]) is None
    rows = "".join(f"{row % 12},{'ab'[row % 2]},{row % 2}\n" for row in range(40))
    (tmp_path / "p.csv").write_text(f"age,group,died\n{rows}")
    (said,) = refused(tmp_path, 'source = "p.csv"', **{"data.ignore": [], "data.label": "group"})
    assert said == ("data.positive: the classes of p.csv are a, b; name the one that is +1: --set data.positive=a.")
    (tmp_path / "p.csv").write_text(f"age,group,died\n{rows.replace(',a,', ',<=50K,')}")
    (said,) = refused(tmp_path, 'source = "p.csv"', **{"data.ignore": [], "data.label": "group"})
    assert said.endswith("--set 'data.positive=<=50K'.")  # a shell takes < for a file otherwise
    chosen, base = spec.read(scenario(tmp_path, 'source = "p.csv"'), overrides=["data.positive=0", "data.ignore=[]"])
    assert dataset.prepare(chosen, base).classes == ("1", "0")


def test_a_class_of_two_spellings_is_refused_with_the_rows(tmp_path: Path) -> None:
    """Else what one hospital calls ja would be as negative as nein."""
    for name, classes in (("a", ("Ja", "Nein")), ("b", ("ja", "nein "))):
        rows = "".join(f"{row % 12},{classes[row % 2]}\n" for row in range(40))
        (tmp_path / f"{name}.csv").write_text(f"age,died\n{rows}")
    both = 'sources = { a = "a.csv", b = "b.csv" }\npositive = "Ja"'
    (said,) = refused(tmp_path, both, **{"data.ignore": []})
    assert said == (
        "data.label: column 'died' of a.csv, b.csv has labels that differ in capitals or blanks alone: 'Ja' (row 1 of "
        "a.csv) and 'ja' (row 1 of b.csv); 'Nein' (row 2 of a.csv) and 'nein ' (row 2 of b.csv); give each class one "
        "spelling in all files, or list every class in data.classes if these are different classes."
    )


def _vowels(folder: Path) -> None:
    """Write 90 rows of three classes, two of which differ in capitals alone, and of a column of such categories."""
    rows = "".join(f"{row % 7},{('hAd', 'had', 'hid')[row % 3]},{('T', 't')[row % 2]}\n" for row in range(90))
    (folder / "v.csv").write_text(f"f1,died,tone\n{rows}")


def test_labels_that_differ_in_capitals_are_different_classes_if_declared(tmp_path: Path) -> None:
    _vowels(tmp_path)
    source, changes = 'source = "v.csv"', {"data.ignore": ["tone"]}
    found = prepared(tmp_path, f'{source}\nclasses = ["hid", "had", "hAd"]', **changes)
    assert found.classes == ("hid", "had", "hAd")
    assert found.rows.labels.tolist() == [2.0, 1.0, 0.0] * 30
    one_of_them = prepared(tmp_path, f'{source}\nclasses = ["hid", "had", "hAd"]\npositive = "had"', **changes)
    assert one_of_them.rows.labels.tolist() == [-1.0, 1.0, -1.0] * 30
    (said,) = refused(tmp_path, f'{source}\nclasses = ["hid", "had"]', **changes)
    assert said.startswith("data.label: ") and said.endswith(
        "list every class in data.classes if these are different classes."
    )


def test_a_site_accepts_labels_that_differ_in_capitals_if_declared(tmp_path: Path) -> None:
    _vowels(tmp_path)
    chosen = spec.validate(
        {
            "name": "own",
            "federation": {"names": ["north", "south"]},
            "data": {
                "sources": dict.fromkeys(["north", "south"], "its own"),
                "label": "died",
                "classes": ["had", "hid", "hAd"],
                "tested_by": "sites",
            },
            "protocol": {"sum": "masked"},
        }
    )
    held = hold("north", str(tmp_path / "v.csv"), terms_of(chosen))
    assert held.partition(["f1", "tone"]).arrays["labels"].shape == (3, 90)
    terms = terms_of(chosen)
    undeclared = replace(terms, reading={**terms.reading, "classes": ["had", "hid"]})
    with pytest.raises(StepRefused, match=r"labels that differ in capitals .* list every class in data\.classes"):
        hold("north", str(tmp_path / "v.csv"), undeclared)


def test_categories_that_differ_in_capitals_are_no_doubt_if_declared(tmp_path: Path) -> None:
    _vowels(tmp_path)
    text, changes = 'source = "v.csv"\nclasses = ["hid", "had", "hAd"]', {"data.ignore": list[str]()}
    (note,) = prepared(tmp_path, text, **changes).warnings
    assert note.startswith("Column 'tone' writes 'T' (row 1) and 't' (row 2) in ways that differ in capitals or blanks")
    assert note.endswith("or list all values in data.categories.tone if these are different ones.")
    assert prepared(tmp_path, f'{text}\ncategories = {{ tone = ["T", "t"] }}', **changes).warnings == ()


def test_a_draft_asks_whether_labels_that_differ_in_capitals_are_different_classes(tmp_path: Path) -> None:
    _vowels(tmp_path)
    written = draft(tmp_path / "my.toml", str(tmp_path / "v.csv"), "died")
    assert written.asks[0].startswith("data.label: column 'died' of v.csv has labels that differ in capitals or blanks")
    (tmp_path / "my.toml").write_text(written.text)
    with pytest.raises(ScenarioError, match=r"list every class in data\.classes"):
        dataset.prepare(*spec.read(tmp_path / "my.toml"))
    (tmp_path / "my.toml").write_text(written.text.replace("# classes = ", "classes = "))
    assert dataset.prepare(*spec.read(tmp_path / "my.toml")).classes == ("hAd", "had", "hid")
    (note, *_) = table_description.describe("v.csv", "died", "random", 2, tmp_path).warnings
    assert note == f"To be refused: {written.asks[0]}"


def test_classes_that_are_pooled_as_negative_are_told(tmp_path: Path) -> None:
    classes = ("died", "home", "moved")
    rows = "".join(f"{row % 12},{classes[row % 3]}\n" for row in range(60))
    (tmp_path / "p.csv").write_text(f"age,died\n{rows}")
    found = prepared(tmp_path, 'source = "p.csv"\npositive = "died"', **{"data.ignore": []})
    assert found.warnings[0] == "Class 'died' is +1, by data.positive; all others became -1: 'home', 'moved'."


# Whose a row is.


def test_a_column_says_whose_a_row_is(tmp_path: Path) -> None:
    table = hospitals.rows(120)
    hospitals.as_excel_writes(tmp_path / "p.csv", table)
    found = prepared(tmp_path, 'source = "p.csv"\nsite = "hospital"\nmissing = "mean"\ntest_fraction = 0')
    assert found.names == ("Koln-Sud", "Nord", "Ost", "St.-Anna", "West")
    of_nord = [row for row, values in enumerate(table) if values[1] == "Nord"]
    assert found.shard("Nord").rows.tolist() == of_nord
    assert "hospital" not in found.categorical_columns


def test_sites_of_a_column_can_be_named_in_faults_and_are_checked(tmp_path: Path) -> None:
    hospitals.plain(tmp_path / "p.csv", hospitals.rows(120))
    text = (
        'source = "p.csv"\nsite = "hospital"\nmissing = "drop"\n[[faults]]\nkind = "kill"\nphase = "train"\nround = 2\n'
    )
    prepared(tmp_path, f'{text}site = "Nord"')
    assert "there is no site 'Sued'" in refused(tmp_path, f'{text}site = "Sued"')[0]
    base = 'source = "p.csv"\nsite = "hospital"\nmissing = "drop"'
    assert "names 5 sites" in refused(tmp_path, base, **{"federation.sites": 4})[0]
    assert "has rows of 'Ost'" in refused(tmp_path, base, **{"federation.names": ["Nord", "Koln-Sud", "West"]})[0]
    assert "has no column 'clinic'" in refused(tmp_path, base.replace("hospital", "clinic"))[0]
    assert "remove it" in refused(tmp_path, f'{base}\nsplit = "label-skew"')[0]


def test_each_site_has_a_file_of_its_own(tmp_path: Path) -> None:
    table = hospitals.rows(90)
    hospitals.plain(tmp_path / "n.csv", table[:40], without=["hospital"])
    hospitals.as_excel_writes(tmp_path / "s.csv", table[40:])
    text = 'missing = "drop"\ntest_fraction = 0\n[data.sources]\nnorth = "n.csv"\nsouth = "s.csv"'
    (said,) = refused(tmp_path, text)
    assert said == (
        "data.sources: south has 'hospital', which north has not; give the column one name in all files "
        "(data.by_site), or add such columns to data.ignore."
    )
    found = prepared(tmp_path, text, **{"data.ignore": ["hospital", *IGNORED]})
    assert found.names == ("north", "south")
    complete = [all(values) for values in table]
    assert [len(shard.rows) for shard in found.shards] == [sum(complete[:40]), sum(complete[40:])]
    assert found.numeric_columns == ("age", "bmi", "creatinine")


def test_the_file_whose_columns_differ_from_most_is_named_though_it_is_the_first(tmp_path: Path) -> None:
    for name, column in (("n", "Agee"), ("s", "age"), ("w", "age")):
        (tmp_path / f"{name}.csv").write_text(f"{column},died\n50,0\n60,1\n")
    text = '[data.sources]\nnorth = "n.csv"\nsouth = "s.csv"\nwest = "w.csv"'
    (said,) = refused(tmp_path, text, **{"data.ignore": []})
    assert said.startswith("data.sources: north has 'Agee', and 2 of 3 sites (south, west) have 'age'; give the column")


def test_all_columns_that_are_text_in_some_files_are_named(tmp_path: Path) -> None:
    for name, row in (("n", "S-1,old,0"), ("s", "1,50,1"), ("w", "2,60,0")):
        (tmp_path / f"{name}.csv").write_text(f"code,age,died\n{row}\n")
    text = '[data.sources]\nnorth = "n.csv"\nsouth = "s.csv"\nwest = "w.csv"'
    code, age = refused(tmp_path, text, **{"data.ignore": []})
    assert code == (
        "data.sources: column 'code' holds numbers at south, west and text at north ('S-1' in row 1); fix the "
        "column, translate its values by data.recode, or add it to data.ignore."
    )
    assert age.startswith("data.sources: column 'age' holds numbers at south, west and text at north ('old' in row 1")


def test_a_column_that_is_text_in_one_file_is_named_with_its_cell(tmp_path: Path) -> None:
    (tmp_path / "n.csv").write_text("age,died\n50,0\n60,1\n")
    (tmp_path / "s.csv").write_text("age,died\n50,0\nold,1\n")
    (said,) = refused(tmp_path, '[data.sources]\nnorth = "n.csv"\nsouth = "s.csv"', **{"data.ignore": []})
    assert said.startswith("data.sources: column 'age' holds numbers at north and text at south ('old' in row 2)")


def test_test_rows_may_have_a_file_of_their_own(tmp_path: Path) -> None:
    table = hospitals.rows(120)
    hospitals.plain(tmp_path / "train.csv", table[:90])
    hospitals.as_excel_writes(tmp_path / "test.csv", table[90:])
    found = prepared(tmp_path, 'source = "train.csv"\ntest_source = "test.csv"\nmissing = "mean"\nsite = "hospital"')
    assert found.test(None).tolist() == list(range(90, 120))
    assert sorted(np.concatenate([shard.rows for shard in found.shards]).tolist()) == list(range(90))
    (said,) = refused(tmp_path, 'source = "train.csv"\ntest_source = "test.csv"\nfolds = 3')
    assert "test_source excludes folds and test_fraction" in said


# What is missing.


@pytest.mark.parametrize("folds", [None, 3])
def test_gaps_are_filled_by_means_over_all_sites(folds: int | None, tmp_path: Path) -> None:
    table = hospitals.rows(200)
    hospitals.as_excel_writes(tmp_path / "p.csv", table)
    hospitals.plain(tmp_path / "new.csv", table, without=["died"])
    text = 'source = "p.csv"\nsite = "hospital"\nmissing = "mean"\nmissing_indicators = true'
    changes = SMALL | {"data.missing": "mean", "data.test_fraction": 0 if folds else 0.25}
    if folds:
        changes["data.folds"] = folds
    result = run(scenario(tmp_path, text), changes=changes, out=tmp_path / "run")
    assert result.status == "completed", result.error
    cost = result.cost
    assert cost is not None and cost.wire_bytes == cost.predicted_wire_bytes
    shown = [each for each in result.disclosures if each.step == "known_values"]
    assert [(each.to, each.kind) for each in shown] == [("coordinator", "sum")]

    chosen, base = spec.read(scenario(tmp_path, text), changes=changes)
    chosen = resolve_site_names(chosen, base)
    data = dataset.prepare(chosen, base)
    fold = None if folds is None else folds - 1
    training = data.rows.numeric[data.training(fold, data.names)]
    with np.load(tmp_path / "run" / "model.npz") as model:
        np.testing.assert_allclose(model["filling"], np.nanmean(training, axis=0), rtol=1e-11)
        names = ["age", "bmi", "creatinine", "ward=icu", "ward=medicine", "ward=surgery"]
        assert model["columns"].tolist() == [*names, "age is missing", "bmi is missing", "creatinine is missing"]
        np.testing.assert_allclose(model["offset"][6:], np.isnan(training).mean(axis=0), rtol=1e-11)

    predicted = predict.predict(tmp_path / "run", str(tmp_path / "new.csv")).predicted
    assert result.metrics is not None
    tested = data.test(fold)
    right = np.mean(predicted[tested] == np.where(data.rows.labels[tested] > 0, "died", "survived"))
    assert right == pytest.approx(result.metrics.folds[-1].accuracy, abs=1e-12)


@pytest.mark.parametrize(
    "name", ["logistic-regression", "least-squares", "svm-admm", "naive-bayes", "decision-tree", "voting-ensemble"]
)
def test_other_algorithms_train_on_rows_with_gaps_too(name: str, tmp_path: Path) -> None:
    table = hospitals.rows(300)
    hospitals.plain(tmp_path / "p.csv", table)
    text = f'name = "own"\n[algorithm]\nname = "{name}"\n[data]\nlabel = "died"\nsource = "p.csv"\nmissing = "mean"\n'
    (tmp_path / "own.toml").write_text(f'{text}missing_indicators = true\nignore = ["patient_id", "aufnahme"]\n')
    result = run(tmp_path / "own.toml", sites=3, out=tmp_path / "run")
    assert result.status == "completed", result.error
    assert result.data is not None and result.data.rows == len(table)
    assert result.metrics is not None and result.metrics.auc is not None
    assert result.metrics.auc > 0.7 or name == "voting-ensemble"  # whose sites have too few who died
    if name in (
        "logistic-regression",
        "least-squares",
        "naive-bayes",
        "decision-tree",
    ):  # which are as pooled rows give
        assert result.centralised is not None
        assert result.centralised.max_decision_difference < 1e-3
    predicted = predict.predict(tmp_path / "run", str(tmp_path / "p.csv"))
    assert np.isfinite(predicted.decisions).all()


def test_one_patient_with_a_gap_is_predicted_as_among_others(tmp_path: Path) -> None:
    """Of its file alone nobody can tell whether the column with the gap holds numbers."""
    hospitals.plain(tmp_path / "p.csv", hospitals.rows(120), without=["patient_id", "aufnahme", "hospital"])
    for missing in ("mean", "drop"):
        text = f'source = "p.csv"\nmissing = "{missing}"'
        changes = SMALL | {"data.missing": missing, "data.ignore": []}
        assert run(scenario(tmp_path, text), changes=changes, out=tmp_path / missing).status == "completed"
    head = "age,bmi,creatinine,ward\n"
    (tmp_path / "one.csv").write_text(f"{head}55,,1.2,icu\n")
    (tmp_path / "two.csv").write_text(f"{head}55,,1.2,icu\n70,22.5,0.9,icu\n")
    alone, among = (predict.predict(tmp_path / "mean", str(tmp_path / name)) for name in ("one.csv", "two.csv"))
    assert alone.decisions[0] == pytest.approx(among.decisions[0])
    with pytest.raises(ScenarioError) as caught:
        predict.predict(tmp_path / "drop", str(tmp_path / "one.csv"))
    assert caught.value.problems == (f"{tmp_path / 'one.csv'} has no value in row 1, column 'bmi'; fill it.",)


def test_a_gap_in_words_is_none_of_the_categories(tmp_path: Path) -> None:
    rows = "".join(f"{row % 12},{('', 'a', 'b')[row % 3]},{row % 2}\n" for row in range(90))
    (tmp_path / "p.csv").write_text(f"age,ward,died\n{rows}")
    changes = SMALL | {"data.missing": "mean", "data.ignore": []}
    result = run(scenario(tmp_path, 'source = "p.csv"'), changes=changes, out=tmp_path / "run")
    assert result.status == "completed", result.error
    with np.load(tmp_path / "run" / "model.npz") as model:
        assert model["columns"].tolist() == ["age", "ward=a", "ward=b"]


def test_a_description_says_how_many_rows_are_complete(tmp_path: Path) -> None:
    rows = [f"{row % 12},{'' if row < 4 else row % 5},{row % 2}\n" for row in range(40)]
    (tmp_path / "p.csv").write_text(f"age,dose,died\n{''.join(rows)}")
    found = table_description.describe("p.csv", "died", "random", 2, tmp_path)
    assert found.warnings[0].startswith("36 of 40 rows are complete, and classes and sites are counted over these")


def _some_unlabeled(folder: Path) -> None:
    """Write 40 rows: the first 3 have no label, the 3rd to the 5th no dose."""
    rows = [f"{row % 12},{'' if 2 <= row < 5 else row % 5},{'' if row < 3 else row % 2}\n" for row in range(40)]
    (folder / "p.csv").write_text(f"age,dose,died\n{''.join(rows)}")


@pytest.mark.parametrize(
    ("missing", "rows", "notes"),
    [
        ("mean", 37, ["3 rows without a label were left out."]),
        ("drop", 35, ["3 rows without a label were left out.", "2 rows with missing values were left out."]),
    ],
)
def test_rows_without_a_label_are_dropped_and_gaps_of_others_filled(
    missing: str, rows: int, notes: list[str], tmp_path: Path
) -> None:
    _some_unlabeled(tmp_path)
    text = f'source = "p.csv"\nunlabeled = "drop"\nmissing = "{missing}"'
    found = prepared(tmp_path, text, **{"data.ignore": []})
    assert (len(found.rows.labels), list(found.warnings)) == (rows, notes)
    assert np.isnan(found.rows.numeric).sum() == (2 if missing == "mean" else 0)
    changes = SMALL | {"data.ignore": [], "data.missing": missing, "algorithm.landmarks": 5}
    result = run(scenario(tmp_path, text), changes=changes, sites=2, out=tmp_path / "run")
    assert result.status == "completed", result.error
    assert result.data is not None and result.data.rows == rows
    assert set(notes) <= set(result.warnings)


def test_rows_without_a_label_are_refused_by_the_key_that_drops_them(tmp_path: Path) -> None:
    _some_unlabeled(tmp_path)
    (said,) = refused(tmp_path, 'source = "p.csv"\nmissing = "mean"', **{"data.ignore": []})
    assert said == (
        "data.unlabeled: column 'died' has no value in row 1 (rows without a label: 3); fill it in, or set unlabeled = "
        '"drop" to remove such rows.'
    )
    (said,) = refused(tmp_path, 'source = "p.csv"\nunlabeled = "drop"', **{"data.ignore": []})
    assert said.startswith("data.missing: p.csv has no value in row 4, column 'dose' (2 missing in all)")
    (said,) = refused(tmp_path, 'source = "p.csv"\nunlabeled = "drop"', **{"data.label": "dose", "data.ignore": []})
    assert said.startswith("data.missing: p.csv has no value in row 1, column 'died' (2 missing in all)")
    (tmp_path / "p.csv").write_text("age,died\n1,\n2,\n")
    (said,) = refused(tmp_path, 'source = "p.csv"\nunlabeled = "drop"', **{"data.ignore": []})
    assert said == "data.label: column 'died' of p.csv has no value in any row; fill it in."


def test_a_site_drops_rows_without_a_label_if_the_terms_say_so(tmp_path: Path) -> None:
    _some_unlabeled(tmp_path)
    data = {"sources": {"north": "its own", "south": "its own"}, "label": "died", "positive": "1", "missing": "mean"}
    given = {"name": "own", "federation": {"names": ["north", "south"]}, "protocol": {"sum": "masked"}}
    refusing, dropping = (
        terms_of(spec.validate({**given, "data": {**data, "unlabeled": unlabeled}})) for unlabeled in ("refuse", "drop")
    )
    assert hold("north", str(tmp_path / "p.csv"), dropping).rows == 37
    with pytest.raises(StepRefused, match=r'set unlabeled = "drop" to remove such rows'):
        hold("north", str(tmp_path / "p.csv"), refusing)


def test_a_draft_and_a_description_count_rows_without_a_label(tmp_path: Path) -> None:
    _some_unlabeled(tmp_path)
    written = draft(tmp_path / "my.toml", str(tmp_path / "p.csv"), "died")
    assert 'unlabeled = "drop"         # rows without a label are removed: 3\n' in written.text
    (tmp_path / "my.toml").write_text(written.text)
    assert len(dataset.prepare(*spec.read(tmp_path / "my.toml")).rows.labels) == 37
    found = table_description.describe("p.csv", "died", "random", 2, tmp_path)
    assert (found.rows, sum(int(line[1]) for line in found.sites[1:])) == (40, 35)
    assert found.warnings[0] == "3 rows have no label; data.unlabeled decides about them."
    assert found.warnings[1].startswith("35 of 40 rows are complete")


def test_where_no_row_is_complete_the_columns_with_gaps_are_named(tmp_path: Path) -> None:
    gaps = ["1,1,", ",,1", "1,,1", ",,1"]
    rows = [f"{row},{gaps[row % 4]},{row % 2}\n" for row in range(40)]
    (tmp_path / "p.csv").write_text(f"age,a,b,c,died\n{''.join(rows)}")
    (said,) = refused(tmp_path, 'source = "p.csv"\nmissing = "drop"', **{"data.ignore": []})
    assert said == (
        "data.missing: none of the 40 rows of p.csv is complete: 'b' lacks 30, 'a' lacks 20, 'c' lacks 10; leave such "
        'columns out by data.ignore, or fill gaps by missing = "mean".'
    )
    found = table_description.describe("p.csv", "died", "random", 2, tmp_path)
    assert found.warnings[:2] == (
        f"To be refused: {said}",
        "Classes and sites are counted over the 40 rows that have a class, complete or not.",
    )
    assert found.classes[1:] == [("0", "20"), ("1", "20")]
    assert [line[1] for line in found.columns[1:]] == ["numbers"] * 4
    assert sum(int(line[1]) for line in found.sites[1:]) == found.rows == 40


def test_where_complete_rows_are_of_one_class_all_are_described(tmp_path: Path) -> None:
    rows = [f"{'' if row % 3 == 0 else row},{'' if row == 1 else int(row % 3 == 0)}\n" for row in range(30)]
    (tmp_path / "p.csv").write_text(f"age,died\n{''.join(rows)}")
    found = table_description.describe("p.csv", "died", "random", 2, tmp_path)
    assert found.warnings[0].startswith("To be refused: data.label: column 'died' of p.csv has one class only (0)")
    assert (found.rows, found.classes[1:]) == (30, [("0", "19"), ("1", "10")])
    (tmp_path / "q.csv").write_text("age,died\n,1\n50,\n")
    with pytest.raises(ScenarioError, match="has one class only"):
        table_description.describe("q.csv", "died", "random", 2, tmp_path)


@pytest.mark.parametrize("decimal", ".,")
def test_marks_of_missing_values_count_among_numbers_alone(decimal: str, tmp_path: Path) -> None:
    marks = sorted(notation.GAP_MARKS)
    lines = [("dose", "rhesus", "none", "mixed"), *((mark, "-", mark, mark) for mark in marks)]
    lines += [(f"1{decimal}5", "+", "", "oops"), ("-2", "+", "", "3"), ("", "+", "", "4")]
    path = tmp_path / "a.csv"
    path.write_text("".join(";".join(line) + "\n" for line in lines), encoding="utf-8")
    columns, _ = files.read(path, form=TextForm(decimal=decimal))
    np.testing.assert_array_equal(columns["dose"], [*[np.nan] * len(marks), 1.5, -2, np.nan])
    assert columns["rhesus"].tolist() == [*"-" * len(marks), "+", "+", "+"]
    assert columns["none"].tolist() == [*marks, "", "", ""]
    assert columns["mixed"].tolist() == [*marks, "oops", "3", "4"]
    assert files.read(path, ["dose"], form=TextForm(decimal=decimal))[0]["dose"].tolist()[0] == marks[0]


@pytest.mark.parametrize("decimal", ".,")
def test_minus_signs_and_digits_of_other_scripts_are_numbers(decimal: str, tmp_path: Path) -> None:
    """In a file of text; of a column that is no number, everything stays as it is written."""
    arabic, wide = (dict(zip(map(ord, "0123456789"), range(zero, zero + 10), strict=True)) for zero in (0x660, 0xFF10))
    lines = [("minus", "arabic", "wide", "dose", "text")]
    for row in range(1, 30):
        in_arabic, in_wide = f"-{row}{decimal}5".translate(arabic), f"{row}".translate(wide)
        lines.append((f"{MINUS}{row}{decimal}25", in_arabic, in_wide, MINUS, f"{MINUS}{row}x"))
    lines.append((f"1e{MINUS}3", "", "7", f"{MINUS}2{decimal}5", "3"))
    path = tmp_path / "a.csv"
    path.write_text("".join(";".join(line) + "\n" for line in lines), encoding="utf-8")
    columns, form = files.read(path)
    assert form is not None and form.decimal == decimal
    np.testing.assert_array_equal(columns["minus"], [*(-row - 0.25 for row in range(1, 30)), 1e-3])
    np.testing.assert_array_equal(columns["arabic"], [*(-row - 0.5 for row in range(1, 30)), np.nan])
    np.testing.assert_array_equal(columns["wide"], [*range(1, 30), 7])
    np.testing.assert_array_equal(columns["dose"], [*[np.nan] * 29, -2.5])
    assert columns["text"].tolist() == [*(f"{MINUS}{row}x" for row in range(1, 30)), "3"]


def test_a_mistake_among_numbers_with_minus_signs_is_named(tmp_path: Path) -> None:
    rows = "".join(f"{MINUS}{'1..5' if row == 7 else f'{row}.5'},{row % 2}\n" for row in range(60))
    (tmp_path / "p.csv").write_text(f"t,died\n{rows}")
    (said,) = refused(tmp_path, 'source = "p.csv"', **{"data.ignore": []})
    assert said.startswith(f"data.source: column 't' is read as text because of '{MINUS}1..5' in row 8 among numbers")


def test_means_are_for_those_that_agree_by_sums(tmp_path: Path) -> None:
    hospitals.plain(tmp_path / "p.csv", hospitals.rows(60))
    (said,) = refused(tmp_path, 'source = "p.csv"\nmissing = "mean"\npublic = 20', **{"algorithm.name": "hybrid-svm"})
    assert said == (
        'data.missing: hybrid-svm has no means over all sites to fill gaps with; set it to "refuse" or "drop".'
    )
    (said,) = refused(tmp_path, 'source = "p.csv"\nmissing_indicators = true')
    assert said == 'data: missing_indicators needs missing = "mean".'


def test_a_run_of_three_files_and_one_of_test_rows_can_be_repeated_from_what_it_leaves(tmp_path: Path) -> None:
    table = hospitals.rows(240)
    for name, part in (("n", table[:70]), ("s", table[70:130]), ("w", table[130:190])):
        hospitals.as_excel_writes(tmp_path / f"{name}.csv", part)
    hospitals.plain(tmp_path / "test.csv", table[190:])
    text = (
        'test_source = "test.csv"\nmissing = "mean"\n[data.sources]\nnorth = "n.csv"\nsouth = "s.csv"\nwest = "w.csv"'
    )
    changes = {key: value for key, value in SMALL.items() if not key.startswith("data.")}
    changes |= {"data.ignore": ["hospital", *IGNORED], "algorithm.masking": "none", "algorithm.step_noise": 0.0}
    first = run(scenario(tmp_path, text), changes=changes, out=tmp_path / "first")
    assert first.status == "completed", first.error
    assert {site.name: site.rows for site in first.sites} == {"north": 70, "south": 60, "west": 60}
    assert first.metrics is not None and first.metrics.confusion is not None
    table_of = first.metrics.confusion
    assert table_of.true_positive + table_of.false_negative == sum(row[-1] == "died" for row in table[190:])
    (tmp_path / "again.toml").write_text((tmp_path / "first" / "scenario.toml").read_text())
    again = run(tmp_path / "again.toml", out=tmp_path / "second")
    assert again.metrics == first.metrics
    assert again.scenario == first.scenario


def test_a_scenario_that_was_located_can_be_read_again(tmp_path: Path) -> None:
    hospitals.plain(tmp_path / "p.csv", hospitals.rows(120))
    text = 'source = "p.csv"\nsite = "hospital"\nmissing = "drop"\nseparator = ","\nfolds = 2\nrepeats = 2'
    chosen, base = spec.read(scenario(tmp_path, text))
    chosen = resolve_site_names(chosen, base)
    (tmp_path / "again.toml").write_text(spec.resolved_toml(chosen))
    again, _ = spec.read(tmp_path / "again.toml")
    assert resolve_site_names(again, base) == again
    assert again.model_dump() == chosen.model_dump()


def test_a_site_that_is_restarted_in_a_later_fold_has_that_folds_columns(tmp_path: Path) -> None:
    """Words, gaps with indicators and rows set apart: what it is told of the fold before does not fit its rows yet."""
    hospitals.plain(tmp_path / "p.csv", hospitals.rows(600))
    text = 'source = "p.csv"\nmissing = "mean"\nmissing_indicators = true\ncalibration = 0.3'
    changes = SMALL | {"data.ignore": [*IGNORED, "hospital"], "data.missing": "mean"}
    changes |= {"data.folds": 2, "data.test_fraction": 0.0, "federation.sites": 3}
    changes["faults"] = [{"kind": "kill", "site": 2, "phase": "landmarks", "round": 8, "rejoin": True}]
    result = run(scenario(tmp_path, text), changes=changes, out=tmp_path / "run")
    assert result.status == "completed", result.error
    assert "dropped in " in result.faults[0].outcome
    assert result.metrics is not None and result.metrics.brier is not None


def test_a_mean_of_fewer_than_three_values_is_not_told(tmp_path: Path) -> None:
    """It would be in the model's file: of one value the value, of two to whoever has the other."""
    ages = np.random.default_rng(0).normal(50, 9, 60)
    rows = [f"{age:.1f},{'9.5' if number < 2 else ''},{number % 2}" for number, age in enumerate(ages)]
    (tmp_path / "p.csv").write_text("\n".join(["age,load,died", *rows]) + "\n")
    changes = SMALL | {"data.missing": "mean", "data.positive": "1", "data.test_fraction": 0, "data.ignore": []}
    result = run(scenario(tmp_path, 'source = "p.csv"'), changes=changes, out=tmp_path / "run")
    assert result.status == "failed"
    assert result.error is not None
    assert "Fewer than 3 training rows have a value of 'load'" in result.error
    assert "known_values" not in {each.step for each in result.disclosures}


# Points between thousands.


@pytest.mark.parametrize(
    ("doses", "numbers"),
    [
        (["3,5", "4.102", "900", "1.234.567"], [3.5, 4102, 900, 1234567]),
        (["4.102,25", "-12.000", "", "n/a"], [4102.25, -12000, np.nan, np.nan]),
        (["1.234.567", "4.102", "7", "0"], [1234567, 4102, 7, 0]),
    ],
)
def test_points_between_thousands_are_none_where_a_comma_is_the_decimal_mark(
    doses: list[str], numbers: list[float], tmp_path: Path
) -> None:
    (tmp_path / "a.csv").write_text("".join(f"{dose};x\n" for dose in ["dose", *doses]))
    columns, form = files.read(tmp_path / "a.csv")
    np.testing.assert_array_equal(columns["dose"], numbers)
    assert str(form) == "utf-8 text with semicolons between columns, points between thousands and a decimal comma"


@pytest.mark.parametrize("odd", ["4.1", "04.102", "0.125", "4.102.5", "4.1020"])
def test_other_points_leave_a_column_with_decimal_commas_text_and_are_told(odd: str, tmp_path: Path) -> None:
    rows = "".join(f"{1 + row % 60}.102,5;{row % 2}\n" for row in range(300))
    (tmp_path / "p.csv").write_text(f"dose;died\n{rows}{odd};1\n")
    (said,) = refused(tmp_path, 'source = "p.csv"\ndecimal = ","', **{"data.ignore": []})
    assert f"column 'dose' is read as text because of '{odd}' in row 301" in said
    assert "write its numbers as 1234,5" in said or "fix these" in said


def test_a_point_that_may_be_of_thousands_is_told_with_its_cell(tmp_path: Path) -> None:
    rows = "".join(f"{row % 12};{1 + row % 7}.{100 + row};{row % 2}\n" for row in range(60))
    (tmp_path / "p.csv").write_text(f"age;dose;died\n{rows}")
    doubt = (
        "p.csv: '1.100' in row 1, column 'dose', is read as 1.1; if it is 1100, set data.decimal = \",\" "
        '("." ends this note).'
    )
    assert doubt in prepared(tmp_path, 'source = "p.csv"', **{"data.ignore": []}).warnings
    for decimal, first in ((",", 1100.0), (".", 1.1)):
        found = prepared(tmp_path, f'source = "p.csv"\ndecimal = "{decimal}"', **{"data.ignore": []})
        assert not any("in row 1" in warning for warning in found.warnings)
        assert found.rows.numeric[0].tolist() == [0.0, first]
    written = draft(tmp_path / "my.toml", str(tmp_path / "p.csv"), "died", positive="1")
    assert f"# to be looked at: {doubt.removeprefix('p.csv: ')}" in written.text
    assert written.asks == (doubt,)
    (tmp_path / "q.csv").write_text("age;dose;died\n1;0.25;0\n2;4.102;1\n")
    assert not doubt_of(tmp_path / "q.csv")  # a point that cannot be of thousands
    (tmp_path / "q.csv").write_text("age,dose,died\n1,4.102,0\n")
    assert not doubt_of(tmp_path / "q.csv")  # nor is it where commas separate


@pytest.mark.parametrize(
    ("cells", "numbers", "read"),
    [
        (
            ['"1,234"', '"3,500,000.5"', "17", "n/a"],
            [1234, 3500000.5, 17, np.nan],
            "'1,234' in row 1, column 'a', is read as 1234",
        ),
        (["45 %", "-", "3.5%"], [45, np.nan, 3.5], "'45 %' in row 1, column 'a', is read as 45"),
    ],
)
def test_commas_between_thousands_and_percents_are_read_and_told(
    cells: list[str], numbers: list[float], read: str, tmp_path: Path
) -> None:
    (tmp_path / "a.csv").write_text("a,b\n" + "".join(f"{cell},x\n" for cell in cells))
    columns, _ = files.read(tmp_path / "a.csv")
    np.testing.assert_array_equal(columns["a"], numbers)
    assert doubt_of(tmp_path / "a.csv").startswith(read)


# Files of spreadsheets.


def test_a_file_of_a_spreadsheet_is_read_without_its_trimmings(tmp_path: Path) -> None:
    lines = ["sep=;", " age ;note;died;;", '40;"said;', 'no";1;;', "41;;0;;", ";;;;", ";;;;"]
    (tmp_path / "a.csv").write_bytes("\r\n".join(lines).encode("utf-16"))
    columns, form = files.read(tmp_path / "a.csv")
    assert {name: values.tolist() for name, values in columns.items()} == {
        "age": [40, 41],
        "note": ["said;\r\nno", ""],
        "died": [1, 0],
    }
    assert form is not None and (form.separator, form.encoding) == (";", "utf-16")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('a,b\n1,x\n2,"y\n3,z\n4,w\n', "the quotation mark in row 2, column 'b', is not closed before the next rows"),
        ('a,b,c\n1,"x,3\n4,y,6\n7,z,9\n8,"w,9\n', "the quotation mark in row 1, column 'b', is not closed"),
        ("a,b,a\n1,2,3\n", "columns 1, 3 have the same name 'a'; rename all but one"),
        ("a,,\n1,2,3\n", "columns 2, 3 have values and no name; name or remove them"),
        ("Report\na,b\n1,2\n", "if line 1 is a title, remove it"),
    ],
)
def test_a_file_that_would_be_read_wrongly_is_refused(text: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(text)
    with pytest.raises(ScenarioError) as caught:
        files.read(tmp_path / "a.csv")
    assert said in str(caught.value)


def doubt_of(path: Path) -> str:
    _, form = files.read(path)
    return form.doubt if form is not None else ""


def test_predictions_read_points_as_the_drafted_run_did(tmp_path: Path) -> None:
    rows = "".join(f"{row % 12};{1 + row % 7}.{100 + row};{row % 5},5;{row % 2}\n" for row in range(60))
    (tmp_path / "p.csv").write_text(f"age;dose;rest;died\n{rows}")
    (tmp_path / "my.toml").write_text(draft(tmp_path / "my.toml", str(tmp_path / "p.csv"), "died", positive="1").text)
    assert 'decimal = "," ' in (tmp_path / "my.toml").read_text()
    small = {key: value for key, value in SMALL.items() if not key.startswith("data.")}
    assert run(tmp_path / "my.toml", changes=small, out=tmp_path / "run").status == "completed"
    (tmp_path / "new.csv").write_text("age;dose;rest\n1;4.102;2\n")
    (tmp_path / "same.csv").write_text("age;dose;rest\n1;4102;2\n")
    new, same = (predict.predict(tmp_path / "run", str(tmp_path / f"{name}.csv")) for name in ("new", "same"))
    assert new.decisions.tolist() == same.decisions.tolist()
    assert new.doubts == ()
