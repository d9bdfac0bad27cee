"""The life cycle of a task: participants are invited, join, decline, withdraw or miss it; it begins and ends.

inviting -> running -> completed | failed
         -> failed (too few joined)
Both also end by their creator (cancelled) and by their end date (expired).
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable, Sequence

import sqlalchemy as sql
from sqlalchemy.orm import Session

from fedsvm.federation.columns import deviations
from fedsvm.federation.offline.sealing import Vault, derive_key
from fedsvm.federation.site.terms import Terms
from fedsvm.federation.transport.keys import KeyPair
from fedsvm.federation.transport.wire import RUN_ID_BYTES
from fedsvm.scenarios.hub import public_rows, task_form
from fedsvm.scenarios.hub.accounts import RequestRefused
from fedsvm.scenarios.hub.database import Database, Mail, Participant, Task, day, digest, token
from fedsvm.scenarios.hub.new_task import Invited, NewTask, problems_of
from fedsvm.scenarios.hub.notices import HOW_LEFT, Notices
from fedsvm.scenarios.hub.offered import reason_of, scenario_text
from fedsvm.scenarios.hub.roles import Roles
from fedsvm.scenarios.hub.stored_messages import StoredMessages
from fedsvm.scenarios.schema.errors import ScenarioError
from fedsvm.scenarios.schema.spec import Scenario, resolved_toml

_LOGGER = logging.getLogger(__name__)
_INVITATIONS_A_DAY, _OPEN_TASKS = 200, 20
"""Of one creator: a hub that strangers can sign in to must not send mails for them without end."""
_A_DAY_S = 24 * 3600.0
_ANEW_S = 3 * _A_DAY_S
"""Minimum time to answer an invitation anew."""
NO_INVITATION = "There is no such invitation, or a newer one replaces it; copy the whole link from the latest mail."
_REMINDED_AT = 0.75
"""Fraction of a deadline's time after which a participant is reminded."""


