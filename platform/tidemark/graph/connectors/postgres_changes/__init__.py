"""Postgres as a source: the rows of tables, then their changes, as changelogs."""
