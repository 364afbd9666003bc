"""Restoring a savepoint, and the files that jobs share."""
