"""Window operators: one file per kind of windows, and what they share."""
