"""The life cycle of a task: participants are invited, join, decline, withdraw or miss it; it begins and ends.

inviting -> running -> completed | failed
         -> failed (too few joined) | cancelled (by its creator)
"""

from __future__ import annotations

import re
import secrets
import time
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from urllib.parse import quote

import sqlalchemy as sql
from sqlalchemy.orm import Session
from zmq.utils import z85

from fedsvm.federation.columns import deviations
from fedsvm.federation.offline.sealing import Vault, derive_key
from fedsvm.federation.transport.keys import KeyPair
from fedsvm.federation.transport.wire import RUN_ID_BYTES
from fedsvm.scenarios.hub import task_form
from fedsvm.scenarios.hub.database import Database, Participant, SignIn, Task, Visitor, day, digest, token
from fedsvm.scenarios.hub.mails import Outbox
from fedsvm.scenarios.hub.stored_messages import StoredMessages
from fedsvm.scenarios.hub.task_form import TaskForm
from fedsvm.scenarios.schema import spec
from fedsvm.scenarios.schema.errors import ScenarioError
from fedsvm.scenarios.schema.federation import require_name
from fedsvm.scenarios.schema.spec import Scenario, resolved_toml

SIGN_IN_S, SIGNED_IN_S = 15 * 60.0, 14 * 24 * 3600.0
_SIGN_INS_AN_HOUR, _ALL_SIGN_INS_AN_HOUR = 5, 500
"""Links mailed to one address, and to all."""
_INVITATIONS_A_DAY, _OPEN_TASKS = 200, 20
"""Of one creator: a hub that strangers can sign in to must not send mails for them without end."""
_ADDRESS = re.compile(r"[a-z0-9_+&'~-]+(\.[a-z0-9_+&'~-]+)*@[a-z0-9-]+(\.[a-z0-9-]+)*")
"""No more than mail servers take: what seems encoded (`=?…?=`) would be decoded in a header, line ends and all."""
_MAX_ADDRESS, _MAX_LOCAL_PART = 254, 64
_MAX_TITLE, _MAX_DESCRIPTION = 120, 5000
_A_DAY_S = 24 * 3600.0
MOST_DAYS = 365


class RequestRefused(Exception):
    """The refusal of a request. The sentence says why, and what to do."""


@dataclass(frozen=True)
class Invited:
    """Somebody who is to be invited: a name for the site, and an address."""

    site: str
    email: str


@dataclass(frozen=True)
class NewTask:
    """The description of a task by its creator.

    Parameters
    ----------
    title, description : str
    wish : TaskForm
    invited : sequence of Invited
    min_sites : int
        With fewer it is not begun.
    join_days : float
        How long participants have to join.
    patience_days : float
        How long a participant has, whenever it is its turn.
    """

    title: str
    description: str
    wish: TaskForm
    invited: Sequence[Invited]
    min_sites: int
    join_days: float
    patience_days: float


