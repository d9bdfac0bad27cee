"""Mails that could not be sent wait before they are tried again; rounds have 64 bits on every database."""

from __future__ import annotations

import sqlalchemy as sql
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add when a mail is tried, and widen rounds."""
    with op.batch_alter_table("mails") as mails:
        mails.add_column(sql.Column("try_at", sql.Float, nullable=False, server_default="0"))
    with op.batch_alter_table("letters") as letters:
        letters.alter_column("round", type_=sql.BigInteger, existing_type=sql.Integer, existing_nullable=False)


def downgrade() -> None:
    """Take both back."""
    with op.batch_alter_table("letters") as letters:
        letters.alter_column("round", type_=sql.Integer, existing_type=sql.BigInteger, existing_nullable=False)
    with op.batch_alter_table("mails") as mails:
        mails.drop_column("try_at")
