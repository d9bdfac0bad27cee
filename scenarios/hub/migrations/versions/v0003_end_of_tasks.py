"""The end date of a task."""

from __future__ import annotations

import sqlalchemy as sql
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the date; earlier tasks have none."""
    op.add_column("tasks", sql.Column("end_by", sql.Float))


def downgrade() -> None:
    """Remove it."""
    with op.batch_alter_table("tasks") as table:
        table.drop_column("end_by")
