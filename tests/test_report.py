"""The report: its numbers are those of result.json, nothing leaves the page, and whatever came of a run is shown."""

from __future__ import annotations

import json
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedsvm import run
from scenarios import predict
from scenarios.report.live import human_bytes
from scenarios.report.page import write_report
from scenarios.report.summary import lines
from scenarios.run.result import RunResult
from scenarios.schema.errors import ScenarioError
from tests.conftest import ROOT
from tests.test_runs import fedsvm

FAST = {"compare.centralised": False, "algorithm.landmarks": 40}


class Page(HTMLParser):
    """The texts of a page's cells, by tag, and everything that it would fetch."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.cells: dict[str, list[str]] = {"dt": [], "dd": [], "td": [], "th": [], "pre": [], "h2": []}
        self.fetched: list[str] = []
        self._open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.fetched += [value or "" for name, value in attributes if name in ("src", "href", "xlink:href", "data")]
        if tag in ("script", "link", "iframe", "object", "embed"):
            self.fetched.append(tag)
        if tag in self.cells:
            self._open.append(tag)
            self.cells[tag].append("")

    def handle_endtag(self, tag: str) -> None:
        if self._open and tag == self._open[-1]:
            self._open.pop()

    def handle_data(self, data: str) -> None:
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
        ("colluding-neighbours", "What the coalition learnt of single sums"),
        ("dp-logistic", "Privacy spent"),
        ("dpp-svm-rbf", "Rounds"),
    ],
)
def test_a_report_says_what_the_result_says_and_fetches_nothing(name: str, shown: str, tmp_path: Path) -> None:
    run(name, changes=FAST if name not in ("dp-logistic", "dpp-svm-rbf") else {}, out=tmp_path / "run")
    page, result, text = page_of(tmp_path / "run")
    assert list(zip(page.cells["dt"], page.cells["dd"], strict=True)) == lines(RunResult.from_dict(result))
    assert all(address.startswith("#") for address in page.fetched)
    assert "@import" not in text
    assert "url(http" not in text
    assert shown in page.cells["h2"]
    for link in result["cost"]["by_link"]:
        assert human_bytes(link["predicted_wire_bytes"]) in page.cells["td"]
    for site in result["sites"]:
        assert site["name"] in page.cells["td"]
    assert {"Bytes", "ROC curve"} <= set(page.cells["h2"])
    assert page.cells["pre"] == [(tmp_path / "run" / "scenario.toml").read_text()]


BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


@pytest.mark.long
@pytest.mark.skipif(BROWSER is None, reason="no browser is installed")
def test_a_browser_shows_the_numbers_of_the_result(tmp_path: Path) -> None:
    """As Chromium has the page after loading it, against result.json and not against our own formatting of it."""
    run("quickstart", changes=FAST, out=tmp_path / "run")
    _, result, _ = page_of(tmp_path / "run")
    words = [str(BROWSER), "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}"]
    words += ["--dump-dom", f"file://{tmp_path / 'run' / 'report.html'}"]
    page = Page(subprocess.run(words, capture_output=True, text=True, check=True, timeout=60).stdout)
    summary = dict(zip(page.cells["dt"], page.cells["dd"], strict=True))
    cost, metrics = result["cost"], result["metrics"]
    assert summary["rounds"] == f"{cost['rounds']} ({cost['hops']} hops)"
    assert float(summary["accuracy"].split(" %")[0]) == pytest.approx(100 * metrics["accuracy"], abs=0.005)
    assert float(summary["accuracy"].split("AUC ")[1]) == pytest.approx(metrics["auc"], abs=5e-5)
    assert float(summary["objective"].split(",")[0]) == pytest.approx(result["model"]["objective"], rel=1e-5)
    assert float(summary["payload"].split(" MB")[0]) == pytest.approx(cost["payload_bytes"] / 1e6, rel=5e-3)
    assert float(summary["wire"].split(" MB")[0]) == pytest.approx(cost["wire_bytes"] / 1e6, rel=5e-3)


def test_the_command_writes_it_and_compares_several(tmp_path: Path) -> None:
    changes = [word for change in FAST.items() for word in ("--set", f"{change[0]}={str(change[1]).lower()}")]
    done = fedsvm("run", "quickstart", *changes, "--quiet", "--out", tmp_path / "a", folder=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "a" / "report.html").is_file()
    run("quickstart", changes=FAST, out=tmp_path / "b")
    done = fedsvm("report", tmp_path / "a", tmp_path / "b", "--out", tmp_path / "both.html", folder=tmp_path)
    assert done.returncode == 0
    page = Page((tmp_path / "both.html").read_text())
    assert {"a", "b"} <= set(page.cells["th"])
    assert "Side by side" in page.cells["h2"]
    assert fedsvm("report", tmp_path / "a", folder=tmp_path).stdout.strip() == str(tmp_path / "a" / "report.html")


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
    assert "Sites and faults" in page.cells["h2"]
    assert "x" * 19 + "…" in text


def test_a_run_that_failed_has_a_report(tmp_path: Path) -> None:
    kill = [{"kind": "kill", "site": 2, "phase": "train", "round": 2}]
    run("quickstart", changes={**FAST, "faults": kill, "federation.on_dropout": "abort"}, out=tmp_path / "run")
    page, result, text = page_of(tmp_path / "run")
    assert result["status"] == "failed"
    assert page.cells["dt"] == []
    assert "site-2 dropped" in text


def test_what_a_scenario_says_cannot_break_the_page(tmp_path: Path) -> None:
    table = tmp_path / "odd.csv"
    rows = "".join(f"{i},{'<b>&' if i % 2 else 'x'}\n" for i in range(40))
    table.write_text("a,label\n" + rows)
    run("quickstart", changes={**FAST, "data.source": str(table), "data.positive": "<b>&"}, out=tmp_path / "run")
    page, _, text = page_of(tmp_path / "run")
    assert "<b>" not in text
    assert "<b>&" in page.cells["pre"][0]


def test_a_folder_without_a_run_is_said(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match="is not the folder of a run"):
        write_report(tmp_path)


@pytest.mark.parametrize("name", ["quickstart", "hybrid-stand-in"])
def test_a_result_of_the_version_before_has_a_report_and_a_summary(name: str, tmp_path: Path) -> None:
    """What result.json held before it had schema 2, as that version wrote it, but for shorter curves and links."""
    old = json.loads((ROOT / "tests" / "earlier" / f"{name}.json").read_text())
    assert old["schema"] == 1
    (tmp_path / "result.json").write_text(json.dumps(old))
    (tmp_path / "scenario.toml").write_text("")
    (tmp_path / "log.jsonl").write_text((ROOT / "tests" / "earlier" / "log.jsonl").read_text())
    page, _, _ = page_of(tmp_path)
    summary = dict(zip(page.cells["dt"], page.cells["dd"], strict=True))
    assert summary["rounds"] == f"{old['cost']['rounds']} ({old['cost']['hops']} hops)"
    assert summary["model"].startswith(f"{old['model']['algorithm']}, ")
    assert str(old["model"]["landmarks"] or old["model"]["rank"]) in summary["model"]
    assert ("privacy" in summary) == (old["privacy"] is not None)
    assert ("baselines" in summary) == (old["baselines"] is not None)
    with pytest.raises(ScenarioError, match="was written by an earlier version of fedsvm"):
        np.savez(tmp_path / "model.npz", w=np.zeros(2))
        predict.predict(tmp_path, "tic-tac-toe")
