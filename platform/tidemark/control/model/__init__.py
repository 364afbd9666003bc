"""Stored records of a submitted job: specs, attempts, upgrade steps."""
