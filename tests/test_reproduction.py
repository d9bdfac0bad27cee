"""Papers measured again: values as printed, runs that cells share and nothing repeats, verdicts, the page."""

from __future__ import annotations

import csv
import gzip
import json
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fedsvm.scenarios.data import dataset
from fedsvm.scenarios.data.sources import FOLDER_VARIABLE
from fedsvm.scenarios.report.axes import ChartAxis
from fedsvm.scenarios.report.chart import boxes
from fedsvm.scenarios.reproduction import judgment, measures, plan, provenance
from fedsvm.scenarios.reproduction.entries import FOLDER, Claim, Entry, Paper, entries, papers, read
from fedsvm.scenarios.reproduction.entry_selection import EntrySelection
from fedsvm.scenarios.reproduction.page import Reproduction
from fedsvm.scenarios.reproduction.pictures import draw_pictures
from fedsvm.scenarios.run.result import SCHEMA
from fedsvm.scenarios.schema import spec
from fedsvm.scenarios.schema.errors import ScenarioError
from tests.commands import FEDSVM, fedsvm
from tests.conftest import ROOT, site_processes, wait_until
from tests.test_report import loaded, needs_browser
from tools import figures

SMALL = """
name = "A paper"
title = "of wine"

[[entry]]
id = "a-1"
what = "table 1"
page = "page 2"
title = "accuracy"
unit = "%"
within = 2.0
better = "higher"
scenario = "quickstart"
changes = ["data.source=wine", "data.positive=class_0", "data.scale=standard", "algorithm.landmarks=10"]
pictures = ["points", "boxes"]
column = [{ name = "ours" }, { name = "rounds", measure = "cost.rounds", within = 1e9 }]
row = [
  { name = "one", paper = [99.0, 20] },
  { name = "again", paper = [10.0, ""] },
  { name = "off", paper = [150.0, ""], differs = { ours = "No share is above one." } },
  { name = "wrong", paper = [150.0, 20] },
  { name = "lacking", changes = ["data.source=no-such-file"], paper = [50.0, ""] },
  { name = "later", paper = [50.0, ""], full = true },
  { name = "partly later", paper = ["", 20], full = ["ours"] },
]
claim = [
  { text = "It is good.", test = 'cell("one", "ours") > 90' },
  { text = "It is bad.", test = 'cell("one", "ours") < 90', differs = "It is not." },
  { text = "What is lacking is good.", test = 'cell("lacking", "ours") > 90' },
  { text = "All are good.", test = 'all(column("ours") > 90) and all(column("ours") > 80)' },
]

[[entry]]
id = "a-2"
what = "figure 1"
title = "a drawing"
kind = "drawing"
cannot = "It has no values."

[[entry]]
id = "a-3"
what = "table 2"
title = "what rounds are above accuracy"
decimals = 1
within = 40.0
scenario = "quickstart"
changes = ["data.source=wine", "data.positive=class_0", "data.scale=standard", "algorithm.landmarks=10"]
column = [{ name = "accuracy" }, { name = "rounds above", measure = "cost.rounds", less = "accuracy" }]
row = [{ name = "<one>", paper = ["", 20] }]
"""


