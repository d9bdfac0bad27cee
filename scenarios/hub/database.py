"""The tables of the hub, on SQLite or PostgreSQL; Alembic makes them, by `migrations`.

On either one transaction that writes waits for the other: what a hub does was thought through for that order alone.

No link, cookie or password is in it: of every token there is its SHA-256. What participants and coordinator say to each
other is sealed by a key that is not in the database, see `stored_messages`.
"""

from __future__ import annotations

import hashlib
import secrets
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import sqlalchemy as sql
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, relationship

from fedsvm.federation.errors import FederationError

TOKEN_BYTES = 16
MAX_SUBJECT = 300
"""Maximum number of characters of the subject of a mail."""
_BUSY_S = 30
_READS = "fedsvm_reads"
_WRITERS, _HUBS = 0x66656473766D01, 0x66656473766D02
"""PostgreSQL's advisory locks: of the transaction that writes, and of the hub that is at work."""
_WAITS = {
    "lock_timeout": _BUSY_S * 1000,
    "tcp_keepalives_idle": _BUSY_S,
    "tcp_keepalives_interval": 10,
    "tcp_keepalives_count": 3,
}
"""Of PostgreSQL's sessions, in ms, s, s and times: what a host that is lost had locked is free after a minute."""
MIGRATIONS = Path(__file__).parent / "migrations"


