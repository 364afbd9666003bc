"""Aggregates of groups, as a changelog, in the engine."""
