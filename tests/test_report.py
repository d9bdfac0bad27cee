"""The report: its numbers are those of result.json, nothing leaves the page, and whatever came of a run is shown."""

from __future__ import annotations

import io
import json
import re
import shutil
import subprocess
import sys
import tomllib
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from rich.text import Text

from fedsvm import run
from fedsvm.federation.traffic_ledger import Accounts
from fedsvm.scenarios.figures import human_bytes
from fedsvm.scenarios.report import axes, chart, comparison, drawing, sections
from fedsvm.scenarios.report.message_flow import read_ledger
from fedsvm.scenarios.report.page import write_report
from fedsvm.scenarios.report.section import find_sections
from fedsvm.scenarios.report.summary import lines, print_named, print_summary
from fedsvm.scenarios.run.metrics import MEASURES
from fedsvm.scenarios.run.result import RunResult, write_ledger
from fedsvm.scenarios.schema import spec
from fedsvm.scenarios.schema.errors import ScenarioError
from tests.commands import fedsvm
from tests.conftest import ROOT, long_but_for

FAST = {"compare.centralised": False, "algorithm.landmarks": 40}


class Page(HTMLParser):
    """The texts of a page's cells, by tag, and everything that it would fetch."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.cells: dict[str, list[str]] = {tag: [] for tag in ("dt", "dd", "td", "th", "pre", "h2", "h3", "title")}
        self.cards: dict[str, str] = {}
        self.scripts = 0
        self.fetched: list[str] = []
        self._open: list[str] = []
        self._card: str | None = None
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.fetched += [value or "" for name, value in attributes if name in ("src", "href", "xlink:href", "data")]
        if tag in ("link", "iframe", "object", "embed", "img"):
            self.fetched.append(tag)
        self.scripts += tag == "script"
        self._card = dict(attributes).get("data-card")
        if tag in self.cells:
            self._open.append(tag)
            self.cells[tag].append("")

    def handle_endtag(self, tag: str) -> None:
        if self._open and tag == self._open[-1]:
            self._open.pop()

    def handle_data(self, data: str) -> None:
        if self._card:
            self.cards[self._card], self._card = data, None
        if self._open:
            self.cells[self._open[-1]][-1] += data


def page_of(folder: Path) -> tuple[Page, dict[str, Any], str]:
    text = write_report(folder).read_text()
    return Page(text), json.loads((folder / "result.json").read_text()), text


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("quickstart", "Convergence"),
        ("killed-sites", "Sites and faults"),
        ("colluding-neighbours", "What the coalition learns from single sums"),
        ("dp-logistic", "Privacy spent"),
        ("dpp-svm-rbf", "Rounds"),
    ],
)
def test_a_report_says_what_the_result_says_and_fetches_nothing(name: str, shown: str, tmp_path: Path) -> None:
    run(name, changes=FAST if name not in ("dp-logistic", "dpp-svm-rbf") else {}, out=tmp_path / "run")
    page, result, text = page_of(tmp_path / "run")
    assert list(zip(page.cells["dt"], page.cells["dd"], strict=True)) == lines(RunResult.from_dict(result))
    assert ("; audit " in page.cells["dd"][page.cells["dt"].index("seconds")]) == (result["timing"]["audit_s"] > 0)
    assert all(address.startswith("#") for address in page.fetched)
    assert "@import" not in text
    assert "url(" not in text
    assert page.scripts == 1
    assert "default-src 'none'" in text
    assert shown in [*page.cells["h2"], *page.cells["h3"]]
    assert text.count("<svg viewBox") - text.count('aria-hidden="true"') == text.count('role="img"')
    assert text.count('role="img" data-plot=""><title>') == text.count('role="img"')
    for link in result["cost"]["by_link"]:
        assert human_bytes(link["predicted_wire_bytes"]) in page.cells["td"]
    for site in result["sites"]:
        assert site["name"] in page.cells["td"]
    assert {"Bytes", "Time", "Rounds", "ROC curve", "Message flow"} <= set(page.cells["h3"])
    short, whole = page.cells["pre"]
    assert whole == (tmp_path / "run" / "scenario.toml").read_text()
    assert spec.validate(tomllib.loads(short)) == spec.validate(tomllib.loads(whole))
    assert len(short) < len(whole) / 2


BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


needs_browser = pytest.mark.skipif(BROWSER is None, reason="no browser is installed")


def loaded(path: Path, folder: Path) -> Page:
    """A page as Chromium has it after loading it and running its script; nothing may be on the console."""
    words = [str(BROWSER), "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder / 'profile'}"]
    words += ["--enable-logging=stderr", "--dump-dom", f"file://{path}"]
    done = subprocess.run(words, capture_output=True, text=True, check=True, timeout=60)
    assert "CONSOLE" not in done.stderr
    return Page(done.stdout)


@pytest.fixture(scope="module")
def repeated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run of two repeats of two folds, with probabilities."""
    folder = tmp_path_factory.mktemp("repeated") / "run"
    changes = {"data.source": "wine", "data.positive": "class_1", "data.scale": "standard", "data.test_fraction": 0}
    changes |= {"data.folds": 2, "data.repeats": 2, "data.calibration": 0.3, "algorithm.landmarks": 10}
    result = run("quickstart", sites=3, changes={**FAST, **changes}, out=folder)
    assert result.status == "completed", result.error
    return folder


