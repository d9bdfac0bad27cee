"""The migrations of the hub's tables, run by Alembic."""
