"""Each change of the tables, by its number."""