@pytest.fixture(scope="module")
def wine(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A folder of papers, and one where they were measured."""
    folder = tmp_path_factory.mktemp("papers")
    (folder / "a.toml").write_text(SMALL)
    chosen = EntrySelection.of([], folder / "out", full=False, papers=folder)
    assert chosen.reproduce(1)
    return folder, folder / "out"


def entry_of(wine: tuple[Path, Path], name: str) -> judgment.JudgedEntry:
    paper, entry = entries(wine[0])[name]
    return judgment.judge(paper, entry, wine[1], full=False)


def test_cells_of_one_content_share_a_run_and_a_second_time_nothing_runs(wine: tuple[Path, Path]) -> None:
    judged = entry_of(wine, "a-1")
    (run,) = judged.runs
    assert [path.name for path in (wine[1] / plan.RUNS).iterdir()] == [run.name]
    assert run.command.startswith("fedsvm run quickstart --set data.source=wine ")
    before = (run.folder(wine[1]) / "result.json").stat().st_mtime_ns
    EntrySelection.of([], wine[1], full=False, papers=wine[0]).reproduce(1)
    assert (run.folder(wine[1]) / "result.json").stat().st_mtime_ns == before


def test_another_order_of_the_same_changes_is_the_same_run_and_another_seed_is_not() -> None:
    one, other = ("algorithm.C=2.0", "federation.sites=4"), ("federation.sites=4", "name=another", "algorithm.C=2.0")
    assert plan.plan_run("quickstart", one, 1).name.partition("-")[2] == plan.plan_run("quickstart", other, 1).name[8:]
    assert plan.plan_run("quickstart", one, 1).name != plan.plan_run("quickstart", one, 2).name


def test_every_verdict_is_given_where_it_is_due(wine: tuple[Path, Path]) -> None:
    judged = entry_of(wine, "a-1")
    found = {(each.cell.row.name, each.cell.column.name): each for each in judged.cells}
    verdicts = {place: each.verdict for place, each in found.items()}
    assert verdicts == {
        ("one", "ours"): "same",
        ("one", "rounds"): "same",
        ("again", "ours"): "better",
        ("again", "rounds"): "",
        ("off", "ours"): "differs",
        ("off", "rounds"): "",
        ("wrong", "ours"): "differs",
        ("wrong", "rounds"): "same",
        ("lacking", "ours"): "cannot",
        ("lacking", "rounds"): "cannot",
        ("later", "ours"): "open",
        ("later", "rounds"): "open",
        ("partly later", "ours"): "open",
        ("partly later", "rounds"): "same",
    }
    assert [each.verdict for each in judged.claims] == ["same", "differs", "open", "same"]
    assert [each.lacking for each in judged.claims] == [0, 0, 0, 1]  # what --full alone has is not missed
    assert judged.surprises == 1  # the row that nobody said would be wrong
    assert found["off", "ours"].reason == "No share is above one."
    assert "put no-such-file.csv into FEDSVM_DATA's folder" in found["lacking", "ours"].reason
    error = found["one", "ours"].error
    assert error is None, "a single model has no standard error"
    assert entry_of(wine, "a-2").counts == {"cannot": 1}


def test_page_json_and_tables_say_the_same(wine: tuple[Path, Path]) -> None:
    out = wine[1]
    plain = json.loads((out / "reproduction.json").read_text())
    assert plain["surprises"] == 1
    assert plain["counts"]["better"] == 1
    table = list(csv.DictReader((out / "tables" / "a-1.csv").open()))
    assert [row["verdict"] for row in table] == [cell["verdict"] for cell in plain["entries"][0]["cells"]]
    text = (out / "index.html").read_text()
    (link, *_) = re.findall(r'href="(runs/[^"]*)"', text)
    assert (out / link).is_file()
    value = plain["entries"][0]["cells"][0]["value"]
    assert f">{value:.2f}</a>" in text
    for said in (
        *("99.00", "(± 2)", "No share is above one.", "✗ no", "✓ yes", "It has no values.", "put no-such-file.csv"),
        *("Told without 1 of its values", "&lt;one&gt;"),
    ):
        assert said in text.replace("&#39;", "'")
    assert "://" not in text
    assert "<one>" not in text


def test_a_column_that_differs_does_so_for_the_entrys_reason_and_a_row_for_its_own(
    wine: tuple[Path, Path], tmp_path: Path
) -> None:
    changed = SMALL.replace('{ name = "ours" }', '{ name = "ours", differs = true }')
    (tmp_path / "a.toml").write_text(changed.replace("within = 2.0", 'within = 2.0\ndiffers = "So it is."', 1))
    judged = judgment.judge(*entries(tmp_path)["a-1"], wine[1], full=False)
    reasons = {each.cell.row.name: each.reason for each in judged.cells if each.verdict == "differs"}
    assert reasons == {"off": "No share is above one.", "wrong": "So it is."}
    assert judged.surprises == 0


def test_of_a_cell_another_is_taken_away(wine: tuple[Path, Path], tmp_path: Path) -> None:
    accuracy, above = entry_of(wine, "a-3").cells
    assert accuracy.value is not None
    result = plan.result_of(accuracy.cell.runs[0], wine[1])
    assert above.value == result["cost"]["rounds"] - accuracy.value
    assert (above.verdict, above.deviation, above.error) == ("same", None, None)
    changed = SMALL.replace(
        'measure = "cost.rounds", less', 'measure = "cost.rounds", changes = ["algorithm.landmarks=11"], less'
    )
    (tmp_path / "a.toml").write_text(changed)
    paper, entry = entries(tmp_path)["a-3"]
    judged = judgment.judge(paper, entry, wine[1], full=False)
    assert [each.verdict for each in judged.cells] == ["", "open"]
    assert len(judged.runs) == 2


def test_two_commands_do_not_work_in_one_folder(tmp_path: Path) -> None:
    with plan.alone_in(tmp_path / "out"):
        done = fedsvm("reproduce", "ours-sums", "--out", tmp_path / "out", folder=tmp_path)
    assert done.returncode == 2
    assert "another fedsvm reproduce is at work in" in done.stderr
    with plan.alone_in(tmp_path / "out"):
        assert list((tmp_path / "out" / plan.RUNS).iterdir()) == []


def test_pictures_have_a_mark_for_what_is_measured_and_a_hollow_one_for_what_is_printed(
    wine: tuple[Path, Path],
) -> None:
    points, drawn_boxes = draw_pictures(entry_of(wine, "a-1"), wine[1])
    assert [key.name for key in points.keys] == ["ours", "rounds"]
    assert "ours, printed: 99" in points.body
    assert "Hollow marks are printed values." in points.caption
    assert "ours one: median" in drawn_boxes.body
    assert draw_pictures(entry_of(wine, "a-2"), wine[1]) == []


def test_a_box_is_of_quartiles_and_what_lies_far_out_is_a_mark() -> None:
    chart = boxes("title", "caption", "x", ChartAxis("y"), {"a": [1.0, 2.0, 3.0, 4.0, 90.0], "b": [5.0]})
    assert "a: median 3, quartiles 2, and 4" in chart.body
    assert chart.body.count("data-mark") == 1
    assert "a: 90" in chart.body
    assert "b: median 5" in chart.body


@pytest.mark.long
@needs_browser
def test_a_browser_shows_the_page_without_complaint(wine: tuple[Path, Path], tmp_path: Path) -> None:
    page = loaded(wine[1] / "index.html", tmp_path)
    assert "A paper: of wine" in page.cells["h2"]


@pytest.mark.long
def test_a_command_that_is_killed_repeats_no_finished_run(tmp_path: Path, temporary_folder: Path) -> None:
    command = [str(FEDSVM), "reproduce", "ours-sums", "--out", str(tmp_path / "out")]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, cwd=tmp_path)
    assert process.stderr is not None
    assert process.stderr.readline() == "5 runs, 0 of them done before\n"
    assert process.stderr.readline().startswith("1 of 5 ")
    os.kill(process.pid, signal.SIGTERM)
    assert process.wait(60) == 130
    process.stderr.close()
    wait_until(lambda: not site_processes(temporary_folder))
    chosen = EntrySelection.of(["ours-sums"], tmp_path / "out", full=False)
    runs = plan.needed_runs(plan.cells(chosen.known["ours-sums"][1], full=False))
    finished = {run: _written_at(run, tmp_path / "out") for run in runs if plan.is_done(run, tmp_path / "out")}
    assert 1 <= len(finished) < 5
    again = fedsvm(*command[1:], folder=tmp_path)
    assert again.returncode == 0, again.stderr
    assert again.stderr.startswith(f"5 runs, {len(finished)} of them done before\n")
    assert all(plan.is_done(run, tmp_path / "out") for run in runs)
    assert all(_written_at(run, tmp_path / "out") == before for run, before in finished.items())


def _written_at(run: plan.PlannedRun, folder: Path) -> int:
    return (run.folder(folder) / "result.json").stat().st_mtime_ns


def test_a_result_of_a_run_that_failed_is_a_failure_and_is_run_again(wine: tuple[Path, Path], tmp_path: Path) -> None:
    judged = entry_of(wine, "a-1")
    (run,) = judged.runs
    shutil.copytree(wine[1], tmp_path / "out")
    path = run.folder(tmp_path / "out") / "result.json"
    path.write_text(
        path.read_text().replace('"completed"', '"failed"', 1).replace('"error": null', '"error": "Lost."', 1)
    )
    again = judgment.judge(judged.paper, judged.entry, tmp_path / "out", full=False)
    assert (again.cells[0].verdict, again.cells[0].reason) == ("failed", "Lost.")
    assert again.cells[0].is_surprise
    assert not plan.is_done(run, tmp_path / "out")


def test_what_was_interrupted_has_not_been_carried_out_and_what_other_versions_wrote_is_not_read(
    wine: tuple[Path, Path], tmp_path: Path
) -> None:
    judged = entry_of(wine, "a-1")
    (run,) = judged.runs
    shutil.copytree(wine[1], tmp_path / "out")
    path = run.folder(tmp_path / "out") / "result.json"
    text = path.read_text()
    interrupted = text.replace('"completed"', '"interrupted"', 1)
    for other in ("", interrupted, text.replace(f'"schema": {SCHEMA}', '"schema": 1')):
        path.write_text(other)
        again = judgment.judge(judged.paper, judged.entry, tmp_path / "out", full=False)
        assert (again.cells[0].verdict, again.surprises) == ("open", 0)
        assert not plan.is_done(run, tmp_path / "out")


def test_a_result_that_lacks_what_is_asked_for_has_no_such_figure() -> None:
    lacking: list[dict[str, Any]] = [
        {"sites": [{"id": 1}]},
        {"sites": None},
        {"audit": [{}]},
        {"metrics": {"folds": [{}]}},
        {"metrics": {"accuracy": "good"}, "baselines": {"libsvm-rbf": {"accuracy": "good"}}, "model": {"classes": 3}},
        {"cost": {"wire_bytes": "few", "predicted_wire_bytes": 3}},
        {},
    ]
    for result in lacking:
        for measure in measures.DERIVED:
            assert measures.reading(result, measure, 1.0) is None


def test_a_run_that_cannot_be_started_is_a_failure_and_says_why(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.toml").write_text(SMALL.replace("data.positive=class_0", "data.positive=class_9"))
    assert EntrySelection.of(["a-3"], tmp_path / "out", full=False, papers=tmp_path).reproduce(1)
    assert re.search(r"failed: .*data\.positive.*class_9", capsys.readouterr().err)
    (found, _) = json.loads((tmp_path / "out" / "reproduction.json").read_text())["entries"][2]["cells"]
    assert found["verdict"] == "failed"
    assert "data.positive" in found["reason"]
    assert "class_9" in found["reason"]


@pytest.fixture
def of_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> EntrySelection:
    """An entry of a file, own.csv in FEDSVM_DATA's folder, whose runs have been carried out."""
    rows = "".join(f"{row},{row % 3},{'a' if row % 2 else 'b'}\n" for row in range(60))
    (tmp_path / "own.csv").write_text("one,two,label\n" + rows)
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path))
    (tmp_path / "a.toml").write_text(
        SMALL.replace("data.source=wine", "data.source=own").replace("data.positive=class_0", "data.positive=a")
    )
    chosen = EntrySelection.of(["a-3"], tmp_path / "out", full=False, papers=tmp_path)
    chosen.reproduce(1)
    return chosen


