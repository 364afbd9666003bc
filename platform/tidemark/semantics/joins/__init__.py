"""Joins of streams: which elements meet, which are late, and when state is dropped."""
