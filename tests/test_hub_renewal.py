"""Participants of a hub in its own process who are lost, invited anew and replaced, and a task that ends by its date.

Mails come by a real mail server.
"""

from __future__ import annotations

import re
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from fedsvm.federation.errors import FederationError
from fedsvm.federation.site.rules import ANYTHING
from fedsvm.scenarios.hub.participation import InvitationLink, TaskParticipation
from tests import hub as hubs
from tests.conftest import wait_until
from tests.hub import CREATOR, SITES, Person, RunningHub, cells, task_form
from tests.mail_server import Inbox, mail_server

pytestmark = [pytest.mark.long, pytest.mark.timeout(400)]
VISITS = 14
LINK = r"http://\S+/join/\S+#\S+"
A_DAY_S = 24 * 3600


@dataclass
class Office:
    """A hub, its mails, and the files of three laboratories."""

    running: RunningHub
    inbox: Inbox
    anna: Person
    files: dict[str, Path]
    links: dict[str, str] = field(default_factory=dict)
    seen: set[str] = field(default_factory=set)

    def create(self, **given: str) -> str:
        """Make a task; return its number."""
        status, page = self.anna.post("/tasks", task_form(self.anna, **given))
        found = re.search(r'action="/tasks/(\w+)/cancel"', page)
        assert (status, found is not None) == (200, True), page
        assert found
        for site in SITES:
            self.invited(site, f"{site}@example.org")
        return found[1]

    def invited(self, site: str, address: str) -> str:
        """Wait for an invitation that was not there before; return its link."""
        wait_until(lambda: self.inbox.found(address, LINK) not in self.seen)
        self.links[site] = self.inbox.found(address, LINK)
        self.seen.add(self.links[site])
        return self.links[site]

    def invite_anew(self, number: str, site: str, address: str) -> tuple[int, str]:
        """Fill in the form of a task's page."""
        return self.anna.post(
            f"/tasks/{number}/invite", {"form_key": self.anna.form_key(), "site": site, "email": address}
        )

    def visit(self, site: str, link: str = "", say: list[str] | None = None) -> bool:
        """Visit as a participant does; return whether the task is over."""
        read = InvitationLink.read(link or self.links[site])
        folder = self.running.folder.parent / f"{site}-{read.folder}"
        said = [] if say is None else say
        return TaskParticipation(read, str(self.files[site]), ANYTHING, folder, said.append).visit()

    def page(self, number: str) -> str:
        """Return the page of a task."""
        return self.anna.get(f"/tasks/{number}")[1]


@pytest.fixture(scope="module")
def office(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Office]:
    folder = tmp_path_factory.mktemp("renewal")
    with mail_server() as (inbox, port), hubs.hub(folder, "--smtp", f"127.0.0.1:{port}") as running:
        anna = Person(running.url)
        assert anna.post("/sign-in", {"email": CREATOR})[0] == 200
        assert anna.post(inbox.found(CREATOR, r"/sign-in/[\w-]+"), {})[0] == 200
        yield Office(running, inbox, anna, cells(folder)[0])


def test_a_lost_participant_is_invited_anew_and_another_is_replaced_until_sums_begin(office: Office) -> None:
    first = office.create()
    assert not office.visit("clinic")
    old = dict(office.links)
    assert office.invite_anew(first, "clinic", "clinic@example.org")[0] == 200
    office.invited("clinic", "clinic@example.org")
    assert office.invite_anew(first, "south", "new@south.example")[0] == 200
    office.invited("south", "new@south.example")
    assert office.inbox.found("south@example.org", "no longer works")
    for site in ("clinic", "south"):
        with pytest.raises(FederationError, match="a newer one replaces it"):
            office.visit(site, old[site])
    for site in SITES:
        assert not office.visit(site)
    assert "running" in office.page(first)

    assert not office.visit("clinic"), "it introduces itself, and no round has an answer"
    status, page = office.invite_anew(first, "north", "other@north.example")
    second = re.search(r'action="/tasks/(\w+)/cancel"', page)
    assert (status, second is not None) == (200, True), page
    assert second
    assert second[1] != first
    begun = dict(office.links)
    for site, address in zip(SITES, ("clinic@example.org", "other@north.example", "new@south.example"), strict=True):
        office.invited(site, address)
    assert "It starts again, because of north, under fresh keys" in office.page(first)
    for site in ("clinic", "south"):
        with pytest.raises(FederationError, match=r"no longer take part in this task \(cancelled\)\. It starts again"):
            office.visit(site, begun[site])
    over: set[str] = set()
    for _ in range(VISITS):
        over |= {site for site in SITES if site not in over and office.visit(site)}
        if "round 1" in office.page(second[1]):
            status, page = office.invite_anew(second[1], "south", "third@south.example")
            ended = "The task is completed" in page  # since the page was read
            assert (status, "have answered rounds" in page or ended) == (400, True), page
    assert over == set(SITES)
    wait_until(lambda: "completed" in office.page(second[1]))
    assert "Invite anew" not in office.page(second[1])
    status, page = office.invite_anew(second[1], "south", "third@south.example")
    assert (status, "The task is completed; create a new one" in page) == (400, True)


def test_a_task_ends_on_its_end_date_after_a_reminder_without_data(office: Office) -> None:
    number = office.create(join_days="4", end_days="8")
    page = office.page(number)
    assert "The task ends on" in page
    assert not office.visit("north")

    def put_back(**seconds: float) -> None:
        """Have times of the task lie in the past, as if they had passed."""
        with closing(sqlite3.connect(office.running.folder / "hub.sqlite", timeout=60)) as database:
            for name, before in seconds.items():
                database.execute(f"UPDATE tasks SET {name} = ? WHERE id = ?", (time.time() - before, number))  # noqa: S608
            database.commit()

    put_back(made_at=3.5 * A_DAY_S, join_until=-0.5 * A_DAY_S)
    reminder = office.inbox.found("south@example.org", r"(?s)Please answer by .*decline\.")
    assert "http" not in reminder
    put_back(end_by=1)
    wait_until(lambda: "expired" in office.page(number), 60)
    assert "It was not completed by" in office.page(number)
    with pytest.raises(
        FederationError, match=r"no longer take part in this task \(expired\)\. It was not completed by"
    ):
        office.visit("north")
    for address in (CREATOR, "north@example.org", "south@example.org"):
        assert office.inbox.found(address, "reached its end date")
    assert not [
        mail for mail in office.inbox.mails if mail["To"] == "north@example.org" and "Reminder" in mail["Subject"]
    ]
