"""The users who see the results of a task."""

from __future__ import annotations

import sqlalchemy as sql
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the choice; participants of earlier tasks see results."""
    with op.batch_alter_table("tasks") as table:
        table.add_column(sql.Column("results_to", sql.String(16), nullable=False, server_default="participants"))


def downgrade() -> None:
    """Remove it."""
    with op.batch_alter_table("tasks") as table:
        table.drop_column("results_to")
