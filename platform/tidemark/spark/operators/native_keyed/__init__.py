"""The base of kinds that keep one row of each key, which native expressions read and write element by element."""
