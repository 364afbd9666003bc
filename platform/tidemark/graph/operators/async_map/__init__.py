"""Asynchronous enrichment as an operator kind in the graph."""