class Tasks:
    """The tasks of a hub.

    Parameters
    ----------
    database : Database
    keys : KeyPair
        The hub's own.
    letters : StoredMessages
    outbox : Outbox
    url : str
        By which people reach the hub, without a slash at its end.

    Attributes
    ----------
    nudge : callable
        Told of a task whose coordinator may have more to take in.
    never_ran : callable
        Whether the coordinator of a task was not run since the hub was started.
    """

    def __init__(self, database: Database, keys: KeyPair, letters: StoredMessages, outbox: Outbox, url: str) -> None:
        self.database = database
        self.nudge: Callable[[str], None] = lambda number: None
        self.never_ran: Callable[[str], bool] = lambda number: False
        self.letters = letters
        self.outbox = outbox
        self.url = url
        self._hub_key = z85.encode(keys.public).decode()

    # Who somebody is.

    def send_sign_in(self, email: str) -> None:
        """Mail a sign-in link. Raises Refused if an address is invalid, or too many links were mailed."""
        email = address(email)
        with self.database.session() as session:
            _require_few_sign_ins(session, email)
            path = _made_sign_in(session, email)
            text = (
                f"Sign in to the task service with this link within 15 minutes:\n\n{self.url}{path}\n\n"
                "It works once. If you did not request it, ignore this mail.\n"
            )
            self.outbox.put(session, f"sign-in {digest(path).hex()}", email, "Sign in to the task service", text)

    def sign_in_path(self, email: str) -> str:
        """Return a path to sign in, for the operator of the hub."""
        with self.database.session() as session:
            return _made_sign_in(session, email)

    def sign_in(self, said: str) -> str:
        """Return the cookie of a user who followed the link of a mail. Raises Refused."""
        now = time.time()
        with self.database.session() as session:
            found = session.scalar(sql.select(SignIn).filter_by(token=digest(said)))
            if found is None or found.used_at is not None or now - found.made_at > SIGN_IN_S:
                raise RequestRefused(
                    "This link was used or is older than 15 minutes; request a new one on the home page."
                )
            found.used_at = now
            cookie = token()
            form_key = secrets.token_bytes(32)
            session.add(Visitor(email=found.email, token=digest(cookie), form_key=form_key, until=now + SIGNED_IN_S))
            return cookie

    def sign_out(self, cookie: str) -> None:
        """Forget a cookie."""
        with self.database.session() as session:
            session.execute(sql.delete(Visitor).filter_by(token=digest(cookie)))

    def visitor(self, cookie: str) -> Visitor | None:
        """Return the user who is signed in by a cookie."""
        with self.database.reading() as session:
            found = session.scalar(sql.select(Visitor).filter_by(token=digest(cookie)))
            return found if found is not None and found.until > time.time() else None

    # Making a task, and looking at it.

    def create(self, creator: str, new: NewTask) -> str:
        """Make a task, and invite its participants. Its number. Raises Refused with all that is wrong."""
        if problems := _problems(new):
            raise RequestRefused(" ".join(problems))
        sites = [each.site for each in new.invited]
        try:
            scenario = task_form.scenario_of(new.title, new.wish, sites, new.min_sites)
        except ScenarioError as error:
            raise RequestRefused(" ".join(error.problems)) from error
        now, number = time.time(), secrets.token_hex(8)
        with self.database.session() as session:
            _require_few(session, creator, len(new.invited), now)
            task = Task(
                id=number,
                title=new.title,
                description=new.description,
                creator=creator,
                kind=new.wish.kind,
                scenario=resolved_toml(scenario),
                run=secrets.token_bytes(RUN_ID_BYTES),
                state="inviting",
                made_at=now,
                join_until=now + new.join_days * _A_DAY_S,
                patience_s=new.patience_days * _A_DAY_S,
                min_sites=new.min_sites,
                progress={},
            )
            session.add(task)
            for place, each in enumerate(new.invited):
                self._invite(session, task, place, each)
        return number

    def link(self, said: str) -> str:
        """Return the link of an invitation: address, token, and the key of the hub."""
        return f"{self.url}/join/{said}#{quote(self._hub_key, safe='')}"

    def of(self, email: str) -> list[Task]:
        """Return the tasks that a user created or was invited to, the latest first."""
        with self.database.reading() as session:
            invited = sql.select(Participant.task_id).filter_by(email=email)
            mine = sql.or_(Task.creator == email, Task.id.in_(invited))
            found = list(session.scalars(sql.select(Task).where(mine).order_by(Task.made_at.desc())))
            for task in found:
                _ = task.participants
            return found

    def task(self, number: str, email: str) -> Task:
        """Return a task to its creator or an invited user. Raises Refused for others, and for an unknown task."""
        with self.database.reading() as session:
            found = session.get(Task, number)
            if found is None or email not in (found.creator, *(each.email for each in found.participants)):
                raise RequestRefused(
                    "There is no such task, or this address has no access to it; sign in with another address."
                )
            return found

    def invitation(self, said: str) -> Participant:
        """Return the participant of an invitation. Raises Refused."""
        with self.database.reading() as session:
            found = session.scalar(sql.select(Participant).filter_by(token=digest(said)))
            if found is None:
                raise RequestRefused("There is no such invitation; copy the whole link from the mail.")
            _ = found.task.participants
            return found

    # What becomes of it.

    def decline(self, participant_id: int, reason: str) -> None:
        """Record that a participant declines or withdraws. Raises Refused if the task is over."""
        with self.database.session() as session:
            who = session.get_one(Participant, participant_id)
            task = who.task
            if who.state not in ("invited", "joined"):
                return
            if task.state not in ("inviting", "running"):
                raise RequestRefused("The task is over, so you can no longer decline.")
            self._leave(session, who, "withdrawn" if who.state == "joined" else "declined", reason[:500])
        self.look_after(task.id, changed=True)

    def cancel(self, number: str, creator: str) -> None:
        """Cancel a task for its creator. Raises Refused."""
        with self.database.session() as session:
            task = session.get(Task, number)
            if task is None or task.creator != creator:
                raise RequestRefused("Only the creator of a task can cancel it.")
            if task.state not in ("inviting", "running"):
                raise RequestRefused("The task is already over.")
            self._end(session, task, "cancelled", f"Canceled by {creator}.")

    def look_after_all(self) -> None:
        """Begin tasks whose participants are there, miss those that did not come, ask those whose turn it is."""
        with self.database.reading() as session:
            open_tasks = sql.select(Task.id).where(Task.state.in_(("inviting", "running")))
            numbers = list(session.scalars(open_tasks))
        for number in numbers:
            self.look_after(number)

    def note_over(self, number: str, error: str | None) -> None:
        """Record that a task's run is over. error: why it failed, None if it did not."""
        with self.database.session() as session:
            task = session.get_one(Task, number)
            if task.state == "running":
                self._end(session, task, "completed" if error is None else "failed", error or "")

    def look_after(self, number: str, *, changed: bool = False) -> None:
        """Process one task. changed: its coordinator has more messages."""
        with self.database.session() as session:
            task, now = session.get_one(Task, number), time.time()
            if task.state == "inviting":
                self._begin_if_due(session, task, now)
            elif task.state == "running":
                changed = self._miss_late(session, task, now) or changed
                self._ask(session, task, now)
            is_running = task.state == "running"
        if is_running and (changed or self.never_ran(number)):
            self.nudge(number)

    def _begin_if_due(self, session: Session, task: Task, now: float) -> None:
        waited_for = [each for each in task.participants if each.state == "invited"]
        is_late = now >= task.join_until
        is_alike = not task_form.is_vertical(scenario_text(task).algorithm.name)
        if is_alike and (is_late or not waited_for):
            waited_for += self._turn_away_deviating(session, task)
        if waited_for and not is_late:
            return
        for each in waited_for:
            each.state, each.reason = "missed", each.reason or f"did not join by {day(task.join_until)}"
        joined = [each.site for each in task.participants if each.state == "joined"]
        if len(joined) < task.min_sites:
            why = f"{len(joined)} of {len(task.participants)} participants joined, but {task.min_sites} are needed."
            self._end(session, task, "failed", f"{why} {_how_others_left(task)}".strip())
            return
        try:
            scenario = task_form.over(spec.validate(tomllib.loads(task.scenario)), joined)
        except ScenarioError as error:
            self._end(session, task, "failed", " ".join(error.problems))
            return
        task.scenario, task.state, task.begun_at = resolved_toml(scenario), "running", now

    def _turn_away_deviating(self, session: Session, task: Task) -> list[Participant]:
        """Invite again those whose columns are not those of most participants that joined; return them."""
        joined = {each.site: each for each in task.participants if each.state == "joined"}
        found = deviations({site: dict(who.columns or []) for site, who in joined.items()})
        for site, clauses in found.items():
            who = joined[site]
            who.state, who.agreement_key, who.columns = "invited", None, None
            who.reason = (
                f"The columns of {site} differ from those of other participants: it {clauses}. Fix the file, then run "
                "fedsvm join again."
            )
            text = f"{who.reason}\n\nDeadline: {day(task.join_until)}.\n{self._page(task)}"
            occasion = f"columns {who.id} {digest(who.reason).hex()[:16]}"
            self.outbox.put(session, occasion, who.email, f"Your columns differ: {task.title}", text)
        return [joined[site] for site in found]

    def _miss_late(self, session: Session, task: Task, now: float) -> bool:
        """Continue without participants who exceeded their turn. Return whether there are any."""
        is_changed = False
        for who in task.participants:
            if who.state == "joined" and who.due_since is not None and now - who.due_since > task.patience_s:
                self._leave(session, who, "missed", f"did not take its turn within {task.patience_s / _A_DAY_S:g} days")
                is_changed = True
        return is_changed

    def _leave(self, session: Session, who: Participant, state: str, reason: str) -> None:
        """Remove a participant from a task. The coordinator continues without them, if possible."""
        if who.state == "joined" and who.task.state == "running":
            how = {"withdrawn": "withdrew", "missed": reason}[state]
            self.letters.leave(session, who, how)
        who.state, who.reason, who.due_since = state, reason, None
        text = f"{who.site} ({who.email}) {_HOW[state]}.\n\nTask: {who.task.title}\n"
        if reason:
            text += f"Reason: {reason}\n"
        subject, occasion = f"{who.site} {_HOW[state]}: {who.task.title}", f"{state} {who.id}"
        self.outbox.put(session, occasion, who.task.creator, subject, f"{text}\n{self._page(who.task)}")

    def _ask(self, session: Session, task: Task, now: float) -> None:
        """Write to participants whose turn it is, and who are not there; once between two visits."""
        for who in task.participants:
            if who.state == "joined" and who.told > who.taken and who.there_until < now:
                text = (
                    f"It is your turn in the task {task.title!r}. Run the fedsvm join command of your invitation "
                    "again, on the machine that holds your data.\n\n"
                    f"Deadline: {day((who.due_since or now) + task.patience_s)}.\n"
                    f"{self._page(task)}"
                )
                self.outbox.put(session, f"turn {who.id} {who.visits}", who.email, f"Your turn: {task.title}", text)

    def _end(self, session: Session, task: Task, state: str, reason: str) -> None:
        task.state, task.reason, task.ended_at = state, reason, time.time()
        said = {"completed": "is completed", "failed": "has failed", "cancelled": "was canceled"}[state]
        concerned = {task.creator, *(each.email for each in task.participants if each.state in ("invited", "joined"))}
        for email in sorted(concerned):
            text = f"The task {task.title!r} {said}. {reason}\n\n{self._page(task)}"
            self.outbox.put(session, f"over {task.id} {email}", email, f"{task.title} {said}", text)

    def _invite(self, session: Session, task: Task, place: int, invited: Invited) -> None:
        said = token()
        session.add(
            Participant(
                task=task,
                place=place,
                site=invited.site,
                email=invited.email,
                token=digest(said),
                state="invited",
            )
        )
        text = (
            f"{task.creator} invites you to the task {task.title!r} as {invited.site}.\n\n{task.description}\n\n"
            "This page explains what the task needs, what it discloses, how to take part, and how to decline:\n\n"
            f"{self.link(said)}\n\n"
            f"Please answer by {day(task.join_until)}. The link is personal: do not forward it.\n"
        )
        subject = f"Invitation: {task.title}"
        self.outbox.put(session, f"invitation {task.id} {place}", invited.email, subject, text)

    def _page(self, task: Task) -> str:
        return f"{self.url}/tasks/{task.id}\n"


