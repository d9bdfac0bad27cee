"""Tasks of a hub beside one that is broken, texts that are too long for its database, and tasks that start again."""

from __future__ import annotations

import time
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import msgpack
import pytest
import sqlalchemy as sql

from fedsvm.federation.transport.keys import KEY_BYTES
from fedsvm.scenarios.hub import participant_api, presentation, task_form
from fedsvm.scenarios.hub.accounts import RequestRefused
from fedsvm.scenarios.hub.database import MAX_SUBJECT, Letter, Mail, Task, digest
from fedsvm.scenarios.hub.mails import Files
from fedsvm.scenarios.hub.new_task import Invited, NewTask
from fedsvm.scenarios.hub.offered import offered_terms
from fedsvm.scenarios.hub.service import Hub, Settings
from tests.conftest import wait_until
from tests.hub import SITES

ANNA = "anna@clinic.example"
REFUSED = "This version of the hub refuses the scenario of the task; create a new one. "
LONG_ADDRESS = "a@" + ".".join(["x" * 60] * 3) + ".org"
A_DAY_S = 24 * 3600


@pytest.fixture
def hub(tmp_path: Path, database: str) -> Iterator[Hub]:
    made = Hub(Settings(tmp_path, "http://hub.example", database), Files(tmp_path / "mails"))
    yield made
    made.close()


def create(hub: Hub, **addresses: str) -> str:
    """Create a task with three participants, three days to join and six in all; return its number."""
    wish = task_form.TaskForm("dpp-svm", {"kernel": "linear"}, "label", "m", "b", label_site=SITES[0])
    invited = [Invited(site, addresses.get(site, f"{site}@example.org")) for site in SITES]
    return hub.tasks.create(ANNA, NewTask("Cells", "", wish, invited, 3, 3, 7, end_days=6))


def change(hub: Hub, number: str, **values: Any) -> None:
    """Change the row of a task."""
    with hub.database.session() as session:
        for name, value in values.items():
            setattr(session.get_one(Task, number), name, value)


def join_all(hub: Hub, number: str) -> None:
    """Let all participants of a task join."""
    with hub.database.session() as session:
        for place, who in enumerate(session.get_one(Task, number).participants):
            who.state, who.public_key, who.agreement_key = "joined", bytes([place + 1]) * 32, bytes([place + 101]) * 32
            who.columns = [[f"c{place}", False]]


def state(hub: Hub, number: str) -> str:
    """Return the state of a task."""
    return hub.tasks.task(number, ANNA).state


