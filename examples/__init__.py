"""Worked examples; each folder is a job with its data and its Dagster code location."""
