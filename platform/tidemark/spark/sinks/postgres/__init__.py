"""Postgres as a sink: rows are staged as Parquet files that COPY can take, and published by the driver in one transaction."""