def test_a_broken_task_is_logged_and_stops_no_other(
    hub: Hub, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    broken, healthy = create(hub), create(hub)
    for number in (broken, healthy):
        change(hub, number, join_until=time.time() - 1)
    real = hub.tasks.look_after

    def look_after(number: str) -> None:
        if number == broken:
            raise RuntimeError("a fault of one task")
        real(number)

    monkeypatch.setattr(hub.tasks, "look_after", look_after)
    hub.tasks.look_after_all()
    assert (state(hub, broken), state(hub, healthy)) == ("inviting", "failed")
    assert f"task {broken} could not be looked after" in caplog.text


def test_a_task_whose_stored_scenario_is_refused_fails_with_the_reason(hub: Hub) -> None:
    number = create(hub)
    change(hub, number, scenario="unknown_key = 2\n")
    hub.tasks.look_after(number)
    found = hub.tasks.task(number, ANNA)
    assert found.state == "failed"
    assert found.reason.startswith(REFUSED)
    assert "unknown_key" in found.reason


def test_a_running_task_whose_stored_scenario_is_refused_ends_with_the_reason(
    hub: Hub, caplog: pytest.LogCaptureFixture
) -> None:
    number = create(hub)
    join_all(hub, number)
    change(hub, number, state="running", begun_at=time.time(), scenario="unknown_key = 2\n")
    hub.tasks.look_after(number)
    wait_until(lambda: state(hub, number) == "failed")
    found = hub.tasks.task(number, ANNA)
    assert found.reason.startswith(REFUSED)
    assert "unknown_key" in found.reason
    assert "broke off" not in caplog.text
    assert presentation.disclosures_of(found) is None
    assert not presentation.is_split(found)


def test_predictions_by_a_model_whose_stored_scenario_is_refused_are_refused_with_the_reason(hub: Hub) -> None:
    number = create(hub)
    with hub.database.reading() as session:
        terms = offered_terms(session.get_one(Task, number))
    change(hub, number, state="completed", scenario="unknown_key = 2\n")
    with pytest.raises(RequestRefused, match=f"^{REFUSED}.*unknown_key"):
        hub.tasks.predict(number, ANNA, terms)


def test_who_joins_a_task_whose_stored_scenario_is_refused_gets_the_reason_and_no_place(hub: Hub) -> None:
    number, key = create(hub), bytes(KEY_BYTES)
    change(hub, number, scenario="unknown_key = 2\n")
    with hub.database.session() as session:
        session.get_one(Task, number).participants[0].token = digest("token")
    answer = hub.desk._answer(key, msgpack.packb({"verb": "join", "token": "token", "version": version("fedsvm")}))
    assert answer["refused"].startswith(REFUSED)
    assert "unknown_key" in answer["refused"]
    assert not hub.desk.knows(key)


def test_mails_fit_their_columns_whatever_is_long(hub: Hub) -> None:
    number = create(hub, north=LONG_ADDRESS)
    hub.tasks.cancel(number, ANNA)
    with hub.database.session() as session:
        hub.outbox.put(session, "long", ANNA, "\x01" * 200, "text")
    with hub.database.reading() as session:
        mails = list(session.scalars(sql.select(Mail)))
    assert [mail.recipient for mail in mails if "was canceled" in mail.subject].count(LONG_ADDRESS) == 1
    for mail in mails:
        assert len(mail.subject) <= MAX_SUBJECT
        assert len(mail.occasion) <= 200


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (["ä" * 201], "at most 200 characters and no NUL, got 'ä"),
        (["radius", "a\0b"], r"no NUL, got 'a\\x00b' of 3 characters"),
        (["x" * 200] * 20_001, "at most 4000000 bytes, got 4000200"),
    ],
)
def test_names_of_columns_that_are_too_long_or_have_a_nul_are_refused(names: list[str], said: str, hub: Hub) -> None:
    word = {"columns": [[name, False] for name in names], "agreement_key": bytes(KEY_BYTES)}
    with pytest.raises(RequestRefused, match=said):
        hub.desk._ready(bytes(KEY_BYTES), word)
    longest = [["ä" * 200, False]]
    assert [each.name for each in participant_api._columns(longest)] == ["ä" * 200]


def test_a_coordinator_that_broke_off_is_run_again(hub: Hub, caplog: pytest.LogCaptureFixture) -> None:
    number = create(hub)
    join_all(hub, number)
    in_the_way = hub.conductor.folder_of(number)
    in_the_way.parent.mkdir(exist_ok=True)
    in_the_way.write_text("a file, so that the folder of the run cannot be made")
    hub.tasks.look_after(number)
    wait_until(lambda: hub.conductor.never_ran(number))
    assert f"the coordinator of task {number} broke off" in caplog.text
    in_the_way.unlink()
    hub.tasks.look_after_all()
    hub.conductor.settle(number, 30)
    assert not hub.conductor.never_ran(number)
    with hub.database.reading() as session:
        assert session.scalar(sql.select(sql.func.count(Letter.id))) == len(SITES)


def test_who_is_invited_anew_has_time_to_answer_before_the_end_date(hub: Hub) -> None:
    number = create(hub)
    change(hub, number, join_until=time.time() + 30, end_by=time.time() + 60)
    hub.tasks.invite_anew(number, ANNA, Invited("north", "new@example.org"))
    found = hub.tasks.task(number, ANNA)
    assert found.end_by is not None
    assert found.end_by >= found.join_until > time.time() + 2.9 * A_DAY_S


def test_a_task_that_starts_again_has_all_its_days_and_does_so_once(hub: Hub) -> None:
    number = create(hub)
    now = time.time()
    change(hub, number, state="failed", made_at=now - 7 * A_DAY_S, join_until=now - 4 * A_DAY_S, end_by=now - A_DAY_S)
    again = hub.tasks.invite_anew(number, ANNA, Invited("north", "new@example.org"))
    hub.tasks.look_after_all()
    found = hub.tasks.task(again, ANNA)
    assert found.state == "inviting"
    assert found.end_by is not None
    assert found.end_by == pytest.approx(found.made_at + 6 * A_DAY_S)
    with pytest.raises(RequestRefused, match="The task is cancelled; create a new one"):
        hub.tasks.invite_anew(number, ANNA, Invited("north", "other@example.org"))
