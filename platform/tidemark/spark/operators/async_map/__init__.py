"""Asynchronous enrichment in the engine."""
