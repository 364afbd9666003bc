"""The nodes of a job's graph and the schemas of streams."""
