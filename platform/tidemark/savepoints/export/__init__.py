"""Savepoints that can be moved."""
