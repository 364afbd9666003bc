"""What may be deleted: pins, references, retention, sweeps, compaction plans."""