def test_a_data_file_that_has_changed_is_refused_and_another_state_of_the_code_is_told(
    of_a_file: EntrySelection, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    written = tmp_path / "out" / provenance.NAME
    made_with = json.loads(written.read_text())
    assert set(made_with["files"]) == {"own"}
    assert len(made_with["code"]) == 1
    written.write_text(json.dumps(made_with | {"code": ["0123456789abcdef"]}))
    capsys.readouterr()
    of_a_file.reproduce(1)
    assert "another state of the code" in capsys.readouterr().err
    assert "states of the code" not in (tmp_path / "out" / "index.html").read_text()  # this one has run nothing
    shutil.rmtree(tmp_path / "out" / plan.RUNS)
    of_a_file.reproduce(1)
    assert "another state of the code" in capsys.readouterr().err
    assert "2 states of the code" in (tmp_path / "out" / "index.html").read_text()
    written.write_text("{")
    with pytest.raises(ScenarioError, match=r"made-with\.json cannot be read, .* name another folder"):
        of_a_file.reproduce(1)
    written.write_text(json.dumps(made_with))
    text = (tmp_path / "own.csv").read_text()
    (tmp_path / "own.csv").unlink()
    with gzip.open(tmp_path / "own.csv.gz", "wt") as file:
        file.write(text + "7,7,a\n")
    with pytest.raises(ScenarioError, match=r"own is not the file that runs in .* were made with"):
        of_a_file.reproduce(1)


def test_finished_runs_are_judged_where_their_file_is_gone_and_a_folder_that_is_none_is_refused(
    of_a_file: EntrySelection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = (tmp_path / "out" / "tables" / "a-3.csv").read_text()
    (tmp_path / "own.csv").unlink()
    of_a_file.reproduce(1)
    assert (tmp_path / "out" / "tables" / "a-3.csv").read_text() == before
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path / "gone"))
    with pytest.raises(ScenarioError, match=r"FEDSVM_DATA: .*gone is no folder"):
        of_a_file.reproduce(1)
    assert (tmp_path / "out" / "tables" / "a-3.csv").read_text() == before