def test_what_folds_disclose_alike_stands_once_with_its_shapes(repeated: Path, tmp_path: Path) -> None:
    result = json.loads((repeated / "result.json").read_text())
    known = len(result["disclosures"])
    prior = next(each for each in result["disclosures"] if each["step"] == "begin_path")
    result["disclosures"] += [{**prior, "shape": [length], "times": 100} for length in (7, 8)]
    (tmp_path / "result.json").write_text(json.dumps(result))
    text = write_report(tmp_path).read_text()
    shown = text[text.index('id="disclosed"') :]
    assert shown.count('<span class="severity') == known
    assert f'<td data-name="shape">{prior["shape"][0]}, 7 and 1 more</td>' in shown
    assert f'<td data-name="times">{200 + prior["times"]}</td>' in shown


TOY_SECTION = """
from fedsvm.scenarios.report.section import Card, Section

SECTION = Section(
    place=75,
    id="toy",
    title="Toy",
    content=lambda run: {"head": ["fold"], "rows": [[name] for name in run.sites + ["<b>"]]},
    cards=lambda result: [Card(15, "toys", str(len(result.sites)), "in one file")],
)
"""


def test_a_section_with_its_card_is_one_file(repeated: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "toy.py").write_text(TOY_SECTION)
    monkeypatch.setattr(sections, "__path__", [*sections.__path__, str(tmp_path)])
    page, result, text = page_of(repeated)
    monkeypatch.delitem(sys.modules, f"{sections.__name__}.toy")
    assert [page.cards["toys"], len(result["sites"])] == ["3", 3]
    assert page.cells["h2"].index("Toy") == page.cells["h2"].index("Sites") + 1
    assert {site["name"] for site in result["sites"]} | {"<b>"} <= set(page.cells["td"])
    assert '<a href="#toy">Toy</a>' in text


def test_sections_have_places_and_anchors_of_their_own() -> None:
    found = find_sections()
    assert len({each.place for each in found}) == len({each.id for each in found}) == len(found)


def test_a_summary_that_goes_to_a_pipe_has_a_line_for_each_figure(repeated: Path) -> None:
    """So that grep and cut find them whole; a terminal gets what is as wide as it is."""
    result = RunResult.from_dict(json.loads((repeated / "result.json").read_text()))
    piped, narrow = io.StringIO(), io.StringIO()
    print_summary(Console(file=piped, width=40), result, repeated)
    title, *rest = piped.getvalue().splitlines()
    assert title == "quickstart"
    said = [*lines(result), ("results", str(repeated))]
    width = max(len(name) for name, _ in said) + 2
    assert [(each[:width].rstrip(), each[width:]) for each in rest[: len(said)]] == said
    assert all(each == each.rstrip() for each in rest)
    print_summary(Console(file=narrow, width=40, force_terminal=True), result, repeated)
    assert max(len(Text.from_ansi(each).plain.rstrip()) for each in narrow.getvalue().splitlines()) <= 40


