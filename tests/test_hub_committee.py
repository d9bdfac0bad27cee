"""Tasks of a hub that name the members of their committee: what the form refuses, who must join, and whole tasks."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from fedsvm.scenarios.hub.accounts import RequestRefused
from fedsvm.scenarios.hub.database import Task
from fedsvm.scenarios.hub.mails import Files
from fedsvm.scenarios.hub.new_task import Invited, NewTask
from fedsvm.scenarios.hub.offered import offered_terms
from fedsvm.scenarios.hub.service import Hub, Settings
from fedsvm.scenarios.hub.task_form import TaskForm
from tests import hub as hubs
from tests.conftest import wait_until
from tests.hub import CREATOR, create, hospitals, join, link_of, watching

pytestmark = [pytest.mark.timeout(600)]
PLACES = ("clinic", "east", "north", "south")
MEMBERS = "north, clinic, south"
"""The first two hold shares, and the south deals."""


@pytest.fixture
def hub(tmp_path: Path, database: str) -> Iterator[Hub]:
    made = Hub(Settings(tmp_path, "http://hub.example", database), Files(tmp_path / "mails"))
    yield made
    made.close()


def made(hub: Hub, committee: str, algorithm: str = "pan-svm", masking: str = "committee") -> Task:
    """Create a task of four participants of whom three suffice."""
    settings = {} if algorithm == "naive-bayes" else {"masking": masking, "kernel": "rbf"}
    wish = TaskForm(algorithm, settings, "diagnosis", "M", "B", committee=committee)
    invited = [Invited(site, f"{site}@example.org") for site in PLACES]
    number = hub.tasks.create(CREATOR, NewTask("Cells", "", wish, invited, 3, 3, 7))
    return hub.tasks.task(number, CREATOR)


@pytest.mark.parametrize(
    ("form", "says"),
    [
        (("north, clinic, west",), "protocol.committee: there is no site 'west'; there are clinic, east, north, south"),
        (("north clinic",), "protocol.committee: must be 3 sites, two that hold shares and then the dealer, got 2"),
        (("north, clinic, north",), "protocol.committee: north is listed twice; name three different sites"),
        ((MEMBERS, "pan-svm", "auto"), 'needs algorithm.masking = "committee", got "auto"; set it, or remove'),
        ((MEMBERS, "naive-bayes"), "the algorithm has no masking, so nothing uses a committee; remove it"),
    ],
)
def test_an_impossible_committee_is_refused_by_the_form(form: tuple[str, ...], says: str, hub: Hub) -> None:
    with pytest.raises(RequestRefused, match=says):
        made(hub, *form)


@pytest.mark.parametrize(("said", "members"), [("", ()), ("auto", ()), (MEMBERS, ("north", "clinic", "south"))])
def test_participants_are_offered_the_named_members_or_draw_them(said: str, members: tuple[str, ...], hub: Hub) -> None:
    assert offered_terms(made(hub, said)).committee == members


@pytest.mark.parametrize(("site", "state"), [("east", "running"), ("south", "failed")])
def test_a_task_does_not_begin_without_a_named_member(site: str, state: str, hub: Hub) -> None:
    number = made(hub, MEMBERS).id
    with hub.database.session() as session:
        task = session.get_one(Task, number)
        for who in task.participants:
            who.state = "declined" if who.site == site else "joined"
        task.join_until = time.time() - 1
    hub.tasks.look_after(number)
    found = hub.tasks.task(number, CREATOR)
    assert found.state == state, found.reason
    if state == "failed":
        assert found.reason.startswith("Committee: south did not join, and nobody may serve in place of a named member")
        with pytest.raises(RequestRefused, match="Committee: south did not join"):
            hub.tasks.invite_anew(number, CREATOR, Invited("east", "east@example.org"))
    else:
        assert offered_terms(found).committee == ("north", "clinic", "south")


@pytest.mark.long
@pytest.mark.parametrize("withdraws", ["", "east", "clinic"])
def test_a_task_with_named_members_goes_on_without_another_participant_only(withdraws: str, tmp_path: Path) -> None:
    files = hospitals(tmp_path, PLACES)
    said = {"algorithm": "pan-svm", "committee": MEMBERS, "min_sites": "3", "set-kernel": "rbf"}
    with hubs.hub(tmp_path) as running:
        anna = running.signed_in(CREATOR)
        invited = "\n".join(f"{site} {site}@example.org" for site in PLACES)
        number = create(running, anna, invited=invited, **said, **{"set-masking": "committee"})
        assert "any two of the committee (north, clinic, south)" in anna.get(f"/tasks/{number}")[1]
        links = {site: link_of(running, site) for site in PLACES}
        for site in PLACES:
            visit = join(tmp_path, links[site], files[site], "--folder", f"visits-{site}")
            assert visit.returncode == 0, visit.stderr
            assert "committee north, clinic, south" in visit.stderr
        if withdraws:
            gone = join(tmp_path, links[withdraws], "", "--folder", f"visits-{withdraws}", "--decline", "no time")
            assert gone.returncode == 0, gone.stderr
        visits = [watching(tmp_path, links[site], files[site]) for site in PLACES if site != withdraws]
        ends = [visit.wait(200) for visit in visits]
        over = "failed" if withdraws == "clinic" else "completed"
        wait_until(lambda: over in anna.get(f"/tasks/{number}/progress")[1])
        result = json.loads((running.folder / "tasks" / number / "result.json").read_text())
        page = anna.get(f"/tasks/{number}")[1]
    if over == "completed":
        assert ends == [0] * len(visits)
        assert result["metrics"]["accuracy"] > 0.7
    else:
        assert "clinic dropped in" in page
        assert "start again with another site in protocol.committee" in page
