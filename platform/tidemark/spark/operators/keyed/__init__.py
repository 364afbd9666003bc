"""Keyed processing with state and timers: columns, rows, key state, one task over all keys."""