def test_named_sentences_fold_between_words_in_a_terminal() -> None:
    terminal, sentence = io.StringIO(), "the coordinator alone recovers 0 of 455 rows of others"
    print_named(Console(file=terminal, width=30, force_terminal=True), [("whole run", sentence)])
    told = [Text.from_ansi(each).plain.split() for each in terminal.getvalue().splitlines()]
    assert len(told) > 2
    assert [word for words in told for word in words] == ["whole", "run", *sentence.split()]


def test_a_report_says_what_repeats_and_folds_are_means_of(repeated: Path) -> None:
    page, result, text = page_of(repeated)
    assert (
        dict(lines(RunResult.from_dict(result)))["accuracy"]
        .split(" mean and deviation of ")[1]
        .startswith("2 repeats of 2 folds,")
    )
    assert "summed over 2 repeats of 2 folds. Each row is counted once per repeat, 2 times in total." in text
    assert "2 repeats of 2 folds on test rows; the mean area" in text
    metrics = result["metrics"]
    for fold in metrics["folds"][1:]:
        fold["ppv"] = fold["auc"] = fold["roc"] = None
    metrics["threshold"], metrics["deviations"]["threshold"] = 0.41, 0.1
    del metrics["deviations"]["ppv"]
    summary = dict(lines(RunResult.from_dict(result)))
    assert "(of 1 of 4 folds)" in summary["accuracy"].split("AUC")[1]
    assert "% (of 1 of 4 folds), NPV" in summary["positive"].split("PPV")[1]
    assert " from 0.41 on (mean over folds, each has its own):" in summary["positive"]
    (repeated.parent / "fewer").mkdir()
    (repeated.parent / "fewer" / "result.json").write_text(json.dumps(result))
    page, _, text = page_of(repeated.parent / "fewer")
    assert "positive predictive value (PPV), of the 1 of 4 folds that have it" in page.cells["td"]
    assert "1 of 4 folds on test rows; the mean area" in text


@needs_browser
@pytest.mark.parametrize("width", long_but_for([1400, 1100, 420], 420))
def test_no_figure_of_a_measure_is_cut(width: int, repeated: Path, tmp_path: Path) -> None:
    """Cut digits read as other numbers; the page's policy is taken out, so that a script can measure tables."""
    _, _, text = page_of(repeated)
    script = """for (const each of document.querySelectorAll(".worded .scroll")) {
        const told = document.createElement("pre");
        told.textContent = each.scrollWidth - each.clientWidth;
        document.body.append(told);
    }"""
    text = re.sub("<meta http-equiv=[^>]*>", "", text).replace("<body", f'<body style="width: {width}px"', 1)
    (tmp_path / "page.html").write_text(text.replace("</body>", f"<script>{script}</script></body>"))
    page = loaded(tmp_path / "page.html", tmp_path)
    assert page.cells["pre"][-2:] == ["0", "0"]


@pytest.mark.long
@needs_browser
def test_a_browser_shows_the_numbers_of_the_result(tmp_path: Path) -> None:
    """Against result.json and not against our own formatting of it."""
    run("quickstart", changes=FAST, out=tmp_path / "run")
    _, result, _ = page_of(tmp_path / "run")
    page = loaded(tmp_path / "run" / "report.html", tmp_path)
    summary = dict(zip(page.cells["dt"], page.cells["dd"], strict=True))
    cost, metrics = result["cost"], result["metrics"]
    assert summary["rounds"] == f"{cost['rounds']} ({cost['hops']} hops)"
    assert float(summary["accuracy"].split(" %")[0]) == pytest.approx(100 * metrics["accuracy"], abs=0.005)
    assert float(summary["accuracy"].split("AUC ")[1]) == pytest.approx(metrics["auc"], abs=5e-5)
    assert float(summary["objective"].split(",")[0]) == pytest.approx(result["model"]["objective"], rel=5e-3)
    assert float(summary["payload"].split(" MB")[0]) == pytest.approx(cost["payload_bytes"] / 1e6, rel=5e-3)
    assert float(summary["wire"].split(" MB")[0]) == pytest.approx(cost["wire_bytes"] / 1e6, rel=5e-3)
    assert float(page.cards["accuracy"].split(" %")[0]) == pytest.approx(100 * metrics["accuracy"], abs=0.005)
    assert float(page.cards["AUC"]) == pytest.approx(metrics["auc"], abs=5e-5)
    assert float(page.cards["certified gap"]) == pytest.approx(result["model"]["gap"], rel=0.05)
    assert int(page.cards["rounds"]) == cost["rounds"]
    assert float(page.cards["sensitivity"].split(" %")[0]) == pytest.approx(100 * metrics["sensitivity"], abs=0.05)
    assert float(page.cards["specificity"].split(" %")[0]) == pytest.approx(100 * metrics["specificity"], abs=0.05)
    first = page.cells["td"].index("actual positive")
    confusion = metrics["confusion"]
    assert page.cells["td"][first + 1 : first + 3] == [
        str(confusion["true_positive"]),
        str(confusion["false_negative"]),
    ]
    shown = page.cells["td"][page.cells["td"].index("negative predictive value (NPV)") + 1]
    assert float(shown.split(" %")[0]) == pytest.approx(100 * metrics["npv"], abs=0.005)
    assert float(page.cards["on the wire"].split(" MB")[0]) == pytest.approx(cost["wire_bytes"] / 1e6, rel=5e-3)
    assert page.cells["title"] == ["quickstart"]  # the script took those of the plots for their labels


