"""A job's streams as assets: keys, columns, lineage, descriptions."""
