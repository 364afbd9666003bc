"""Engine columns, counts, expressions and state files."""
