"""Keyed process functions in the engine."""
