"""Tasks whose creator gives public rows, from which private training takes scale and features."""

from __future__ import annotations

import sqlalchemy as sql
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the rows, as the text of a CSV file; earlier tasks have none."""
    with op.batch_alter_table("tasks") as table:
        table.add_column(sql.Column("public_rows", sql.Text, nullable=False, server_default=""))


def downgrade() -> None:
    """Remove them."""
    with op.batch_alter_table("tasks") as table:
        table.drop_column("public_rows")