def test_a_page_of_the_other_mode_is_replaced_with_a_word(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], wine: tuple[Path, Path]
) -> None:
    out = tmp_path / "out"
    shutil.copytree(wine[1], out)
    for full, said in ((False, False), (True, True), (True, False), (False, True)):
        EntrySelection.of(["a-3"], out, full=full, papers=wine[0]).reproduce(1)
        assert ("the page there is of" in capsys.readouterr().err) == said


def test_names_of_settings_stand_for_changes(tmp_path: Path) -> None:
    def changes(text: str) -> list[tuple[str, ...]]:
        (tmp_path / "a.toml").write_text(text)
        read_entries = read(tmp_path / "a.toml").entry
        return [
            each.changes_of(row, column, full=True)
            for each in read_entries
            for row in each.rows
            for column in each.column
        ]

    short = SMALL.replace('"data.source=wine"', '"wine"')
    named = short.replace("[[entry]]", '[settings]\nwine = ["data.source=wine"]\n\n[[entry]]', 1)
    assert changes(named) == changes(SMALL) != []
    with pytest.raises(ScenarioError, match="'wine' is no key=value, and there is no such name in settings"):
        changes(short)


def test_claims_of_this_project_are_marked_and_not_counted_as_the_papers(
    wine: tuple[Path, Path], tmp_path: Path
) -> None:
    good = 'test = \'cell("one", "ours") > 90\''
    changed = SMALL.replace(f"{good} }}", f"{good}, ours = true }}")
    (tmp_path / "a.toml").write_text(changed.replace('cell("lacking", "ours") > 90', 'cell("one", "ours") > 100'))
    judged = judgment.judge(*entries(tmp_path)["a-1"], wine[1], full=False)
    before = entry_of(wine, "a-1")
    assert (before.counts_ours, before.counts_papers) == ({}, before.counts)
    assert judged.counts_ours == {"same": 1}
    assert before.counts["same"] - judged.counts["same"] == 1
    assert judged.surprises == before.surprises + 1, "it is a claim all the same"
    page = Reproduction([judged], full=False, folder=tmp_path)
    page.write()
    assert (tmp_path / "index.html").read_text().count("A claim of this project, not of the paper.") == 1


WHOLE = """
[[entry]]
id = "a-4"
what = "figure 2"
title = "rounds"
quantity = "rounds of all"
kind = "figure"
pictures = ["points"]
draws = ["a-3"]
whole = ["rounds above"]
"""


