"""Windows as intervals: assigners, slices, and the state of windows."""
