"""Joins of streams: which elements meet, when results come, and how long elements are kept."""
