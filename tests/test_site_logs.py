"""The log records of sites reach the coordinator: at once, in bounds, without rows, also when the site dies."""

from __future__ import annotations

import json
import logging
import math
import os
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from fedsvm.federation.federation import Federation
from fedsvm.federation.record import MAX_LOGGED, LoggedMessage
from fedsvm.federation.site.logs import MAX_RECORDS, RECORDS_PER_ROUND, LogForwarder
from fedsvm.federation.site_messages import LogRecord
from fedsvm.scenarios.report.page import write_report
from tests.commands import FEDSVM
from tests.conftest import drill


def texts(federation: Federation) -> list[str]:
    return [each.text for each in federation.record.logged]


def test_a_record_comes_with_site_round_level_and_logger(caplog: pytest.LogCaptureFixture) -> None:
    with drill(3) as federation:
        federation.run("log", site="site-2", text="a column is constant")
        expected = LoggedMessage("site-2", 1, "warning", "drill", "a column is constant, 0, <ndarray>")
        assert federation.record.logged == [expected]
        event = next(event for event in federation.record.log if event["event"] == "site_log")
        assert {**event, "at_s": 0} == {"event": "site_log", "at_s": 0, **vars(expected)}
        disclosed = next(each for each in federation.disclosures if each.step == "log")
        assert (disclosed.to, disclosed.detail, disclosed.times) == (
            "coordinator",
            "what the code of site-2 logs, as text",
            1,
        )
    assert ("fedsvm.sites", logging.WARNING, f"site-2: {expected.text}") in caplog.record_tuples


@pytest.mark.parametrize("then", ["killed", "exits"])
@pytest.mark.parametrize("encrypted", [True, False])
def test_what_a_site_logs_before_it_dies_is_heard(then: str, encrypted: bool) -> None:
    with drill(4, encrypted=encrypted) as federation:
        federation.run("log", site="site-3", text="no memory is left", times=RECORDS_PER_ROUND, then=then)
        assert federation.sites == ("site-1", "site-2", "site-4")
        assert texts(federation) == [f"no memory is left, {n}, <ndarray>" for n in range(RECORDS_PER_ROUND)]


def test_text_and_numbers_travel_and_rows_do_not() -> None:
    with drill(3) as federation:
        federation.run("log_in_all_ways")
        said = [(each.level, each.logger, each.text) for each in federation.record.logged if each.site == "site-1"]
    assert said[:4] == [
        ("error", "drill", "<ndarray>"),
        ("error", "drill", "<ndarray> and 7"),
        ("warning", "drill", "%d columns (its arguments do not fit)"),
        ("error", "drill", f"{'x' * 499}…"),
    ]
    assert said[4][:2] == ("warning", "py.warnings")
    assert "RuntimeWarning: a library warns of 4 rows" in said[4][2]
    assert said[5:] == [
        ("error", "drill", "a value cannot be read: <ValueError> (ValueError)"),
        ("error", "drill", "no file \\udcff\\x1b[2J"),
        ("warning", "drill", "by a thread of its own"),
    ]


@pytest.mark.parametrize(
    ("message", "arguments", "text"),
    [
        ("row %s", ({"age": 67.0, "bmi": 23.2},), "row <dict>"),
        ("counts %s of %s", ({67.0: 2}, Counter([67.0])), "counts <dict> of <Counter>"),
        ("counts %s", (Counter([67.0]),), "counts <Counter>"),
        ("%(age)d and %(rows)s", ({"age": 67.0, "rows": [1.5]},), "67 and <list>"),
        ("worst %d", (math.inf,), "worst %d (its arguments do not fit)"),
        ("file %s", ("\udcff\x1b[2J\n\u202e",), "file \\udcff\\x1b[2J \\u202e"),
        (["67.0"], (), "<list>"),
    ],
)
def test_a_record_is_one_printable_line_without_tables(
    message: object, arguments: tuple[object, ...], text: str
) -> None:
    """Python's logging hands over a table that is the only argument as the arguments' names."""
    sent: list[LogRecord] = []
    LogForwarder("warning", sent.append).handle(
        logging.LogRecord("drill\x1b", logging.ERROR, __file__, 1, message, arguments, None)
    )
    assert sent == [LogRecord("error", "drill\\x1b", text)]


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_process_that_a_site_forks_leaves_its_sockets_alone(capfd: pytest.CaptureFixture[str]) -> None:
    sent: list[LogRecord] = []
    forwarder = LogForwarder("warning", sent.append)
    if (child := os.fork()) == 0:
        forwarder.handle(logging.LogRecord("drill", logging.ERROR, __file__, 1, "by a child", None, None))
        os._exit(len(sent))
    assert os.waitpid(child, 0)[1] == 0
    assert "by a child" in capfd.readouterr().err


