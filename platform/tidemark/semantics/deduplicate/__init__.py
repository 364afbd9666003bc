"""Deduplication: which elements of a key are duplicates, and how long that state is kept."""
