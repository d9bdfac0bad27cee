"""The stored messages between participants and the coordinator: sealed, each bound to its place."""

from __future__ import annotations

from collections.abc import Iterator

import sqlalchemy as sql
from sqlalchemy.orm import Session

from fedsvm.federation.errors import Malformed
from fedsvm.federation.offline.endpoint import Departure, StoredArrival
from fedsvm.federation.offline.sealing import Vault
from fedsvm.federation.transport import wire
from fedsvm.federation.transport.wire import Message
from fedsvm.scenarios.hub.database import Letter, Participant

TOLD, SAID, LEFT = "told", "said", "left"
_LEAVES_AT = 1 << 52
"""In place of a round, of what says that a site left."""


class StoredMessages:
    """Reads and writes letters.

    Parameters
    ----------
    vault : Vault
        By which they are sealed.
    """

    def __init__(self, vault: Vault) -> None:
        self._vault = vault

    def tell(self, session: Session, to: Participant, round_number: int, place: int, message: Message) -> bool:
        """Store what the coordinator says, unless it is there; whether it was new."""
        known = sql.select(Letter.id).filter_by(participant_id=to.id, way=TOLD, round=round_number, place=place)
        if session.scalar(known) is not None:
            return False
        self._add(session, to, TOLD, to.told, (round_number, place), message.frame)
        to.told += 1
        return True

    def say(self, session: Session, who: Participant, number: int, frame: bytes) -> None:
        """Store what a site says, unless it is there. Raises Malformed for what is no message or skips ahead."""
        if number < who.said:
            return
        if number > who.said:
            raise Malformed(f"message {number} where {who.said} was due")
        message = wire.decode(frame)
        if message.run != who.task.run:
            raise Malformed("a message of another run")
        self._add(session, who, SAID, number, (message.round, number), frame)
        who.said += 1

    def leave(self, session: Session, who: Participant, how: str) -> None:
        """Store that a site left for good."""
        self._add(session, who, LEFT, 0, (_LEAVES_AT, 0), how.encode())

    def has_answers(self, session: Session, task_id: str) -> bool:
        """Return whether a site of a task answered a round, which begin after the introduction."""
        answers = sql.select(Letter.id).filter_by(task_id=task_id, way=SAID).where(Letter.round > 0)
        return session.scalar(answers.limit(1)) is not None

    def told_after(self, session: Session, who: Participant, number: int, most_bytes: int) -> list[bytes]:
        """Return the messages to a site from a number on, of limited size, but at least one."""
        found: list[bytes] = []
        wanted = sql.select(Letter).filter_by(participant_id=who.id, way=TOLD).where(Letter.number >= number)
        for letter in session.scalars(wanted.order_by(Letter.number).execution_options(yield_per=8)):
            most_bytes -= len(letter.body)
            if found and most_bytes < 0:
                break
            found.append(self._open(letter, who))
        return found

    def arrivals(
        self, session: Session, sites: dict[int, Participant], last_round: int, after: int
    ) -> Iterator[tuple[int, StoredArrival | Departure]]:
        """Yield messages of rounds above the last, or before the first, with their numbers."""
        task_id = next(iter(sites.values())).task_id
        of_task = sql.select(Letter).filter_by(task_id=task_id).where(Letter.way != TOLD, Letter.id > after)
        wanted = of_task.where((Letter.round == 0) | (Letter.round > last_round)).order_by(Letter.id)
        for letter in session.scalars(wanted):
            who = sites.get(letter.participant_id)
            if who is None:
                continue
            said = self._open(letter, who)
            if letter.way == LEFT:
                yield letter.id, Departure(who.site, said.decode())
            else:
                yield letter.id, StoredArrival(who.site, wire.decode(said))

    def _add(
        self, session: Session, who: Participant, way: str, number: int, where: tuple[int, int], said: bytes
    ) -> None:
        body = self._vault.seal(said, f"{who.id} {way} {number}")
        session.add(
            Letter(
                task_id=who.task_id,
                participant_id=who.id,
                way=way,
                number=number,
                round=where[0],
                place=where[1],
                body=body,
            )
        )
        session.flush()

    def _open(self, letter: Letter, who: Participant) -> bytes:
        return self._vault.open(letter.body, f"{who.id} {letter.way} {letter.number}")
