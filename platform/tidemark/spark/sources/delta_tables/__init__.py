"""Reads Delta tables as sources: their versions, what each changes, and the rows of its files."""
