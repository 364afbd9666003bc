"""Rewinding a job together with its tables."""
