"""Rewinds of submitted jobs."""
