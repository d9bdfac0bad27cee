"""Tasks that predict new records by the model of another task."""

from __future__ import annotations

import sqlalchemy as sql
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the model's task, and the terms that follow from the model."""
    op.add_column("tasks", sql.Column("trained", sql.String(32)))
    op.add_column("tasks", sql.Column("asks", sql.JSON))


def downgrade() -> None:
    """Remove them."""
    with op.batch_alter_table("tasks") as table:
        table.drop_column("trained")
        table.drop_column("asks")
