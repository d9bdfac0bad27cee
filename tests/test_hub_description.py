"""A task that describes columns: a hub in its own process, and three participants with policies and budgets."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests import hub as hubs
from tests.conftest import wait_until
from tests.hub import CREATOR, SITES, Person, RunningHub, create, join, link_of

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]
ROWS, MU = 60, 20.0
VISITS = 6
"""Of each participant, at most: see docs/task-service.md."""
FORM = {
    "algorithm": "describe",
    "title": "Which columns?",
    "label": "ill",
    "positive": "yes",
    "negative": "no",
    "statistics_privacy": f"{MU:g}",
    "ranges": "age 0 120\nlast dose 0 10",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a file and a policy of each participant; one has 999 among ages, and a spelling of its own."""
    folder, source = tmp_path_factory.mktemp("columns"), Random(1)
    for site in SITES:
        lines = ["age,sex,last dose,ill"]
        for row in range(ROWS):
            age = "999" if site == "south" and row % 6 == 0 else str(source.randrange(30, 90))
            sex = ("Male" if site == "south" else "M", "F")[row % 3 == 0]
            lines.append(f"{age},{sex},{source.randrange(1, 9)},{'yes' if source.random() < 0.4 else 'no'}")
        (folder / f"{site}.csv").write_text("\n".join([*lines, ""]))
        most = MU if site != "north" else 2 * MU
        (folder / f"{site}.toml").write_text(
            f'answers = "{folder / site}.answers"\nmax_mu = {most:g}\n[algorithms.describe]\n'
        )
    return folder


@pytest.fixture(scope="module")
def running(folder: Path) -> Iterator[RunningHub]:
    with hubs.hub(folder) as there:
        yield there


@pytest.fixture(scope="module")
def anna(running: RunningHub) -> Person:
    return running.signed_in(CREATOR)


@pytest.fixture(scope="module")
def number(folder: Path, running: RunningHub, anna: Person) -> str:
    """The number of a task that all finished."""
    number = create(running, anna, **FORM)
    _take_turns(folder, running, FORM["title"])
    wait_until(lambda: ">completed<" in anna.get(f"/tasks/{number}")[1])
    return number


def _take_turns(folder: Path, running: RunningHub, title: str) -> None:
    """Let the participants visit in turn, until the task is over. Raises AssertionError if one refuses."""
    for site in SITES:
        running.mailed(f"{site}@example.org", f"Invitation: {re.escape(title)}")
    links, said = {site: link_of(running, site) for site in SITES}, ""
    for _ in range(VISITS):
        for site in SITES:
            kept = ("--folder", f"{title}-{site}", "--policy", f"{site}.toml")
            visit = join(folder, links[site], f"{site}.csv", *kept)
            assert visit.returncode == 0, visit.stderr
            said = visit.stderr
        if "is over" in said:
            return
    raise AssertionError(said)


def _described(anna: Person, number: str) -> dict[str, Any]:
    status, text = anna.get(f"/tasks/{number}/description.json")
    assert status == 200, text
    found: dict[str, Any] = json.loads(text)
    return found


def test_participants_who_never_meet_describe_their_columns_with_noise(anna: Person, number: str) -> None:
    found = _described(anna, number)
    assert found["mu"] == MU
    assert found["sites"] == list(SITES)
    assert found["rows"] == pytest.approx(3 * ROWS, abs=10 * found["noise"]["classes"])
    assert [each["name"] for each in found["numeric"]] == ["age", "last dose"]
    said = "\n".join(found["notes"])
    assert "Column 'sex': only one of 3 sites uses 'Male'" in said
    assert "lie outside 0 to 120" in said


def test_the_page_of_the_task_leads_to_the_description(anna: Person, number: str) -> None:
    page = anna.get(f"/tasks/{number}")[1]
    assert f'href="/tasks/{number}/report"' in page
    assert "Results on test records" not in page
    disclosed = page.partition("What this task discloses")[2].partition("<details>")[0]
    assert "Counts, moments and histograms of columns." in disclosed
    assert "mu 20 for one row" in " ".join(disclosed.split())
    assert "model" not in disclosed
    status, table = anna.get(f"/tasks/{number}/report")
    assert status == 200
    assert re.search(r"<t[hd][^>]*>\s*last dose\s*<", table)


def test_each_participant_charges_the_description_to_its_budget(folder: Path, number: str) -> None:
    for site in SITES:
        lines = (folder / f"{site}.answers").read_text().splitlines()
        spent = sum(json.loads(line)["mu"] ** 2 for line in lines[1:])
        assert spent**0.5 == pytest.approx(MU)


def test_the_same_question_has_the_same_answer_and_another_needs_a_budget(
    folder: Path, running: RunningHub, anna: Person, number: str
) -> None:
    again = create(running, anna, **{**FORM, "title": "Once more"})
    _take_turns(folder, running, "Once more")
    wait_until(lambda: ">completed<" in anna.get(f"/tasks/{again}")[1])
    assert _described(anna, again) == _described(anna, number)
    assert [len((folder / f"{site}.answers").read_text().splitlines()) for site in SITES] == [2, 2, 2]
    create(running, anna, **{**FORM, "title": "Other ranges", "ranges": "age 0 121\nlast dose 0 10"})
    with pytest.raises(AssertionError, match="may spend mu 20"):
        _take_turns(folder, running, "Other ranges")
