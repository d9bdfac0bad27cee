"""The hub's answers to strangers, forms, replayed messages and late participants, in the process of the test."""

from __future__ import annotations

import asyncio
import email
import html
import json
import re
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from html.parser import HTMLParser
from importlib.metadata import version
from pathlib import Path
from typing import Any

import httpx
import msgpack
import numpy as np
import pytest
import sqlalchemy as sql
import uvicorn
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fedsvm.algorithms.optimization import libsvm
from fedsvm.federation.control import Order, SumTerms
from fedsvm.federation.errors import FederationError, OrderRefused
from fedsvm.federation.offline.sealing import Requests
from fedsvm.federation.site.program import StepMark
from fedsvm.federation.site.rules import ANYTHING
from fedsvm.federation.site.site_policy import SitePolicy
from fedsvm.federation.site.terms import Terms
from fedsvm.federation.transport.keys import COORDINATOR, KeyPair
from fedsvm.federation.transport.wire import DATA_KIND, Message
from fedsvm.scenarios.hub import database as hub_database
from fedsvm.scenarios.hub import presentation, service, task_form
from fedsvm.scenarios.hub.accounts import RequestRefused
from fedsvm.scenarios.hub.database import Base, Database, Letter, Mail, Participant, SignIn, Task, digest
from fedsvm.scenarios.hub.mails import Files, Smtp
from fedsvm.scenarios.hub.new_task import Invited
from fedsvm.scenarios.hub.offered import scenario_text
from fedsvm.scenarios.hub.participation import WORDS, InvitationLink, TaskParticipation
from fedsvm.scenarios.hub.participation import HubClient as AskedHub
from fedsvm.scenarios.hub.server import serve
from fedsvm.scenarios.hub.service import Hub, Settings, application
from fedsvm.scenarios.run.intervals import Interval
from fedsvm.scenarios.run.metrics import Metrics
from fedsvm.scenarios.run.result import Environment, RunResult, read_result, write_result
from fedsvm.scenarios.schema.errors import ScenarioError
from tests.commands import fedsvm
from tests.conftest import wait_until
from tests.hub import SITES, cells, environment, hospitals, mails_in, simulated
from tests.mail_server import mail_server

pytestmark = pytest.mark.anyio
ANNA = "anna@clinic.example"
ENCODED = ("=?utf-8?q?x=0abcc=3ay=40example.org?=@example.org", "=?utf-8?q?a=2cb?=@example.org")
"""Addresses encoded like headers, which contain a line end and a second address."""
PATIENT_VISITS = 32
"""Of each participant of a small PAN-SVM task: see docs/task-service.md."""
ADDRESS = re.compile(r"(?P<path>/sign-in/[\w-]+|/join/[\w-]+)(?:#(?P<key>\S+))?")


@dataclass
class Told:
    """A hub in this process, people with browsers, and the mails that it wrote."""

    hub: Hub
    app: Any
    folder: Path

    @property
    def url(self) -> str:
        """By which people reach the hub."""
        return self.hub.settings.url

    def browser(self, address: str = "192.0.2.1") -> httpx.AsyncClient:
        """A browser at an address, which keeps its cookies."""
        carrier = httpx.ASGITransport(self.app, client=(address, 1234))
        return httpx.AsyncClient(transport=carrier, base_url="http://hub.example", follow_redirects=True)

    async def mails(self, to: str) -> list[str]:
        """The texts of mails to somebody, with their subjects."""
        await self.hub.send_mails()
        return mails_in(self.folder / "mails", to)

    async def link(self, to: str) -> tuple[str, str]:
        """Path and key of the link in the last mail to somebody."""
        found = ADDRESS.search((await self.mails(to))[-1])
        assert found
        return found["path"], found["key"] or ""

    @asynccontextmanager
    async def signed_in(self, who: str = ANNA) -> AsyncIterator[httpx.AsyncClient]:
        """The browser of somebody who followed the link."""
        async with self.browser() as browser:
            await browser.post("/sign-in", data={"email": who})
            path, _ = await self.link(who)
            assert (await browser.post(path)).status_code == 200
            yield browser

    def stored(self) -> bytes:
        """All that is in the database, of texts and bytes."""
        with self.hub.database.reading() as session:
            rows = [row for table in Base.metadata.sorted_tables for row in session.execute(sql.select(table))]
        values = [value for row in rows for value in row]
        return b"\n".join(value if isinstance(value, bytes) else str(value).encode() for value in values)

    def one(self, kind: type[Any], **known: Any) -> Any:
        """A row of the database."""
        with self.hub.database.session() as session:
            return session.scalars(sql.select(kind).filter_by(**known)).one()


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def told(tmp_path: Path, database: str) -> Iterator[Told]:
    there = Settings(tmp_path, "http://hub.example", database, a_second=1e6, burst=10**6)
    hub = Hub(there, Files(tmp_path / "mails"))
    yield Told(hub, application(hub), tmp_path)
    hub.close()


@pytest.fixture
async def browser(told: Told) -> AsyncIterator[httpx.AsyncClient]:
    """The browser of the creator of tasks."""
    async with told.signed_in() as browser:
        yield browser


async def form_key(browser: httpx.AsyncClient) -> str:
    """The key in somebody's forms."""
    key = re.search(r'name="form_key" value="(\w+)"', (await browser.get("/")).text)
    assert key
    return key[1]


async def form_of(browser: httpx.AsyncClient, **given: str) -> dict[str, str]:
    """A task's form."""
    return {
        "form_key": await form_key(browser),
        "algorithm": "dpp-svm",
        "title": "Malignant or not",
        "invited": "\n".join(f"{site} {site}@example.org" for site in SITES),
        "label": "diagnosis",
        "positive": "M",
        "negative": "B",
        "set-kernel": "linear",
        **given,
    }


async def create(browser: httpx.AsyncClient, **given: str) -> str:
    """Make a task; its number."""
    answer = await browser.post("/tasks", data=await form_of(browser, **given))
    assert answer.status_code == 200, answer.text
    return answer.url.path.rpartition("/")[2]


@dataclass
class Program:
    """A participant's program, as far as it says words."""

    told: Told
    token: str
    keys: KeyPair = field(default_factory=KeyPair.generate)

    def ask(self, verb: str, **word: Any) -> dict[str, Any]:
        """Return the hub's answer."""
        request, opened = Requests(self.keys, self.told.hub.keys.public).seal(msgpack.packb({"verb": verb, **word}))
        answer: dict[str, Any] = msgpack.unpackb(opened(self.told.hub.desk.answer(request)))
        return answer

    def join(self, token: str = "") -> dict[str, Any]:
        """Ask to be let in, by its own token or another."""
        return self.ask("join", token=token or self.token, version=version("fedsvm"))

    def ready(self, *names: str) -> dict[str, Any]:
        """Say what it holds."""
        columns = [[name, False] for name in names or ("radius",)]
        return self.ask("ready", columns=columns, agreement_key=KeyPair.generate().public)


async def programs(told: Told, sites: Sequence[str] = SITES) -> dict[str, Program]:
    """A program of each participant."""
    links = {site: await told.link(f"{site}@example.org") for site in sites}
    return {site: Program(told, path.rpartition("/")[2]) for site, (path, _) in links.items()}


async def begun_task(told: Told, sites: Sequence[str] = SITES, **given: str) -> dict[str, Program]:
    """Make a task, which some sites join, each with a column of its own; their programs."""
    async with told.signed_in() as browser:
        await create(browser, **given)
    each = await programs(told, sites)
    for site, program in each.items():
        program.join()
        assert program.ready(site) == {}
    return each


@pytest.fixture
def own(told: Told) -> tuple[Told, Program]:
    """The program of a participant of a task that has begun."""
    return told, asyncio.run(begun_task(told))["north"]


# Who somebody is.


