"""Files of sites in one form: missing values, spellings and names, in scenarios and as `fedsvm new` proposes them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from pydantic import ValidationError

from fedsvm.scenarios.data import corrections, dataset, file_join, proposals, sources, table_description
from fedsvm.scenarios.draft import draft
from fedsvm.scenarios.hosts.site_data import hold
from fedsvm.scenarios.run.offered_terms import terms_of
from fedsvm.scenarios.schema import spec
from fedsvm.scenarios.schema.corrections import Corrections
from fedsvm.scenarios.schema.data import DataSpec
from fedsvm.scenarios.schema.errors import ScenarioError
from tests import messy_files
from tests.commands import fedsvm


def study(folder: Path) -> Path:
    """Write the messy files and the scenario that is proposed for them, with the one synonym that is asked for."""
    messy_files.write(folder)
    files = {site: str(folder / file) for site, file in messy_files.FILES.items()}
    written = draft(folder / "study.toml", files, messy_files.LABEL)
    target = folder / "study.toml"
    target.write_text(written.text.replace('# "Ex-smoker" =', '"Ex-smoker" ='))
    return target


def test_messy_files_become_a_model_by_the_tool_alone(tmp_path: Path) -> None:
    messy_files.write(tmp_path)
    words = [word for site, file in messy_files.FILES.items() for word in ("--data", f"{site}={file}")]
    done = fedsvm("new", "study.toml", *words, "--label", messy_files.LABEL, "--ignore", "sbp", folder=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    for note in (
        "note Column 'bmi' is left out: 'west' has none.",
        "note Column 'town' is left out: has one value at 'north', 'south' that no other site has",
        "note Column 'age' has 999 (",
        "'Female' for 'F'",
        "'Ex-smoker' for 'former'",
    ):
        assert note in done.stdout
    text = (tmp_path / "study.toml").read_text()
    assert 'ignore = ["sbp", "patient_id", "admitted", "bmi", "town"]' in text
    assert '# "Ex-smoker" = "former"' in text and '"Town" = "town"' in text and 'positive = "yes"' in text
    (tmp_path / "study.toml").write_text(text.replace('# "Ex-smoker"', '"Ex-smoker"'))
    small = ["--set", "algorithm.landmarks=20", "--set", "algorithm.tolerance=1e-3"]
    done = fedsvm("run", "study.toml", "--json", "--out", "run", *small, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["metrics"]["accuracy"] > 0.7
    assert sorted(site["name"] for site in result["sites"]) == ["north", "south", "west"]
    head, row = "age,sex,smoking,diabetes,crp", "999,Male,Ex-smoker,1,12.5"
    (tmp_path / "new.csv").write_text(f"{head}\n{row}\n")
    done = fedsvm("predict", "run", "new.csv", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[1].split(",")[2] in ("yes", "no")


def test_the_proposed_scenario_has_one_spelling_of_each_value(tmp_path: Path) -> None:
    chosen, base = spec.read(study(tmp_path))
    rows = dataset.prepare(chosen, base)
    assert rows.classes == ("no", "yes") and not rows.warnings[1:]
    texts = dict(zip(rows.categorical_columns, rows.rows.categorical.T, strict=True))
    assert {name: set(values) for name, values in texts.items()} == {
        "sex": {"F", "M"},
        "smoking": {"never", "former", "Current"},
        "diabetes": {"no", "yes"},
    }
    age = rows.rows.numeric[:, rows.numeric_columns.index("age")]
    assert np.nanmax(age) < 90 and np.isnan(age).any()


def test_a_site_on_another_host_reads_its_file_the_same_way(tmp_path: Path) -> None:
    chosen, base = spec.read(study(tmp_path), changes={"data.test_fraction": 0.0, "compare.sites": False})
    rows = dataset.prepare(chosen, base)
    for number, (site, file) in enumerate(messy_files.FILES.items()):
        held = hold(site, str(tmp_path / file), terms_of(chosen))
        partition = held.partition([*rows.numeric_columns, *rows.categorical_columns])
        mine = rows.rows.take(rows.shards[number].rows)
        place = rows.numeric_columns.index("age")
        assert np.array_equal(partition.arrays["numeric"][:, place], mine.numeric[:, place], equal_nan=True)
        assert held.rows == len(mine.labels)
        assert {each.name for each in held.columns} == {*rows.numeric_columns, *rows.categorical_columns}


def _table(folder: Path, text: str, **keys: object) -> file_join.JoinedRows:
    (folder / "p.csv").write_text(text)
    return file_join.join(DataSpec.model_validate({"source": "p.csv", **keys}), folder)


def test_codes_of_all_columns_and_of_one(tmp_path: Path) -> None:
    text = "age,crp,word,label\n999,5,unknown,0\n50,999,a,1\n60,7,999,1\n"
    everywhere = _table(tmp_path, text, missing_values=[999, "unknown"]).table.columns
    assert np.isnan(everywhere["age"][0]) and np.isnan(everywhere["crp"][1])
    assert everywhere["word"].tolist() == ["", "a", ""]
    of_one = _table(tmp_path, text, missing_values={"age": [999]}).table.columns
    assert np.isnan(of_one["age"][0]) and of_one["crp"][1] == 999


def test_a_column_that_a_code_made_text_is_numbers_again(tmp_path: Path) -> None:
    columns = _table(tmp_path, "age,label\nunknown,0\n50,1\n", missing_values=["unknown"]).table.columns
    assert columns["age"].dtype.kind == "f" and columns["age"][1] == 50


def test_values_and_names_are_replaced_at_one_site_alone(tmp_path: Path) -> None:
    text = "clinic,flag,label\nn,1,0\nn,2,1\ns,1,1\ns,2,0\n"
    keys = {"site": "clinic", "recode": {"label": {"0": "well", "1": "ill"}}}
    by_site = {"s": {"recode": {"flag": {"1": "2", "2": "1"}}}}
    columns = _table(tmp_path, text, **keys, by_site=by_site).table.columns
    assert columns["flag"].tolist() == [1, 2, 2, 1]
    assert columns["label"].tolist() == ["well", "ill", "ill", "well"]
    renamed = _table(tmp_path, text, **keys, rename={"flag": "mark"}).table.columns
    assert "mark" in renamed and "flag" not in renamed


def test_a_key_that_names_no_column_is_an_error(tmp_path: Path) -> None:
    found = _table(
        tmp_path,
        "age,label\n1,0\n2,1\n",
        rename={"agee": "years"},
        recode={"sex": {"m": "M"}},
        missing_values={"crp": [9]},
    )
    assert [said.partition(":")[0] for said in found.problems] == [
        "data.rename",
        "data.missing_values",
        "data.recode",
    ]
    assert "Did you mean 'age'?" in found.problems[0]


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"missing_values": 999}, "must be a list of values, or of each column a list, got 999"),
        ({"recode": {"sex": "M"}}, "must be a table for each column"),
        ({"rename": {"a": "b", "c": "b"}}, "must give each column a name of its own"),
        ({"by_site": {"site-1": {}}}, "by_site needs one file for each site or a column of sites"),
    ],
)
def test_keys_of_another_form_are_sentences(changes: dict[str, object], says: str) -> None:
    with pytest.raises(ScenarioError, match=says):
        spec.read("quickstart", changes={f"data.{key}": value for key, value in changes.items()})


def test_corrections_of_a_site_that_is_not_there_are_an_error(tmp_path: Path) -> None:
    target = study(tmp_path)
    with pytest.raises(ScenarioError, match="there is no site 'east'; there are north, south, west"):
        spec.read(target, changes={"data.by_site.east.rename": {"a": "b"}})


def test_all_that_is_wrong_with_files_is_reported_at_once(tmp_path: Path) -> None:
    """An identifier of two kinds, a column that a file lacks, and two columns with other values."""
    messy_files.write(tmp_path)
    text = "".join(f'{site} = "{file}"\n' for site, file in messy_files.FILES.items())
    (tmp_path / "my.toml").write_text(f'[data]\nlabel = "{messy_files.LABEL}"\n[data.sources]\n{text}')
    with pytest.raises(ScenarioError) as caught:
        dataset.prepare(*spec.read(tmp_path / "my.toml"))
    for said in ("'bmi'", "'Town'", "'patient_id' holds numbers", "'diabetes' holds numbers", "'readmitted' holds"):
        assert any(said in problem for problem in caught.value.problems), said


def test_a_scenario_is_written_where_types_and_columns_differ(tmp_path: Path) -> None:
    for site, word in (("n", "low"), ("s", "5")):
        rows = "".join(f"{row % 7},{word},{'ab'[row % 2]}\n" for row in range(40))
        (tmp_path / f"{site}.csv").write_text(f"age,dose,{'group' if site == 'n' else 'kind'}\n{rows}")
    files = {site: str(tmp_path / f"{site}.csv") for site in "ns"}
    (tmp_path / "w.csv").write_text((tmp_path / "n.csv").read_text().replace("low", "3"))
    written = draft(tmp_path / "my.toml", {**files, "w": str(tmp_path / "w.csv")}, "group")
    assert written.asks[0].startswith("data.sources: s has no column 'group'; give the column's name there in data.by_")
    assert any("column 'dose' holds numbers at w and text at n ('low' in row 1)" in ask for ask in written.asks)
    assert 'ignore = ["dose"]' in written.text


@pytest.mark.parametrize(
    ("values", "codes"),
    [
        ([*range(18, 90), 999, 999], {"999": 2}),
        ([*range(18, 90), 99], {}),
        ([0, 1, 2, 3, 4, 3, 2, 99], {"99": 1}),
        ([20, 30, 40, 50, -1, -1], {"-1": 2}),
        ([-3, -1, -1, 0, 2, 4, 5], {}),
        ([-1, 0, 1, -1, 0, 1], {}),
        ([20, 30, 40, 50, 9999, 999], {"9999": 1, "999": 1}),
    ],
)
def test_codes_are_far_from_the_rest(values: list[float], codes: dict[str, int]) -> None:
    assert proposals.missing_codes({"": np.array(values, dtype=np.float64)}) == codes


def test_a_code_of_one_site_is_found_beside_larger_numbers_of_another() -> None:
    here, there = np.array([*range(100, 410, 10), 999, 999.0]), np.arange(120, 570, 10.0)
    assert proposals.missing_codes({"west": here, "north": there}) == {"999": 2}
    assert proposals.missing_codes({"west": here[:-1], "north": there}) == {}
    assert proposals.missing_codes({"west": here, "north": np.arange(100, 990, 10.0)}) == {}


def test_zeros_far_below_the_rest_are_noted_and_left_to_the_reader(tmp_path: Path) -> None:
    """As in a column of blood pressures; numbers of doses begin at 0."""
    lines = [f"{0 if row % 20 == 3 else 60 + row % 37},{row % 40},{'ab'[row % 2]}" for row in range(240)]
    (tmp_path / "p.csv").write_text("\n".join(["pressure,doses,positive", *lines, ""]))
    written = draft(tmp_path / "p.toml", str(tmp_path / "p.csv"), "positive")
    note = "Column 'pressure' has 0 in 12 rows, and no other value below 60; if 0 stands for a missing value"
    assert any(each.startswith(note) for each in written.asks) and not any("doses" in each for each in written.asks)
    assert "# [data.missing_values]\n# pressure = [0]  # 0 in 12 rows, and no other value below 60" in written.text


@pytest.mark.parametrize(
    ("parts", "found"),
    [
        ({"": "M m F f Male"}, {("m", "M"), ("f", "F"), ("Male", "M")}),
        ({"n": "yes no", "s": "Y N", "w": "1 0"}, {("Y", "yes"), ("1", "yes"), ("N", "no"), ("0", "no")}),
        ({"": "A B AB O"}, set()),
        ({"": "typical atypical febrile afebrile"}, set()),
        ({"": "stage-1 stage-2 stage-3"}, set()),
        ({"": "current current curent never"}, {("curent", "current")}),
        ({"n": "never former", "s": "never ex-smoker"}, {("ex-smoker", "former")}),
    ],
)
def test_spellings_of_one_value(parts: dict[str, str], found: set[tuple[str, str]]) -> None:
    columns = {site: np.array(text.split()) for site, text in parts.items()}
    assert {(each.old, each.new) for each in proposals.spellings(columns)} >= found
    if not found:
        assert proposals.spellings(columns) == []


@pytest.mark.parametrize(
    ("values", "says"),
    [("general general", "has one value in all rows"), ("general dialysis", ""), ("general ", ""), ("general", "")],
)
def test_a_column_of_one_value_is_found(values: str, says: str) -> None:
    assert proposals.uniform({"north": np.array(values.split(" "))}) == says


def test_a_description_notes_codes_and_spellings_and_columns_that_tell_the_site(tmp_path: Path) -> None:
    rows = "".join(
        f"{'ns'[row % 2]},{'Alder' if row % 2 else 'Birch'},{999 if row == 7 else 40 + row % 31},"
        f"{('Male', 'F', 'M')[row % 3]},{row % 5 % 2}\n"
        for row in range(90)
    )
    (tmp_path / "p.csv").write_text(f"clinic,town,age,sex,died\n{rows}")
    notes = table_description.describe("p.csv", "died", "random", 2, tmp_path, "clinic").warnings
    for said in ("Column 'age' has 999 (1 rows)", "'Male' for 'M'", "Column 'town' has one value at 'n', 's' that no"):
        assert any(said in note for note in notes), said


def test_files_with_different_decimal_marks_units_and_words_are_noted_and_run_as_written(tmp_path: Path) -> None:
    """No decimal mark is written for all files, since it would make numbers of some of them text."""
    rows = range(60)
    berlin = [f"{age % 50},5;{1 + age % 9}.{100 + age};{age % 40} %;{'mw'[age % 2]};{age % 2}" for age in rows]
    leeds = [f'{age % 50}.5,"{1 + age % 9},{100 + age}",{age % 40 / 100},{"mf"[age % 2]},{age % 2}' for age in rows]
    for name, head, lines in (
        ("berlin", "hb;cost;ef;sex;died;", [f"{line};" for line in [*berlin, ";;;;"]]),
        ("leeds", "hb,cost,ef,sex,died", leeds),
    ):
        (tmp_path / f"{name}.csv").write_text("\n".join([head, *lines, ""]))
    files = {site: str(tmp_path / f"{site}.csv") for site in ("berlin", "leeds")}
    written = draft(tmp_path / "study.toml", files, "died")
    assert "decimal =" not in written.text
    said = "\n".join(written.asks)
    assert "Column 'sex': only one of 2 sites uses 'f', 'w'; if they are other spellings" in said
    assert "Column 'ef': most values lie between " in said and "its unit may be another one" in said
    (tmp_path / "study.toml").write_text(written.text)
    found = dataset.prepare(*spec.read(tmp_path / "study.toml"))
    assert [found.rows.numeric[row].tolist()[:2] for row in (0, 60)] == [[0.5, 1100.0], [0.5, 1100.0]]


def test_units_are_converted_after_codes_and_spellings(tmp_path: Path) -> None:
    (tmp_path / "south.csv").write_text("id;temperature;ldl\n1;98,6;999\n2;?;3,5\n3;212;zero\n")
    table = sources.read(str(tmp_path / "south.csv"), tmp_path)
    keys = {
        "sources": {"south": "south.csv"},
        "missing_values": {"ldl": [999]},
        "recode": {"ldl": {"zero": "0"}},
        "convert": {"ldl": 2.0},
        "by_site": {"south": {"convert": {"temperature": [5 / 9, -160 / 9], "ldl": 38.67}}},
    }
    settings = DataSpec.model_validate(keys)
    of_site, of_others = (corrections.correct(table, settings, site).columns for site in ("south", None))
    assert of_site["temperature"] == pytest.approx([37, np.nan, 100], nan_ok=True)
    assert of_site["ldl"] == pytest.approx([np.nan, 38.67 * 3.5, 0], nan_ok=True)
    assert of_others["ldl"] == pytest.approx([np.nan, 7, 0], nan_ok=True)
    pooled = replace(table, sites=np.array(["south", "north", "north"]))
    assert corrections.correct_pooled(pooled, settings).columns["ldl"] == pytest.approx([np.nan, 7, 0], nan_ok=True)
    (tmp_path / "south.csv").write_text("id,ldl\n1,3.5\n2,low\n")
    with pytest.raises(ScenarioError, match=r"data.convert: column 'ldl' of south.csv has text \('low'\)"):
        corrections.correct(sources.read(str(tmp_path / "south.csv"), tmp_path), settings, "south")


@pytest.mark.parametrize("unit", [0, "2", True, [1.0], [1.0, 2.0, 3.0], [0.0, 1.0], float("inf")])
def test_a_conversion_is_a_factor_or_a_factor_and_a_number_to_add(unit: object) -> None:
    with pytest.raises(ValidationError, match="must have a factor other than 0 for each column"):
        Corrections.model_validate({"convert": {"ldl": unit}})


def test_a_unit_is_doubted_only_where_sizes_differ_much() -> None:
    random = np.random.default_rng(1)
    percents = random.uniform(20, 70, 50)
    assert "between 0.2" in proposals.other_unit({"a": percents, "b": percents / 100, "c": percents + 1})
    assert proposals.other_unit({"a": percents, "b": percents * 1.5}) == ""
    assert proposals.other_unit({"a": percents, "b": percents[:5] / 100}) == ""
    assert proposals.other_unit({"a": percents}) == ""


def test_a_table_with_totals_unknown_values_and_spellings_of_hospitals_needs_no_edit(tmp_path: Path) -> None:
    places, grades = ["North", " north", "NORTH", "South", "North"], ["I", "II", "III"]
    rows = [
        f"{row:04d},{places[row % 5]},{'unknown' if row % 20 == 3 else 30 + row % 50},{grades[row % 3]},"
        f"€{row}.50,{'' if row % 30 == 7 else 'yn'[row % 2]}"
        for row in range(120)
    ]
    (tmp_path / "all.csv").write_text("\n".join(["id,hospital,age,grade,cost,died", *rows, "Total,,6600,,,"]))
    written = draft(tmp_path / "study.toml", str(tmp_path / "all.csv"), "died", positive="y", ignore=["cost"])
    assert 'names = ["North", "South"]' in written.text and '" north" = "North"' in written.text
    assert 'age = ["unknown"]' in written.text and "recode.grade" not in written.text
    assert written.asks[0] == "all.csv: the last row has neither a site nor a label and is left out."
    (tmp_path / "study.toml").write_text(written.text)
    found = dataset.prepare(*spec.read(tmp_path / "study.toml"))
    assert sorted(found.names) == ["North", "South"]
    asked = draft(tmp_path / "study.toml", str(tmp_path / "all.csv"), "died", positive="y").asks
    assert any("'€0.50' in row 1, '€1.50' in row 2 and 114 more (currency sign)" in each for each in asked)


def test_a_run_notes_a_column_in_another_unit_at_one_site_and_not_one_that_was_split_by_value(tmp_path: Path) -> None:
    """A scenario that was written by hand has not been noted by `fedsvm new`."""
    random = np.random.default_rng(2)
    tables = {}
    for site, unit in (("north", 1.0), ("south", 1.0), ("west", 0.0259)):
        cholesterol, age = random.normal(220, 30, 60), random.normal(60, 9, 60)
        ill = cholesterol + random.normal(0, 20, 60) > 220
        rows = zip((cholesterol * unit).round(2), age.round(), np.where(ill, "yes", "no"), strict=True)
        tables[site] = [",".join(map(str, row)) for row in rows]
        (tmp_path / f"{site}.csv").write_text("\n".join(["cholesterol,age,ill", *tables[site], ""]))
    (tmp_path / "all.csv").write_text("\n".join(["cholesterol,age,ill", *tables["north"], *tables["west"], ""]))
    files = "\n".join(f'{site} = "{site}.csv"' for site in tables)
    (tmp_path / "own.toml").write_text(f'[data]\nlabel = "ill"\npositive = "yes"\n[data.sources]\n{files}\n')
    (tmp_path / "split.toml").write_text(
        '[data]\nsource = "all.csv"\nlabel = "ill"\npositive = "yes"\nsplit = "by-feature:cholesterol"\n'
    )
    words = ["--set", "compare.centralised=false", "--set", "algorithm.landmarks=10"]
    done = fedsvm("run", "own.toml", *words, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "note Column 'cholesterol': most values lie between " in done.stdout
    advice = "convert it by data.by_site.SITE.convert, or list the column in data.ignore."
    assert f"its unit may be another one; {advice}" in done.stdout
    assert "Column 'age'" not in done.stdout
    done = fedsvm(
        "run",
        "own.toml",
        *words,
        "--set",
        "data.by_site.west.convert.cholesterol=38.61",
        "--out",
        "converted",
        folder=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    assert "its unit" not in done.stdout
    lines = (tmp_path / "west.csv").read_text().splitlines()
    values = [line.split(",") for line in lines[1:]]
    by_hand = [f"{38.61 * float(cholesterol)!r},{age},{ill}" for cholesterol, age, ill in values]
    (tmp_path / "by_hand.csv").write_text("\n".join([lines[0], *by_hand, ""]))
    answers = [
        fedsvm("predict", "converted", file, *more, folder=tmp_path).stdout.splitlines()
        for file, more in (("west.csv", ["--site", "west"]), ("by_hand.csv", []))
    ]
    assert len(answers[0]) == 61 and answers[0] == answers[1]
    assert not dataset.prepare(*spec.read(tmp_path / "split.toml", sites=3)).warnings
