"""`fedsvm new`: from a hospital's file to a report, with no edit but the one that it asks for."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from fedsvm.scenarios.data import dataset, table_description
from fedsvm.scenarios.draft import draft
from fedsvm.scenarios.schema import spec
from fedsvm.scenarios.schema.errors import ScenarioError
from tests import hospitals
from tests.commands import fedsvm

HARDLY_NOISY = ("--set", "data.statistics_privacy=100")


def test_a_hospitals_file_becomes_a_report_without_an_edit(tmp_path: Path) -> None:
    """Five hospitals, gaps, dates, an identifier, semicolons, decimal commas, cp1252, and 7 % who died."""
    hospitals.as_excel_writes(tmp_path / "patients.csv", hospitals.rows(800))
    done = fedsvm("new", "my.toml", "--data", "patients.csv", "--label", "died", folder=tmp_path)
    assert (done.returncode, done.stderr, done.stdout) == (0, "", "my.toml\n")
    written = (tmp_path / "my.toml").read_text()
    for line in (
        'names = ["Koln-Sud", "Nord", "Ost", "St.-Anna", "West"]  # of column "hospital"',
        "# read as cp1252 text with semicolons between columns and a decimal comma",
        "positive = \"died\"  # which label is +1; 'survived' is -1",
        'ignore = ["patient_id", "aufnahme"]  # patient_id: looks like an identifier; aufnahme: dates',
        'missing = "mean" ',
        "statistics_privacy = 0.5 ",
        "[data.ranges] ",
        "creatinine = [0, ",
        "class_weight = \"balanced\"  # 'died' is 7.0 % of the rows",
    ):
        assert line in written
    done = fedsvm("run", "my.toml", "--json", *HARDLY_NOISY, "--out", "run", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert [site["name"] for site in result["sites"]] == ["Koln-Sud", "Nord", "Ost", "St.-Anna", "West"]
    assert result["metrics"]["majority_accuracy"] == pytest.approx(0.93, abs=0.01)
    assert result["metrics"]["sensitivity"] >= 0.7
    assert result["metrics"]["balanced_accuracy"] > 0.75
    assert result["cost"]["wire_bytes"] == result["cost"]["predicted_wire_bytes"]
    assert result["cost"]["wire_bytes"] < 150e6
    assert (tmp_path / "run" / "report.html").is_file()
    done = fedsvm("predict", "run", "patients.csv", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 801


def test_of_more_than_two_classes_it_asks_for_none(tmp_path: Path) -> None:
    rows = "".join(f"{row % 12},{row / 3:.2f},{'abc'[row % 3]}\n" for row in range(300))
    (tmp_path / "p.csv").write_text(f"age,dose,group\n{rows}")
    done = fedsvm("new", "my.toml", "--data", "p.csv", "--label", "group", folder=tmp_path)
    assert (done.returncode, "positive" in done.stdout) == (0, False)
    assert "# all of 'a', 'b', 'c' are separate classes; to train one" in (tmp_path / "my.toml").read_text()
    assert fedsvm("run", "my.toml", "--quiet", folder=tmp_path).returncode == 0


def test_what_it_cannot_know_it_asks_for(tmp_path: Path) -> None:
    rows = "".join(f"{row % 12},{row / 3:.2f},{'ab'[row % 2]}\n" for row in range(300))
    (tmp_path / "p.csv").write_text(f"age,dose,group\n{rows}3,oops,a\n")
    done = fedsvm("new", "my.toml", "--data", "p.csv", "--label", "group", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    said = done.stdout.splitlines()
    assert said[0] == "note data.positive: say which of 'a', 'b' is +1."
    assert said[1].startswith("note Column 'dose' is read as text because of 'oops' in row 301 among numbers")
    done = fedsvm("run", "my.toml", folder=tmp_path)
    assert done.returncode == 2
    assert "data.positive: the classes of p.csv are a, b; name the one that is +1" in done.stderr
    (tmp_path / "p.csv").write_text(f"age,dose,group\n{rows}")
    written = (tmp_path / "my.toml").read_text()
    assert "# to be fixed first: Column 'dose' is read as text because of 'oops' in row 301 among numbers" in written
    assert "ignore = " not in written
    (tmp_path / "my.toml").write_text(written.replace('# positive = "a"', 'positive = "a"'))
    assert fedsvm("run", "my.toml", *HARDLY_NOISY, "--quiet", folder=tmp_path).returncode == 0


@pytest.mark.parametrize(
    ("figure", "why"),
    [
        (lambda row: f'"{row % 290},5"', "'0,5' in row 1, '1,5' in row 2 and 288 more (decimal comma)"),
        (
            lambda row: f"{row % 290}.5{' %' if row else ''}",
            "'1.5 %' in row 2, '2.5 %' in row 3 and 288 more (percent sign)",
        ),
        (lambda row: f"{row + 1}'250", '"1\'250" in row 1, "2\'250" in row 2 and 298 more (thousands mark)'),
        (lambda row: "13..2" if row == 77 else f"{row}.5", "'13..2' in row 78 among numbers; fix these, or leave"),
        (
            lambda row: ("<0.5", "12 %")[row == 1] if row < 2 else f"{row}.5",
            "'12 %' in row 2 (percent sign); '<0.5'",
        ),
    ],
)
def test_a_predictor_in_another_notation_is_no_identifier(
    figure: Callable[[int], str], why: str, tmp_path: Path
) -> None:
    rows = "".join(f"{figure(row)},{row % 9},{row % 2}\n" for row in range(300))
    (tmp_path / "p.csv").write_text(f"crp,age,died\n{rows}")
    written = draft(tmp_path / "my.toml", str(tmp_path / "p.csv"), "died")
    assert "ignore = " not in written.text
    (said,) = written.asks
    assert said.startswith("Column 'crp' is read as text because of ") and why in said
    assert f"# to be fixed first: {said}\n" in written.text
    (tmp_path / "my.toml").write_text(written.text)
    with pytest.raises(ScenarioError, match=r"data\.source: column .crp. is read as text because of"):
        dataset.prepare(*spec.read(tmp_path / "my.toml"))
    notes = table_description.describe("p.csv", "died", "random", 3, tmp_path).warnings
    assert any(note.startswith("To be refused: data.source: column 'crp' is read as text") for note in notes)
    assert not any("identifier" in note for note in (*notes, written.text))


@pytest.mark.parametrize(("blank", "site"), [("", None), (" ", None), ("", "hospital")])
def test_a_row_of_no_hospital_is_refused_with_its_number(blank: str, site: str | None, tmp_path: Path) -> None:
    """Else rows would be dealt at random, and the hospital would be a predictor."""
    rows = [f"{blank if row in (6, 30) else 'AB'[row % 2]},{row % 9},{row % 2}\n" for row in range(60)]
    (tmp_path / "p.csv").write_text(f"hospital,age,died\n{''.join(rows)}")
    with pytest.raises(ScenarioError) as caught:
        draft(tmp_path / "my.toml", str(tmp_path / "p.csv"), "died", site=site)
    assert caught.value.problems == (
        "--site: column 'hospital' of p.csv has no value in row 7, row 31; every row must belong to a site: fill these "
        "in, remove the rows, or rename the column if it names no sites.",
    )


def test_hospitals_with_files_of_their_own_need_no_edit(tmp_path: Path) -> None:
    table = hospitals.rows(600)
    hospitals.as_excel_writes(tmp_path / "n.csv", table[:200])
    hospitals.plain(tmp_path / "m.csv", table[200:400])
    hospitals.plain(tmp_path / "s.csv", table[400:], without=["ward"])
    words = [
        word
        for name, file in (("north", "n"), ("mid.1", "m"), ("south", "s"))
        for word in ("--data", f"{name}={file}.csv")
    ]
    done = fedsvm("new", "my.toml", *words, "--label", "died", folder=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        "note Column 'ward' is left out: 'south' has none.",
        "note Column 'hospital' is left out: names the site of a row, as the files do.",
        "my.toml",
    ]
    written = (tmp_path / "my.toml").read_text()
    assert 'names = ["north", "mid.1", "south"]' in written
    assert "# n.csv: read as cp1252 text with semicolons between columns and a decimal comma" in written
    assert '\nnorth = "n.csv"\n"mid.1" = "m.csv"\nsouth = "s.csv"\n' in written
    small = ["--set", "algorithm.landmarks=20", "--set", "algorithm.tolerance=1e-3"]
    done = fedsvm("run", "my.toml", "--json", *small, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert [site["name"] for site in result["sites"]] == ["north", "mid.1", "south"]
    assert result["data"]["rows"] == 600


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["n=p.csv"], "--data: name one table, or of each site its file, such as --data north=n.csv"),
        (["p.csv", "s=p.csv"], "--data: name one table, or of each site its file"),
        (["n=p.csv", "n=p.csv"], "--data: name one table, or of each site its file"),
        (["n n=p.csv", "s=p.csv"], "--data: the name of a site must be made of letters"),
    ],
)
def test_sites_that_are_badly_named_are_sentences(words: list[str], says: str, tmp_path: Path) -> None:
    hospitals.plain(tmp_path / "p.csv", hospitals.rows(60))
    given = [each for word in words for each in ("--data", word)]
    done = fedsvm("new", "my.toml", *given, "--label", "died", folder=tmp_path)
    assert done.returncode == 2
    assert says in done.stderr
    done = fedsvm("new", "my.toml", *given, "--label", "died", "--site", "hospital", folder=tmp_path)
    assert done.returncode == 2


def test_files_that_cannot_be_read_stop_no_other(tmp_path: Path) -> None:
    hospitals.plain(tmp_path / "p.csv", hospitals.rows(60))
    (tmp_path / "torn\n.parquet").write_bytes(b"nonsense")
    places = {"n": tmp_path / "p.csv", "s": tmp_path / "gone.csv", "w": tmp_path / "torn\n.parquet"}
    named = {site: str(path) for site, path in places.items()}
    made = draft(tmp_path / "my.toml", named, "died")
    assert made.asks[0].startswith("s: data.source: there is no file")
    assert made.asks[1].startswith("w: data.source: ") and "cannot be read" in made.asks[1]
    assert "# to be fixed first: data.source: there is no file" in made.text
    written = tomllib.loads(made.text)
    assert list(written["data"]["sources"]) == written["federation"]["names"] == ["n", "s", "w"]
    with pytest.raises(ScenarioError) as caught:
        draft(tmp_path / "my.toml", named, "dead")
    assert [" no column 'dead'" in problem for problem in caught.value.problems] == [False, False, True]
    with pytest.raises(ScenarioError, match="there is no file"):
        draft(tmp_path / "my.toml", {"s": named["s"], "w": named["w"]}, "died")


def test_an_export_with_odd_columns_needs_no_edit(tmp_path: Path) -> None:
    """A separator ends each line, a column is empty, k.A. is a gap, sexes have two spellings, codes are many."""
    head = "Fall-Nr.;Klinik;Geschlecht;Leukozyten;CRP;Bemerkung;ICD;Ausgang;"
    lines = [
        f"{row:05d};Nord {row % 3} ;{'mwWm'[row % 4]};{1 + row % 9}.{100 + row};"
        f"{'k.A.' if row == 7 else f'{row % 11},5'};;"
        f"I{row % 40};{'verstorben' if row % 7 == 0 else 'entlassen'};"
        for row in range(240)
    ]
    (tmp_path / "export.csv").write_text("\n".join([head, *lines, ""]), encoding="utf-8-sig")
    done = fedsvm("new", "my.toml", "--data", "export.csv", "--label", "Ausgang", folder=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    said = done.stdout.splitlines()
    assert said[0] == "note Column 'Geschlecht' seems to have 'w' for 'W'; see data.recode.Geschlecht."
    assert said[1].startswith("note Column 'ICD' has 40 different texts in 240 rows, and becomes as many columns of 0")
    assert len(said) == 3
    written = (tmp_path / "my.toml").read_text()
    assert "positive = \"verstorben\"  # which label is +1; 'entlassen' is -1" in written
    assert (
        'ignore = ["Fall-Nr.", "Bemerkung"]  # Fall-Nr.: looks like an identifier; Bemerkung: has no values' in written
    )
    assert "rows without: CRP 1\n" in written
    assert "[compare]\nsites = true" in written
    assert 'baselines = ["libsvm-linear"]' in written
    small = ["--set", "algorithm.landmarks=20", "--set", "algorithm.tolerance=1e-3", "--quiet"]
    done = fedsvm("run", "my.toml", *small, folder=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")


def test_mistakes_are_sentences(tmp_path: Path) -> None:
    hospitals.plain(tmp_path / "p.csv", hospitals.rows(60))
    source = str(tmp_path / "p.csv")
    for path, words, says in (
        ("my.toml", {"label": "dead"}, "--label: p.csv has no column 'dead'"),
        ("my.toml", {"label": "died", "site": "clinic"}, "--site: p.csv has no column 'clinic'"),
        (
            "my.toml",
            {"label": "died", "positive": "gone"},
            "--positive: 'gone' is not a label of p.csv; it has 'died', ",
        ),
        (
            "my own.toml",
            {"label": "died"},
            "the name of the file, which becomes the scenario's, must be made of letters",
        ),
    ):
        with pytest.raises(ScenarioError) as caught:
            draft(tmp_path / path, source, **words)
        assert says in caught.value.problems[0]
    (tmp_path / "my.toml").write_text("")
    done = fedsvm("new", "my.toml", "--data", "p.csv", "--label", "died", folder=tmp_path)
    assert (done.returncode, done.stderr) == (
        2,
        "fedsvm: my.toml exists already; name a file that does not, or remove it.\n",
    )


def test_a_description_says_what_to_mend_all_at_once(tmp_path: Path) -> None:
    """Columns that are refused hide no note of others."""
    rows = "".join(f"{9000 + 3 * row},P-{row},{row % 7},{'mMf'[row % 3]},{row % 2}\n" for row in range(120))
    (tmp_path / "p.csv").write_text(f"id,name,age,sex,died\n{rows}")
    notes = table_description.describe("p.csv", "died", "random", 3, tmp_path).warnings
    assert [note for note in notes if note.startswith("To be refused: data.ignore: column 'name'")]
    assert [note for note in notes if note.startswith("Column 'id' has a different whole number in each row")]
    assert [note for note in notes if note.startswith("Column 'sex' writes 'M'")]
    assert not [note for note in notes if note.startswith(("Column 'name'", "Column 'age'"))]


def test_a_description_notes_columns_of_incomplete_rows_too(tmp_path: Path) -> None:
    rows = "".join(
        f"P-{row},{row % 28 + 1:02d}.05.2024,{'x' if row > 117 else ''},{row % 7},{row % 2}\n" for row in range(120)
    )
    (tmp_path / "p.csv").write_text(f"name,day,remark,age,died\n{rows}")
    notes = table_description.describe("p.csv", "died", "random", 1, tmp_path).warnings
    assert any(note.startswith("2 of 120 rows are complete") for note in notes)
    assert any(note.startswith("To be refused: data.ignore: column 'name' has 120 different") for note in notes)
    assert any(note.startswith("To be refused: data.ignore: column 'day' holds dates") for note in notes)


def test_a_description_says_the_same(tmp_path: Path) -> None:
    hospitals.as_excel_writes(tmp_path / "p.csv", hospitals.rows(400))
    done = fedsvm("data", "describe", "p.csv", "--label", "died", "--site", "hospital", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    said = " ".join(done.stdout.split())
    assert "note p.csv was read as cp1252 text with semicolons between columns and a decimal comma." in said
    assert "note Class 'died' is +1, unless data.positive names another." in said
    assert "'patient_id' has" in said and "looks like an identifier" in said and "'aufnahme' holds dates" in said
    assert all(name in said for name in ("Koln-Sud", "Nord", "Ost", "St.-Anna", "West"))
