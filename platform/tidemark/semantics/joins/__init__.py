"""Joins in plain Python."""
