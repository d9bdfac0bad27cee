"""Kinds of tasks."""

from __future__ import annotations

import sqlalchemy as sql
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the kind; all earlier tasks train."""
    with op.batch_alter_table("tasks") as table:
        table.add_column(sql.Column("kind", sql.String(16), nullable=False, server_default="train"))


def downgrade() -> None:
    """Remove it."""
    with op.batch_alter_table("tasks") as table:
        table.drop_column("kind")
