"""The interface of the hub for participants' programs, with sealed requests: see `fedsvm.federation.offline.sealing`.

A word is a msgpack table with a `verb` and what belongs to it; so is the answer, which has `refused` with a sentence
where it comes to nothing.

| verb | with | answer |
|---|---|---|
| join | token, version | title, description, site, run, terms, signing_key: pins the key, if the invitation has none |
| ready | columns, agreement_key, voucher | nothing: it takes part |
| decline | reason | nothing |
| take | after, acted, watches | state, reason, sites, columns, said, letters: what it was told from a number on |
| say | number, message | said: how many messages the hub has |
| leave | | nothing: who comes again is asked by mail |

`acted` says that the site did what all that it has before that number asks for; who did not is asked again.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import asdict
from importlib.metadata import version
from typing import Any, Protocol

import msgpack
import sqlalchemy as sql
from sqlalchemy.orm import Session

from fedsvm.federation.errors import Malformed
from fedsvm.federation.hosts.held_data import HeldColumn
from fedsvm.federation.offline.sealing import Answers
from fedsvm.federation.transport.keys import KEY_BYTES, SIGNATURE_BYTES, KeyPair
from fedsvm.scenarios.hub import task_form
from fedsvm.scenarios.hub.accounts import RequestRefused
from fedsvm.scenarios.hub.database import Participant, digest
from fedsvm.scenarios.hub.offered import offered_terms, readable_scenario, reason_of
from fedsvm.scenarios.hub.tasks import NO_INVITATION, Tasks
from fedsvm.scenarios.schema.errors import ScenarioError

MAX_WORD_BYTES = 1 << 28
MAX_STRANGERS_WORD_BYTES = 1 << 14
_MAX_COLUMNS, _MAX_COLUMN_NAME, _MAX_COLUMNS_BYTES = 100_000, 200, 4_000_000
_MAX_ANSWER_BYTES = 1 << 26
_PRESENT_S, _WATCHING_S = 30.0, 60.0
_SETTLE_S = 120.0
_HANGING_S = 15.0
"""Maximum time that an answer to a watching participant is held back until there is news."""
Word = Mapping[str, Any]
_UNREADABLE = (Malformed, ValueError, TypeError, RecursionError, msgpack.exceptions.UnpackException)


class Coordinators(Protocol):
    """The interface of the conductor that the desk uses."""

    def nudge(self, task_id: str) -> None:
        """Notify the coordinator of a task that there may be messages."""

    def settle(self, task_id: str, within_s: float) -> None:
        """Wait until the coordinator of a task has taken in all."""


class ParticipantApi:
    """Answers participants' programs.

    Parameters
    ----------
    tasks : Tasks
    conductor : TaskRunner
    keys : KeyPair
        The hub's.
    signing_key : bytes
        The public key by which it signs its orders.
    """

    def __init__(self, tasks: Tasks, conductor: Coordinators, keys: KeyPair, signing_key: bytes) -> None:
        self._signing_key = signing_key
        self._tasks = tasks
        self._conductor = conductor
        self._answers = Answers(keys)
        self._of_task: dict[str, threading.Lock] = defaultdict(threading.Lock)
        self._news = threading.Condition()
        self._verbs: dict[str, Callable[[bytes, Word], Word]] = {
            "join": self._join,
            "ready": self._ready,
            "decline": self._decline,
            "take": self._take,
            "say": self._say,
            "leave": self._leave,
        }

    def note_said(self, task_id: str) -> None:
        """Wake watching participants after a message of a task's coordinator."""
        with self._news:
            self._news.notify_all()

    def knows(self, head: bytes) -> bool:
        """Return whether a request begins with the key of a participant."""
        with self._tasks.database.reading() as session:
            return _by_key(session, head[:KEY_BYTES]) is not None

    def answer(self, request: bytes) -> bytes:
        """Return the sealed answer to a sealed request. Raises Malformed for one that was not sealed for this hub."""
        key, content, seal = self._answers.open(request)
        return seal(msgpack.packb(self._answer(key, content)))

    def _answer(self, key: bytes, content: bytes) -> Word:
        try:
            word = msgpack.unpackb(content)
            if not isinstance(word, dict) or word.get("verb") not in self._verbs:
                raise Malformed("a word must be a table with a verb of the desk")
            return self._verbs[word["verb"]](key, word)
        except RequestRefused as error:
            return {"refused": str(error)}
        except _UNREADABLE as error:
            return {"refused": f"The hub cannot read this ({type(error).__name__}: {error}); install its version."}

    def _join(self, key: bytes, word: Word) -> Word:
        if _text(word, "version") != version("fedsvm"):
            raise RequestRefused(
                f"This site has fedsvm {word['version']} and the hub {version('fedsvm')}; install the hub's version."
            )
        with self._tasks.database.session() as session:
            who = session.scalar(sql.select(Participant).filter_by(token=digest(_text(word, "token"))))
            if who is None:
                raise RequestRefused(NO_INVITATION)
            if who.public_key is None:
                if _by_key(session, key) is not None:
                    raise RequestRefused("This folder belongs to another invitation; use another folder (--folder).")
                if who.state != "invited" or who.task.state != "inviting":
                    raise RequestRefused(_why_closed(who))
                who.public_key = key
            elif who.public_key != key:
                raise RequestRefused(
                    f"{who.site} has already joined with another key; use the folder of the first visit, or ask the "
                    "creator of the task for your own invitation."
                )
            task = who.task
            try:
                terms = offered_terms(task)
            except ScenarioError as error:
                raise RequestRefused(reason_of(error)) from error
            return {
                "title": task.title,
                "description": task.description,
                "creator": task.creator,
                "site": who.site,
                "run": task.run,
                "terms": asdict(terms),
                "signing_key": self._signing_key,
            }

    def _ready(self, key: bytes, word: Word) -> Word:
        columns = _columns(word.get("columns"))
        agreement = word.get("agreement_key")
        if not isinstance(agreement, bytes) or len(agreement) != KEY_BYTES:
            raise Malformed(f"an agreement key must be {KEY_BYTES} bytes")
        voucher = word.get("voucher")
        if voucher is not None and (not isinstance(voucher, bytes) or len(voucher) != SIGNATURE_BYTES):
            raise Malformed(f"a voucher must be {SIGNATURE_BYTES} bytes")
        with self._tasks.database.session() as session:
            who = _require_participant(session, key)
            if who.agreement_key == agreement:
                return {}  # what became of it since is the answer to `take`
            if who.state == "joined" and who.task.state in ("inviting", "running"):
                raise RequestRefused(
                    f"{who.site} has joined from another folder, or this folder is incomplete; use the folder of the "
                    "last visit, or withdraw with --decline."
                )
            if who.state != "invited" or who.task.state != "inviting":
                raise RequestRefused(_why_closed(who))
            who.columns = [[each.name, each.categorical] for each in columns]
            who.agreement_key, who.voucher, who.state, who.reason = agreement, voucher, "joined", ""
            number = who.task_id
        self._tasks.look_after(number)
        with self._tasks.database.reading() as session:
            _require_kept(_require_participant(session, key))
        return {}

    def _decline(self, key: bytes, word: Word) -> Word:
        with self._tasks.database.reading() as session:
            who = _require_participant(session, key)
        self._tasks.decline(who.id, _text(word, "reason"))
        return {}

    def _take(self, key: bytes, word: Word) -> Word:
        after, watches = word.get("after"), word.get("watches") is True
        if type(after) is not int or after < 0:
            raise Malformed("the number of the last letter must be a count")
        with self._tasks.database.session() as session:
            who = _require_participant(session, key)
            if who.there_until < time.time():
                who.visits += 1
            who.there_until = time.time() + (_WATCHING_S if watches else _PRESENT_S)
            number = who.task_id
        self._tasks.look_after(number)
        self._conductor.settle(number, _SETTLE_S)
        if watches:
            with self._news:
                self._news.wait_for(lambda: self._has_news(key, after), _HANGING_S)
        with self._tasks.database.session() as session:
            who = _require_participant(session, key)
            _require_kept(who)
            if after > who.told:
                raise RequestRefused(f"The folder of {who.site} belongs to another hub; use the folder of this task.")
            if word.get("acted") is True:
                who.taken = max(who.taken, after)
            if who.taken == who.told:
                who.due_since = None
            found = self._tasks.letters.told_after(session, who, after, _MAX_ANSWER_BYTES)
            began = who.task.begun_at is not None
            scenario = readable_scenario(who.task)
            sites = scenario.federation.site_names if began and scenario is not None else []
            # of columns of its own nobody else is told
            own = scenario is None or task_form.is_vertical(scenario.algorithm.name)
            knowing = [who] if own else [each for each in who.task.participants if each.site in sites]
            columns = [each.columns or [] for each in knowing] if began else []
            return {
                "state": who.state if who.state in ("declined", "withdrawn", "missed") else who.task.state,
                "reason": who.reason or who.task.reason,
                "sites": sites,
                "columns": [name for name, _ in columns[0]] if columns else [],
                "said": who.said,
                "letters": found,
            }

    def _has_news(self, key: bytes, after: int) -> bool:
        with self._tasks.database.reading() as session:
            who = _require_participant(session, key)
            return who.told > after or who.task.state not in ("inviting", "running")

    def _say(self, key: bytes, word: Word) -> Word:
        number, frame = word.get("number"), word.get("message")
        if type(number) is not int or type(frame) is not bytes:
            raise Malformed("a message must have a number, and be bytes")
        with self._tasks.database.reading() as session:
            task_id = _require_participant(session, key).task_id
        with self._of_task[task_id], self._tasks.database.session() as session:
            who = _require_participant(session, key)
            if who.state != "joined" or who.task.state != "running":
                raise RequestRefused(_why_closed(who))
            self._tasks.letters.say(session, who, number, frame)
            said = who.said
        self._conductor.nudge(task_id)
        return {"said": said}

    def _leave(self, key: bytes, word: Word) -> Word:
        with self._tasks.database.session() as session:
            _require_participant(session, key).there_until = 0.0
        return {}


