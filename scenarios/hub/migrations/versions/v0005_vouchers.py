"""A participant's signature of its keys."""

from __future__ import annotations

import sqlalchemy as sql
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the signature; those who joined earlier have none."""
    op.add_column("participants", sql.Column("voucher", sql.LargeBinary(64)))


def downgrade() -> None:
    """Remove it."""
    with op.batch_alter_table("participants") as table:
        table.drop_column("voucher")
