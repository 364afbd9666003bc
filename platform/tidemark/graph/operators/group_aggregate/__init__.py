"""Aggregates of groups, as a changelog, as an operator kind."""
