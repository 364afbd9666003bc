"""The functions that define assets and their checks."""
