"""Stateful operators: one folder per kind, and one per strategy of windows."""
