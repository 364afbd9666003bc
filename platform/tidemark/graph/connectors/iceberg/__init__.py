"""Iceberg: the sink as it is declared, its types, and its checks."""