class Tasks:
    """The tasks of a hub.

    Parameters
    ----------
    database : Database
    letters : StoredMessages
    notices : Notices
    roles : Roles

    Attributes
    ----------
    nudge : callable
        Told of a task whose coordinator may have more to take in.
    never_ran : callable
        Whether the coordinator of a task was not run since the hub was started.
    """

    def __init__(self, database: Database, letters: StoredMessages, notices: Notices, roles: Roles) -> None:
        self.database = database
        self.nudge: Callable[[str], None] = lambda number: None
        self.never_ran: Callable[[str], bool] = lambda number: False
        self.letters = letters
        self.notices = notices
        self.roles = roles

    # Making a task, and looking at it.

    def create(self, creator: str, new: NewTask) -> str:
        """Make a task, and invite its participants. Its number. Raises Refused with all that is wrong."""
        self.roles.require_maker(creator)
        if problems := problems_of(new):
            raise RequestRefused(" ".join(problems))
        sites = [each.site for each in new.invited]
        try:
            scenario = task_form.scenario_of(new.title, new.wish, sites, new.min_sites)
            public_rows.require_readable(scenario, new.wish.public_rows)
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
                end_by=None if new.end_days is None else now + new.end_days * _A_DAY_S,
                min_sites=new.min_sites,
                results_to=new.results_to,
                public_rows=new.wish.public_rows,
                progress={},
            )
            self._invite_all(session, task, new.invited)
        return number

    def predict(self, number: str, creator: str, terms: Terms) -> str:
        """Make a task that predicts new records by the model of another one. Return its number.

        Its participants are invited. terms: those that follow from the model. Raises Refused.
        """
        self.roles.require_maker(creator)
        now = time.time()
        with self.database.session() as session:
            trained = session.get(Task, number)
            if trained is None or trained.creator != creator:
                raise RequestRefused("Only the creator of a task can ask for predictions by its model.")
            try:
                sites = scenario_text(trained).federation.site_names
            except ScenarioError as error:
                raise RequestRefused(reason_of(error)) from error
            invited = [Invited(each.site, each.email) for each in trained.participants if each.site in sites]
            _require_few(session, creator, len(invited), now)
            task = Task(
                id=secrets.token_hex(8),
                title=f"Predictions: {trained.title}",
                description=(
                    f"New records by the model of {trained.title!r}. Bring a file with your columns, without labels, "
                    "and your part of that model (--predict)."
                ),
                creator=creator,
                kind=task_form.PREDICT,
                scenario=trained.scenario,
                trained=trained.id,
                asks=terms.to_fields(),
                run=secrets.token_bytes(RUN_ID_BYTES),
                state="inviting",
                made_at=now,
                join_until=now + trained.join_until - trained.made_at,
                patience_s=trained.patience_s,
                min_sites=len(invited),
                results_to=trained.results_to,
                progress={},
            )
            self._invite_all(session, task, invited)
            return task.id

    def invite_anew(self, number: str, creator: str, invited: Invited) -> str:
        """Invite a participant of a task again, or another one in its place. Return the number of the task.

        The link and the key before are void. A task that has begun ends, and another task takes its place, with fresh
        keys of all participants. Raises Refused, also if participants have answered a round: the sums of a round must
        not be repeated over others.
        """
        self.roles.require_maker(creator)
        now = time.time()
        with self.database.session() as session:
            task = session.get(Task, number)
            if task is None or task.creator != creator:
                raise RequestRefused("Only the creator of a task can invite its participants.")
            who = next((each for each in task.participants if each.site == invited.site), None)
            if who is None:
                raise RequestRefused(f"Site: must be one of this task, got {invited.site[:40]!r}.")
            if any(each.email == invited.email for each in task.participants if each is not who):
                raise RequestRefused(f"E-mail address: {invited.email} is that of another participant of this task.")
            if task.state == "inviting":
                _require_few_invitations(session, creator, 1, now)
                self._renew(session, who, invited.email, now)
                return number
            return self._start_again(session, task, who, invited.email, now)

    def can_invite_anew(self, task: Task) -> bool:
        """Return whether a participant of a task can be invited anew."""
        with self.database.reading() as session:
            return not _why_not_anew(task, has_answers=self.letters.has_answers(session, task.id))

    def of(self, email: str) -> list[Task]:
        """Return the tasks that a user created or was invited to, and to administrators all; the latest first."""
        with self.database.reading() as session:
            invited = sql.select(Participant.task_id).filter_by(email=email)
            mine = sql.or_(Task.creator == email, Task.id.in_(invited))
            shown = sql.true() if self.roles.is_admin(email) else mine
            found = list(session.scalars(sql.select(Task).where(shown).order_by(Task.made_at.desc())))
            for task in found:
                _ = task.participants
            return found

    def task(self, number: str, email: str) -> Task:
        """Return a task to a user who sees it. Raises Refused for others, and for an unknown task."""
        with self.database.reading() as session:
            found = session.get(Task, number)
            if found is None or not self.roles.sees_task(email, found):
                raise RequestRefused(
                    "There is no such task, or this address has no access to it; sign in with another address."
                )
            _ = found.participants
            return found

    def results(self, number: str, email: str) -> Task:
        """Return a task to a user who sees its results. Raises Refused."""
        found = self.task(number, email)
        if not self.roles.sees_results(email, found):
            raise RequestRefused("The results of this task are not for this address; ask the creator of the task.")
        return found

    def invitation(self, said: str) -> Participant:
        """Return the participant of an invitation. Raises Refused."""
        with self.database.reading() as session:
            found = session.scalar(sql.select(Participant).filter_by(token=digest(said)))
            if found is None:
                raise RequestRefused(NO_INVITATION)
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

    def cancel(self, number: str, email: str) -> None:
        """Cancel a task for its creator or an administrator. Raises Refused."""
        with self.database.session() as session:
            task = session.get(Task, number)
            if task is None or not self.roles.manages(email, task):
                raise RequestRefused("Only the creator of a task can cancel it.")
            if task.state not in ("inviting", "running"):
                raise RequestRefused("The task is already over.")
            self._end(session, task, "cancelled", f"Canceled by {email}.")

    def look_after_all(self) -> None:
        """Begin tasks whose participants are there, miss those that did not come, ask those whose turn it is."""
        with self.database.reading() as session:
            open_tasks = sql.select(Task.id).where(Task.state.in_(("inviting", "running")))
            numbers = list(session.scalars(open_tasks))
        for number in numbers:
            try:
                self.look_after(number)
            except Exception:
                _LOGGER.exception("task %s could not be looked after and will be tried again", number)

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
            if task.state in ("inviting", "running") and task.end_by is not None and now >= task.end_by:
                self._end(session, task, "expired", f"It was not completed by {day(task.end_by)}.")
            elif task.state == "inviting":
                self._remind_invited(session, task, now)
                self._begin_if_due(session, task, now)
            elif task.state == "running":
                changed = self._miss_late(session, task, now) or changed
                self._ask(session, task, now)
            is_running = task.state == "running"
        if is_running and (changed or self.never_ran(number)):
            self.nudge(number)

    def _begin_if_due(self, session: Session, task: Task, now: float) -> None:
        """Begin a task whose participants are there. It fails if this version refuses its stored scenario."""
        try:
            self._begin_or_wait(session, task, scenario_text(task), now)
        except ScenarioError as error:
            self._end(session, task, "failed", reason_of(error))

    def _begin_or_wait(self, session: Session, task: Task, scenario: Scenario, now: float) -> None:
        """Begin a task if no participant is waited for. Raises ScenarioError."""
        waited_for = [each for each in task.participants if each.state == "invited"]
        is_late = now >= task.join_until
        is_alike = not task_form.is_vertical(scenario.algorithm.name)
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
        if why := task_form.lost_members(scenario, joined):
            self._end(session, task, "failed", f"{why} {_how_others_left(task)}".strip())
            return
        task.scenario = resolved_toml(task_form.over(scenario, joined))
        task.state, task.begun_at = "running", now

    def _turn_away_deviating(self, session: Session, task: Task) -> list[Participant]:
        """Invite again those whose columns are not those of most participants that joined; return them."""
        joined = {each.site: each for each in task.participants if each.state == "joined"}
        found = deviations({site: dict(who.columns or []) for site, who in joined.items()})
        for site, clauses in found.items():
            who = joined[site]
            who.state, who.agreement_key, who.voucher, who.columns = "invited", None, None, None
            who.reason = (
                f"The columns of {site} differ from those of other participants: it {clauses}. Fix the file, then run "
                "fedsvm join again."
            )
            self.notices.tell_deviating(session, who)
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
        self.notices.tell_left(session, who)

    def _ask(self, session: Session, task: Task, now: float) -> None:
        """Write to participants whose turn it is, and who are not there; again before the turn ends."""
        for who in task.participants:
            if who.state == "joined" and who.told > who.taken and who.there_until < now:
                since = who.due_since or now
                self.notices.ask(session, who, since + task.patience_s)
                if now >= since + _REMINDED_AT * task.patience_s:
                    self.notices.remind_of_turn(session, who, since + task.patience_s)

    def _remind_invited(self, session: Session, task: Task, now: float) -> None:
        """Write to participants who have not answered, before the time to join ends."""
        if now >= task.made_at + _REMINDED_AT * (task.join_until - task.made_at):
            for who in task.participants:
                if who.state == "invited":
                    self.notices.remind_to_join(session, who)

    def _end(self, session: Session, task: Task, state: str, reason: str) -> None:
        task.state, task.reason, task.ended_at = state, reason, time.time()
        self.notices.tell_over(session, task)

    def _invite_all(self, session: Session, task: Task, invited: Sequence[Invited]) -> None:
        session.add(task)
        for place, each in enumerate(invited):
            said = token()
            who = Participant(
                task=task, place=place, site=each.site, email=each.email, token=digest(said), state="invited"
            )
            session.add(who)
            self.notices.invite(session, who, said)

    def _renew(self, session: Session, who: Participant, email: str, now: float) -> None:
        """Invite a participant of a task that has not begun again: with a fresh link, and a key of its own choice."""
        if email != who.email and who.state in ("invited", "joined"):
            self.notices.tell_replaced(session, who)
        said = token()
        who.email, who.token, who.state, who.reason = email, digest(said), "invited", ""
        who.public_key, who.agreement_key, who.voucher, who.columns = None, None, None, None
        task = who.task
        task.join_until = max(task.join_until, now + _ANEW_S)
        if task.end_by is not None:
            task.end_by = max(task.end_by, task.join_until)
        self.notices.invite(session, who, said)

    def _start_again(self, session: Session, task: Task, lost: Participant, email: str, now: float) -> str:
        """End a task and make another of the same terms, in which every participant joins with fresh keys."""
        if why := _why_not_anew(task, has_answers=self.letters.has_answers(session, task.id)):
            raise RequestRefused(why)
        stay = [each for each in task.participants if each is lost or each.state in ("joined", "invited", "missed")]
        if len(stay) < task.min_sites:
            raise RequestRefused(
                f"{len(stay)} participants are left, but {task.min_sites} are needed; create a new task."
            )
        why = f"It starts again, because of {lost.site}, under fresh keys: a new invitation follows."
        self._end(session, task, "cancelled", f"{task.reason} {why}".strip())
        _require_few(session, task.creator, len(stay), now)
        sites = [each.site for each in stay]
        try:
            before = scenario_text(task)
            if without := task_form.lost_members(before, sites):
                raise RequestRefused(without)
            scenario = task_form.over(before, sites)
        except ScenarioError as error:
            raise RequestRefused(" ".join(error.problems)) from error
        again = Task(
            id=secrets.token_hex(8),
            title=task.title,
            description=task.description,
            creator=task.creator,
            kind=task.kind,
            trained=task.trained,
            asks=task.asks,
            scenario=resolved_toml(scenario),
            run=secrets.token_bytes(RUN_ID_BYTES),
            state="inviting",
            made_at=now,
            join_until=now + task.join_until - task.made_at,
            patience_s=task.patience_s,
            end_by=None if task.end_by is None else now + task.end_by - task.made_at,
            min_sites=task.min_sites,
            results_to=task.results_to,
            public_rows=task.public_rows,
            progress={},
        )
        self._invite_all(session, again, [Invited(each.site, email if each is lost else each.email) for each in stay])
        return again.id


