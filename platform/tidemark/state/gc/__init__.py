"""Garbage collection: pins, references, retention, sweeps, compaction plans."""