class Base(DeclarativeBase):
    """The base of all tables."""


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

    kind: train, describe or predict. state: inviting, running, completed, failed, cancelled, expired.
    trained, asks: for predictions, the task of the model, and the terms. public_rows: the creator's, as CSV.
    """

    __tablename__ = "tasks"
    id: Mapped[str] = mapped_column(sql.String(32), primary_key=True)
    title: Mapped[str] = mapped_column(sql.String(200))
    description: Mapped[str] = mapped_column(sql.Text)
    creator: Mapped[str] = mapped_column(sql.String(254), index=True)
    kind: Mapped[str] = mapped_column(sql.String(16), default="train")
    scenario: Mapped[str] = mapped_column(sql.Text)
    run: Mapped[bytes] = mapped_column(sql.LargeBinary(8))
    state: Mapped[str] = mapped_column(sql.String(16), index=True)
    reason: Mapped[str] = mapped_column(sql.Text, default="")
    made_at: Mapped[float]
    join_until: Mapped[float]
    patience_s: Mapped[float]
    end_by: Mapped[float | None]
    min_sites: Mapped[int]
    trained: Mapped[str | None] = mapped_column(sql.String(32))
    asks: Mapped[dict[str, Any] | None] = mapped_column(sql.JSON(none_as_null=True))
    results_to: Mapped[str] = mapped_column(sql.String(16), default="participants")
    public_rows: Mapped[str] = mapped_column(sql.Text, default="")
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
    voucher: Mapped[bytes | None] = mapped_column(sql.LargeBinary(64))
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
    """A sealed message from the coordinator to a site or back, or the note that a site left.

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
    subject: Mapped[str] = mapped_column(sql.String(MAX_SUBJECT))
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
        As SQLAlchemy has them: sqlite:///… or postgresql://….

    Raises
    ------
    FederationError
        It is of another kind, cannot be reached, its tables cannot be made, or another hub is at work on it.
    """

    def __init__(self, url: str) -> None:
        read = _read_url(url)
        shown = read.render_as_string()  # without its password
        try:
            self._engine = sql.create_engine(read, hide_parameters=True, **_OPTIONS[read.get_backend_name()])
            self._held: sql.Connection | None = None
            self._shown, self._holding = shown, threading.Lock()
            if read.get_backend_name() == "sqlite":
                sql.event.listen(self._engine, "connect", _set_up_sqlite)
                sql.event.listen(self._engine, "begin", _begin_at_once)
            else:
                sql.event.listen(self._engine, "connect", _set_up_postgresql)
                self._held = _require_only_hub(self._engine, shown)
                sql.event.listen(self._engine, "begin", _take_turns)
            with self._engine.begin() as connection:
                _migrate(connection)
        except ImportError as error:
            raise FederationError(
                f'The database {shown} needs {error.name}, which is not installed: pip install "fedsvm[postgresql]".'
            ) from error
        except sql.exc.SQLAlchemyError as error:
            raise FederationError(f"The database {shown} cannot be used: {error}.") from error

    @contextmanager
    def session(self) -> Iterator[Session]:
        """Open a transaction that is done completely or not at all."""
        with Session(self._engine, expire_on_commit=False) as session, session.begin():
            yield session

    @contextmanager
    def reading(self) -> Iterator[Session]:
        """Open a transaction that only reads and never waits."""
        with Session(self._engine.execution_options(**{_READS: True}), expire_on_commit=False) as session:
            yield session

    def check(self) -> None:
        """Raise SQLAlchemyError if the database does not answer."""
        with self.reading() as session:
            session.execute(sql.text("SELECT 1"))

    def hold(self) -> None:
        """Ensure that this is still the only hub on the database, also after a broken connection.

        Raises FederationError where another has come meanwhile, and OperationalError where it cannot be reached.
        """
        if self._held is None:  # SQLite's has its folder to itself
            return
        with self._holding:
            try:
                self._held.exec_driver_sql("SELECT 1")
            except sql.exc.SQLAlchemyError:
                self._held.close()
                self._held = _require_only_hub(self._engine, self._shown)

    def close(self) -> None:
        """Close all connections."""
        if self._held is not None:
            self._held.close()
        self._engine.dispose()


def token() -> str:
    """Return 128 random bits as text for a link."""
    return secrets.token_urlsafe(TOKEN_BYTES)


def digest(said: str) -> bytes:
    """Return the digest of a token, which the database stores instead."""
    return hashlib.sha256(said.encode()).digest()


def day(at: float) -> str:
    """Return a time for readers, in UTC."""
    return datetime.fromtimestamp(at, tz=UTC).strftime("%-d %B %Y, %H:%M UTC")


_OPTIONS: dict[str, dict[str, Any]] = {
    "sqlite": {"connect_args": {"timeout": _BUSY_S, "check_same_thread": False}},
    "postgresql": {"connect_args": {"connect_timeout": _BUSY_S}, "pool_pre_ping": True},
}
"""Of each kind of database that the hub is tested on."""


def _read_url(url: str) -> sql.URL:
    """Parse the URL of a database. Raises FederationError."""
    try:
        read = sql.make_url(url)
    except sql.exc.ArgumentError as error:
        raise FederationError("The database (--database) must be a URL such as postgresql://host/name.") from error
    if read.get_backend_name() not in _OPTIONS:
        raise FederationError(
            f"The database {read.render_as_string()} is neither SQLite nor PostgreSQL, which the hub knows; name "
            "one as in postgresql://host/name."
        )
    return read.set(drivername="postgresql+psycopg") if read.drivername == "postgresql" else read


def _set_up_sqlite(connection: Any, record: Any) -> None:
    """Write ahead, so that readers wait for nobody; and have no transaction but those that SQLAlchemy begins."""
    connection.isolation_level = None
    cursor = connection.cursor()
    for pragma in ("journal_mode = WAL", "synchronous = FULL", "foreign_keys = ON"):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()


def _set_up_postgresql(connection: Any, record: Any) -> None:
    """Wait for a transaction that hangs no longer than SQLite would, and have the server notice who is gone."""
    for name, value in _WAITS.items():
        connection.execute(f"SET {name} = {value}")
    connection.commit()


def _begin_at_once(connection: sql.Connection) -> None:
    """Lock at the beginning of a transaction that will write, so that it cannot fail later."""
    connection.exec_driver_sql("BEGIN" if connection.get_execution_options().get(_READS) else "BEGIN IMMEDIATE")


def _require_only_hub(engine: sql.Engine, shown: str) -> sql.Connection:
    """Open a connection that reserves the database for this hub, since a second would send all mails too."""
    connection = engine.connect().execution_options(isolation_level="AUTOCOMMIT")
    if not connection.exec_driver_sql(f"SELECT pg_try_advisory_lock({_HUBS})").scalar():
        connection.close()
        raise FederationError(
            f"Another hub is at work on the database {shown}; end that one first, or name another (--database)."
        )
    return connection


def _take_turns(connection: sql.Connection) -> None:
    """Serialize writing transactions on PostgreSQL, as SQLite does. Give reading ones a snapshot."""
    is_reading = connection.get_execution_options().get(_READS)
    snapshot = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY"
    connection.exec_driver_sql(snapshot if is_reading else f"SELECT pg_advisory_xact_lock({_WRITERS})")


def _migrate(connection: sql.Connection) -> None:
    """Bring the tables to what this version has."""
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    config.attributes["connection"] = connection
    command.upgrade(config, "head")
