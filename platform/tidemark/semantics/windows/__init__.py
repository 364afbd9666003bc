"""Windows as intervals: assigners, slices, and what a window keeps."""
