"""Keyed process functions as an operator kind in the graph."""