@pytest.mark.long
@needs_browser
def test_a_browser_shows_ten_folds_and_a_comparison(tmp_path: Path) -> None:
    run("wdbc-10-fold", changes={"compare.centralised": False, "algorithm.landmarks": 30}, out=tmp_path / "ten")
    _, result, _ = page_of(tmp_path / "ten")
    page = loaded(tmp_path / "ten" / "report.html", tmp_path)
    folds = [page.cells["td"][place : place + 5] for place in _places(page.cells["td"], "1", "mean")]
    assert [float(cells[1].split(" %")[0]) for cells in folds] == pytest.approx(
        [100 * fold["accuracy"] for fold in result["metrics"]["folds"]], abs=0.005
    )
    assert all(float(cells[4]) <= result["scenario"]["algorithm"]["tolerance"] for cells in folds)
    run("wdbc-10-fold", changes={"algorithm.landmarks": 20, "data.folds": 2}, out=tmp_path / "two")
    (tmp_path / "both.html").write_text(comparison.render([tmp_path / "ten", tmp_path / "two"]))
    page = loaded(tmp_path / "both.html", tmp_path)
    assert page.cells["h2"] == ["What differs", "Results", "Plots"]
    assert {"algorithm.landmarks", "data.folds"} <= set(page.cells["th"])
    cells = page.cells["td"]
    assert any(cell.startswith(f"{100 * result['metrics']['accuracy']:.2f} %") for cell in cells)
    assert str(result["cost"]["rounds"]) in cells


def _places(cells: list[str], first: str, end: str) -> range:
    """Return the positions of the lines in the table of folds: five cells each, from the first to the mean."""
    last = cells.index(end)
    begin = max(place for place in range(0, last) if cells[place] == first and (last - place) % 5 == 0)
    return range(begin, last, 5)


def test_the_command_writes_it_and_compares_several(tmp_path: Path) -> None:
    changes = [word for change in FAST.items() for word in ("--set", f"{change[0]}={str(change[1]).lower()}")]
    done = fedsvm("run", "quickstart", *changes, "--quiet", "--out", tmp_path / "a", folder=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "a" / "report.html").is_file()
    run("quickstart", changes=FAST, out=tmp_path / "b")
    done = fedsvm("report", tmp_path / "a", tmp_path / "b", "--out", tmp_path / "both.html", folder=tmp_path)
    assert done.returncode == 0
    page = Page((tmp_path / "both.html").read_text())
    assert {"a", "b"} <= set(page.cells["td"])
    assert page.cells["h2"] == ["Results", "Plots"]  # and nothing that differs
    run("quickstart", changes={**FAST, "algorithm.objective_noise": 0.2}, out=tmp_path / "noisy")
    remark = "Objectives with noise do not compare"
    assert remark in comparison.render([tmp_path / "a", tmp_path / "noisy"])
    assert remark not in (tmp_path / "both.html").read_text()
    assert fedsvm("report", tmp_path / "a", folder=tmp_path).stdout.strip() == str(tmp_path / "a" / "report.html")


