"""Tables of Iceberg as outputs: access, the epochs that they hold, their columns, commits, and rewinds. Needs no Spark."""
