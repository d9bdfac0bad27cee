"""Roles on a hub in its own process: each thing that a role forbids is tried by page."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest

from fedsvm.scenarios.hub.roles import Roles
from fedsvm.scenarios.schema.errors import ScenarioError
from tests import hub as hubs
from tests.commands import fedsvm
from tests.hub import CREATOR, Person, RunningHub, create, task_form

pytestmark = [pytest.mark.timeout(300)]
ADMIN, NORTH, SOUTH, STRANGER = "root@hub.example", "north@example.org", "south@example.org", "eve@evil.example"
SECRET = b"the bytes of a model"


@dataclass
class Office:
    """A hub with roles, everybody's browser, and two completed tasks: with results for participants and without."""

    running: RunningHub
    people: dict[str, Person]
    shown: str
    hidden: str


@pytest.fixture(scope="module")
def office(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Office]:
    folder = tmp_path_factory.mktemp("roles")
    with hubs.hub(folder, "--admin", ADMIN, "--maker", "@clinic.example") as running:
        people = {each: running.signed_in(each) for each in (CREATOR, ADMIN, NORTH, SOUTH, STRANGER)}
        shown = create(running, people[CREATOR])
        hidden = create(running, people[CREATOR], results_to="creator")
        with closing(sqlite3.connect(running.folder / "hub.sqlite", timeout=60)) as database:
            database.execute("UPDATE participants SET state = 'declined' WHERE site = 'south'")
            database.execute("UPDATE participants SET state = 'joined' WHERE site != 'south'")
            database.execute("UPDATE tasks SET state = 'completed', ended_at = made_at")
            database.commit()
        for number in (shown, hidden):
            kept = running.folder / "tasks" / number
            kept.mkdir(parents=True)
            (kept / "report.html").write_text("the report")
            (kept / "model.npz").write_bytes(SECRET)
        yield Office(running, people, shown, hidden)


@pytest.mark.long
@pytest.mark.parametrize("what", ["report", "model"])
def test_results_are_for_those_whom_the_creator_chose(what: str, office: Office) -> None:
    for number, readers in ((office.shown, (CREATOR, ADMIN, NORTH)), (office.hidden, (CREATOR, ADMIN))):
        for email, person in office.people.items():
            status, text = person.get(f"/tasks/{number}/{what}")
            assert (status == 200) == (email in readers), (email, number)
            assert ("the report" in text or SECRET.decode() in text) == (email in readers)
            linked = f"/tasks/{number}/{what}" in person.get(f"/tasks/{number}")[1]
            assert linked == (email in readers), email
    assert Person(office.running.url).get(f"/tasks/{office.shown}/{what}")[0] == 400


@pytest.mark.long
def test_tasks_are_seen_by_those_in_them_and_by_administrators(office: Office) -> None:
    for email, person in office.people.items():
        for number in (office.shown, office.hidden):
            for path in (f"/tasks/{number}", f"/tasks/{number}/progress"):
                assert (person.get(path)[0] == 200) == (email != STRANGER), email
            assert (number in person.get("/")[1]) == (email != STRANGER)


@pytest.mark.long
def test_only_makers_create_tasks_and_only_their_creators_or_administrators_cancel_them(office: Office) -> None:
    for email, person in office.people.items():
        is_maker = email in (CREATOR, ADMIN)
        assert (person.get("/tasks/new")[0] == 200) == is_maker, email
        assert ("Create a task" in person.get("/")[1]) == is_maker
        status, page = person.post("/tasks", task_form(person, title=f"by {email}"))
        assert (status == 200) == is_maker, page
        if not is_maker:
            assert f"{email} cannot create tasks on this hub; ask its operator." in page
    number = create(office.running, office.people[CREATOR], title="to cancel")
    for email in (NORTH, SOUTH, STRANGER):
        person = office.people[email]
        for path, form in (("cancel", {}), ("invite", {"site": "south", "email": STRANGER})):
            status, page = person.post(f"/tasks/{number}/{path}", {"form_key": person.form_key(), **form})
            assert (status, "Only the creator" in page or "cannot create" in page) == (400, True), (email, path)
        assert "Cancel this task" not in person.get(f"/tasks/{number}")[1]
    root = office.people[ADMIN]
    status, page = root.post(
        f"/tasks/{number}/invite", {"form_key": root.form_key(), "site": "south", "email": STRANGER}
    )
    assert (status, "Only the creator" in page) == (400, True)
    assert root.post(f"/tasks/{number}/cancel", {"form_key": root.form_key()})[0] == 200
    assert re.search(rf"Canceled by {ADMIN}", root.get(f"/tasks/{number}")[1])


def test_everybody_creates_tasks_without_makers_and_domains_are_whole() -> None:
    assert Roles.read([], []).can_create(STRANGER)
    some = Roles.read([" Root@hub.example"], ["@clinic.example", "bert@lab.example"])
    assert all(map(some.can_create, (ADMIN, CREATOR, "bert@lab.example")))
    assert not any(map(some.can_create, (STRANGER, "anna@lab.example", "x@evil-clinic.example", "x@a.clinic.example")))
    with pytest.raises(ScenarioError, match=r"--admin, --maker: .*must be one such as.*domain such as @example.org"):
        Roles.read([], ["@"])


def test_the_example_task_needs_a_maker(tmp_path: Path) -> None:
    ended = fedsvm("hub", "--folder", "h", "--demo", "--maker", "@clinic.example", folder=tmp_path)
    assert (ended.returncode, "add it with --maker" in ended.stderr) == (2, True), ended.stderr
