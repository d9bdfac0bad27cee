"""The changes of the tables, by number."""