def test_of_more_records_than_a_round_may_have_the_number_is_told() -> None:
    with drill(3) as federation:
        for _ in range(2):
            federation.run("log", site="site-1", text="again", times=3 * RECORDS_PER_ROUND)
    told = (
        f"{2 * RECORDS_PER_ROUND} more records of this site were not forwarded (maximum {RECORDS_PER_ROUND} a round)."
    )
    assert [each.text for each in federation.record.logged if each.logger != "drill"] == [told, told]
    assert len(federation.record.logged) == 2 * RECORDS_PER_ROUND + 2


def test_a_process_forwards_no_more_than_its_share() -> None:
    sent: list[object] = []
    forwarder = LogForwarder("warning", sent.append)
    record = logging.LogRecord("drill", logging.ERROR, __file__, 1, "again", None, None)
    for _ in range(MAX_RECORDS):
        for _ in range(RECORDS_PER_ROUND + 1):
            forwarder.handle(record)
        forwarder.end_round()
    assert len(sent) == MAX_RECORDS < MAX_LOGGED


def test_a_site_that_forwards_nothing_writes_to_its_standard_error(capfd: pytest.CaptureFixture[str]) -> None:
    with drill(3, log_level="none", another_follows=False) as federation:
        federation.run("log", site="site-2", text="a column is constant")
    assert federation.record.logged == []
    assert "a column is constant" in capfd.readouterr().err


ALGORITHM = '''
import logging
import os
import signal
import numpy as np
from fedsvm.algorithms.naive_bayes import NaiveBayes, NaiveBayesSite
from fedsvm.federation.site.program import step

class Site(NaiveBayesSite):
    @step
    def class_counts(self):
        if self.site in ("site-1", "site-2"):
            logging.getLogger("thermometer").warning("%s is off by %d degrees\\x1b[2J", self.site, 3)
        if self.site == "site-2":
            os.kill(os.getpid(), signal.SIGKILL)
        return super().class_counts()

class Talkative(NaiveBayes):
    """Naive Bayes whose sites log."""
    name = "talkative"
    Site = Site
'''


@pytest.fixture
def talkative(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a package that offers an algorithm whose sites log, found by every process started from here."""
    (tmp_path / "talkative.py").write_text(ALGORITHM)
    (tmp_path / "talkative-1.0.dist-info").mkdir()
    (tmp_path / "talkative-1.0.dist-info" / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: talkative\nVersion: 1\n"
    )
    (tmp_path / "talkative-1.0.dist-info" / "entry_points.txt").write_text(
        "[fedsvm.algorithms]\ntalkative = talkative:Talkative\n"
    )
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{os.environ['PYTHONPATH']}")
    return tmp_path


def test_a_run_shows_keeps_and_counts_what_sites_log(talkative: Path) -> None:
    words = ["run", "naive-bayes", "--set", "algorithm.name=talkative", "--out", "run"]
    done = subprocess.run([FEDSVM, *words], cwd=talkative, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    said = "is off by 3 degrees\\x1b[2J"
    assert f"naive-bayes: site-1: warning in train round 1, thermometer: site-1 {said}" in done.stderr
    assert f"naive-bayes: site-2: warning in train round 1, thermometer: site-2 {said}" in done.stderr
    assert "\x1b[2J" not in done.stderr
    assert "logged       site-1 2 warnings; site-2 1 warning; see log.jsonl" in done.stdout
    result = json.loads((talkative / "run" / "result.json").read_text())
    assert [site["logged"] for site in result["sites"][:3]] == [{"warning": 2}, {"warning": 1}, {}]
    events = [json.loads(line) for line in (talkative / "run" / "log.jsonl").read_text().splitlines()]
    assert [event["site"] for event in events if event["event"] == "site_log"].count("site-2") == 1
    page = write_report(talkative / "run").read_text()
    assert "Site logs" in page
    assert "site-2 is off by 3 degrees" in page