async def test_a_link_signs_in_once_and_is_nowhere_in_the_database(told: Told, browser: httpx.AsyncClient) -> None:
    path, _ = await told.link(ANNA)
    assert "Your tasks" in (await browser.get("/")).text
    cookie = browser.cookies["fedsvm"]
    async with told.browser() as other:
        refused = await other.post(path)
        assert (refused.status_code, "was used" in refused.text) == (400, True)
        assert "Send me a link" in (await other.get("/")).text
    stored = told.stored()
    assert ANNA.encode() in stored
    assert path.rpartition("/")[2].encode() not in stored
    assert cookie.encode() not in stored


async def test_a_link_is_of_no_use_after_its_time(told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    async with told.browser() as browser:
        await browser.post("/sign-in", data={"email": ANNA})
        path, _ = await told.link(ANNA)
        late = time.time() + 901
        monkeypatch.setattr("fedsvm.scenarios.hub.tasks.time.time", lambda: late)
        assert "older than 15 minutes" in (await browser.post(path)).text


async def test_a_cookie_is_of_no_use_after_its_time(
    told: Told, browser: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    cookie, begun = browser.cookies["fedsvm"], time.time()
    for days, page in ((13.9, "Your tasks"), (14.1, "Send me a link")):
        monkeypatch.setattr("fedsvm.scenarios.hub.tasks.time.time", lambda days=days: begun + days * 24 * 3600)
        answer = await browser.get("/", headers={"Cookie": f"fedsvm={cookie}"})
        assert page in answer.text


async def test_the_cookie_is_for_the_hub_alone(told: Told) -> None:
    async with told.browser() as browser:
        await browser.post("/sign-in", data={"email": ANNA})
        path, _ = await told.link(ANNA)
        answer = await browser.post(path, follow_redirects=False)
        said = answer.headers["set-cookie"].lower()
        assert "httponly" in said
        assert "samesite=lax" in said


@pytest.mark.parametrize(
    "said", ["", "anna", "a@b@c", "a b@c.example", "x@example.org\nBcc: y@example.org", "@" * 300, *ENCODED]
)
async def test_what_is_no_address_is_sent_nothing(told: Told, said: str) -> None:
    async with told.browser() as browser:
        answer = await browser.post("/sign-in", data={"email": said})
        assert (answer.status_code, "E-mail address: must be" in answer.text) == (400, True)
        await told.hub.send_mails()
        assert not list((told.folder / "mails").glob("*"))


async def test_nobody_is_sent_links_without_end(told: Told) -> None:
    async with told.browser() as browser:
        answers = [await browser.post("/sign-in", data={"email": ANNA}) for _ in range(6)]
        assert [answer.status_code for answer in answers] == [200] * 5 + [400]
        assert len(await told.mails(ANNA)) == 5


async def test_one_client_cannot_have_links_mailed_to_many_addresses(told: Told) -> None:
    async with told.browser() as one, told.browser("192.0.2.2") as other:
        answers = [await one.post("/sign-in", data={"email": f"a{number}@b.example"}) for number in range(30)]
        assert [answer.status_code for answer in answers] == [200] * 20 + [400] * 10
        assert "from your network address" in answers[-1].text
        assert (await other.post("/sign-in", data={"email": ANNA})).status_code == 200


def test_all_clients_together_cannot_have_links_mailed_without_end(told: Told) -> None:
    with told.hub.database.session() as session:
        session.add_all(
            SignIn(email=f"a{number}@b.example", token=bytes([number // 256, number % 256]), made_at=time.time())
            for number in range(499)
        )
    told.hub.accounts.send_sign_in(ANNA)
    with pytest.raises(RequestRefused, match="requested from this hub"):
        told.hub.accounts.send_sign_in("bert@clinic.example")


# What forms and addresses cannot do.


async def test_a_form_of_another_site_does_nothing(told: Told, browser: httpx.AsyncClient) -> None:
    form = await form_of(browser)
    for changes, headers in (
        ({"form_key": ""}, {}),
        ({"form_key": "0" * 64}, {}),
        ({}, {"Origin": "http://evil.example"}),
        ({}, {"Origin": "http://[evil"}),
        ({}, {"Origin": "null"}),
        ({"title": "a\0b"}, {}),
        ({}, {"Sec-Fetch-Site": "cross-site"}),
    ):
        answer = await browser.post("/tasks", data={**form, **changes}, headers=headers)
        assert answer.status_code == 400, changes
    assert not told.hub.tasks.of(ANNA)
    behind = await browser.post("/tasks", data=form, headers={"Host": "inner:8000", "Origin": told.url})
    assert behind.status_code == 200, "a server in front may name the hub as it reaches it"


async def test_a_report_is_no_page_that_can_do_anything_for_who_reads_it(
    told: Told, browser: httpx.AsyncClient
) -> None:
    number = await create(browser)
    with told.hub.database.session() as session:
        session.get_one(Task, number).ended_at = time.time()
    folder = told.hub.conductor.folder_of(number)
    folder.mkdir(parents=True)
    (folder / "report.html").write_text("<p>a report</p>")
    answer = await browser.get(f"/tasks/{number}/report")
    rules = answer.headers.get_list("content-security-policy")
    assert len(rules) == 1
    assert {"sandbox allow-scripts allow-downloads", "form-action 'none'"} <= set(rules[0].split("; "))
    assert "a report" in answer.text


async def test_what_a_stranger_asks_for_does_not_exist_for_them(told: Told, browser: httpx.AsyncClient) -> None:
    number = await create(browser)
    async with told.browser() as stranger:
        assert "Sign in first" in (await stranger.get(f"/tasks/{number}")).text
    async with told.signed_in("eve@evil.example") as eve:
        for path in (f"/tasks/{number}", f"/tasks/{number}/progress", f"/tasks/{number}/report", "/tasks/0"):
            answer = await eve.get(path)
            assert (answer.status_code, "There is no such task" in answer.text) == (400, True), path
        answer = await eve.post(f"/tasks/{number}/cancel", data={"form_key": await form_key(eve)})
        assert answer.status_code == 400
    assert told.one(Task).state == "inviting"


@pytest.mark.parametrize(
    ("method", "path", "status", "said"),
    [
        ("GET", "/nowhere", 404, "There is no such page."),
        ("DELETE", "/", 405, "This page does not accept DELETE."),
        ("GET", "/", 200, "Send me a link"),
        ("GET", "/health", 200, "ok"),
        ("POST", WORDS, 400, "cannot read this"),
    ],
)
async def test_every_answer_says_what_it_may_not_do(told: Told, method: str, path: str, status: int, said: str) -> None:
    async with told.browser() as browser:
        answer = await browser.request(method, path)
    assert (answer.status_code, said in answer.text) == (status, True), answer.text
    assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
    assert answer.headers["X-Content-Type-Options"] == "nosniff"


async def test_health_says_that_the_database_is_lost(told: Told) -> None:
    is_lost = threading.Event()

    def lose(connection: sql.Connection) -> None:
        if is_lost.is_set():
            raise sql.exc.OperationalError("SELECT", {}, Exception("server closed the connection unexpectedly"))

    sql.event.listen(told.hub.database._engine, "begin", lose)
    async with told.browser() as browser:
        is_lost.set()
        answer = await browser.get("/health")
        assert (answer.status_code, answer.text) == (503, "database unavailable")
        is_lost.clear()
        assert (await browser.get("/health")).status_code == 200


async def test_health_says_that_the_disk_is_full(told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    async with told.browser() as browser:
        monkeypatch.setattr(service, "free_bytes", lambda folder: 2**20)
        answer = await browser.get("/health")
        assert (answer.status_code, answer.text) == (503, "disk full")


async def test_metrics_are_counts_and_only_for_programs_on_this_machine(told: Told, browser: httpx.AsyncClient) -> None:
    await create(browser)
    assert (await browser.get("/metrics")).status_code == 404
    for address in ("127.0.0.1", "::1"):
        async with told.browser(address) as monitor:
            answer = await monitor.get("/metrics")
    assert answer.status_code == 200
    values = dict(line.rsplit(" ", 1) for line in answer.text.splitlines() if not line.startswith("#"))
    assert values['fedsvm_hub_tasks{state="inviting"}'] == "1"
    assert values['fedsvm_hub_tasks{state="running"}'] == values["fedsvm_hub_messages"] == "0"
    assert values["fedsvm_hub_runs"] == values["fedsvm_hub_message_bytes"] == "0"
    assert int(values["fedsvm_hub_mails_unsent"]) == len(SITES)
    assert int(values["fedsvm_hub_disk_free_bytes"]) > 0
    assert not re.search("example|Malignant|clinic", answer.text)


async def test_nobody_makes_tasks_or_invites_without_end(told: Told, browser: httpx.AsyncClient) -> None:
    first = await create(browser)
    for _ in range(19):
        await create(browser)
    more = await browser.post("/tasks", data=await form_of(browser))
    assert "20 open tasks" in more.text
    await browser.post(f"/tasks/{first}/cancel", data=await form_of(browser))
    await create(browser)
    crowd = "\n".join(f"s{each} s{each}@example.org" for each in range(50))
    for _ in range(2):
        await told.hub.send_mails()  # of which each sends 50
    async with told.signed_in("bert@clinic.example") as other:
        for _ in range(4):
            await create(other, invited=crowd)
        more = await other.post("/tasks", data=await form_of(other, invited=crowd))
        assert "200 participants per day" in more.text


@pytest.mark.parametrize("path", ["/static/../hub.key_secret", "/static/..%2f..%2fhub.key_secret", "/static/%2e%2e/x"])
async def test_paths_lead_nowhere(told: Told, path: str) -> None:
    async with told.browser() as browser:
        answer = await browser.get(path)
        assert answer.status_code in (400, 404)
        assert "secret" not in answer.text


async def test_script_in_what_people_say_is_shown_and_not_run(told: Told) -> None:
    evil = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>"
    async with told.signed_in() as browser:
        number = await create(browser, title=evil, description=f"{evil}\u202e")
        page = (await browser.get(f"/tasks/{number}")).text
        assert "<script>alert" not in page
        assert "<img src=x" not in page
        assert "&lt;script&gt;" in page
        path, _ = await told.link("north@example.org")
        answer = await browser.get(path)
        assert "<script>alert" not in answer.text
        assert "script-src 'self'" in answer.headers["content-security-policy"]


async def test_all_that_is_wrong_with_a_task_is_said_and_the_form_stays_filled_in(
    told: Told, browser: httpx.AsyncClient
) -> None:
    answer = await browser.post(
        "/tasks", data=await form_of(browser, **{"set-C": "-1", "positive": "", "title": "My task"})
    )
    assert answer.status_code == 400
    assert "data.positive: is missing" in answer.text
    assert 'value="My task"' in answer.text
    answer = await browser.post("/tasks", data=await form_of(browser, **{"set-C": "-1"}))
    assert "algorithm.C" in answer.text
    answer = await browser.post("/tasks", data=await form_of(browser, invited="north n@a.org\nnorth m@a.org"))
    assert "north is listed twice" in answer.text
    answer = await browser.post("/tasks", data=await form_of(browser, identifier="diagnosis"))
    assert "identifier must be another column than label" in answer.text
    answer = await browser.post("/tasks", data=await form_of(browser, title="red \x1b[31m"))
    assert "Title: must have printable characters only" in answer.text
    answer = await browser.post("/tasks", data=await form_of(browser, join_days="nan"))
    assert "must be a number" in answer.text
    assert not told.hub.tasks.of(ANNA)


async def test_lines_of_a_form_stay_as_they_are_when_it_is_sent_again(told: Told, browser: httpx.AsyncClient) -> None:
    """Browsers end the lines of a field by a carriage return and a line feed."""
    invited = "\r\n".join(f"{site} {site}@example.org" for site in SITES)
    form = await form_of(browser, invited=invited, description="Which?\r\nAll.", **{"set-C": "-1"})
    answer = await browser.post("/tasks", data=form)
    assert "algorithm.C" in answer.text
    shown = {
        name: html.unescape(text)
        for name, text in re.findall(r'<textarea id="(\w+)".*?>(.*?)</textarea>', answer.text, re.S)
    }
    assert (shown["description"], shown["invited"]) == ("Which?\nAll.", invited.replace("\r", ""))
    number = await create(browser, **shown)
    assert told.one(Task, id=number).description == "Which?\nAll."
    assert "\\r" not in (await browser.get(f"/tasks/{number}")).text


async def test_own_models_are_offered_for_rows_and_asked_for_in_the_scenario(
    told: Told, browser: httpx.AsyncClient
) -> None:
    for algorithm, offered in (("pan-svm", True), ("dpp-svm", False), ("hybrid-svm", False), ("describe", False)):
        page = (await browser.get("/tasks/new", params={"algorithm": algorithm})).text
        assert ('name="compare_sites"' in page) == offered, algorithm
    number = await create(browser, algorithm="pan-svm", compare_sites="yes")
    assert scenario_text(told.one(Task, id=number)).compare.sites
    number = await create(browser, algorithm="pan-svm")
    assert not scenario_text(told.one(Task, id=number)).compare.sites


def test_a_taken_port_is_named_in_one_sentence(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        where = f"127.0.0.1:{taken.getsockname()[1]}"
        done = fedsvm("hub", "--folder", str(tmp_path / "hub"), "--listen", where, folder=tmp_path)
    assert done.returncode == 3
    said = f"fedsvm: The hub cannot listen at {where} (Address already in use); use another address (--listen)."
    assert done.stderr.strip() == said


async def test_what_is_too_long_is_not_taken_in(told: Told) -> None:
    async with told.browser() as browser:
        assert "can have 65536 bytes" in (await browser.post("/sign-in", content=b"x" * 70_000)).text
        answer = await browser.post(WORDS, content=b"x" * 20_000)
        assert (answer.status_code, "more than 16384 bytes" in answer.text) == (400, True)


async def test_who_asks_a_thousand_times_a_second_waits_and_others_do_not(tmp_path: Path) -> None:
    hub = Hub(Settings(tmp_path, "http://hub.example", f"sqlite:///{tmp_path / 'hub.sqlite'}"), Files(tmp_path))
    told = Told(hub, application(hub), tmp_path)
    async with told.browser() as stranger, told.browser("192.0.2.2") as other:
        answers = [(await stranger.get("/static/hub.css")).status_code for _ in range(1000)]
        assert answers[:200] == [200] * 200
        assert answers.count(429) > 300
        assert (await other.get("/")).status_code == 200
    hub.close()


# What programs cannot do.


async def test_a_link_is_one_programs_alone(told: Told, browser: httpx.AsyncClient) -> None:
    await create(browser)
    each = await programs(told)
    assert each["north"].join()["site"] == "north"
    assert "another key" in each["south"].join(each["north"].token)["refused"]
    assert "no such invitation" in each["south"].join("nonsense")["refused"]
    assert "does not know this key" in each["south"].ready()["refused"]
    assert "hub's version" in each["south"].ask("join", token=each["south"].token, version="0")["refused"]


async def test_a_key_is_of_one_invitation(told: Told, browser: httpx.AsyncClient) -> None:
    await create(browser)
    each = await programs(told)
    each["north"].join()
    assert "another invitation" in each["north"].join(each["south"].token)["refused"]


async def test_who_took_letters_and_ended_before_it_acted_is_asked_again(told: Told) -> None:
    each = await begun_task(told)
    assert len(each["north"].ask("take", after=0)["letters"]) == 1
    each["north"].ask("take", after=1)
    each["north"].ask("leave")
    told.hub.tasks.look_after_all()
    assert [mail for mail in await told.mails("north@example.org") if mail.startswith("Your turn")]
    each["south"].ask("take", after=0)
    each["south"].ask("take", after=1, acted=True)
    each["south"].ask("leave")
    before = len(await told.mails("south@example.org"))
    told.hub.tasks.look_after_all()
    assert len(await told.mails("south@example.org")) == before


def test_nothing_of_the_hub_is_loaded_by_other_commands() -> None:
    words = (
        "import sys, fedsvm.scenarios.hub.participation; from fedsvm.scenarios.cli import application; application()"
    )
    done = subprocess.run(
        [sys.executable, "-c", f"{words}; print(*sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
        env=environment(),
    )
    assert not {"fastapi", "uvicorn", "sqlalchemy", "alembic", "aiosmtplib"} & set(done.stdout.split())


def test_without_its_packages_the_hub_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    monkeypatch.delitem(sys.modules, "fedsvm.scenarios.hub.connections", raising=False)  # of an earlier test
    monkeypatch.delattr("fedsvm.scenarios.hub.connections", raising=False)
    with pytest.raises(FederationError, match=r'pip install "fedsvm\[hub\]".*uvicorn is missing'):
        serve(tmp_path, "127.0.0.1:0", "", "", "hub@example.org", "", 1.0, demo=False)


def test_join_with_no_link_is_a_command_line_error(tmp_path: Path) -> None:
    done = fedsvm("join", "nonsense", "--data", "x.csv", folder=tmp_path)
    assert (done.returncode, "link: must be the whole link" in done.stderr) == (2, True), done.stderr


@pytest.mark.parametrize(("listen", "said"), [("8000", "--listen: must be"), ("127.0.0.1:99999", "--listen: must be")])
def test_an_address_that_is_none_is_refused(listen: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match=said):
        serve(tmp_path, listen, "", "", "hub@example.org", "", 1.0, demo=False)


async def test_a_word_that_is_changed_or_of_another_hub_is_not_opened(told: Told) -> None:
    keys = KeyPair.generate()
    request, _ = Requests(keys, told.hub.keys.public).seal(b"\x80")
    others, _ = Requests(keys, KeyPair.generate().public).seal(b"\x80")
    async with told.browser() as browser:
        for body in (request[:-1], request[:50], b"", others, bytes(200), request[:40] + b"\1" + request[41:]):
            answer = await browser.post(WORDS, content=body)
            assert (answer.status_code, "cannot read this" in answer.text) == (400, True)
        assert (await browser.post(WORDS, content=request)).status_code == 200


async def test_a_message_that_comes_twice_is_stored_once(told: Told) -> None:
    north = (await begun_task(told))["north"]
    assert told.one(Task).state == "running"
    frame, of_another = (Message(DATA_KIND, run, 5000).frame for run in (told.one(Task).run, bytes(8)))
    said = {"verb": "say", "number": 0, "message": frame}
    request, opened = Requests(north.keys, told.hub.keys.public).seal(msgpack.packb(said))
    for _ in range(3):
        assert msgpack.unpackb(opened(told.hub.desk.answer(request))) == {"said": 1}
    with told.hub.database.session() as session:
        assert session.scalar(sql.select(sql.func.count()).select_from(Letter).filter_by(way="said")) == 1
    assert "was due" in north.ask("say", number=7, message=frame)["refused"]
    assert "another run" in north.ask("say", number=1, message=of_another)["refused"]
    assert "cannot read" in north.ask("say", number=1, message=b"nonsense")["refused"]


@pytest.mark.parametrize("wrong", SITES)
async def test_most_participants_decide_whose_columns_are_wrong(
    wrong: str, told: Told, browser: httpx.AsyncClient
) -> None:
    others = [site for site in SITES if site != wrong]
    why = (
        f"The columns of {wrong} differ from those of other participants: it has 'depht', and 2 of 3 sites "
        f"({', '.join(others)}) have 'depth'. Fix the file, then run fedsvm join again."
    )
    number = await create(browser, algorithm="pan-svm", **{"set-kernel": "rbf"})
    each = await programs(told)
    for site in SITES:
        each[site].join()
    for site in SITES:
        answer = each[site].ready("radius", "depht" if site == wrong else "depth")
        assert answer == ({"refused": why} if site == wrong == SITES[-1] else {})
    assert told.one(Task, id=number).state == "inviting"
    assert each[wrong].ask("take", after=0, acted=False, watches=False) == {"refused": why}
    for site in others:
        assert each[site].ask("take", after=0, acted=False, watches=False)["state"] == "inviting"
    assert why in (await told.mails(f"{wrong}@example.org"))[-1]
    assert each[wrong].ready("radius", "depth") == {}
    assert told.one(Task, id=number).state == "running"


async def test_participants_whose_columns_differ_until_the_deadline_miss_it(
    told: Told, browser: httpx.AsyncClient
) -> None:
    number = await create(browser, algorithm="pan-svm", **{"set-kernel": "rbf"})
    each = await programs(told)
    for site in SITES:
        each[site].join()
        each[site].ready("depth" if site == "north" else "height", "radius")
    with told.hub.database.session() as session:
        session.get_one(Task, number).join_until = 0.0
    told.hub.tasks.look_after(number)
    north = told.one(Participant, site="north")
    assert (north.state, "it has 'depth'" in north.reason) == ("missed", True)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    word=st.recursive(
        st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.floats() | st.text() | st.binary(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
        max_leaves=8,
    ),
    verb=st.sampled_from(["join", "ready", "decline", "take", "say", "leave", "x"]),
    names=st.lists(
        st.sampled_from(
            ["token", "version", "columns", "agreement_key", "reason", "after", "watches", "number", "message"]
        ),
        max_size=4,
    ),
)
def test_no_word_brings_the_desk_out_of_step(told: Told, word: Any, verb: str, names: list[str]) -> None:
    said = {"verb": verb, **dict.fromkeys(names, word)} if names else word
    request, opened = Requests(KeyPair.generate(), told.hub.keys.public).seal(msgpack.packb(said))
    assert "refused" in msgpack.unpackb(opened(told.hub.desk.answer(request)))


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    number=st.integers(-(2**63), 2**64 - 1) | st.integers(0, 3),
    header=st.lists(
        st.none() | st.integers(0, 2**64 - 1) | st.text(max_size=3) | st.binary(max_size=9) | st.just({}),
        max_size=9,
    ),
    verb=st.sampled_from(["take", "say", "ready", "leave"]),
)
def test_no_word_of_a_participant_brings_the_desk_out_of_step(
    own: tuple[Told, Program], number: int, header: list[Any], verb: str
) -> None:
    told, program = own
    packed = msgpack.packb(header)
    said = {"number": number, "after": number, "message": packed, "columns": [header], "agreement_key": packed}
    heard = told.one(Participant, site="north").said
    answer = program.ask(verb, **said)
    assert "refused" in answer or verb in ("take", "leave") or (verb == "say" and number < heard)
    assert told.one(Participant, site="north").said == heard


@settings(max_examples=80, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    path=st.sampled_from(
        ["/sign-in", "/tasks", "/tasks/x/cancel", "/sign-out", "/sign-in/x", "/join/x/decline", WORDS]
    ),
    body=st.binary(max_size=300) | st.text(max_size=100).map(str.encode),
)
async def test_no_body_brings_a_page_down(told: Told, path: str, body: bytes) -> None:
    async with told.browser() as browser:
        assert (await browser.post(path, content=body)).status_code < 500


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    path=st.text(st.characters(codec="utf-8", exclude_characters="?#"), max_size=40),
    place=st.sampled_from(["/", "/tasks/", "/join/", "/sign-in/", "/static/", "/tasks/new?algorithm="]),
)
async def test_no_address_brings_a_page_down(told: Told, path: str, place: str) -> None:
    from urllib.parse import quote

    async with told.browser() as browser:
        assert (await browser.get(place + quote(path, safe=""))).status_code < 500


async def test_who_reads_waits_for_nobody_who_writes(told: Told, browser: httpx.AsyncClient) -> None:
    number = await create(browser)
    with told.hub.database.session() as writing:
        writing.get_one(Task, number).title = "Another"
        writing.flush()
        answer = await asyncio.wait_for(browser.get(f"/tasks/{number}"), 5)
        assert "Malignant or not" in answer.text
    assert "Another" in (await browser.get(f"/tasks/{number}")).text


# How pages describe a task.


async def test_the_form_explains_every_algorithm_and_recommends_one_for_each_kind_of_data(
    told: Told, browser: httpx.AsyncClient
) -> None:
    page = html.unescape((await browser.get("/tasks/new")).text)
    groups = re.findall(r'<optgroup label="([^"]+)">(.*?)</optgroup>', page, re.DOTALL)
    assert [label for label, _ in groups] == [
        "Different columns of the same records",
        "The same columns of different records",
    ]
    assert [re.findall(r"<option value=.([\w-]+).[^>]*>[^<]*\(recommended\)", options) for _, options in groups] == [
        ["dpp-svm"],
        ["pan-svm"],
    ]
    assert len(task_form.askable()) > 10
    for name in task_form.choices():
        assert f"<dt>{name}</dt><dd>{task_form.summary_of(name)}" in page
        assert len(task_form.summary_of(name).split()) > 5


class SentFields(HTMLParser):
    """The fields that the form of a new task sends, with their values, and the names of those that it folds."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.sent: dict[str, str] = {}
        self.folded: set[str] = set()
        self.is_open = False
        self._inside: list[str] = []
        self._select = self._chosen = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag in ("form", "details"):
            self._inside.append(given.get("action") or tag)
        if "/tasks" not in self._inside:
            return
        self.is_open |= tag == "details" and "open" in given
        if tag in ("input", "select", "textarea"):
            name = str(given["name"])
            self.sent[name] = given.get("value") or ""
            self.folded |= {name} if "details" in self._inside else set()
            self._select = name if tag == "select" else ""
        if tag == "option" and ("selected" in given or not self.sent[self._select]):
            self._chosen = self._select

    def handle_endtag(self, tag: str) -> None:
        if tag in ("form", "details"):
            self._inside.pop()

    def handle_data(self, data: str) -> None:
        if self._chosen:
            self.sent[self._chosen], self._chosen = data, ""


@pytest.mark.parametrize(("algorithm", "landmarks"), [("pan-svm", "0.25"), ("dpp-svm", "20")])
async def test_seldom_used_settings_are_folded_and_sent(
    algorithm: str, landmarks: str, told: Told, browser: httpx.AsyncClient
) -> None:
    form = SentFields((await browser.get("/tasks/new", params={"algorithm": algorithm})).text)
    assert not form.is_open
    assert {"set-C", "set-kernel", "sum", "label", "invited"} <= form.sent.keys() - form.folded
    assert {"set-tolerance", "set-max_iterations"} <= form.folded
    known = {f"set-{each.name}" for each in task_form.fields_of(algorithm)}
    assert form.folded < known < form.sent.keys()
    asked = await form_of(browser)
    filled = {**form.sent, **{name: text for name, text in asked.items() if not name.startswith("set-")}}
    filled |= {"algorithm": algorithm, "set-landmarks": landmarks, "set-tolerance": "0.5"}
    wrong = await browser.post("/tasks", data={**filled, "label": ""})
    assert wrong.status_code == 400
    again = SentFields(wrong.text)
    assert again.is_open, "a folded setting that was filled in must be visible"
    assert again.sent["set-tolerance"] == "0.5"
    answer = await browser.post("/tasks", data=filled)
    assert answer.status_code == 200, answer.text
    assert scenario_text(told.one(Task)).algorithm.settings.tolerance == 0.5


async def test_a_form_without_training_has_no_fields_of_models_and_checks_ranges(
    told: Told, browser: httpx.AsyncClient
) -> None:
    page = (await browser.get("/tasks/new?algorithm=describe")).text
    assert {"label", "positive", "negative", "statistics_privacy", "ranges"} <= set(re.findall(r' name="(\w+)"', page))
    assert not re.findall(r' name="(set-\w+|test_fraction|folds)"', page)
    wrong = {**await form_of(browser, algorithm="describe"), "ranges": "age 0 120\ndose 1 to 2"}
    answer = await browser.post("/tasks", data=wrong)
    assert answer.status_code == 400
    assert "each line must be a column, its lowest and its highest value" in answer.text
    number = await create(browser, algorithm="pan-svm", ranges="last dose -1 2.5e1", statistics_privacy="0.2")
    data = scenario_text(told.one(Task, id=number)).data
    assert data.ranges == {"last dose": [-1.0, 25.0]}
    assert data.statistics_privacy == 0.2


async def test_pages_describe_disclosures_in_sentences_without_names_of_steps(
    told: Told, browser: httpx.AsyncClient
) -> None:
    for algorithm, kernel in (("dpp-svm", "linear"), ("pan-svm", "rbf")):
        number = await create(browser, algorithm=algorithm, **{"set-kernel": kernel})
        page = html.unescape((await browser.get(f"/tasks/{number}")).text)
        disclosed = page.partition("What this task discloses")[2].partition("<details>")[0]
        assert ("Number of records" if algorithm == "dpp-svm" else "Number of training rows") in disclosed
        assert not re.findall(r"\b[a-z]+_[a-z_]+\b", disclosed)


async def test_pages_of_a_task_whose_stored_scenario_is_refused_say_so(told: Told, browser: httpx.AsyncClient) -> None:
    number = await create(browser)
    path, _ = await told.link(f"{SITES[0]}@example.org")
    with told.hub.database.session() as session:
        session.get_one(Task, number).scenario = "unknown_key = 2\n"
    told.hub.tasks.look_after(number)
    for page in (await browser.get(f"/tasks/{number}"), await browser.get(path)):
        assert page.status_code == 200
        assert "refuses the scenario of the task; create a new one" in page.text
        assert "What this task discloses" not in page.text


@pytest.mark.parametrize(
    ("docstring", "sentence"),
    [
        ("(2, p + 1) sums of the columns.\n\nMore.", "Sums of the columns."),
        ("(p (p + 1) / 2,): this site's part of it; see `newton`.", "The participant's part of it."),
        ("Return (rows,) or (rows, K): the scores of records. Raises StepRefused.", "Scores of records."),
        ("Return the number of records.", "Number of records."),
        ("Return the sums of rows, and their\n        number.\n\n        More.", "Sums of rows, and their number."),
    ],
)
def test_docstring_of_a_step_becomes_a_sentence_for_participants(docstring: str, sentence: str) -> None:
    class Program:
        """A program with one step."""

        def step(self) -> None:
            """Replaced."""

    Program.step.__doc__ = docstring
    assert presentation.sentence_of(Program.step) == sentence


@pytest.mark.parametrize(
    ("task", "participant", "shown"),
    [
        ("running", "joined", "joined"),
        ("completed", "joined", "finished"),
        ("completed", "withdrawn", "withdrawn"),
        ("failed", "joined", "took part"),
        ("cancelled", "invited", "did not answer"),
    ],
)
def test_state_of_a_participant_depends_on_whether_the_task_is_over(task: str, participant: str, shown: str) -> None:
    assert presentation.participant_state(Participant(state=participant), Task(state=task)) == shown


async def test_measures_of_a_completed_task_are_on_its_page(told: Told) -> None:
    metrics = Metrics(
        accuracy=0.9824,
        auc=0.9940,
        majority_accuracy=0.6316,
        sensitivity=0.9524,
        specificity=1.0,
        intervals={"accuracy": Interval(0.938, 0.995, "wilson"), "sensitivity": Interval(0.842, 0.987, "wilson")},
    )
    where = Environment(fedsvm="0", python="3", system="", cpus=1, packages={})
    result = RunResult(status="completed", error=None, warnings=(), scenario={}, metrics=metrics, environment=where)
    async with told.signed_in() as browser:
        number = await create(browser)
        assert "Accuracy" not in (await browser.get(f"/tasks/{number}")).text
        with told.hub.database.session() as session:
            session.get_one(Task, number).state = "completed"
        folder = told.hub.conductor.folder_of(number)
        folder.mkdir(parents=True)
        write_result(folder, result)
        page = (await browser.get(f"/tasks/{number}/progress")).text
        cells = r'<th scope="row">([^<]+)</th><td class="value">([^<]+)</td><td class="value">([^<]*)</td>'
        assert re.findall(cells, page) == [
            ("Accuracy", "98.2 %", "93.8 to 99.5 %"),
            ("Baseline accuracy", "63.2 %", ""),
            ("AUC", "0.994", ""),
            ("Sensitivity", "95.2 %", "84.2 to 98.7 %"),
            ("Specificity", "100.0 %", ""),
        ]


# What becomes of tasks.


async def test_who_declines_is_asked_no_more_and_the_creator_is_told(told: Told, browser: httpx.AsyncClient) -> None:
    await create(browser, min_sites="2")
    path, _ = await told.link("south@example.org")
    answer = await browser.post(f"{path}/decline", data={"reason": "no time"})
    assert "you do not take part" in answer.text
    again = await browser.post(f"{path}/decline", data={"reason": "still"})
    assert again.status_code == 200
    assert told.one(Participant, site="south").state == "declined"
    assert len([mail for mail in await told.mails(ANNA) if "south declined" in mail and "no time" in mail]) == 1
    each = await programs(told)
    assert "no longer takes part" in each["south"].join()["refused"]


async def test_a_task_with_too_few_ends_and_says_so_once(told: Told, browser: httpx.AsyncClient) -> None:
    await create(browser)
    for site in ("south", "north"):
        path, _ = await told.link(f"{site}@example.org")
        await browser.post(f"{path}/decline", data={})
    each = await programs(told)
    each["clinic"].join()
    each["clinic"].ready()
    task = told.one(Task)
    assert (task.state, "1 of 3 participants joined, but 3 are needed" in task.reason) == ("failed", True)
    for _ in range(3):
        told.hub.tasks.look_after_all()
    assert len([mail for mail in await told.mails(ANNA) if "has failed" in mail]) == 1


async def test_who_does_not_join_in_time_is_done_without(told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    await begun_task(told, ("clinic", "north"), min_sites="2", join_days="1")
    assert told.one(Task).state == "inviting"
    late = time.time() + 86401
    monkeypatch.setattr("fedsvm.scenarios.hub.tasks.time.time", lambda: late)
    told.hub.tasks.look_after_all()
    assert told.one(Participant, site="south").state == "missed"
    assert told.one(Task).state == "running"
    assert '"clinic",\n    "north",\n]' in told.one(Task).scenario


async def test_sites_accept_a_run_of_as_few_as_the_creator_allows(told: Told, browser: httpx.AsyncClient) -> None:
    sites = ("a", "b", "c", "d", "e", "f")
    invited = "\n".join(f"{site} {site}@example.org" for site in sites)
    await create(browser, algorithm="pan-svm", invited=invited, min_sites="3")
    for site in sites[3:]:
        path, _ = await told.link(f"{site}@example.org")
        await browser.post(f"{path}/decline", data={})
    each = await programs(told, sites[:3])
    agreed = {site: each[site].join()["terms"] for site in each}
    for program in each.values():
        program.ready()
    begun = scenario_text(told.one(Task))
    assert (told.one(Task).state, begun.min_sites) == ("running", 3)
    for site in each:
        assert each[site].join()["terms"] == agreed[site]
        terms = Terms.from_fields(agreed[site])
        sums = SumTerms((1,), 1.0, terms.sum_options, COORDINATOR)
        order = Order("any", terms.sum_name, sums, sites=tuple(begun.federation.site_names))
        SitePolicy(order.sites, terms).check_order(order, site, StepMark())
        few = replace(order, sites=tuple(each)[:2] if site != "c" else tuple(each)[1:])
        with pytest.raises(OrderRefused, match="it must be for 3 sites or more, got 2"):
            SitePolicy(order.sites, terms).check_order(few, site, StepMark())


async def test_whose_turn_it_is_and_never_comes_is_done_without(
    told: Told, browser: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    await begun_task(told, min_sites="2", patience_days="2")
    number = told.one(Task).id
    told.hub.conductor.settle(number, 30)
    page = (await browser.get(f"/tasks/{number}")).text
    assert all(f"{site}'s turn" in page for site in SITES)
    assert told.one(Participant, site="north").told == 1
    late = time.time() + 2 * 86400 + 1
    monkeypatch.setattr("fedsvm.scenarios.hub.tasks.time.time", lambda: late)
    told.hub.tasks.look_after_all()
    assert {who.state for who in told.hub.tasks.task(told.one(Task).id, ANNA).participants} == {"missed"}
    deadline = time.monotonic() + 30
    while told.one(Task).state == "running" and time.monotonic() < deadline:
        told.hub.conductor.settle(number, 1)
    task = told.one(Task)
    assert (task.state, "did not take its turn within 2 days" in task.reason) == ("failed", True)


async def test_whose_turn_ends_soon_is_reminded_once_by_a_mail_server(
    told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    await begun_task(told, patience_days="2")
    number = told.one(Task).id
    told.hub.conductor.settle(number, 30)
    with mail_server() as (inbox, port):
        told.hub.carrier = Smtp("127.0.0.1", port)
        for passed in (1.4, 1.6, 1.9):
            at = time.time() + passed * 86400
            with monkeypatch.context() as clock:
                clock.setattr("fedsvm.scenarios.hub.tasks.time.time", lambda at=at: at)
                told.hub.tasks.look_after_all()
                await told.hub.send_mails()
        reminders = [mail for mail in inbox.mails if mail["Subject"].startswith("Reminder, your turn ends soon")]
    assert sorted(mail["To"] for mail in reminders) == [f"{site}@example.org" for site in SITES]
    assert "Later the task goes on without you" in str(reminders[0])


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [("site", "east", "must be one of this task"), ("email", "north@example.org", "another participant of this task")],
)
async def test_only_a_site_of_the_task_and_a_free_address_are_invited_anew(
    field: str, value: str, said: str, told: Told, browser: httpx.AsyncClient
) -> None:
    number = await create(browser)
    form = {"form_key": await form_key(browser), "site": "south", "email": "x@example.org"}
    answer = await browser.post(f"/tasks/{number}/invite", data={**form, field: value})
    assert (answer.status_code, said in answer.text) == (400, True)
    async with told.signed_in("bert@clinic.example") as other:
        form["form_key"] = await form_key(other)
        answer = await other.post(f"/tasks/{number}/invite", data=form)
        assert (answer.status_code, "Only the creator" in answer.text) == (400, True)


async def test_who_is_invited_anew_has_time_to_answer_and_counts_as_an_invitation(
    told: Told, browser: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    number = await create(browser, join_days="1")
    monkeypatch.setattr("fedsvm.scenarios.hub.tasks._INVITATIONS_A_DAY", len(SITES) + 1)
    told.hub.tasks.invite_anew(number, ANNA, Invited("south", "x@example.org"))
    assert told.one(Task).join_until - time.time() > 2.9 * 86400
    with pytest.raises(RequestRefused, match="You can invite 4 participants per day"):
        told.hub.tasks.invite_anew(number, ANNA, Invited("south", "y@example.org"))


async def test_two_tasks_do_not_know_of_each_other(told: Told, browser: httpx.AsyncClient) -> None:
    first, second = await create(browser, title="One"), await create(browser, title="Two")
    assert "Two" not in (await browser.get(f"/tasks/{first}")).text
    await browser.post(f"/tasks/{first}/cancel", data={"form_key": await form_key(browser)})
    assert told.one(Task, id=first).state == "cancelled"
    assert told.one(Task, id=second).state == "inviting"


async def test_what_is_encoded_in_a_title_makes_no_header(told: Told, browser: httpx.AsyncClient) -> None:
    await create(browser, title="=?utf-8?q?x=0abcc=3aeve=40evil.example?=")
    await told.hub.send_mails()
    messages = [email.message_from_bytes(path.read_bytes()) for path in (told.folder / "mails").glob("*.eml")]
    assert len(messages) == 1 + len(SITES)
    assert all(message["Bcc"] is None for message in messages)


async def test_mails_that_nobody_takes_hold_up_no_others(told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    refused: list[str] = []
    sent: list[str] = []

    class Choosy:
        """A server, and a library, that take some addresses only."""

        async def send(self, number: int, message: Any) -> None:
            """Send, or not."""
            if message["To"].startswith("x"):
                refused.append(message["To"])
                raise ValueError("no such recipient")
            sent.append(message["To"])

    told.hub.carrier = Choosy()
    for number in range(60):
        told.hub.accounts.send_sign_in(f"x{number}@example.org")
    told.hub.accounts.send_sign_in(ANNA)
    for _ in range(5):
        await told.hub.send_mails()
    assert sent == [ANNA]
    assert len(refused) == 60
    now = time.time()
    for later, tries in ((10, 120), (11, 120), (30, 180), (4 * 86400, 180)):
        monkeypatch.setattr("fedsvm.scenarios.hub.mails.time.time", lambda later=later: now + later)
        for _ in range(3):
            await told.hub.send_mails()
        assert len(refused) == tries, later


def test_nobody_is_told_the_columns_of_another_who_holds_columns(own: tuple[Told, Program]) -> None:
    assert own[1].ask("take", after=0, acted=False, watches=False)["columns"] == ["north"]


def test_a_task_whose_coordinator_loses_the_database_has_not_failed(told: Told) -> None:
    is_lost, lost = threading.Event(), threading.Event()
    engine = told.hub.database._engine

    def lose(connection: sql.Connection) -> None:
        writes = not connection.get_execution_options().get(hub_database._READS)
        if is_lost.is_set() and writes and threading.current_thread().name.startswith("task "):
            lost.set()
            raise sql.exc.OperationalError("INSERT", {}, Exception("server closed the connection unexpectedly"))

    sql.event.listen(engine, "begin", lose)
    is_lost.set()
    each = asyncio.run(begun_task(told))
    assert lost.wait(60)
    wait_until(lambda: told.hub.conductor.never_ran(told.one(Task).id))
    assert told.one(Task).state == "running"
    is_lost.clear()
    told.hub.tasks.look_after_all()
    assert len(each["north"].ask("take", after=0)["letters"]) == 1
    assert told.one(Task).state == "running"


async def test_an_invitation_says_what_the_hub_learns_of_identifiers(told: Told, browser: httpx.AsyncClient) -> None:
    for identifier in ("", "patient"):
        await create(browser, identifier=identifier)
        page = (await browser.get((await told.link("north@example.org"))[0])).text
        assert ("in common, two by two and all" in page) == bool(identifier)
        assert ("it can test guessed identifiers" in page) == bool(identifier)


def test_two_hubs_are_not_at_work_in_one_folder(told: Told) -> None:
    with pytest.raises(FederationError, match=r"Another hub is at work in .*--folder"):
        Hub(told.hub.settings, told.hub.carrier)


@pytest.mark.parametrize("database", ["postgresql"], indirect=True)
@pytest.mark.long
def test_two_hubs_are_not_at_work_on_one_database(told: Told, tmp_path: Path) -> None:
    elsewhere = replace(told.hub.settings, folder=tmp_path / "elsewhere")
    with pytest.raises(FederationError, match=r"Another hub is at work on the database postgresql.*--database"):
        Hub(elsewhere, told.hub.carrier)


@pytest.mark.parametrize("database", ["postgresql"], indirect=True)
@pytest.mark.long
def test_a_hub_whose_hold_on_its_database_broke_takes_it_again_or_rests(told: Told, database: str) -> None:
    psycopg = pytest.importorskip("psycopg")

    def break_it(other: Any) -> None:
        held = "FROM pg_locks WHERE locktype = 'advisory' AND granted"
        other.execute("SELECT pg_terminate_backend(pid, 5000) " + held)

    hold = f"SELECT pg_try_advisory_lock({hub_database._HUBS})"
    with psycopg.connect(database, autocommit=True) as other:
        break_it(other)
        told.hub.database.hold()
        assert other.execute(hold).fetchone() == (False,)
        break_it(other)
        assert other.execute(hold).fetchone() == (True,)
        for _ in range(2):
            with pytest.raises(FederationError, match="Another hub is at work on the database"):
                told.hub.database.hold()
        other.execute(hold.replace("try_advisory_lock", "advisory_unlock"))  # a closed connection lets go later
    told.hub.database.hold()


@pytest.mark.parametrize("database", ["postgresql"], indirect=True)
@pytest.mark.long
def test_a_transaction_that_hangs_is_not_waited_for_without_end(
    told: Told, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(hub_database._WAITS, "lock_timeout", 200)
    psycopg = pytest.importorskip("psycopg")
    with psycopg.connect(database) as other:
        other.execute("SELECT pg_advisory_xact_lock(%s)", [hub_database._WRITERS])
        told.hub.database._engine.dispose()
        with pytest.raises(sql.exc.OperationalError, match="lock timeout"):
            told.one(Task)
    with pytest.raises(sql.exc.NoResultFound):
        told.one(Task)


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("hub", r"\(--database\) must be a URL"),
        ("mysql://anna:secret@db/hub", r"mysql://anna:\*\*\*@db/hub is neither SQLite nor PostgreSQL"),
        ("postgresql://anna:secret@127.0.0.1:1/hub", r"anna:\*\*\*@127.0.0.1:1/hub cannot be used: .*refused"),
    ],
)
def test_a_database_that_cannot_be_is_named_without_its_password(url: str, said: str) -> None:
    with pytest.raises(FederationError, match=f"(?s){said}") as refused:
        Database(url)
    assert "secret" not in str(refused.value)


async def test_a_mail_server_that_hangs_holds_up_no_task(told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    class Hanging:
        """A server that takes its time."""

        def __init__(self) -> None:
            self.is_asked = asyncio.Event()

        async def send(self, number: int, message: Any) -> None:
            """Send, some day."""
            self.is_asked.set()
            await asyncio.Event().wait()

    async with told.signed_in() as browser:
        carrier = Hanging()
        told.hub.carrier = carrier
        number = await create(browser)
        late = time.time() + 15 * 86400
        looking = asyncio.create_task(told.hub.look_after())
        await carrier.is_asked.wait()
        monkeypatch.setattr("fedsvm.scenarios.hub.tasks.time.time", lambda: late)
        while told.one(Task, id=number).state != "failed":
            await asyncio.sleep(0.05)
        looking.cancel()


async def test_a_mail_that_cannot_be_sent_is_sent_later_and_once(told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[int] = []

    class Broken:
        """A server that is down at first."""

        is_up = False

        async def send(self, number: int, message: Any) -> None:
            """Send, or not."""
            if not self.is_up:
                raise OSError("nobody answers")
            sent.append(number)

    carrier = Broken()
    told.hub.carrier = carrier
    told.hub.accounts.send_sign_in(ANNA)
    await told.hub.send_mails()
    assert told.one(Mail).problem == "nobody answers"
    carrier.is_up = True
    later = time.time() + 10
    monkeypatch.setattr("fedsvm.scenarios.hub.mails.time.time", lambda: later)
    for _ in range(3):
        await told.hub.send_mails()
    assert sent == [told.one(Mail).id]


def test_link_without_its_key_is_refused() -> None:
    wrong = "http://hub.example/join/abc#" + 40 * "~"
    for said in (
        wrong,
        "http://[",
        "http://hub.example/join/abc",
        "hub.example/join/abc#x",
        "ftp://hub/join/a#b",
        "nonsense",
    ):
        with pytest.raises(ScenarioError, match="link: must be the whole link of the invitation mail"):
            InvitationLink.read(said)


@contextmanager
def served(told: Told) -> Iterator[str]:
    """Serve the hub of a test, and return its address for programs."""
    config = uvicorn.Config(told.app, log_level="error", access_log=False, lifespan="off")
    with socket.create_server(("127.0.0.1", 0)) as bound:
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]})
        thread.start()
        try:
            wait_until(lambda: server.started)
            yield f"http://127.0.0.1:{bound.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()


@dataclass
class Begun:
    """A task, its participants' next visits, and what these said."""

    told: Told
    visits: dict[str, TaskParticipation]
    said: list[str]

    def finish(self) -> None:
        """Have all participants come in turn, until the task is completed."""
        over: set[str] = set()
        for _ in range(PATIENT_VISITS):
            over |= {site for site in SITES if site not in over and self.visits[site].visit()}
        assert over == set(SITES)
        wait_until(lambda: self.told.one(Task).state == "completed")


@contextmanager
def visitors(told: Told, files: dict[str, Path], **form: str) -> Iterator[Begun]:
    """The participants of a task, with files of their own."""

    async def make() -> dict[str, Program]:
        async with told.signed_in() as browser:
            await create(browser, **form)
        return await programs(told)

    each = asyncio.run(make())
    said: list[str] = []
    with served(told) as url:
        visits = {
            site: TaskParticipation(
                InvitationLink(url, each[site].token, told.hub.keys.public),
                str(files[site]),
                ANYTHING,
                told.folder / f"visits-{site}",
                said.append,
            )
            for site in SITES
        }
        yield Begun(told, visits, said)


@pytest.fixture
def begun(told: Told, tmp_path: Path) -> Iterator[Begun]:
    """A task that has begun, whose participants each came twice."""
    with visitors(told, cells(tmp_path)[0]) as there:
        for site in (*SITES, *SITES):
            assert not there.visits[site].visit()
        yield there


@pytest.mark.long
@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
def test_rows_too_are_trained_on_by_visitors_who_have_patience(told: Told, tmp_path: Path) -> None:
    files, exact = hospitals(tmp_path), {"set-masking": "none", "set-step_noise": "0"}
    form = {"compare_sites": "yes", "set-kernel": "rbf", **exact}
    with visitors(told, files, algorithm="pan-svm", **form) as there:
        there.finish()
    task = told.one(Task)
    shown = {each.name: each for each in presentation.measures_of(read_result(tmp_path / "tasks" / task.id))}
    assert shown["Own models"].value.endswith(" %")
    assert " to " in shown["Gain in accuracy"].interval
    assert "Gain in AUC" in shown
    with np.load(tmp_path / "tasks" / task.id / "model.npz") as model:
        assert np.abs(model["w"] - simulated(tmp_path, files)).max() < 1e-9


@pytest.mark.long
@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
def test_visitors_with_other_records_in_another_order_train_on_those_that_all_have(told: Told, tmp_path: Path) -> None:
    files, table, labels = cells(tmp_path)
    common, random = np.arange(10, 55), np.random.default_rng(4)
    for place, path in enumerate(files.values()):
        head, *lines = path.read_text().splitlines()
        held = random.permutation([*common, *range(place, 10, 3)])
        path.write_text("\n".join([f"patient,{head}", *(f"p{row},{lines[row]}" for row in held), ""]))
    with visitors(told, files, identifier="patient", test_fraction="0") as there:
        there.finish()
    result = json.loads((tmp_path / "tasks" / told.one(Task).id / "result.json").read_text())
    assert result["alignment"]["records"] == len(common)
    with np.load(tmp_path / "tasks" / told.one(Task).id / "model.npz") as model:
        weights = np.concatenate([np.load(tmp_path / f"visits-{site}" / "model.npz")["weights"] for site in SITES])
        rows = (table[common] - table[common].mean(axis=0)) / table[common].std(axis=0)
        exact = libsvm.dual(rows @ rows.T, np.where(labels[common] == "M", 1.0, -1.0), 1.0)
        assert np.abs(rows @ weights + model["b"] - exact.decision_function(rows @ rows.T)).max() < 1e-9


@pytest.mark.long
@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
def test_page_of_a_completed_task_shows_measures_and_who_finished(told: Told, tmp_path: Path) -> None:
    with visitors(told, cells(tmp_path)[0]) as there:
        there.finish()
    number = told.one(Task).id
    result = json.loads((tmp_path / "tasks" / number / "result.json").read_text())

    async def look() -> None:
        async with told.signed_in() as browser:
            page = (await browser.get(f"/tasks/{number}")).text.partition("What this task discloses")[0]
            assert re.findall(r'<th scope="row">Accuracy</th><td[^>]*>([\d.]+) %', page) == [
                f"{100 * result['metrics']['accuracy']:.1f}"
            ]
            assert f">{result['metrics']['auc']:.3f}<" in page
            assert page.count(">finished<") == 3
            assert "joined" not in page.replace('class="state joined"', "")
            (tmp_path / "tasks" / number / "result.json").unlink()
            assert "Accuracy" not in (await browser.get(f"/tasks/{number}")).text

    asyncio.run(look())


def test_an_older_copy_of_what_a_site_keeps_says_nothing_again(begun: Begun) -> None:
    north = begun.visits["north"]
    earlier = north.folder.with_name("earlier")
    shutil.copytree(north.folder, earlier)
    for site in ("south", "clinic"):
        begun.visits[site].visit()
    north.visit()
    heard = begun.told.one(Participant, site="north").said
    with pytest.raises(FederationError, match=r"earlier is an older copy .*--decline"):
        replace(north, folder=earlier).visit()
    (north.folder / "diary").unlink()
    with pytest.raises(FederationError, match="this folder is incomplete"):
        north.visit()
    assert begun.told.one(Participant, site="north").said == heard


def test_a_task_that_is_called_off_is_forgotten_where_it_was_taken_part_in(begun: Begun) -> None:
    diary = begun.visits["north"].folder / "diary"
    size = diary.stat().st_size
    begun.told.hub.tasks.cancel(begun.told.one(Task).id, ANNA)
    with pytest.raises(FederationError, match=r"no longer take part in this task \(cancelled\)"):
        begun.visits["north"].visit()
    assert diary.stat().st_size < 100 < size


def test_who_withdraws_forgets_what_its_masks_followed_from(begun: Begun) -> None:
    clinic, north = begun.visits["clinic"], begun.visits["north"]
    clinic.decline("no time")
    assert (clinic.folder / "diary").stat().st_size < 100
    begun.told.hub.tasks.decline(begun.told.one(Participant, site="north").id, "by the button")
    with pytest.raises(FederationError, match=r"no longer take part in this task \(withdrawn\)"):
        north.visit()
    assert (north.folder / "diary").stat().st_size < 100
    with pytest.raises(FederationError, match="no longer takes part"):
        clinic.visit()


def test_another_hub_at_the_address_is_found_out() -> None:
    keys, hub = KeyPair.generate(), KeyPair.generate()
    link = InvitationLink("http://hub.example", "t", hub.public)
    asked = AskedHub(link, Requests(keys, hub.public), 0.1, lambda url, request: bytes(100), print)
    with pytest.raises(FederationError, match="not sealed by the hub of this invitation"):
        asked.ask("take")


def test_an_address_is_kept_in_small_letters(told: Told) -> None:
    with pytest.raises(RequestRefused):
        told.hub.accounts.send_sign_in("x")
    told.hub.accounts.send_sign_in(" Anna@Clinic.example ")
    assert told.one(Mail).recipient == ANNA
    assert len(digest("x")) == 32
