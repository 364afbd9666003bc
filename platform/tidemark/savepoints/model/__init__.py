"""Savepoints, restores and verdicts, as values."""
