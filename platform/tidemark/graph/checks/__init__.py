"""Checks at definition, and the inference of columns."""
