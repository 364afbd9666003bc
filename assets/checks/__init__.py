"""Checks on results, time and state."""