def _by_key(session: Session, key: bytes) -> Participant | None:
    return session.scalar(sql.select(Participant).filter_by(public_key=key))


def _require_participant(session: Session, key: bytes) -> Participant:
    found = _by_key(session, key)
    if found is None:
        raise RequestRefused("The hub does not know this key; join with the link of your invitation first.")
    return found


def _require_kept(who: Participant) -> None:
    """Raise Refused for a participant that joined and was turned away, since its columns differ from most others'."""
    if who.state == "invited" and who.reason:
        raise RequestRefused(who.reason)


def _why_closed(who: Participant) -> str:
    task = who.task
    if who.state in ("declined", "withdrawn", "missed"):
        return f"{who.site} no longer takes part in {task.title!r}: {who.reason or who.state}."
    if task.state == "inviting":
        return f"{task.title!r} has not begun; a mail will tell you when it is your turn."
    return f"{task.title!r} is {task.state}. {task.reason}".strip()


def _text(word: Word, name: str) -> str:
    value = word.get(name)
    if not isinstance(value, str) or "\0" in value:
        raise Malformed(f"{name} must be text")
    return value


def _columns(rows: Any) -> tuple[HeldColumn, ...]:
    """Decode columns. Raises Malformed, and Refused for names that are too long or have a NUL."""
    if not isinstance(rows, list) or not 0 < len(rows) <= _MAX_COLUMNS:
        raise Malformed("there must be columns")
    for row in rows:
        if not isinstance(row, list) or [type(value) for value in row] != [str, bool]:
            raise Malformed("a column must be a name and whether it is categorical")
    names = [name for name, _ in rows]
    if wrong := next((name for name in names if len(name) > _MAX_COLUMN_NAME or "\0" in name), None):
        raise RequestRefused(
            f"Columns: a name must have at most {_MAX_COLUMN_NAME} characters and no NUL, got {wrong[:40]!r} of "
            f"{len(wrong)} characters; rename the column."
        )
    if (total := sum(len(name.encode()) for name in names)) > _MAX_COLUMNS_BYTES:
        raise RequestRefused(
            f"Columns: all names together must have at most {_MAX_COLUMNS_BYTES} bytes, got {total}; shorten the names."
        )
    return tuple(HeldColumn(name, categorical) for name, categorical in rows)
