"""Launchers of drivers: local processes, spark-submit; their logs."""