def test_a_comparison_knows_every_measure_of_the_test_rows() -> None:
    places = {each.place for each in comparison.MEASURES.values()}
    assert {f"metrics.{name}" for name in MEASURES} <= places


def test_names_of_any_length_leave_room_for_plots(tmp_path: Path) -> None:
    kill = [{"kind": "kill", "site": 2, "phase": "train", "round": 2}]
    names = ["x" * 90, "y" * 120, "north"]
    run(
        "quickstart",
        changes={
            **FAST,
            "faults": kill,
            "federation.names": names,
            "protocol.sum": "masked",
            "federation.sites": 3,
            "protocol.threshold": 0.6,
        },
        out=tmp_path / "run",
    )
    page, _, text = page_of(tmp_path / "run")
    assert "Sites and faults" in page.cells["h3"]
    assert "x" * 19 + "…" in text


def test_a_run_that_failed_has_a_report(tmp_path: Path) -> None:
    kill = [{"kind": "kill", "site": 2, "phase": "train", "round": 2}]
    run("quickstart", changes={**FAST, "faults": kill, "federation.on_dropout": "abort"}, out=tmp_path / "run")
    page, result, text = page_of(tmp_path / "run")
    assert result["status"] == "failed"
    assert page.cells["dt"] == []
    assert "The run failed in phase train, after " in text
    assert "site-2 dropped" in text
    assert "continue without a site that drops out" in text
    assert "again with --debug" in text


def test_a_run_that_ended_before_its_first_message_has_a_ledger_without_rows(tmp_path: Path) -> None:
    write_ledger(tmp_path / "ledger.parquet", Accounts())
    assert read_ledger(tmp_path / "ledger.parquet") == []


def test_a_ledger_has_every_value_and_its_gaps_and_is_written_without_pandas(tmp_path: Path) -> None:
    """In a process of its own, which has loaded nothing else. Pandas takes longer to load than a small run."""
    code = """
import sys
from dataclasses import fields
from pathlib import Path
from fedsvm.federation.traffic_ledger import Traffic
from fedsvm.scenarios.run.result import write_ledger

counts = [f"{witness}{item.name}" for witness in ("", "sent_", "received_") for item in fields(Traffic)]
texts = {"phase": "", "step": "stufe-é", "protocol": None, "from": "site-1", "to": "coordinator"}
rows = [
    {"round": round_, "aborted": round_ % 3 == 0, **texts}
    | {name: None if (round_ + place) % 5 == 0 else 2**40 + place for place, name in enumerate(counts)}
    for round_ in range(13)
]

class Ledger:
    def rows(self):
        return rows

write_ledger(Path(sys.argv[1]), Ledger())
assert "pandas" not in sys.modules
import pyarrow.parquet as pq
found = pq.read_table(sys.argv[1])
found.validate(full=True)
assert found.to_pylist() == rows
"""
    command = [sys.executable, "-c", code, str(tmp_path / "ledger.parquet")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr


def test_what_a_scenario_says_cannot_break_the_page(tmp_path: Path) -> None:
    table = tmp_path / "odd.csv"
    rows = "".join(f"{i},{'<b>&' if i % 2 else 'x'}\n" for i in range(40))
    table.write_text("a,label\n" + rows)
    run("quickstart", changes={**FAST, "data.source": str(table), "data.positive": "<b>&"}, out=tmp_path / "run")
    page, _, text = page_of(tmp_path / "run")
    assert "<b>" not in text
    assert "<b>&" in page.cells["pre"][0]


def test_a_diagonal_ends_within_its_plot() -> None:
    few = chart.Series("", [(0.05, 0.02), (0.8, 0.6)], drawing.style(0))
    drawn = chart.lines("", "", axes.ChartAxis("x"), axes.ChartAxis("y"), [few], has_diagonal=True)
    (line,) = re.findall(
        r'<line x1="([^"]*)" y1="([^"]*)" x2="([^"]*)" y2="([^"]*)" stroke="var\(--grey\)" stroke-d', drawn.svg
    )
    x1, y1, x2, y2 = map(float, line)
    assert 0 < x1 < x2 < drawing.WIDTH
    assert drawn.height > y1 > y2 > 0


def test_a_folder_without_a_run_is_said(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match="is not the folder of a run"):
        write_report(tmp_path)