def test_a_figure_shows_what_a_table_takes_others_away_from(wine: tuple[Path, Path], tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text(SMALL + WHOLE)
    judged = judgment.judge(*entries(tmp_path)["a-4"], wine[1], full=False)
    (chart,) = draw_pictures(judged, wine[1])
    (run,) = judged.shows[0].cells[1].cell.runs
    rounds = plan.result_of(run, wine[1])["cost"]["rounds"]
    assert chart.title == "Figure 2: rounds"
    assert f"rounds of all {rounds}" in chart.body
    assert "printed" not in chart.body
    (tmp_path / "a.toml").write_text(SMALL + WHOLE.replace("above", "below"))
    with pytest.raises(ScenarioError) as caught:
        read(tmp_path / "a.toml")
    assert "a-4: whole must name columns of what it draws, got 'rounds below'" in caught.value.problems[0]


def test_printed_values_keep_their_digits(wine: tuple[Path, Path], tmp_path: Path) -> None:
    changed = SMALL.replace("paper = [99.0, 20]", "paper = [99.1234567, 20.5]")
    (tmp_path / "a.toml").write_text(changed.replace("paper = [10.0,", "paper = [10.5,"))
    judged = judgment.judge(*entries(tmp_path)["a-1"], wine[1], full=False)
    Reproduction([judged], full=False, folder=tmp_path).write()
    page = (tmp_path / "index.html").read_text()
    assert all(f"<span>{printed}</span>" in page for printed in ("99.1234567", "20.50", "10.50"))


DERIVED = """
name = "A paper"
title = "of wine"

[[entry]]
id = "a-1"
what = "table 1"
title = "accuracy"
unit = "%"
within = 5.0
seeds = 2
scenario = "quickstart"
changes = ["data.source=wine", "data.positive=class_0"]
pictures = ["sizes"]
column = [{ name = "ours" }, { name = "share", scale = 1.0, within = 0.1 }]
row = [
  { name = "one", paper = [60.0, ""] },
  { name = "other", changes = ["algorithm.C=2.0"], paper = [70.0, ""] },
  { name = "sum", sum_of = ["one", "other"], paper = [150.0, 1.3] },
  { name = "deviation", deviation_of = "one", paper = ["", 0.1] },
]
claim = [{ text = "All are shares.", test = 'max(column("ours")) <= 70 and min(column("share")) > 0.5' }]

[[entry]]
id = "a-2"
what = "figure 1"
title = "table 1 once more"
kind = "figure"
pictures = ["points"]
draws = ["a-1"]
"""


def invented(run: plan.PlannedRun, folder: Path, accuracy: float) -> None:
    """A result of which only what is judged is there."""
    run.folder(folder).mkdir(parents=True)
    curve = [{"size": size, "test_accuracy": accuracy - 0.1 / size} for size in (1, 2, 200)]
    result = {"schema": SCHEMA, "status": "completed", "metrics": {"accuracy": accuracy}, "selection": {"curve": curve}}
    (run.folder(folder) / "result.json").write_text(json.dumps(result))


def test_rows_follow_from_others_and_a_figure_draws_a_table_whose_verdicts_count_once(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text(DERIVED)
    chosen = EntrySelection.of(["a-2"], tmp_path / "out", full=False, papers=tmp_path)
    paper, table = chosen.known["a-1"]
    before = judgment.judge(paper, table, tmp_path / "out", full=False)
    assert {each.verdict for each in before.cells} == {"open"}
    runs = plan.needed_runs([each.cell for each in before.cells])
    assert len(runs) == 4, "sums and deviations have none of their own"
    for run, accuracy in zip(runs, (0.5, 0.7, 0.65, 0.75), strict=True):
        invented(run, tmp_path / "out", accuracy)
    judged = judgment.judge(paper, table, tmp_path / "out", full=False)
    ours, share = ({each.cell.row.name: each for each in judged.cells[place::2]} for place in (0, 1))
    assert ours["sum"].values == pytest.approx((115.0, 145.0))
    assert ours["sum"].verdict == "differs"
    assert share["sum"].value == pytest.approx(1.3)
    assert share["deviation"].value == pytest.approx(0.2 / 2**0.5)
    assert share["sum"].verdict == share["deviation"].verdict == "same"
    assert share["deviation"].deviation is None
    assert [each.verdict for each in judged.claims] == ["same"], "a column has no sums and no deviations"
    backwards = table.model_copy(update={"claim": [Claim(text="", test='sum(row("one", "share", "ours")) > 0')]})
    with pytest.raises(ScenarioError, match="gives row what it does not take"):
        judgment.judge(paper, backwards, tmp_path / "out", full=False)
    chart, other = draw_pictures(judged, tmp_path / "out")
    assert [key.name for key in chart.keys] == ["one", "other"]
    assert (chart.title, other.title) == ("Table 1: accuracy: ours", "Table 1: accuracy: share")
    figure = judgment.judge(paper, chosen.known["a-2"][1], tmp_path / "out", full=False)
    assert (figure.counts, figure.runs) == ({}, [])
    (redrawn,) = draw_pictures(figure, tmp_path / "out")
    assert "ours, printed: 60" in redrawn.body
    assert chosen.reproduce(1), "the sum is not as printed; nothing is left to run of the table that it draws"
    assert 'Plots the values of <a href="#a-1">a-1</a>' in (tmp_path / "out" / "index.html").read_text()
    assert chosen.table()[1][-1] == "draws a-1"


def test_one_run_that_failed_is_told_beside_one_that_has_not_been_carried_out(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text(DERIVED)
    paper, table = entries(tmp_path)["a-1"]
    first, second, *others = judgment.judge(paper, table, tmp_path, full=False).runs
    invented(second, tmp_path, 0.5)
    for told, expected in (({"error": "Site 2 is gone."}, "Site 2 is gone."), ({}, "failed without a reason")):
        path = second.folder(tmp_path) / "result.json"
        path.write_text(json.dumps({"schema": SCHEMA, "status": "failed", **told}))
        os.utime(path, (1, len(told)))
        judged = judgment.judge(paper, table, tmp_path, full=False)
        assert judged.cells[0].verdict == "failed"
        assert expected in judged.cells[0].reason
    assert not first.folder(tmp_path).exists()
    assert others


def test_a_sum_of_what_cannot_be_had_cannot_be_had(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text(DERIVED.replace('{ name = "one"', '{ name = "one", cannot = "It is secret."', 1))
    found = {each.cell.row.name: each for each in judgment.judge(*entries(tmp_path)["a-1"], tmp_path, full=True).cells}
    assert (found["sum"].verdict, found["sum"].reason) == ("cannot", "It is secret.")


def test_the_file_that_a_relabelled_table_is_read_from_is_what_is_missing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path))
    assert plan.plan_run("quickstart", ("data.source=leukemia_3c",), 1).missing == "leukemia"


# What a file may say.


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("paper = [99.0, 20]", "paper = [99.0]", "1 printed values for 2 columns"),
        ("within = 2.0\n", "", "within must say what counts as the same"),
        ('cannot = "It has no values."', "", "must have columns, name tables in `draws`, or say in"),
        ('name = "again"', 'name = "one"', "two rows or columns of one name"),
        ('differs = { ours = "No', 'differs = { theirs = "No', "there is no column 'theirs'"),
        ('title = "accuracy"', 'title = "accuracy"\ndiffers = "So it is."', "say `differs = true`: give both"),
        ('{ name = "ours" }', '{ name = "ours", differs = true }', "say `differs = true`: give both"),
        ("paper = [99.0, 20]", 'paper = [99.0, 20], said = ["a.md: {ours:.1f}"]', "said must quote each of its values"),
        ("paper = [99.0, 20]", 'paper = [99.0, ""], said = ["a.md: {theirs}"]', "there is no column 'theirs'"),
        ('full = ["ours"]', 'full = ["theirs"]', "there is no column 'theirs'"),
        ('less = "accuracy"', 'less = "rounds above"', "less must name a column that is measured and has none itself"),
        ('{ name = "accuracy" }', '{ name = "accuracy", full = true }', "what less names is --full's alone"),
        ('name = "later"', 'name = "later", sum_of = ["none"]', "must name rows that have runs, got 'none'"),
        ('cannot = "It has no values."', 'draws = ["a-9"]', "draws must name an entry of the same file"),
        ('unit = "%"', 'units = "%"', "units"),
        ('id = "a-1"', 'id = "A"', "id"),
        ('id = "a-2"', 'id = "a-1"', "two entries are called a-1"),
        ('name = "A paper"', "name = ", "is not valid TOML"),
    ],
)
def test_a_file_that_is_wrong_is_said_where(old: str, new: str, said: str, tmp_path: Path) -> None:
    assert old in SMALL
    (tmp_path / "a.toml").write_text(SMALL.replace(old, new, 1))
    with pytest.raises(ScenarioError) as caught:
        papers(tmp_path)
    assert said in caught.value.problems[0]


