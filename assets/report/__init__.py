"""What is reported of runs and tables: metadata, lag, partitions, savepoints."""
