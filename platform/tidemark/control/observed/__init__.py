"""Observation of a job: attempts, leases, processes."""
