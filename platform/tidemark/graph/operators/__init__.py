"""Stateful operators: a folder for each kind, and the registry that finds a node's kind."""