def test_a_scenario_that_is_wrong_is_said_with_its_cell(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text(SMALL.replace("algorithm.landmarks=10", "federation.sights=3"))
    with pytest.raises(ScenarioError, match=r"a-1, one, ours: federation\.sights: unknown key"):
        EntrySelection.of([], tmp_path / "out", full=False, papers=tmp_path).table()


def test_ids_are_taken_whole_or_by_their_beginning(tmp_path: Path) -> None:
    assert EntrySelection.of(["lu-3.3"], tmp_path, full=False).ids == ["lu-3.3", "lu-3.3-printed"]
    assert "que-fig-10" not in EntrySelection.of(["que-fig-1"], tmp_path, full=False).ids
    assert len(EntrySelection.of([], tmp_path, full=False).ids) == len(entries())
    done = fedsvm("reproduce", "lu-3.33", "--out", tmp_path / "out", folder=tmp_path)
    assert done.returncode == 2
    assert "There is no entry 'lu-3.33'. Did you mean 'lu-3.3" in done.stderr
    assert not (tmp_path / "out").exists()


# The papers.


def lu() -> Iterator[str]:
    yield from (f"lu-3.{n}" for n in range(1, 7))
    yield from ("lu-4.1", *(f"lu-5.{n}" for n in range(1, 10)), *(f"lu-6.{n}" for n in range(1, 7)))


def plots() -> Iterator[str]:
    yield from (f"lu-fig-3.{n}" for n in range(1, 13))
    yield from (f"lu-fig-4.{n}" for n in range(1, 10))
    yield from (f"lu-fig-5.{n}" for n in range(1, 9))
    yield from (f"lu-fig-6.{n}" for n in range(1, 5))
    yield from (f"li-fig-{n}" for n in range(1, 10))
    yield from (f"que-fig-{n}" for n in range(1, 11))
    yield from (f"slides-{letter}" for letter in "abcd")


def test_every_table_figure_and_plot_has_an_entry() -> None:
    tables = [*lu(), "li-1", "que-1"]
    pictured = list(plots())
    assert (len(tables), len(pictured)) == (24, 56)
    assert set(tables) | set(pictured) <= entries().keys()


def test_the_list_names_them_with_what_they_lack(tmp_path: Path) -> None:
    done = fedsvm("reproduce", "--list", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert {*lu(), *plots(), "li-1", "que-1"} <= {line.split()[0] for line in done.stdout.splitlines()}
    assert "hospital discharge set is not public" in done.stdout


@pytest.mark.parametrize("full", [False, pytest.param(True, marks=pytest.mark.long)])
def test_every_entry_can_be_run_or_says_why_not(full: bool, tmp_path: Path) -> None:
    """Scenarios are right, claims are written in their language, and nothing is without a verdict to come."""
    for paper, entry in entries().values():
        judged = judgment.judge(paper, entry, tmp_path, full=full)
        assert entry.cannot or judged.cells or judged.shows
        assert (
            entry.cannot or entry.draws or entry.claim or any(each.cell.printed is not None for each in judged.cells)
        ), entry.id
        assert judged.surprises == 0


@pytest.mark.long
@pytest.mark.long
def test_public_rows_of_every_shifted_draw_have_both_classes() -> None:
    """A run without them fails, and with it the whole reproduction."""
    farthest = {run.changes: run for cell in plan.cells(entries()["li-shift"][1], full=True) for run in cell.runs}
    for run in (each for each in farthest.values() if "data.source=made-census:shift=2" in each.changes):
        dataset.prepare(*spec.read(run.scenario, overrides=list(run.changes)))


def test_runs_of_papers_have_exact_statistics() -> None:
    """No paper has noisy ones; with exact ones, the objective has no noise by default either."""
    for paper, entry in entries().values():
        if paper.ours:
            continue
        columns = {cell.column.name: cell.runs[0] for cell in plan.cells(entry, full=False) if cell.runs}
        for name, each in columns.items():
            scenario, _ = spec.read(each.scenario, overrides=each.changes)
            assert scenario.data.statistics_privacy == 0, f"{entry.id}, {name}"


def test_without_data_files_nothing_is_wrong_and_what_needs_none_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(FOLDER_VARIABLE, raising=False)
    judged = {name: judgment.judge(paper, entry, tmp_path, full=False) for name, (paper, entry) in entries().items()}
    assert not any(each.surprises for each in judged.values())
    assert set(judged["lu-3.3"].counts) == {"cannot"}
    assert all(judged[name].runs for name in ("que-fig-7", "slides-a", "li-fig-4", "ours-sums"))


def test_names_of_columns_and_rows_in_claims_are_there() -> None:
    for _, entry in entries().values():
        names = {each.name for each in entry.column} | {each.name for each in entry.rows}
        for claim in entry.claim:
            assert set(re.findall(r'"([^"]*)"', claim.test)) <= names, f"{entry.id}: {claim.test}"


def test_every_derived_figure_is_shown_somewhere() -> None:
    known = [entry for _, entry in entries().values()]
    shown = {entry.measure for entry in known} | {column.measure for entry in known for column in entry.column}
    assert measures.DERIVED.keys() <= shown


# As printed, typed from the papers.

TABLE_3_2 = """
79.85 85.65 85.51 86.38 85.01 85.46   96.19 95.46 96.98 97.21 96.88 97.01   75.91 71.22 77.10 77.60 76.84 77.32
72.40 72.20 76.58 76.30 75.40 75.50   84.80 77.78 83.83 84.07 82.85 83.48   82.05 89.74 88.27 94.80 89.31 92.19
56.23 68.70 68.68 73.04 71.65 71.97   84.20 92.90 79.97 87.70 82.36 83.02
"""
TABLE_3_4 = """
0.094 0.089 0.087 2.72 0.73 2.59   0.005 0.008 0.007 0.02 0.05 0.75
0.093 0.089 0.084 3.39 1.96 7.37   0.007 0.008 0.008 0.60 0.43 2.68
"""
TABLE_3_5 = """
0.092 0.088 0.067 8.04 18.91 7.38   0.006 0.006 0.007 2.13 1.18 0.50
0.091 0.090 0.066 9.73 18.09 7.62   0.008 0.008 0.008 3.97 2.69 2.21
"""
PRINTED = {
    "lu-3.1": """14 690 512 0.0078125  10 683 0.125 0.125  8 768 512 0.0078125  24 1000 8 0.03125
                 13 270 2048 0.0001220703125  34 351 8 0.5  6 345 8 0.5  60 3175 8 0.5  2 862 8 0.03125
                 123 32561 100 0.5  8 59535 32 0.5  11119 183 32 0.0000305""",
    "lu-3.2": TABLE_3_2,
    "lu-3.3": "99.16 99.90 99.46 84.48 99.94 99.69",
    "lu-3.4": TABLE_3_4,
    "lu-3.5": TABLE_3_5,
    "lu-3.6": "13.9 2245.7 550.2 9 90",
    "lu-4.1": """72 7129 3 512 0.0001220703125  72 7129 4 512 0.0001220703125  2000 180 3 8 0.03125
                 528 10 11 2 2  32 56 3 2048 0.00048828125  15000 16 26 8 2""",
    "lu-5.2": """79.35 76.48 2.86 80.13 76.76 3.37  96.86 93.94 2.91 96.29 93.03 3.27
                 100 81.92 18.08 100 82.00 18.00  92.86 87.14 5.72 94.29 89.65 4.64
                 96.64 96.64 0 96.46 96.69 -0.23  100 87.76 12.24 100 89.05 10.95
                 565.70 523.88 41.82 567.17 527.17 39.99""",
    "lu-5.3": """75.95 75.63 0.32 77.91 76.54 1.37  97.50 93.04 4.47 97.50 93.78 3.72
                 100 82.79 17.21 100 82.30 17.70  92.86 90.00 2.86 94.29 93.10 1.19
                 98.41 93.54 4.87 98.23 96.10 2.13  95.56 88.95 6.61 91.11 90.46 0.65
                 560.27 523.94 36.32 559.04 532.28 26.76""",
    "lu-5.5": """2.86 2.99 2.60 2.86  1.77 2.63 3.77 2.91  18.08 18.08 18.08 18.08  8.57 5.72 5.72 5.72
                 0 0 -0.35 0  12.24 12.24 12.24 12.24  43.53 41.66 42.06 41.82""",
    "lu-5.6": """2.71 2.71 2.71 3.37  2.69 1.27 1.55 3.27  18 18 18 18  6.06 3.21 6.06 4.64
                 -0.41 -0.23 -0.76 -0.23  10.95 10.95 10.95 10.95  40.01 35.91 38.52 39.99""",
    "lu-5.7": """0.05 0.18 0.32 0.32  4.11 4.47 4.47 4.47  17.21 17.21 17.21 17.21  2.86 1.43 0 2.86
                 3.99 4.16 4.87 4.87  2.16 2.16 4.38 6.61  30.37 29.61 31.24 36.32""",
    "lu-5.8": """-0.85 0.07 -0.85 1.37  3.72 4.08 3.72 3.72  17.70 17.70 17.70 17.70  1.19 -0.24 -1.67 1.19
                 1.07 1.25 2.49 2.13  0.65 0.65 2.87 0.65  23.47 23.50 24.26 26.76""",
    "lu-5.9": """5 79.35 12 95.71 63 100 4565 95.71 18 96.64 114 100
                 7 79.48 12 96.57 61 100 6380 92.86 17 96.64 147 100
                 8 79.09 10 97.71 617 100 5420 92.86 21 96.28 166 100
                 5 79.35 17 96.86 53 100 4826 92.86 11 96.64 121 100""",
    "lu-6.2": """3.39 2.10 4.86 4.56  0.35 3.42 5.18 1.78  3.08 8.00 1.21 7.70  2.47 1.12 3.82 2.26
                 5.57 10.95 11.05 9.54  8.57 3.45 1.43 -3.45  23.43 29.04 27.55 22.39""",
    "lu-6.3": """3.39 2.10 4 4  0.35 3.42 2 8  3.08 8.00 34 157  2.47 1.12 10 4
                 5.57 10.95 394 444  8.57 3.45 537 631  23.43 29.04 981 1248""",
    "lu-6.4": "76.42 76.58 76.56 76.74 79.87 78.86  94.7 95.23 95.25 97.55 99.11 97.81  87.46 92.03 92.52 96.57 85 90",
    "lu-6.5": """3.39 2.86 2.10 3.37  0.35 2.91 3.42 3.27  3.08 18.08 8.00 18.00  2.47 0 1.12 -0.23
                 5.57 12.24 10.95 10.95  8.57 5.72 3.45 4.64  23.43 41.82 29.04 39.99""",
    "lu-6.6": "4 5 4 5  2 17 8 10  34 53 157 55  10 11 4 18  394 121 444 105  537 4826 631 6039",
    "li-1": "20 27000 3000 14 1.0",
}
# 1.00 stands there for 100 %
PRINTED["lu-5.4"] = """76.42 76.58 76.56 76.74 79.35 80.13 75.95 77.91  94.7 95.23 95.25 97.55 96.64 96.46 98.41 98.23
                       87.46 92.03 92.52 96.57 100 100 100 100"""
for sets in ("lu-5.1", "lu-6.1"):
    PRINTED[sets] = """768 8 512 0.0078125  351 34 8 0.5  62 2000 32 0.0078125  72 7129 128 0.0001220703125"""
PRINTED["lu-5.1"] += " 569 30 128 8  47 4026 2 0.0078125"
PRINTED["lu-6.1"] += " 47 4026 2 0.0078125  569 30 128 8"


@pytest.mark.parametrize("name", PRINTED)
def test_values_are_as_printed(name: str) -> None:
    found = [value for row in entries()[name][1].rows for value in row.paper if value != ""]
    assert found == [float(word) for word in PRINTED[name].split()]


def test_every_table_with_values_is_typed_here() -> None:
    assert {*lu(), "li-1"} == PRINTED.keys()
    assert len(TABLE_3_2.split()) == 48
    assert len(TABLE_3_4.split()) + len(TABLE_3_5.split()) == 48


NUMBER = re.compile(r"-?\d[\d,]*(?:\.\d+)?")


@pytest.fixture(scope="module")
def dissertation() -> list[list[float]]:
    """The numbers in each line of the dissertation, where its text lies in a folder beside that of the data sets."""
    text = Path(os.environ.get(FOLDER_VARIABLE, "")).parent / "papers" / "lu-2016-pan-svm-dissertation.md"
    if not text.is_file():
        pytest.skip("there is no text of the dissertation beside the data sets")
    return [[float(word.replace(",", "")) for word in NUMBER.findall(line)] for line in text.read_text().splitlines()]


@pytest.mark.parametrize("name", sorted(PRINTED.keys() - {"li-1"}))
def test_each_row_of_values_stands_in_a_line_of_the_dissertation(name: str, dissertation: list[list[float]]) -> None:
    rows = [[value for value in row.paper if value != ""] for row in entries()[name][1].rows]
    lines = dissertation
    if name == "lu-5.4":  # 1.00 stands there for 100 % in one row
        lines = [[100.0 if value == 1.0 else value for value in line] for line in lines]
    assert [row for row in rows if not any(_stand_in(row, line) for line in lines)] == []


def _stand_in(row: list[float], line: list[float]) -> bool:
    """Return whether values occur in a line in their order."""
    left = iter(line)
    return all(value in left for value in row)


# This project's own figures, and the pages that have them.


def test_figures_of_readme_and_guides_are_those_of_their_file() -> None:
    """`python -m tools.figures` writes both, so that neither changes without the other."""
    quoted = [(entry, row) for entry in papers()["ours"].entry for row in entry.rows if row.paper]
    assert all(row.said for _, row in quoted)
    for entry, row in quoted:
        for quotation in figures.quotations(row):
            words = quotation.text(figures.stated(entry, row))
            assert (ROOT / quotation.page).read_text().count(words) == 1, f"{quotation.page} must say {words!r} once"


def test_lines_of_readmes_demo_are_written_by_the_tool_or_stand_in_a_guide_that_is_followed() -> None:
    (demo,) = re.findall(r"^```\n(sites .*?)^```", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    entry = entries()["ours-quickstart"][1]
    (row,) = entry.rows
    written = "".join(quotation.text(figures.stated(entry, row)) for quotation in figures.quotations(row))
    followed = (ROOT / "docs" / "first-run.md").read_text()
    assert all(line in written or line in followed for line in demo.splitlines(keepends=True))
    assert sum(line in written for line in demo.splitlines(keepends=True)) == 8


@pytest.fixture
def pages(tmp_path: Path) -> Path:
    """A folder with the pages that figures are quoted in, and their file."""
    quoted = {q.page for entry in papers()["ours"].entry for row in entry.rows for q in figures.quotations(row)}
    for page in quoted:
        (tmp_path / page).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / page, tmp_path / page)
    shutil.copy(figures.OURS, tmp_path / "ours.toml")
    return tmp_path


def measured_again(folder: Path, mode: str, of: dict[str, float]) -> Path:
    """A folder as `fedsvm reproduce` leaves it, where of each entry that is named a column has another value."""
    quoted = [(entry, row) for entry in papers()["ours"].entry for row in entry.rows]
    plain = [
        {
            "id": entry.id,
            "cells": [
                {"row": row.name, "column": name, "value": of.get(f"{entry.id} {row.name} {name}", value)}
                for name, value in figures.stated(entry, row).items()
            ],
        }
        for entry, row in quoted
    ]
    (folder / "reproduction.json").write_text(json.dumps({"mode": mode, "entries": plain}))
    return folder


def test_what_was_measured_is_written_into_the_pages_and_the_file(pages: Path) -> None:
    ours = pages / "ours.toml"
    text = ours.read_text()
    assert "\nseeds = 20\n" in text
    ours.write_text(text.replace("\nseeds = 20\n", "\nseeds = 8\n"))
    again = {
        "ours-quickstart README AUC": 0.98765432,
        "ours-quickstart README rounds": 31.0,
        "ours-comparators ADMM, as Boyd's rounds": 77.0,
        "ours-private the paper's random features": 0.5,
    }
    changed = list(figures.rewrite(measured_again(pages, "quick", again), pages, ours))
    assert sorted(changed) == sorted(
        str(pages / name) for name in ("README.md", "docs/first-run.md", "docs/algorithms.md", "ours.toml")
    )
    readme = (pages / "README.md").read_text()
    assert "AUC 0.9877\n" in readme
    assert "rounds       31 (" in readme
    private = pages / "docs" / "private-models.md"
    assert "random features | 20 | 0.500 |" not in private.read_text(), "--full has more seeds"
    assert "| 77 | " in (pages / "docs" / "algorithms.md").read_text()
    entry = next(each for each in read(ours).entry if each.id == "ours-quickstart")
    assert figures.stated(entry, entry.rows[0])["AUC"] == 0.9877
    assert list(figures.rewrite(pages, pages, ours)) == [], "what is written is left"
    full = {"ours-private the paper's random features": 0.5}
    assert list(figures.rewrite(measured_again(pages, "full", full), pages, ours))
    assert "random features | 20 | 0.500 |" in private.read_text()


def test_a_page_that_does_not_say_what_the_file_quotes_is_left(pages: Path) -> None:
    readme = pages / "README.md"
    readme.write_text(readme.read_text().replace("AUC 0.", "an AUC of 0."))
    before = {path: path.read_text() for path in pages.rglob("*") if path.is_file()}
    again = measured_again(pages, "quick", {"ours-quickstart README rounds": 31.0})
    with pytest.raises(ValueError, match=r"README\.md has 'accuracy .* 0 times; it must be there once"):
        list(figures.rewrite(again, pages, pages / "ours.toml"))
    assert all(path.read_text() == text for path, text in before.items())


def test_a_file_can_be_read_by_itself() -> None:
    found = [read(path) for path in sorted(FOLDER.glob("*.toml"))]
    assert all(isinstance(each, Paper) and each.entry for each in found)
    assert all(isinstance(entry, Entry) for each in found for entry in each.entry)
