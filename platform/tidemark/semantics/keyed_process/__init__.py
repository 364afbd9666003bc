"""Keyed process functions: one key's state, timers and calls in an epoch, on plain data."""
