"""The mails that tell users about a task: invitations, turns, reminders, departures, and the end."""

from __future__ import annotations

from urllib.parse import quote

from sqlalchemy.orm import Session

from fedsvm.federation.transport import z85
from fedsvm.federation.transport.keys import KeyPair
from fedsvm.scenarios.hub.database import Participant, Task, day, digest
from fedsvm.scenarios.hub.mails import Outbox

HOW_LEFT = {"declined": "declined", "withdrawn": "withdrew", "missed": "missed a deadline"}
"""The words for the departure of a participant, by state."""
_HOW_OVER = {
    "completed": "is completed",
    "failed": "has failed",
    "cancelled": "was canceled",
    "expired": "reached its end date",
}
_RUN_AGAIN = "Run the fedsvm join command of your invitation again, on the machine that holds your data."


class Notices:
    """Writes the mails about tasks.

    Parameters
    ----------
    outbox : Outbox
    keys : KeyPair
        The hub's own.
    url : str
        By which people reach the hub, without a slash at its end.
    """

    def __init__(self, outbox: Outbox, keys: KeyPair, url: str) -> None:
        self._outbox = outbox
        self._url = url
        self._hub_key = z85.encode(keys.public).decode()

    def link(self, said: str) -> str:
        """Return the link of an invitation: address, token, and the key of the hub."""
        return f"{self._url}/join/{said}#{quote(self._hub_key, safe='')}"

    def invite(self, session: Session, who: Participant, said: str) -> None:
        """Mail an invitation with its token."""
        task = who.task
        text = (
            f"{task.creator} invites you to the task {task.title!r} as {who.site}.\n\n{task.description}\n\n"
            "This page explains what the task needs, what it discloses, how to take part, and how to decline:\n\n"
            f"{self.link(said)}\n\n"
            f"Please answer by {day(task.join_until)}. The link is personal: do not forward it.\n"
        )
        occasion = f"invitation {task.id} {who.place} {digest(said).hex()[:16]}"
        self._outbox.put(session, occasion, who.email, f"Invitation: {task.title}", text)

    def tell_replaced(self, session: Session, who: Participant) -> None:
        """Tell a participant that another one takes its place."""
        text = (
            f"{who.task.creator} invited another participant as {who.site}, in your place. Your link to the task "
            f"{who.task.title!r} no longer works.\n"
        )
        subject, occasion = f"Your invitation is void: {who.task.title}", f"replaced {who.id} {who.token.hex()[:16]}"
        self._outbox.put(session, occasion, who.email, subject, text)

    def tell_deviating(self, session: Session, who: Participant) -> None:
        """Tell a participant that its columns differ from those of most others."""
        task = who.task
        text = f"{who.reason}\n\nDeadline: {day(task.join_until)}.\n{self._page(task)}"
        occasion = f"columns {who.id} {digest(who.reason).hex()[:16]}"
        self._outbox.put(session, occasion, who.email, f"Your columns differ: {task.title}", text)

    def ask(self, session: Session, who: Participant, until: float) -> None:
        """Tell a participant that it is its turn; once between two visits."""
        task = who.task
        text = (
            f"It is your turn in the task {task.title!r}. {_RUN_AGAIN}\n\nDeadline: {day(until)}.\n{self._page(task)}"
        )
        self._outbox.put(session, f"turn {who.id} {who.visits}", who.email, f"Your turn: {task.title}", text)

    def remind_of_turn(self, session: Session, who: Participant, until: float) -> None:
        """Tell a participant once that its turn ends soon."""
        task = who.task
        text = (
            f"Your turn in the task {task.title!r} ends on {day(until)}. {_RUN_AGAIN} Later the task goes on without "
            f"you, or fails.\n\n{self._page(task)}"
        )
        occasion = f"reminder {who.id} turn {who.due_since}"
        self._outbox.put(session, occasion, who.email, f"Reminder, your turn ends soon: {task.title}", text)

    def remind_to_join(self, session: Session, who: Participant) -> None:
        """Tell a participant once that the time to join ends soon."""
        task = who.task
        text = (
            f"{task.creator} invited you to the task {task.title!r} as {who.site}. Please answer by "
            f"{day(task.join_until)}: the invitation, an earlier mail, has the link to join or to decline.\n"
        )
        occasion = f"reminder {who.id} invitation {who.token.hex()[:16]}"
        self._outbox.put(session, occasion, who.email, f"Reminder, please answer: {task.title}", text)

    def tell_left(self, session: Session, who: Participant) -> None:
        """Tell the creator that a participant left."""
        task, how = who.task, HOW_LEFT[who.state]
        text = f"{who.site} ({who.email}) {how}.\n\nTask: {task.title}\n"
        if who.reason:
            text += f"Reason: {who.reason}\n"
        subject, occasion = f"{who.site} {how}: {task.title}", f"{who.state} {who.id} {who.token.hex()[:16]}"
        self._outbox.put(session, occasion, task.creator, subject, f"{text}\n{self._page(task)}")

    def tell_over(self, session: Session, task: Task) -> None:
        """Tell the creator and the participants that a task is over, and why."""
        how = _HOW_OVER[task.state]
        concerned = {task.creator, *(each.email for each in task.participants if each.state in ("invited", "joined"))}
        for email in sorted(concerned):
            text = f"The task {task.title!r} {how}. {task.reason}\n\n{self._page(task)}"
            occasion = f"over {task.id} {digest(email).hex()[:16]}"
            self._outbox.put(session, occasion, email, f"{task.title} {how}", text)

    def _page(self, task: Task) -> str:
        return f"{self._url}/tasks/{task.id}\n"