def _require_few(session: Session, creator: str, more: int, now: float) -> None:
    """Raise Refused if a creator has too many open tasks, or too many invitations within a day."""
    counted = sql.select(sql.func.count()).select_from(Task).where(Task.creator == creator)
    if (session.scalar(counted.where(Task.ended_at.is_(None))) or 0) >= _OPEN_TASKS:
        raise RequestRefused(
            f"You have {_OPEN_TASKS} open tasks, which is the maximum; cancel one or wait until one is over."
        )
    _require_few_invitations(session, creator, more, now)


def _require_few_invitations(session: Session, creator: str, more: int, now: float) -> None:
    """Raise Refused if the tasks of a creator have too many invitations within a day."""
    of_task = Mail.occasion.startswith(sql.literal("invitation ") + Task.id + " ")
    invited = sql.select(sql.func.count()).select_from(Mail).join(Task, of_task)
    recent = invited.where(Task.creator == creator, Mail.made_at > now - _A_DAY_S)
    if (session.scalar(recent) or 0) + more > _INVITATIONS_A_DAY:
        raise RequestRefused(f"You can invite {_INVITATIONS_A_DAY} participants per day; invite them tomorrow.")


def _why_not_anew(task: Task, *, has_answers: bool) -> str:
    """Return why no participant of a task can be invited anew, or nothing."""
    if task.state not in ("inviting", "running", "failed"):
        return f"The task is {task.state}; create a new one."
    if has_answers:
        return (
            "Participants have answered rounds of this task. The same sums over other participants would show "
            "differences between them, so nobody can be replaced; create a new task."
        )
    return ""


def _how_others_left(task: Task) -> str:
    gone = [f"{each.site} {HOW_LEFT[each.state]}" for each in task.participants if each.state in HOW_LEFT]
    return f"{'; '.join(gone)}." if gone else ""


def vault_of(keys: KeyPair, purpose: str) -> Vault:
    """Return the vault that seals one kind of content in the database."""
    return Vault(derive_key(keys.secret, f"hub {purpose}"))
