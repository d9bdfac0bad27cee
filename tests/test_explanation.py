"""The page on what would leave a site, and a policy that is checked before a run."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fedsvm.scenarios.cli import application
from fedsvm.scenarios.hosts.terms_preview import read_asked
from fedsvm.scenarios.oversight.explanation import Explanation, explain, render_page
from fedsvm.scenarios.schema import spec
from fedsvm.scenarios.schema.errors import ScenarioError
from fedsvm.scenarios.schema.policy import template
from tests.conftest import ROOT
from tests.guides import blocks
from tests.run_results import simulate

MAX_WORDS = 800
CHANGES = (
    "data.folds=2",
    "data.test_fraction=0.0",
    "data.tested_by=sites",
    "algorithm.landmarks=20",
    "algorithm.landmark_method=global",
)


def explained(scenario: str, *changes: str) -> Explanation:
    return explain(*read_asked(scenario, changes))


@pytest.mark.parametrize("scenario", spec.catalogue())
def test_a_page_is_short_and_names_each_value_once(scenario: str) -> None:
    page = explained(scenario)
    assert len(page.to_markdown().split()) <= MAX_WORDS
    steps = [each.step for each in (*page.in_clear, *page.in_sums)]
    assert len(set(steps)) == len(steps) > 0
    assert all(each.what for each in (*page.in_clear, *page.in_sums))


def test_orders_of_a_real_run_are_those_of_the_page(tmp_path: Path) -> None:
    result = simulate("quickstart", tmp_path, CHANGES).result
    assert result.status == "completed", result.error
    log = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    rounds = [(each["verb"], each["step"]) for each in log if each["event"] == "round"]
    page = explained("quickstart", *CHANGES)
    clear, sums = ({each.step: each for each in of} for of in (page.in_clear, page.in_sums))
    verbs = {"gather": clear, "sum": sums, "sum-at": sums}
    counted = Counter(step for verb, step in rounds if verb in verbs)
    for step, (least, most) in {each.step: (each.least, each.most) for each in (*page.in_clear, *page.in_sums)}.items():
        assert least <= counted[step] <= (counted[step] if most is None else most), step
    for verb, step in rounds:
        assert step in verbs.get(verb, page.staying), (verb, step)
    assert {step for verb, step in rounds if verb == "sum-at"} == {
        each.step for each in page.in_sums if each.receiver == "one site"
    }


def test_a_page_says_what_protects_and_who_undoes_it() -> None:
    noisy = explained("hybrid-better").to_markdown()
    assert "Noise protects single rows in what is released: epsilon" in noisy
    plain = explained("quickstart", "protocol.sum=plain").to_markdown()
    assert "nothing hides a site's value" in plain and "The coordinator sees each site's input" in plain
    assert "at least 2 other sites must collude" in explained("quickstart").to_markdown()


def test_a_page_says_what_noise_of_statistics_protects() -> None:
    page = explained("quickstart", "data.statistics_privacy=0.5").to_markdown()
    assert "Noise of size 0.2 in the objective, and a little on released weights" in page
    assert "Noise of mu 0.5 protects single rows in the statistics of columns, and none in sums of training." in page
    assert "an AUC of 0.64 at most" in page
    assert "can name training rows" not in page, "the objective has noise"
    exact = explained("quickstart", "data.statistics_privacy=0.5", "algorithm.objective_noise=0").to_markdown()
    assert "can name training rows" in exact, "by its weights"
    assert "in the objective" not in exact
    kept = explained("quickstart", "data.statistics_privacy=0.5", "algorithm.release=sites").to_markdown()
    assert "can name training rows" not in kept


def test_a_page_of_a_name_from_a_stranger_is_escaped() -> None:
    page = render_page(replace(explained("quickstart"), name="<script>alert(1)</script>"))
    assert "<script>alert" not in page and "&lt;script&gt;" in page


def guide(folder: Path) -> None:
    for block in blocks(ROOT / "docs" / "three-hospitals.md"):
        if block.title is not None and block.title.endswith(".toml"):
            (folder / block.title).write_text(block.text)


@pytest.mark.parametrize(
    ("scenario", "policy", "changes"),
    [
        ("hospitals.toml", "north.toml", ["--set", "data.statistics_privacy=0.5"]),  # its default outside of tests
        ("private.toml", "east.toml", []),
    ],
)
def test_the_policies_of_the_guide_allow_its_runs(
    scenario: str, policy: str, changes: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    guide(tmp_path)
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(application("policy"), ["policy", "check", scenario, "--policy", policy, *changes])
    assert done.exit_code == 0, done.output
    assert f"{policy} allows" in done.output and "rows and columns were not checked" in done.output


def test_a_policy_given_without_its_option_is_answered_with_the_usage_that_works() -> None:
    for words in (["policy.toml", "study.toml"], ["study.toml"]):
        done = CliRunner().invoke(application("policy"), ["policy", "check", *words])
        assert "write fedsvm policy check SCENARIO --policy FILE" in str(done.exception)


def test_a_check_lists_all_that_a_policy_refuses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    guide(tmp_path)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "north.csv").write_text("size,diagnosis\n1.0,M\n2.0,B\n")
    (tmp_path / "north.toml").write_text(template("pan-svm", "north"))
    command = ["policy", "check", "hospitals.toml", "--policy", "north.toml", "--data", "north.csv", "--json"]
    done = CliRunner().invoke(
        application("policy"), [*command, "--set", "protocol.sum=ring", "--set", "algorithm.step_noise=0"]
    )
    assert done.exit_code == 3
    said = json.loads(done.output)
    assert not said["allowed"] and said["rows_checked"]
    assert said["refused"] == [
        "step_noise must be 0.2 or more, got 0.0",
        "objective_noise must be 0.2 or more, got 0.0",
        "tolerance must be 0.2 or more, got 0.0001",
        "the sum must be masked or k-secure, got ring (protocol.sum)",
        "it must have 20 rows or more, and has 2",
    ]


@pytest.mark.parametrize(("text", "says"), [(None, "there is no file"), ('size,diagnosis\n1,"M\n', "")])
def test_a_check_blames_no_policy_for_a_file_that_cannot_be_read(
    text: str | None, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    guide(tmp_path)
    monkeypatch.chdir(tmp_path)
    if text is not None:
        (tmp_path / "north.csv").write_text(text)
    (tmp_path / "north.toml").write_text("min_rows = 20\n")
    words = ["policy", "check", "hospitals.toml", "--policy", "north.toml", "--data", "north.csv"]
    done = CliRunner().invoke(application("policy"), words)
    assert isinstance(done.exception, ScenarioError) and "refuses" not in done.output
    assert str(done.exception).startswith(f"--data: {says}") and "north.csv" in str(done.exception)


def test_a_check_reads_the_file_with_its_corrections(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    guide(tmp_path)
    monkeypatch.chdir(tmp_path)
    rows = "".join(f"{number}.0,{'MB'[number % 2]}\n" for number in range(30))
    (tmp_path / "north.csv").write_text(f"size,result\n{rows}")
    (tmp_path / "north.toml").write_text("min_rows = 20\n")
    (tmp_path / "own.toml").write_text('rename = { result = "diagnosis" }\n')
    check = ["policy", "check", "hospitals.toml", "--policy", "north.toml"]
    read = [*check, "--data", "north.csv"]
    without = CliRunner().invoke(application("policy"), read)
    assert without.exit_code != 0 and "diagnosis" in str(without.exception)
    done = CliRunner().invoke(application("policy"), [*read, "--corrections", "own.toml"])
    assert done.exit_code == 0, done.output
    alone = CliRunner().invoke(application("policy"), [*check, "--corrections", "own.toml"])
    assert "--corrections: needs --data" in str(alone.exception)


def test_a_check_looks_into_the_ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    guide(tmp_path)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "east.ledger").write_text('{"epsilon": 1.8}\n')
    done = CliRunner().invoke(application("policy"), ["policy", "check", "private.toml", "--policy", "east.toml"])
    assert done.exit_code == 3
    assert "1.8 is spent, and this one asks for 0.5" in done.output
    assert (tmp_path / "east.ledger").read_text() == '{"epsilon": 1.8}\n'