_HOW = {"declined": "declined", "withdrawn": "withdrew", "missed": "missed a deadline"}


def _made_sign_in(session: Session, email: str) -> str:
    said = token()
    session.add(SignIn(email=email, token=digest(said), made_at=time.time()))
    return f"/sign-in/{said}"


def _require_few_sign_ins(session: Session, email: str) -> None:
    """Raise Refused if one address, or all together, reached the maximum of sign-in links within an hour."""
    recent = sql.select(sql.func.count()).select_from(SignIn).where(SignIn.made_at > time.time() - 3600)
    if (session.scalar(recent.filter_by(email=email)) or 0) >= _SIGN_INS_AN_HOUR:
        raise RequestRefused(
            f"{_SIGN_INS_AN_HOUR} links were mailed to {email} within an hour; use the latest, or try again later."
        )
    if (session.scalar(recent) or 0) >= _ALL_SIGN_INS_AN_HOUR:
        raise RequestRefused("Too many sign-in links were requested from this hub; try again in an hour.")


def _require_few(session: Session, creator: str, more: int, now: float) -> None:
    """Raise Refused if a creator has too many open tasks, or too many invitations within a day."""
    counted = sql.select(sql.func.count()).select_from(Task).where(Task.creator == creator)
    if (session.scalar(counted.where(Task.ended_at.is_(None))) or 0) >= _OPEN_TASKS:
        raise RequestRefused(
            f"You have {_OPEN_TASKS} open tasks, which is the maximum; cancel one or wait until one is over."
        )
    invited = counted.join(Participant).where(Task.made_at > now - _A_DAY_S)
    if (session.scalar(invited) or 0) + more > _INVITATIONS_A_DAY:
        raise RequestRefused(f"You can invite {_INVITATIONS_A_DAY} participants per day; create this task tomorrow.")


