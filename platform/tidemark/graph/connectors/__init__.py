"""Connectors: one folder for each, with what is declared of it."""
