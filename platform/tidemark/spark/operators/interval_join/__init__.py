"""Interval joins in the engine."""
