"""Deduplication in the engine."""
