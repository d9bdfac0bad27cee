"""A hub that is killed again and again: nothing is lost, nobody is asked twice, and the model is the same."""

from __future__ import annotations

import asyncio
import os
import random
import socket
import sqlite3
import threading
from collections import Counter
from contextlib import closing
from multiprocessing.process import BaseProcess
from pathlib import Path

import numpy as np
import pytest
import sqlalchemy as sql

from fedsvm.federation.errors import FederationError
from fedsvm.federation.site.rules import ANYTHING
from fedsvm.scenarios.hub.database import Letter, Mail, Participant, Task
from fedsvm.scenarios.hub.mails import Files
from fedsvm.scenarios.hub.new_task import Invited, NewTask
from fedsvm.scenarios.hub.participation import InvitationLink, TaskParticipation
from fedsvm.scenarios.hub.service import Hub, Settings, application
from fedsvm.scenarios.hub.task_form import TaskForm
from tests.commands import PROCESSES
from tests.conftest import wait_until
from tests.hub import CREATOR, SITES, RunningHub, cells, link_of

KILLS = 200 if os.environ.get("FEDSVM_CHAOS") == "all" else 25
_VISITS = 60


def settings_of(folder: Path, port: int) -> Settings:
    """Return the settings of each start of the hub."""
    there = f"sqlite:///{folder / 'hub.sqlite'}"
    return Settings(folder, f"http://localhost:{port}", there, every_s=0.05, a_second=1e6, burst=10**6)


def serve(folder: Path, port: int) -> None:
    """A hub, in a process of its own."""
    import uvicorn

    hub = Hub(settings_of(folder, port), Files(folder / "mails"))
    with socket.create_server(("127.0.0.1", port), backlog=128) as bound:
        config = uvicorn.Config(application(hub), log_level="error", access_log=False)
        asyncio.run(uvicorn.Server(config).serve(sockets=[bound]))


class Killer(threading.Thread):
    """Starts a hub and kills it, many times, and at last lets one live."""

    def __init__(self, folder: Path, port: int, kills: int, seed: int) -> None:
        super().__init__()
        self.place = (folder, port)
        self.chance = random.Random(seed)
        self.kills = kills
        self.killed = 0
        self.is_over = threading.Event()

    def run(self) -> None:
        """Kill as often as was said, as long as there is something to disturb."""
        while not self.is_over.is_set():
            process: BaseProcess = PROCESSES.Process(target=serve, args=self.place)
            process.start()
            if self.killed < self.kills:
                if self.killed % 3 == 2:  # else as it starts; a busy machine would never come further
                    self._wait_for_a_letter(process)
                self.is_over.wait(self.chance.uniform(0.05, 0.9))
                self.killed += 1
            else:
                self.is_over.wait()
            process.kill()
            process.join()

    def _wait_for_a_letter(self, process: BaseProcess) -> None:
        """Until the hub has stored what somebody said, or told somebody something."""
        with closing(sqlite3.connect(self.place[0] / "hub.sqlite", timeout=60)) as database:
            count = "select count(*) from letters"
            before = database.execute(count).fetchone()
            while process.is_alive() and not self.is_over.wait(0.01) and database.execute(count).fetchone() == before:
                pass


def trained(folder: Path, kills: int, seed: int = 0) -> tuple[np.ndarray, int, list[str]]:
    """The weights that three participants come to, how often the hub was killed, and the mails."""
    folder.mkdir()
    files, _, _ = cells(folder, rows=30)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    running = RunningHub(folder / "hub", port)
    hub = Hub(settings_of(running.folder, port), Files(running.folder / "mails"))
    wish = TaskForm("dpp-svm", {"kernel": "linear"}, "diagnosis", "M", "B", test_fraction="0.0", label_site=SITES[0])
    invited = [Invited(site, f"{site}@example.org") for site in SITES]
    number = hub.tasks.create(CREATOR, NewTask("Cells", "", wish, invited, 3, 1, 1))
    asyncio.run(hub.send_mails())
    links = {site: InvitationLink.read(link_of(running, site)) for site in SITES}
    hub.close()
    killer = Killer(running.folder, port, kills, seed)
    killer.start()
    over: set[str] = set()
    try:
        for _ in range(_VISITS):
            for site in SITES:
                kept = folder / f"visits-{site}"
                joining = TaskParticipation(links[site], str(files[site]), ANYTHING, kept, lambda said: None, wait_s=60)
                if joining.visit():
                    over.add(site)
            if len(over) == len(SITES):
                break
    finally:
        killer.is_over.set()
        killer.join()
    hub = Hub(settings_of(running.folder, port), Files(running.folder / "mails"))
    hub.tasks.look_after_all()
    wait_until(lambda: _state(hub, number) != "running", 60)  # the last kill may have come before that was written down
    asyncio.run(hub.send_mails())
    with hub.database.session() as session:
        task = session.get_one(Task, number)
        assert task.state == "completed", task.reason
        told = Counter((letter.participant_id, letter.way) for letter in session.scalars(sql.select(Letter)))
        for who in session.scalars(sql.select(Participant)):
            assert (told[who.id, "told"], told[who.id, "said"]) == (who.told, who.said)
        occasions = list(session.scalars(sql.select(Mail.occasion)))
    hub.close()
    assert over == set(SITES)
    weights = [np.load(folder / f"visits-{site}" / "model.npz")["weights"] for site in SITES]
    return np.concatenate(weights), killer.killed, occasions


def _state(hub: Hub, number: str) -> str:
    with hub.database.reading() as session:
        return session.get_one(Task, number).state


@pytest.mark.long
def test_a_hub_that_is_killed_at_any_moment_comes_to_the_same(tmp_path: Path) -> None:
    undisturbed, _, _ = trained(tmp_path / "undisturbed", 0)
    kills, tries = 0, 0
    while kills < KILLS:
        folder, tries = tmp_path / f"disturbed-{tries}", tries + 1
        disturbed, killed, occasions = trained(folder, KILLS - kills, seed=tries)
        assert np.array_equal(undisturbed, disturbed)
        files = list((folder / "hub" / "mails").glob("*.eml"))
        assert len(files) == len(occasions) == len(set(occasions))
        kills += killed


def test_a_hub_that_is_not_there_is_tried_and_then_said_so(tmp_path: Path) -> None:
    files, _, _ = cells(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    link = InvitationLink(f"http://localhost:{port}", "token", bytes(range(32)))
    said: list[str] = []
    joining = TaskParticipation(link, str(files["north"]), ANYTHING, tmp_path / "kept", said.append, wait_s=0.7)
    with pytest.raises(FederationError, match=r"cannot be reached .* Nothing is lost"):
        joining.visit()
    (sentence,) = said  # it is tried more than twice
    assert sentence.startswith(f"http://localhost:{port} cannot be reached (")
    assert sentence.endswith("; it is tried for 1 s")


def test_an_answer_that_is_cut_short_is_asked_for_again(tmp_path: Path) -> None:
    """As of a hub that is killed while it answers."""
    files, _, _ = cells(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as hub:
        link = InvitationLink(f"http://127.0.0.1:{hub.getsockname()[1]}", "token", bytes(range(32)))

        def answer() -> None:
            connection, _ = hub.accept()
            with connection:
                connection.recv(1 << 16)
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nten bytes.")

        answering = threading.Thread(target=answer)
        answering.start()
        joining = TaskParticipation(link, str(files["north"]), ANYTHING, tmp_path / "kept", lambda said: None, wait_s=0)
        with pytest.raises(FederationError, match=r"cannot be reached .* Nothing is lost"):
            joining.visit()
        answering.join()
