"""The tables of the hub, on SQLite or whatever SQLAlchemy reaches by a URL; Alembic makes them, by `migrations`.

No link, cookie or password is in it: of every token there is its SHA-256. What participants and coordinator say to each
other is sealed by a key that is not in the database, see `letters`.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import sqlalchemy as sql
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, relationship

from federation.errors import FederationError

TOKEN_BYTES = 16
_BUSY_S = 30
_READS = "fedsvm_reads"
MIGRATIONS = Path(__file__).parent / "migrations"


class Base(DeclarativeBase):
    """What all tables have in common."""


class SignIn(Base):
    """A link that was mailed to sign in by, once."""

    __tablename__ = "sign_ins"
    id: Mapped[int] = mapped_column(primary_key=True)
    email: Mapped[str] = mapped_column(sql.String(254), index=True)
    token: Mapped[bytes] = mapped_column(sql.LargeBinary(32), unique=True)
    made_at: Mapped[float]
    used_at: Mapped[float | None]


class Visitor(Base):
    """Somebody who is signed in, by a cookie."""

    __tablename__ = "visitors"
    id: Mapped[int] = mapped_column(primary_key=True)
    email: Mapped[str] = mapped_column(sql.String(254))
    token: Mapped[bytes] = mapped_column(sql.LargeBinary(32), unique=True)
    form_key: Mapped[bytes] = mapped_column(sql.LargeBinary(32))
    until: Mapped[float]


class Task(Base):
    """A task: its scenario, who made it, until when, and how far it has come.

    state: inviting, running, completed, failed, cancelled.
    """

    __tablename__ = "tasks"
    id: Mapped[str] = mapped_column(sql.String(32), primary_key=True)
    title: Mapped[str] = mapped_column(sql.String(200))
    description: Mapped[str] = mapped_column(sql.Text)
    creator: Mapped[str] = mapped_column(sql.String(254), index=True)
    scenario: Mapped[str] = mapped_column(sql.Text)
    run: Mapped[bytes] = mapped_column(sql.LargeBinary(8))
    state: Mapped[str] = mapped_column(sql.String(16), index=True)
    reason: Mapped[str] = mapped_column(sql.Text, default="")
    made_at: Mapped[float]
    join_until: Mapped[float]
    patience_s: Mapped[float]
    min_sites: Mapped[int]
    begun_at: Mapped[float | None]
    ended_at: Mapped[float | None]
    progress: Mapped[dict[str, Any]] = mapped_column(sql.JSON, default=dict)
    participants: Mapped[list[Participant]] = relationship(order_by="Participant.place", back_populates="task")


class Participant(Base):
    """Somebody who was invited to a task, and what became of it.

    state: invited, joined, declined, withdrawn, missed. told, said: how many letters there are for and from the site.
    """

    __tablename__ = "participants"
    __table_args__ = (sql.UniqueConstraint("task_id", "site"),)
    id: Mapped[int] = mapped_column(primary_key=True)
    task_id: Mapped[str] = mapped_column(sql.ForeignKey("tasks.id"), index=True)
    place: Mapped[int]
    site: Mapped[str] = mapped_column(sql.String(64))
    email: Mapped[str] = mapped_column(sql.String(254), index=True)
    token: Mapped[bytes] = mapped_column(sql.LargeBinary(32), unique=True)
    public_key: Mapped[bytes | None] = mapped_column(sql.LargeBinary(32), unique=True)
    agreement_key: Mapped[bytes | None] = mapped_column(sql.LargeBinary(32))
    columns: Mapped[list[list[Any]] | None] = mapped_column(sql.JSON)
    state: Mapped[str] = mapped_column(sql.String(16))
    reason: Mapped[str] = mapped_column(sql.Text, default="")
    told: Mapped[int] = mapped_column(default=0)
    taken: Mapped[int] = mapped_column(default=0)
    said: Mapped[int] = mapped_column(default=0)
    visits: Mapped[int] = mapped_column(default=0)
    there_until: Mapped[float] = mapped_column(default=0.0)
    due_since: Mapped[float | None]
    task: Mapped[Task] = relationship(back_populates="participants")


class Letter(Base):
    """What the coordinator says to a site, or a site to the coordinator, sealed; or that a site left.

    way: told, said or left. number: among all of this way of one participant. round, place: where the coordinator said
    it; what it says there again is the same.
    """

    __tablename__ = "letters"
    __table_args__ = (
        sql.UniqueConstraint("participant_id", "way", "number"),
        sql.UniqueConstraint("participant_id", "way", "round", "place"),
    )
    id: Mapped[int] = mapped_column(primary_key=True)
    task_id: Mapped[str] = mapped_column(sql.ForeignKey("tasks.id"), index=True)
    participant_id: Mapped[int] = mapped_column(sql.ForeignKey("participants.id"))
    way: Mapped[str] = mapped_column(sql.String(8))
    number: Mapped[int]
    round: Mapped[int] = mapped_column(sql.BigInteger)
    place: Mapped[int]
    body: Mapped[bytes] = mapped_column(sql.LargeBinary)


class Mail(Base):
    """A mail to be sent, once: occasion tells it from every other. try_at: before then it is left alone."""

    __tablename__ = "mails"
    id: Mapped[int] = mapped_column(primary_key=True)
    occasion: Mapped[str] = mapped_column(sql.String(200), unique=True)
    recipient: Mapped[str] = mapped_column(sql.String(254))
    subject: Mapped[str] = mapped_column(sql.String(300))
    sealed: Mapped[bytes] = mapped_column(sql.LargeBinary)
    made_at: Mapped[float]
    try_at: Mapped[float]
    sent_at: Mapped[float | None]
    problem: Mapped[str] = mapped_column(sql.Text, default="")


class Database:
    """The hub's database.

    Parameters
    ----------
    url : str
        As SQLAlchemy has them.

    Raises
    ------
    FederationError
        It cannot be reached, or its tables cannot be made.
    """

    def __init__(self, url: str) -> None:
        try:
            self._engine = sql.create_engine(url, **_options(url))
            if self._engine.dialect.name == "sqlite":
                sql.event.listen(self._engine, "connect", _set_up_sqlite)
                sql.event.listen(self._engine, "begin", _begin_at_once)
            with self._engine.begin() as connection:
                _migrate(connection)
        except (sql.exc.SQLAlchemyError, ImportError) as error:
            raise FederationError(f"The database {url} cannot be used: {error}.") from error

    @contextmanager
    def session(self) -> Iterator[Session]:
        """A transaction: what is done in it is done whole, or not at all."""
        with Session(self._engine, expire_on_commit=False) as session, session.begin():
            yield session

    @contextmanager
    def reading(self) -> Iterator[Session]:
        """A transaction that changes nothing, and waits for nobody."""
        with Session(self._engine.execution_options(**{_READS: True}), expire_on_commit=False) as session:
            yield session

    def close(self) -> None:
        """Let go of all connections."""
        self._engine.dispose()


def token() -> str:
    """128 random bits that can stand in a link."""
    return secrets.token_urlsafe(TOKEN_BYTES)


def digest(said: str) -> bytes:
    """What the database has of a token."""
    return hashlib.sha256(said.encode()).digest()


def day(at: float) -> str:
    """A time as people read it, in UTC."""
    return datetime.fromtimestamp(at, tz=UTC).strftime("%-d %B %Y, %H:%M UTC")


def _options(url: str) -> dict[str, Any]:
    return {"connect_args": {"timeout": _BUSY_S, "check_same_thread": False}} if url.startswith("sqlite") else {}


def _set_up_sqlite(connection: Any, record: Any) -> None:
    """Write ahead, so that readers wait for nobody; and have no transaction but those that SQLAlchemy begins."""
    connection.isolation_level = None
    cursor = connection.cursor()
    for pragma in ("journal_mode = WAL", "synchronous = FULL", "foreign_keys = ON"):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()


def _begin_at_once(connection: sql.Connection) -> None:
    """A transaction that will write must not find out later that another has written."""
    connection.exec_driver_sql("BEGIN" if connection.get_execution_options().get(_READS) else "BEGIN IMMEDIATE")


def _migrate(connection: sql.Connection) -> None:
    """Bring the tables to what this version has."""
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    config.attributes["connection"] = connection
    command.upgrade(config, "head")
