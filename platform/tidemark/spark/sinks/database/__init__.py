"""Tables of databases as sinks: rows are staged as Parquet files, and published by the driver in one transaction."""
