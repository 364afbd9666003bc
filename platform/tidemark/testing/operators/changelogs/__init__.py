"""Operators that make changelogs, without Spark."""
