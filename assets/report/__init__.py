"""Reports on runs and tables: metadata, lag, partitions, savepoints."""
