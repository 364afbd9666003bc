"""Interval joins as an operator kind."""
