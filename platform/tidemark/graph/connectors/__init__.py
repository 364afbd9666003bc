"""Connectors in the graph: a folder for each, with its specification, its checks and the function that declares it."""
