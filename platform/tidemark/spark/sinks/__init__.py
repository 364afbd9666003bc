"""Sinks: staging, publication, Delta's commits and maintenance."""
