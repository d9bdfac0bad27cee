"""How the tables of the hub came to be; run by Alembic."""
