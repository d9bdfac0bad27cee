"""The state of a hub in Prometheus' text format."""

from __future__ import annotations

import shutil
import time
from collections import Counter
from pathlib import Path

import sqlalchemy as sql

from fedsvm.scenarios.hub.database import Database, Letter, Mail, Participant, Task

STATES = ("inviting", "running", "completed", "failed", "cancelled", "expired")


def free_bytes(folder: Path) -> int:
    """Return the free space of the disk that a folder is on."""
    return shutil.disk_usage(folder).free


def metrics(database: Database, folder: Path) -> str:
    """Return numbers of tasks, runs, due participants, stored messages, waiting mails and bytes. No name of anybody.

    Parameters
    ----------
    database : Database
    folder : Path
        The hub's.

    Returns
    -------
    str
    """
    with database.reading() as session:
        tasks: Counter[str] = Counter()
        for state, count in session.execute(sql.select(Task.state, sql.func.count()).group_by(Task.state)):
            tasks[state] = count
        runs = session.scalar(sql.select(sql.func.count()).select_from(Task).where(Task.begun_at.is_not(None))) or 0
        due = session.scalars(
            sql.select(Participant.due_since)
            .join(Task)
            .where(Task.state == "running", Participant.due_since.is_not(None))
        ).all()
        messages, stored = session.execute(
            sql.select(sql.func.count(), sql.func.coalesce(sql.func.sum(sql.func.length(Letter.body)), 0))
        ).one()
        mails = session.scalar(sql.select(sql.func.count()).select_from(Mail).where(Mail.sent_at.is_(None))) or 0
    oldest = max((time.time() - since for since in due if since is not None), default=0.0)
    lines = [
        *_gauge("fedsvm_hub_tasks", "Tasks by state.", {f'{{state="{state}"}}': tasks[state] for state in STATES}),
        *_gauge("fedsvm_hub_runs", "Tasks that have begun to train.", {"": runs}),
        *_gauge("fedsvm_hub_participants_due", "Participants whose turn it is.", {"": len(due)}),
        *_gauge("fedsvm_hub_oldest_turn_seconds", "Age of the oldest turn.", {"": round(oldest)}),
        *_gauge("fedsvm_hub_messages", "Stored messages.", {"": messages}),
        *_gauge("fedsvm_hub_message_bytes", "Bytes of stored messages.", {"": stored}),
        *_gauge("fedsvm_hub_mails_unsent", "Mails that are not sent yet.", {"": mails}),
        *_gauge("fedsvm_hub_disk_free_bytes", "Free space of the disk of the hub's folder.", {"": free_bytes(folder)}),
    ]
    return "\n".join(lines) + "\n"


def _gauge(name: str, sentence: str, values: dict[str, int]) -> list[str]:
    """Return the lines of one gauge, with a value for each set of labels."""
    return [
        f"# HELP {name} {sentence}",
        f"# TYPE {name} gauge",
        *(f"{name}{label} {value}" for label, value in values.items()),
    ]
