"""Stateful operators: the kinds there are, a folder for each, and the registry that finds a node's kind."""
