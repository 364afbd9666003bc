"""Sources: intake, offsets, Spark's checkpoint."""
