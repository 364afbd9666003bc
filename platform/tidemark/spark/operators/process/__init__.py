"""Windows that keep their elements, for functions."""
