"""The state of a hub in Prometheus' text format."""

from __future__ import annotations

import shutil
import time
from collections import Counter
from pathlib import Path

import sqlalchemy as sql

from fedsvm.scenarios.hub.database import Database, Letter, Mail, Participant, Task

STATES = ("inviting", "running", "completed", "failed", "cancelled")


def free_bytes(folder: Path) -> int:
    """Return the free space of the disk that a folder is on."""
    return shutil.disk_usage(folder).free


def metrics(database: Database, folder: Path) -> str:
    """Return numbers of tasks, due participants, stored messages, waiting mails and free bytes. No name of anybody.

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
        due = session.scalars(
            sql.select(Participant.due_since)
            .join(Task)
            .where(Task.state == "running", Participant.due_since.is_not(None))
        ).all()
        messages = session.scalar(sql.select(sql.func.count()).select_from(Letter)) or 0
        mails = session.scalar(sql.select(sql.func.count()).select_from(Mail).where(Mail.sent_at.is_(None))) or 0
    oldest = max((time.time() - since for since in due if since is not None), default=0.0)
    lines = [
        *_gauge("fedsvm_hub_tasks", "Tasks by state.", {f'{{state="{state}"}}': tasks[state] for state in STATES}),
        *_gauge("fedsvm_hub_participants_due", "Participants whose turn it is.", {"": len(due)}),
        *_gauge("fedsvm_hub_oldest_turn_seconds", "Age of the oldest turn.", {"": round(oldest)}),
        *_gauge("fedsvm_hub_messages", "Stored messages.", {"": messages}),
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
