"""What sinks to tables of databases have in common: the epochs that a table has, its columns, what a rewind does."""
