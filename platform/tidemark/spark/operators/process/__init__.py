"""Windows that keep their elements, for window functions."""
