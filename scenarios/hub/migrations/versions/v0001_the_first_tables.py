"""The first tables."""

from __future__ import annotations

import sqlalchemy as sql
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make them."""
    op.create_table(
        "sign_ins",
        sql.Column("id", sql.Integer, primary_key=True),
        sql.Column("email", sql.String(254), nullable=False, index=True),
        sql.Column("token", sql.LargeBinary(32), nullable=False, unique=True),
        sql.Column("made_at", sql.Float, nullable=False),
        sql.Column("used_at", sql.Float),
    )
    op.create_table(
        "visitors",
        sql.Column("id", sql.Integer, primary_key=True),
        sql.Column("email", sql.String(254), nullable=False),
        sql.Column("token", sql.LargeBinary(32), nullable=False, unique=True),
        sql.Column("form_key", sql.LargeBinary(32), nullable=False),
        sql.Column("until", sql.Float, nullable=False),
    )
    op.create_table(
        "tasks",
        sql.Column("id", sql.String(32), primary_key=True),
        sql.Column("title", sql.String(200), nullable=False),
        sql.Column("description", sql.Text, nullable=False),
        sql.Column("creator", sql.String(254), nullable=False, index=True),
        sql.Column("scenario", sql.Text, nullable=False),
        sql.Column("run", sql.LargeBinary(8), nullable=False),
        sql.Column("state", sql.String(16), nullable=False, index=True),
        sql.Column("reason", sql.Text, nullable=False),
        sql.Column("made_at", sql.Float, nullable=False),
        sql.Column("join_until", sql.Float, nullable=False),
        sql.Column("patience_s", sql.Float, nullable=False),
        sql.Column("min_sites", sql.Integer, nullable=False),
        sql.Column("begun_at", sql.Float),
        sql.Column("ended_at", sql.Float),
        sql.Column("progress", sql.JSON, nullable=False),
    )
    op.create_table(
        "participants",
        sql.Column("id", sql.Integer, primary_key=True),
        sql.Column("task_id", sql.String(32), sql.ForeignKey("tasks.id"), nullable=False, index=True),
        sql.Column("place", sql.Integer, nullable=False),
        sql.Column("site", sql.String(64), nullable=False),
        sql.Column("email", sql.String(254), nullable=False, index=True),
        sql.Column("token", sql.LargeBinary(32), nullable=False, unique=True),
        sql.Column("public_key", sql.LargeBinary(32), unique=True),
        sql.Column("agreement_key", sql.LargeBinary(32)),
        sql.Column("columns", sql.JSON),
        sql.Column("state", sql.String(16), nullable=False),
        sql.Column("reason", sql.Text, nullable=False),
        sql.Column("told", sql.Integer, nullable=False),
        sql.Column("taken", sql.Integer, nullable=False),
        sql.Column("said", sql.Integer, nullable=False),
        sql.Column("visits", sql.Integer, nullable=False),
        sql.Column("there_until", sql.Float, nullable=False),
        sql.Column("due_since", sql.Float),
        sql.UniqueConstraint("task_id", "site"),
    )
    op.create_table(
        "letters",
        sql.Column("id", sql.Integer, primary_key=True),
        sql.Column("task_id", sql.String(32), sql.ForeignKey("tasks.id"), nullable=False, index=True),
        sql.Column("participant_id", sql.Integer, sql.ForeignKey("participants.id"), nullable=False),
        sql.Column("way", sql.String(8), nullable=False),
        sql.Column("number", sql.Integer, nullable=False),
        sql.Column("round", sql.BigInteger, nullable=False),
        sql.Column("place", sql.Integer, nullable=False),
        sql.Column("body", sql.LargeBinary, nullable=False),
        sql.UniqueConstraint("participant_id", "way", "number"),
        sql.UniqueConstraint("participant_id", "way", "round", "place"),
    )
    op.create_table(
        "mails",
        sql.Column("id", sql.Integer, primary_key=True),
        sql.Column("occasion", sql.String(200), nullable=False, unique=True),
        sql.Column("recipient", sql.String(254), nullable=False),
        sql.Column("subject", sql.String(300), nullable=False),
        sql.Column("sealed", sql.LargeBinary, nullable=False),
        sql.Column("made_at", sql.Float, nullable=False),
        sql.Column("try_at", sql.Float, nullable=False),
        sql.Column("sent_at", sql.Float),
        sql.Column("problem", sql.Text, nullable=False),
    )


def downgrade() -> None:
    """Drop them."""
    for table in ("mails", "letters", "participants", "tasks", "visitors", "sign_ins"):
        op.drop_table(table)
