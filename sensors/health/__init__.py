"""Unhealthy jobs, and verdicts of checks."""
