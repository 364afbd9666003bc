"""Iceberg as a sink: Spark writes the data files in the table's folder, and the driver commits them."""
