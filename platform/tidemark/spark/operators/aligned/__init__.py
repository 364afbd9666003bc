"""Aligned windows: tumbling, sliding, cumulative, and those with triggers."""
