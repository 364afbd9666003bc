"""Deduplication as an operator kind."""
