"""The engine: runs a job's graph with PySpark, epoch by epoch. Only this package imports pyspark."""
