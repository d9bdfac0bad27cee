"""The hub's pages in a real browser, with mails from a real server: made, followed and declined by keyboard alone.

With FEDSVM_PICTURES=FOLDER the pages are photographed there, as the guide shows them.
"""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from tests.hub import CREATOR, SITES, cells, hub, join
from tests.mail_server import mail_server
from tests.test_report import BROWSER

pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(400),
    pytest.mark.skipif(BROWSER is None, reason="there is no Chromium here"),
]
WIDTHS, SCHEMES = (1200, 400), ("light", "dark")
NAMELESS = """[...document.querySelectorAll('input:not([type=hidden]), select, textarea')]
    .filter(field => !field.labels.length).length"""
PICTURES = os.environ.get("FEDSVM_PICTURES")


@dataclass
class Eyes:
    """Looks at pages, in two widths and two schemes."""

    said: list[str] = field(default_factory=list)

    def opened(self, browser: Browser) -> Page:
        """A new page, whose console is listened to."""
        page = browser.new_context().new_page()
        page.on("console", lambda message: self.said.append(message.text))
        page.on("pageerror", lambda error: self.said.append(str(error)))
        return page

    def look(self, page: Page, name: str) -> None:
        """Nothing stands out over the edge, and every field has a name."""
        for width in WIDTHS:
            page.set_viewport_size({"width": width, "height": 900})
            assert not page.evaluate("document.documentElement.scrollWidth > window.innerWidth"), (name, width)
            for scheme in SCHEMES:
                page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
                if PICTURES is not None:
                    page.screenshot(path=Path(PICTURES) / f"{name}-{width}-{scheme}.png")
        page.set_viewport_size({"width": WIDTHS[0], "height": 900})
        assert page.evaluate(NAMELESS) == 0, name


def tab_to(page: Page, name: str) -> None:
    """Go to a field, link or button by the keyboard."""
    for _ in range(60):
        page.keyboard.press("Tab")
        said = page.evaluate(
            "(document.activeElement.labels?.[0] ?? document.activeElement).textContent.trim().replace(/\\s+/g, ' ')"
        )
        if said == name:
            return
    raise AssertionError(f"no Tab leads to {name}")


def fill(page: Page, fields: dict[str, str]) -> None:
    """Fill in a form by the keyboard; its fields come in this order."""
    for name, text in fields.items():
        tab_to(page, name)
        page.keyboard.press("ControlOrMeta+a")
        page.keyboard.insert_text(text)


FORM = {
    "Title": "Malignant or not",
    "Description": "Cell features of three laboratories.",
    "Participants": "\n".join(f"{site} {site}@example.org" for site in SITES),
    "Label column": "diagnosis",
    "Positive class": "M",
    "Negative class": "B",
}


def test_a_task_from_the_mailed_link_to_the_report(tmp_path: Path) -> None:
    files, _, _ = cells(tmp_path)
    eyes = Eyes()
    with (
        mail_server() as (inbox, port),
        hub(tmp_path, "--smtp", f"127.0.0.1:{port}", "--sender", "hub@fedsvm.example") as running,
        sync_playwright() as play,
    ):
        browser = play.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        page = eyes.opened(browser)
        page.goto(running.url)
        eyes.look(page, "home")
        fill(page, {"Your e-mail address": CREATOR})
        page.keyboard.press("Enter")
        expect(page.get_by_role("heading", name="Check your mail")).to_be_visible()
        page.goto(inbox.found(CREATOR, r"http://\S+/sign-in/\S+"))
        tab_to(page, "Sign in")
        page.keyboard.press("Enter")
        expect(page.get_by_role("heading", name="Your tasks")).to_be_visible()
        tab_to(page, "Create a task")
        page.keyboard.press("Enter")
        page.wait_for_url("**/tasks/new")
        eyes.look(page, "new")
        fill(page, FORM)
        tab_to(page, "kernel")
        page.keyboard.type("lin")
        tab_to(page, "Create the task and invite")
        page.keyboard.press("Enter")
        expect(page.get_by_role("heading", name="Malignant or not")).to_be_visible()
        eyes.look(page, "task")
        links = {site: inbox.found(f"{site}@example.org", r"http://\S+/join/\S+") for site in SITES}
        invited = eyes.opened(browser)
        invited.goto(links["north"])
        expect(invited.get_by_text("fedsvm join 'http")).to_contain_text(links["north"])
        eyes.look(invited, "invitation")
        visits = [
            threading.Thread(
                target=join, args=(tmp_path, links[site], files[site], "--watch", "--folder", f"visits-{site}")
            )
            for site in SITES
        ]
        for visit in visits:
            visit.start()
        for visit in visits:
            visit.join()
        report = page.get_by_text("Full report")
        report.wait_for(timeout=30_000)  # htmx fetches it
        eyes.look(page, "completed")
        tab_to(page, "Full report")
        page.keyboard.press("Enter")
        expect(page.get_by_text("certified gap").first).to_be_visible()
        assert not eyes.said
        assert inbox.found(CREATOR, r"is completed")
        mailed = [mail["Message-ID"] for mail in inbox.mails]
        assert len(mailed) == len(set(mailed))


def test_who_is_invited_declines_and_the_task_ends(tmp_path: Path) -> None:
    eyes = Eyes()
    with hub(tmp_path) as running, sync_playwright() as play:
        anna = running.signed_in(CREATOR)
        from tests.hub import create

        number = create(running, anna, title="<b>Bold</b>")
        browser = play.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        page = eyes.opened(browser)
        page.goto(running.mailed("south@example.org", r"http://\S+/join/\S+"))
        expect(page.get_by_role("heading", name="<b>Bold</b>")).to_be_visible()
        fill(page, {"Reason (optional)": "no time"})
        page.keyboard.press("Enter")
        expect(page.get_by_text("you do not take part")).to_be_visible()
        eyes.look(page, "declined")
        assert "no time" in anna.get(f"/tasks/{number}")[1]
        assert not eyes.said
