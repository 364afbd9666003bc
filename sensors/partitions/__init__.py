"""Partitions that are complete, and the runs downstream of them."""
