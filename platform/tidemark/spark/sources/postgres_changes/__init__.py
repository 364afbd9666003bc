"""Reads changes of Postgres by logical replication."""