def address(said: str) -> str:
    """Return an address in its stored form. Raises Refused if it is not an address."""
    found = said.strip().lower()
    is_short = len(found) <= _MAX_ADDRESS and len(found.partition("@")[0]) <= _MAX_LOCAL_PART
    if not is_short or not _ADDRESS.fullmatch(found):
        raise RequestRefused(f"E-mail address: must be one such as anna@example.org, got {found[:80]!r}.")
    return found


def scenario_text(task: Task) -> Scenario:
    """Return the scenario of a task."""
    return spec.validate(tomllib.loads(task.scenario))


def _how_others_left(task: Task) -> str:
    gone = [f"{each.site} {_HOW[each.state]}" for each in task.participants if each.state in _HOW]
    return f"{'; '.join(gone)}." if gone else ""


def _problems(new: NewTask) -> list[str]:
    """Return what is wrong with a task, in sentences."""
    problems = []
    if not 0 < len(new.title.strip()) <= _MAX_TITLE:
        problems.append(f"Title: must have 1 to {_MAX_TITLE} characters.")
    if len(new.description) > _MAX_DESCRIPTION:
        problems.append(f"Description: must have at most {_MAX_DESCRIPTION} characters.")
    least, most = task_form.MIN_PARTICIPANTS, task_form.MAX_PARTICIPANTS
    if not least <= len(new.invited) <= most:
        problems.append(f"Participants: must be {least} to {most}, one per line, got {len(new.invited)}.")
    for each in new.invited:
        try:
            require_name(each.site)
        except ValueError as error:
            problems.append(f"Participants: the site name {each.site[:40]!r} {error}.")
    for what in ("site", "email"):
        said = [getattr(each, what) for each in new.invited]
        if twice := next((each for each in said if said.count(each) > 1), None):
            problems.append(
                f"Participants: {twice} is listed twice; list each {'site' if what == 'site' else 'address'} once."
            )
    if not least <= new.min_sites <= max(least, len(new.invited)):
        problems.append(f"Minimum participants: must be {least} to {len(new.invited)}, got {new.min_sites}.")
    for name, days in {"to join": new.join_days, "per turn": new.patience_days}.items():
        if not 0 < days <= MOST_DAYS:
            problems.append(f"Days {name}: must be above 0 and at most {MOST_DAYS}, got {days:g}.")
    return problems


def vault_of(keys: KeyPair, purpose: str) -> Vault:
    """Return the vault that seals one kind of content in the database."""
    return Vault(derive_key(keys.secret, f"hub {purpose}"))
